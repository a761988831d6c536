"""Numbers, versions and requirements of strangers: digits by the thousand are no error of Python's."""

from __future__ import annotations

import msgspec
import pytest
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename
from packaging.version import InvalidVersion

from cuwheel.support import codec, limited
from cuwheel_core.facts import versions
from cuwheel_core.support import bounded

LONG = "9" * 5000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("580", 580),
        ("0" * 5000 + "7", 7),
        ("9" * 20, 10**20 - 1),
        ("9" * 21, bounded.LARGEST),
        (LONG, bounded.LARGEST),
        ("", None),
        ("-1", None),
        ("²", None),
        ("1_0", None),
        (" 1", None),
        ("٣", None),
        ("1e9", None),
    ],
)
def test_a_whole_number(text: str, expected: int | None) -> None:
    assert bounded.whole(text) == expected


@pytest.mark.parametrize("text", ["abcdefghijklmnopqrst", b"abcdefghijklmnopqrst", "²" * 30, "", "x"])
def test_what_are_no_digits(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"digits|invalid literal"):
        bounded.digits(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5", 1.5), ("-2", -2.0), ("1e400", None), ("nan", None), ("inf", None), (LONG, None)]
)
def test_a_real_number(text: str, expected: float | None) -> None:
    assert bounded.real(text) == expected


def test_no_version_has_so_many_digits() -> None:
    for text in (LONG, f"1.{LONG}", f"1+{LONG}", f"1.post{LONG}", "1." * 9000 + "1"):
        with pytest.raises(InvalidVersion):
            limited.version(text)
        with pytest.raises(InvalidSpecifier):
            limited.specifiers(f">={text}")
        with pytest.raises(InvalidRequirement):
            limited.requirement(f"pkg>={text}")
        with pytest.raises(InvalidRequirement):
            limited.requirement(f"pkg; python_version > '{text}'")
        with pytest.raises(InvalidWheelFilename):
            limited.wheel_file(f"pkg-{text}-py3-none-any.whl")
        with pytest.raises(InvalidSdistFilename):
            limited.sdist_file(f"pkg-{text}.tar.gz")
    own = "1.0+20251119093000.g0123456789012345678901234567890123456789"
    assert str(limited.version(own)) == own


def test_brackets_by_the_thousand_are_refused() -> None:
    with pytest.raises(InvalidRequirement):
        limited.requirement("x; " + "(" * 3000 + "extra == 'a'" + ")" * 3000)


def test_versions_of_any_length_are_ordered() -> None:
    assert versions.at_least(LONG, "580.65")
    assert not versions.at_least("1", f"1.{LONG}")
    assert versions.major("abcdefghijklmnopqrst") == 0
    assert versions.major(f"{LONG}.1") == bounded.LARGEST


@pytest.mark.parametrize("number", ["9" * 21, "-" + "9" * 21, "1" + "0" * 400, LONG, "18446744073709551616"])
@pytest.mark.parametrize("before", ["", " ", "\n", "1,", "[0, "])
def test_documents_with_numbers_that_are_none(number: str, before: str) -> None:
    text = f'{{"a": [{before}{number}{"]" if before.startswith("[") else ""}]}}'
    for data in (text, text.encode()):
        with pytest.raises(msgspec.DecodeError):
            codec.decode(data)
    with pytest.raises(msgspec.DecodeError):
        codec.parse_toml(f"a = {number}\n".encode())


def test_what_looks_like_such_a_number_is_read() -> None:
    text = f'{{"sha256:{LONG}": " {LONG}", "a": 18446744073709551615, "b": -9223372036854775808, "c": 1{"0" * 30}.5}}'
    assert codec.decode(text)["a"] == 2**64 - 1
    with pytest.raises(msgspec.DecodeError):
        codec.parse_toml(b"a = 0x" + b"f" * 9000 + b"\n")
