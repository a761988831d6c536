from __future__ import annotations

import pytest

from cuwheel import masking


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
