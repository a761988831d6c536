from __future__ import annotations

import json
import time

import pytest

from cuwheel.support import masking
from cuwheel_core.support.finding import Finding


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "TWINE_PASSWORD",
        "MY_API_KEY",
        "SSH_PRIVATE_KEY",
        "DB_PASS",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert masking.variable(name, "hunter2hunter2") == masking.MASK


@pytest.mark.parametrize(
    "name", ["PWD", "OLDPWD", "PATH", "CUDA_HOME", "SSH_AUTH_SOCK", "KEYBOARD", "PASSENGER", "TOKENIZERS_PARALLELISM"]
)
def test_what_only_looks_like_one(name: str) -> None:
    assert masking.variable(name, "/opt/cuda") == "/opt/cuda"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://ann:s3cret@host.example/simple", "https://***@host.example/simple"),
        (
            "pip install --index-url=https://t0ken@host.example/x y",
            "pip install --index-url=https://***@host.example/x y",
        ),
        ("use ghp_0123456789abcdefghij0123456789 now", "use *** now"),
        ("-H 'Authorization: Bearer abcdefgh.ijkl'", "-H 'Authorization: Bearer ***'"),
        ("cmake -DMY_TOKEN=abc -DX=1", "cmake -DMY_TOKEN=abc -DX=1".replace("abc", "***")),
        ("gcc -DPASSWORD=abc -D TOKEN=abc a.c", "gcc -DPASSWORD=*** -D TOKEN=*** a.c"),
        ("cl /DPASSWORD=abc /D TOKEN=abc x/DPASSWORD=abc", "cl /DPASSWORD=*** /D TOKEN=*** x/DPASSWORD=abc"),
        ("gcc x-DPASSWORD=abc --DPASSWORD=abc a.c", "gcc x-DPASSWORD=abc --DPASSWORD=abc a.c"),
        ("nvcc -DKEY_SIZE=16 a.cu", "nvcc -DKEY_SIZE=16 a.cu"),
        ("MAKEFLAGS is  -j2 --jobserver-auth=3,4", "MAKEFLAGS is  -j2 --jobserver-auth=3,4"),
        ("curl --header-auth=hunter2", "curl --header-auth=***"),
        ("+ twine upload --password hunter2 dist/*", "+ twine upload --password *** dist/*"),
        ("--api-key  abc --token-file a.txt --token --yes", "--api-key  *** --token-file a.txt --token --yes"),
        ("nothing here", "nothing here"),
    ],
)
def test_text(before: str, after: str) -> None:
    assert masking.text(before) == after


def test_words_of_a_command() -> None:
    words = ["twine", "--password", "hunter2", "--key-size", "16", "-DTOKEN=x", "--token"]
    assert masking.words(words) == ["twine", "--password", "***", "--key-size", "16", "-DTOKEN=***", "--token"]
    assert masking.words([]) == []


def test_an_empty_secret_is_told_as_empty() -> None:
    assert masking.variables({"API_KEY": "", "X": "1"}) == {"API_KEY": "", "X": "1"}


def test_secrets_of_known_variables_wherever_they_were_printed() -> None:
    environ = {"MY_TOKEN": "plain-word-99", "PATH": "/usr/bin", "SHORT_TOKEN": "on", "EMPTY_TOKEN": ""}
    printed = "on /usr/bin: sent plain-word-99, and https://me:pw@host/ again plain-word-99"
    assert masking.known(printed, environ) == "on /usr/bin: sent ***, and https://***@host/ again ***"


