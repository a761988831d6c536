"""Secrets of any letters go, wherever they stand; what holds none stays as it is, letter for letter."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwheel.support import masking

SECRET = st.text(string.ascii_letters + string.digits + "!#%^*+_-.", min_size=8, max_size=40).filter(
    lambda text: text[0] not in "-." and "***" not in text
)
NAMES = st.sampled_from(["PGPASSWORD", "SSHPASS", "MYSQL_PWD", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "my_api_key"])
AROUND = st.sampled_from(["", "+ ", "running: ", "\t", "\n", "x=1 ", "-DX=1 "])
PLACES = (
    "{name}={secret}",
    '{name}="{secret}"',
    "-D{name}={secret}",
    "--{option}={secret}",
    "--{option} {secret}",
    '"{name}": "{secret}"',
    "https://me:{secret}@host/x",
    "Authorization: Bearer {secret}",
    "sshpass -p {secret} ssh",
    "mysql -p{secret}",
)
HARMLESS = st.lists(
    st.sampled_from(
        [
            *("gcc", "-O2", "-pthread", "-p", "-DNDEBUG", "-DLLVM_ENABLE_NEW_PASS_MANAGER=ON", "PATH=/usr/bin", "a.cu"),
            *(
                "error:",
                "expected",
                "token",
                "before",
                "'}'",
                "key",
                "--key-size",
                "16",
                "MAX_TOKENS=4096",
                "=",
                ":",
                "@",
            ),
            *(
                "https://host/x",
                "[1/2]",
                "ninja:",
                "-arch=sm_90",
                "PASSED",
                "author",
                "user@host",
                "pass",
                "c++",
                "***",
            ),
        ]
    )
).map(" ".join)


@pytest.mark.parametrize("place", PLACES)
@given(name=NAMES, secret=SECRET, before=AROUND, after=AROUND)
def test_secrets_go(place: str, name: str, secret: str, before: str, after: str) -> None:
    option = name.lower().replace("_", "-")
    line = before + place.format(name=name, secret=secret, option=option) + " " + after
    assert secret not in masking.text(line)


@given(HARMLESS)
def test_what_holds_none_stays(text: str) -> None:
    assert masking.text(text) == text


@given(SECRET, st.text(max_size=50), st.text(max_size=50))
def test_secrets_of_variables_go_from_any_text(secret: str, before: str, after: str) -> None:
    assert secret not in masking.known(before + secret + after, {"PGPASSWORD": secret})


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    masking.text(text)
    masking.words(text.split(" "))
    masking.is_secret(text)
