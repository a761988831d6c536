from __future__ import annotations

import pytest

from cuwheel import masking
from cuwheel.finding import Finding


@pytest.mark.parametrize(
    "name",
    ["GITHUB_TOKEN", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "TWINE_PASSWORD", "MY_API_KEY", "SSH_PRIVATE_KEY", "DB_PASS"],
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
