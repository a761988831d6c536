"""Conditions: an id and its parts; the words are made from them, and nothing is lost where there is little room."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from cuwheel_core.verdicts import condition as conditions
from cuwheel_core.verdicts.condition import Condition, ConditionId, Parts, condition, in_short, merged

FOUND = [condition("library-found", names=(f"lib{number}.so.{number}",)) for number in range(5)]
DRIVER = condition("driver-at-least", version="580", cuda=("13",))


def test_every_id_has_words() -> None:
    assert set(get_args(ConditionId)) == set(conditions._WORDS)
    for each in get_args(ConditionId):
        assert isinstance(condition(each).text, str)
        assert isinstance(condition(each).short, str)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"version": "580", "cuda": ("13",)}, "driver 580 or later (CUDA 13)"),
        ({"version": "525", "windows": "528"}, "driver 525 (on Windows 528) or later"),
        ({"cuda": ("13",)}, "a driver of CUDA 13 or later"),
        ({"isa": "99.0", "purpose": "ptx"}, "a driver that compiles PTX ISA 99.0"),
        ({"version": "555.42", "purpose": "zstd"}, "driver 555.42 or later, to read ZSTD-compressed device code"),
        ({"version": "580", "part": "8-bit", "machines": ("a", "b")}, "a, b: for 8-bit: driver 580 or later"),
    ],
)
def test_words_come_from_the_parts(parts: dict[str, object], text: str) -> None:
    assert condition("driver-at-least", **parts).text == text


def test_a_text_that_disagrees_is_not_kept() -> None:
    told = b'{"id": "driver-at-least", "parts": {"version": "580"}, "text": "driver 1 or later"}'
    assert msgspec.json.decode(told, type=Condition).text == "driver 580 or later"
    assert msgspec.json.encode(DRIVER.parts) == b'{"version":"580","cuda":["13"]}'
    assert DRIVER.parts == Parts(version="580", cuda=("13",))


def test_what_has_no_room_is_counted_and_named() -> None:
    assert in_short([], room=40) == ""
    assert in_short([DRIVER], room=40) == "if driver 580 or later (CUDA 13)"
    assert in_short([DRIVER], room=10) == "on one condition: driver 580"
    assert in_short([DRIVER, *FOUND], room=40) == ("on 6 conditions: driver 580, lib0.so.0, lib1.so.1 and 3 more")


def test_machines_are_named_in_whatever_order_they_come() -> None:
    told = [("b", (DRIVER, FOUND[0])), ("a", (DRIVER,))]
    once = list(merged(told, 2))
    assert once == list(merged(told[::-1], 2))
    assert [each.text for each in once] == ["driver 580 or later (CUDA 13)", "b: lib0.so.0 can be found"]
