"""Every option says what is wrong with a value, and ends with status 2."""

from __future__ import annotations

import argparse

import pytest

from cuwheel.cli import frame, main

pytestmark = pytest.mark.unit

TYPED = ("--driver", "--driver-cuda", "--torch", "--torch-cuda", "--jax-cuda", "--python", "--glibc", "--cpu", "--l4t")
BAD = (
    "",
    " ",
    "banana",
    "-1",
    "9" * 30,
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}",
    "a\nb",
    "a\0b",
    "12.2.",
    "/tmp",
    "x" * 5000,
)


def _options(verb: str) -> list[str]:
    parser = frame._verb_parser(verb, frame.verb_module(verb))
    # `replay --diff` may go without a value, which is the empty one.
    takes = [each for each in parser._actions if each.option_strings and each.nargs != 0 and each.const != ""]
    return [each.option_strings[-1] for each in takes if not isinstance(each, argparse._HelpAction)]


EVERY = [(verb, option) for verb in frame.VERBS for option in _options(verb)]


@pytest.mark.parametrize(("verb", "option"), EVERY)
@pytest.mark.parametrize("value", ["", " ", "a\0b"])
def test_no_option_takes_nothing(verb: str, option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, option, value]) == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("option", TYPED)
@pytest.mark.parametrize("value", BAD)
def test_what_is_known_of_machines_is_checked(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nothing.so", "--on", "h100", f"{option}={value}"]) == 2
    told = capsys.readouterr().err
    assert option in told
    assert "hint:" in told


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--driver", "12.2", "looks like a CUDA version: give it as --driver-cuda 12.2"),
        ("--torch-cuda", "570.86.10", "looks like the version of a driver"),
        ("--torch-cuda", "12", "say which minor"),
        ("--cpu", "risc", "x86_64 or aarch64"),
    ],
)
def test_what_is_meant_is_told(option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nothing.so", "--on", "h100", option, value]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--torch-cuda", "cu128", "12.8"),
        ("--torch-cuda", "12.8.1", "12.8"),
        ("--driver-cuda", "CUDA 12.2", "12.2"),
        ("--jax-cuda", "12", "12"),
        ("--driver", "580.65.06", "580.65.06"),
        ("--python", "cp311", "3.11"),
        ("--python", "3.12.4", "3.12.4"),
        ("--cpu", "ARM64", "aarch64"),
        ("--l4t", "R36.4", "36.4"),
        ("--glibc", "2.35", "2.35"),
        ("--torch", "2.7.1+cu128", "2.7.1+cu128"),
    ],
)
def test_the_ways_people_write_a_value(option: str, value: str, expected: str) -> None:
    parser = frame._verb_parser("check", frame.verb_module("check"))
    args = parser.parse_args(["x.so", option, value])
    assert getattr(args, option.lstrip("-").replace("-", "_")) == expected