@pytest.mark.parametrize(
    "name",
    [
        *("PGPASSWORD", "SSHPASS", "MYSQL_PWD", "MYSQLPWD", "dbPassword", "githubToken", "DB_PASSWORD2", "TOKEN1"),
        *("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "REDISCLI_AUTH", "NETRC", "SENTRY_DSN", "DJANGO_SECRET_KEY"),
        *("AZURE_STORAGE_CONNECTION_STRING", "CARGO_REGISTRY_TOKEN", "x-api-key", "UV_INDEX_MINE_PASSWORD", "A_PSWD"),
    ],
)
def test_more_names_of_secrets(name: str) -> None:
    assert masking.is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("LLVM_ENABLE_NEW_PASS_MANAGER", "PASS_REGULAR_EXPRESSION", "BYPASS", "X_COMPASS", "MAX_TOKENS", "TOKEN_TYPE"),
        *("PUBLIC_KEY", "CACHE_KEY", "SSL_CERT_FILE", "GIT_AUTHOR_NAME", "XAUTHORITY", "OS_AUTH_URL", "KEY_SIZE"),
        *("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "MONKEY", "TOKENIZERS_PARALLELISM", "PASSED", "AUTHOR", "SECRETARY"),
    ],
)
def test_more_that_only_looks_like_one(name: str) -> None:
    assert not masking.is_secret(name)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("mysql -phunter2 -u root db", "mysql -p*** -u root db"),
        ("sshpass -p hunter2 ssh host; sshpass -phunter2 x", "sshpass -p *** ssh host; sshpass -p*** x"),
        ("curl -u me:hunter2 https://host/x", "curl -u *** https://host/x"),
        ("docker login -p hunter2 host", "docker login -p *** host"),
        ("curl.exe -u me:hunter2 https://host/x", "curl.exe -u *** https://host/x"),
        ('"C:\\Program Files\\curl.exe" -u me:hunter2', '"C:\\Program Files\\curl.exe" -u ***'),
        ("docker.exe login -p hunter2 host", "docker.exe login -p *** host"),
        ("signtool sign /f key.pfx /p hunter2 x.dll", "signtool sign /f key.pfx /p *** x.dll"),
        ("docker run -p 8080:80 image", "docker run -p 8080:80 image"),
        ("gcc -p -pthread -pipe a.c", "gcc -p -pthread -pipe a.c"),
        ('export PGPASSWORD="hunter 2"; psql', 'export PGPASSWORD="***"; psql'),
        ("PGPASSWORD='hunter 2' psql", "PGPASSWORD='***' psql"),
        ('{"password": "hunter2", "user": "me"}', '{"password": "***", "user": "me"}'),
        ("PRIVATE-TOKEN: hunter2", "PRIVATE-TOKEN: ***"),
        ("Authorization: token hunter2", "Authorization: token ***"),
        ("Authorization: Digest username=x, response=hunter2", "Authorization: Digest ***"),
        ("Set-Cookie: id=hunter2; Secure", "Set-Cookie: ***"),
        ("postgres://ann:hun@ter2@host/db", "postgres://***@host/db"),
        ("git+ssh://git@host/x", "git+ssh://git@host/x"),
        ("pip install pkg@http://u:hunter2@host/p.whl", "pip install pkg@http://***@host/p.whl"),
        ("Server=db;Password=hunter2;Database=x", "Server=db;Password=***;Database=x"),
        ('--password "hunter 2" --user x', "--password *** --user x"),
        ("error: expected ')' before token: foo", "error: expected ')' before token: foo"),
        ("make: *** [all] Error 2", "make: *** [all] Error 2"),
        ("warning: key: value", "warning: key: value"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\n-----END", "-----BEGIN RSA PRIVATE KEY-----***-----END"),
    ],
)
def test_more_text(before: str, after: str) -> None:
    assert masking.text(before) == after
    assert masking.text(after) == after


def test_words_of_programs_with_short_options() -> None:
    assert masking.words(["/usr/bin/sshpass", "-p", "hunter2", "ssh"]) == ["/usr/bin/sshpass", "-p", "***", "ssh"]
    assert masking.words(["docker", "login", "-p", "hunter2"]) == ["docker", "login", "-p", "***"]
    assert masking.words([r"C:\Tools\cURL.exe", "-u", "a:hunter2"]) == [r"C:\Tools\cURL.exe", "-u", "***"]
    assert masking.words(["docker", "run", "-p", "80:80"]) == ["docker", "run", "-p", "80:80"]


def test_every_text_in_a_value() -> None:
    finding = Finding(rule="r", severity="note", message="TOKEN=hunter2", evidence=("--password hunter2",))
    hidden = masking.within({"a": [finding], "b": 1})
    assert hidden == {
        "a": [Finding(rule="r", severity="note", message="TOKEN=***", evidence=("--password ***",))],
        "b": 1,
    }


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
CHANCE = "q7Rk2ZpX9vLm4TbW8sYc1NdF6hJg3KtV"


@pytest.mark.parametrize(
    "name",
    [
        *("CI_JOB_JWT", "CI_JOB_JWT_V2", "JWT", "GH_PAT", "AZURE_DEVOPS_EXT_PAT", "SESSION", "SESSION_ID", "PHPSESSID"),
        *("SLACK_WEBHOOK_URL", "WEBHOOK", "MY_WEBHOOKS", "DISCORD_WEBHOOK_URL", "DB_PW", "DOCKER_CREDS", "JSESSIONID"),
    ],
)
def test_names_that_an_attack_found(name: str) -> None:
    assert masking.is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "XDG_SESSION_ID",
            "DESKTOP_SESSION",
            "DBUS_SESSION_BUS_ADDRESS",
            "TERM_SESSION_ID",
            "SESSION_MANAGER",
            "PATH",
        ),
        *("PATTERN", "eos_token", "pad_token_id", "PATCH", "COMPAT", "npm_package_dependencies_left_pad"),
    ],
)
def test_names_like_those(name: str) -> None:
    assert not masking.is_secret(name)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    id-token: write", "    id-token: write"),
        ("id-token: writeX7", "id-token: ***"),
        ("password: hunter2", "password: ***"),
        ("  api_key: hunter2 # mine", "  api_key: *** # mine"),
        ("client-secret: 'hunter 2'", "client-secret: '***'"),
        (f"token: {CHANCE}", "token: ***"),
        (f"session: {CHANCE[:18]}", "session: ***"),
        ("def login(user: str, password: str) -> None", "def login(user: str, password: str) -> None"),
        ("persist-credentials: false", "persist-credentials: false"),
        ("Missing key: layer1.0.conv.weight", "Missing key: layer1.0.conv.weight"),
        ("unexpected token: identifier", "unexpected token: identifier"),
        ("auth::token::value: 3", "auth::token::value: 3"),
        (
            "GET https://b.s3.example/x.whl?X-Amz-Date=2026&X-Amz-Signature=hunter2&X-Amz-Expires=60#sha256=00ff",
            "GET https://b.s3.example/x.whl?X-Amz-Date=2026&X-Amz-Signature=***&X-Amz-Expires=60#sha256=00ff",
        ),
        ("https://a.blob.example/x?sv=2024&sig=hunter2%3D&se=9", "https://a.blob.example/x?sv=2024&sig=***&se=9"),
        ("https://host/x?token=hunter2&y=1", "https://host/x?token=***&y=1"),
        ("https://host/x?access_token=hunter2", "https://host/x?access_token=***"),
        ("https://host/x?page=2&sort=key", "https://host/x?page=2&sort=key"),
        ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/services/***"),
        ("https://discord.com/api/webhooks/1/hunter2 x", "https://discord.com/api/webhooks/*** x"),
        ('sh -c "curl -u a:hunter2 https://host"', 'sh -c "curl -u *** https://host"'),
        ("sh -c 'curl -sSLu a:hunter2 https://host'", "sh -c 'curl -sSLu *** https://host'"),
        ("curl -u 'a:hun;ter|2' https://host", "curl -u *** https://host"),
        ("curl -u a:'hunter 2' https://host", "curl -u *** https://host"),
        (f"got {JWT}, fine", "got ***, fine"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("glpat-abcdefgh1234567890XY", "***"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "***"),
        ("nvapi-AbCdEfGhIj-KlMnOpQrStUvWxYz01234567", "***"),
        ("pypi-AgEIcHlwaS5vcmcCJDEyMzQ1", "***"),
        ("xoxb-123456789012-abcdef", "***"),
        (f"printed {CHANCE} somewhere", "printed *** somewhere"),
        (f"['{CHANCE}=']", "['***']"),
        (
            "-----BEGIN PRIVATE KEY-----\nDEK-Info: AES-128-CBC,0\n\nhunter2\n-----END PRIVATE KEY",
            "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY",
        ),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2", "-----BEGIN PGP PRIVATE KEY BLOCK-----***"),
    ],
)
def test_secrets_by_what_they_look_like(before: str, after: str) -> None:
    assert masking.text(before) == after
    assert masking.text(after) == after


@pytest.mark.parametrize(
    "text",
    [
        "package/x.so,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0",
        '"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="',
        "SHA256:q7Rk2ZpX9vLm4TbW8sYc1NdF6hJg3KtV",
        "commit f8053c79a1b2c3d4e5f60718293a4b5c6d7e8f90",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  torch-2.9.0+cu130-cp313-cp313-win_amd64.whl",
        "flash_attn-2.8.3+cu12torch2.8cxx11abiFALSE-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb",
        "undefined symbol: _ZNK5torch8autograd4Node4nameB5cxx11Ev",
        ".nv.info._ZN7cutlass13device_kernelIN5flash11enable_smXXINS1_16FlashAttnFwdSm90INS1_25CollectiveMainloopFwdSm90ILi2EEEEEEEvNT_6ParamsE",
        "typeinfo FSt6vectorISsSaISsEERKS1_RKSt8functionIFvN8pybind115bytesEEENS5_6kwargsEE",
        "__device_stub__Z13kernel_f32x4PfS_S_i sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4",
        "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x64_32x4_nn_align8",
        "MurMur2Hash64Builder PyInit_6ec57f84c680d3a3778b__mypyc",
        "/root/.cache/uv/archive-v0/q7Rk2ZpX9vLm4TbW8sYc1/lib/python3.13/site-packages",
        r"C:\\Users\\me\\q7Rk2ZpX9vLm4TbW8sYc1NdF6hJg3KtV\\x.dll",
        "Build ID: 9d2d8c8f7b5d4a3c2b1a0f9e8d7c6b5a49382716, 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "-DCMAKE_CUDA_ARCHITECTURES=90a-real -gencode=arch=compute_90a,code=sm_90a TORCH_CUDA_ARCH_LIST=9.0a+PTX",
        "npm_package_dependencies_something_long hf_transformers_something_very_long",
        "The basic functionality. 2. Basic Permissions. HTTP Basic authentication",
    ],
)
def test_what_looks_random_and_is_no_secret(text: str) -> None:
    assert masking.text(text) == text


def test_what_variables_look_like() -> None:
    environ = {"PLAIN": CHANCE, "OTHER": "ghp_0123456789abcdefghij0123456789", "GITHUB_SHA": "f8053c79" * 5}
    assert masking.variables(environ) == {"PLAIN": "***", "OTHER": "***", "GITHUB_SHA": "f8053c79" * 5}
    assert set(masking.secrets(environ)) == {"PLAIN", "OTHER"}
    assert masking.known(f"x{CHANCE}y", environ) == "x***y"


def test_a_command_behind_another() -> None:
    for before in (["env", "A=1"], ["sudo", "-E"], ["timeout", "5"]):
        assert masking.words([*before, "curl", "-u", "a:hunter2"]) == [*before, "curl", "-u", "***"]
    shell = ["sh", "-c", "set -e; curl -fu a:hunter2 https://host"]
    assert masking.words(shell) == ["sh", "-c", "set -e; curl -fu *** https://host"]


def test_a_private_key_that_comes_line_by_line() -> None:
    lines = masking.Lines({})
    key = [
        "a",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "aHVudGVyMg",
        "hunter2",
        "-----END OPENSSH PRIVATE KEY-----",
        "b",
    ]
    assert [lines.masked(each) for each in key] == [*key[:2], "***", "***", *key[4:]]


def test_a_value_without_secrets_is_itself() -> None:
    finding = Finding(rule="r", severity="note", message="nothing", evidence=("here",))
    assert masking.within(finding) is finding


def test_a_long_command_takes_as_long_as_its_words() -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        masking.words(["-DX"] * count)
        return time.process_time() - began

    assert seconds(80_000) < 24 * max(seconds(10_000), 0.005)  # eight times as many words


_PLANTED = "hunter2x"
_LOGINS = [
    ["curl", "-u", f"ann:{_PLANTED}", "h"],
    ["curl", f"-uann:{_PLANTED}", "h"],
    ["curl", f"-sSuann:{_PLANTED}", "h"],
    ["curl", f"--user=ann:{_PLANTED}"],
    ["curl", "-T", "f", f"--proxy-user=ann:{_PLANTED}"],
    ["curl", "--cert", f"c.pem:{_PLANTED}"],
    ["curl", "-x", f"ann:{_PLANTED}@proxy:80"],
    ["nvcc", "-o", "x.o", "-u", f"ann:{_PLANTED}"],
    ["nvcc", "-Xcompiler", "curl", f"--user=ann:{_PLANTED}"],
    ["tool", "--user", f"ann:{_PLANTED}"],
    ["tool", "-token", _PLANTED],
    ["tool", "-password", _PLANTED],
    ["docker", "--config", "x", "login", "-p", _PLANTED],
    ["helm", "registry", "login", "-p", _PLANTED],
    ["conan", "remote", "login", "r", "u", "-p", _PLANTED],
    ["xh", "-a", f"ann:{_PLANTED}"],
    ["plink", "-pw", _PLANTED, "host"],
    ["sudo", "-E", "/usr/bin/curl", "-u", f"ann:{_PLANTED}"],
    ["twine", "upload", "-u", "ann", "-p", _PLANTED],
    ["git", "clone", f"https://ann:{_PLANTED}@host/x"],
    ["wget", f"--header=Authorization: token {_PLANTED}"],
]


@pytest.mark.parametrize("command", _LOGINS, ids=" ".join)
def test_options_that_carry_secrets_in_every_shape_that_is_kept(command: list[str]) -> None:
    """As words, as a line, as Python and JSON list them, over several lines, and in a file of words."""
    assert _PLANTED not in " ".join(masking.words(command))
    assert _PLANTED not in masking.response_file("\n".join(command))
    assert _PLANTED not in masking.text(f"Command '{command!r}' returned non-zero")
    assert _PLANTED not in masking.text(json.dumps({"words": command, "n": 1}))
    if "@proxy" not in command[-1]:
        assert _PLANTED not in masking.text(" ".join(command))
        assert _PLANTED not in masking.text(" \\\n ".join(command))


@pytest.mark.parametrize(
    "line",
    [
        "python -u train.py", "git push -u origin HEAD:main", "docker run -u 1000:1000 image", "gcc -E C:\\x\\y.c",
        "gcc -u _ZN3foo -Uat::x", "nvidia/cuda:12.0@sha256:abc", "['gcc', '-c', 'a.c', '-o', 'x']", "clang -passes=foo",
        "npm:bar@1.0", "a 'b', 'c' d",
    ],
)  # fmt: skip
def test_options_that_only_look_like_those(line: str) -> None:
    assert masking.text(line) == line
    assert masking.words(line.split()) == line.split()
