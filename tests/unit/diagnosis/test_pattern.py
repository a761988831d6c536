from __future__ import annotations

import time

import pytest

from cuwheel.diagnosis import pattern
from cuwheel.diagnosis.pattern import PatternError, check_pattern, fold
from cuwheel.diagnosis.text import Search, parse


@pytest.mark.parametrize(
    ("pattern", "line", "held"),
    [
        ("gcc versions later than {n:limit} are", "GCC  versions later than 12 are not", {"limit": "12"}),
        ("identifier '<_Float32|_Float64>' is", 'x.h(3): error: identifier "_Float64" is undefined', {}),
        ("identifier '<_Float32|_Float64>' is", "error: identifier \u2018_Float32\u2019 is", {}),
        ("identifier '<_Float32|_Float64>' is", "error: identifier `_Float16' is", None),
        ("/cuda/v{dotted:value}/bin", r"C:\CUDA\v12.6\bin\nvcc.exe", {"value": "12.6"}),
        ("cannot find -l<cuda|cudart>{b}", "ld: cannot find -lcudart_static", None),
        ("cannot find -l<cuda|cudart>{b}", "ld: cannot find -lcuda: No such file", {}),
        ("first * second * third", "third first and second, then third", {}),
        ("first * second", "second, then first", None),
        ("nvcc fatal : Unknown option", "nvcc fatal   : Unknown option", {}),
        ("nvcc fatal : Unknown option", "nvcc fatal: Unknown option", {}),
        (
            "{name:library}: cannot open",
            "ImportError: libcublasLt.so.12: cannot open",
            {"library": "libcublasLt.so.12"},
        ),
        ("found version<|s> {version:v}", "found versions 3", {"v": "3"}),
    ],
)
def test_patterns(pattern: str, line: str, held: dict[str, str] | None) -> None:
    hits = Search(parse(line)).hits(pattern)
    assert [hit.held for hit in hits] == ([] if held is None else [held])


@pytest.mark.parametrize(
    "text",
    ["", "***", "ab", "{what} is this thing", "open <choice", "a } b thing", "{n}{n} thing", "{n:a} thing {n:a} thing"],
)
def test_bad_patterns(text: str) -> None:
    with pytest.raises(PatternError):
        check_pattern(text)


def test_folding_keeps_places() -> None:
    for text in ("İstanbul", "ẞ", "plain", "C:\\A“b”"):
        assert len(fold(text)) == len(text)


def test_a_needle_on_every_line_does_not_hold_it_up() -> None:
    hostile = "\n".join(f"unsupported {'gnu ' * 30}{index}" for index in range(20_000))
    began = time.process_time()
    assert not Search(parse(hostile)).hits("unsupported * gnu * version * gcc * later {n}")
    assert time.process_time() - began < 2


def test_far_down_a_very_long_line() -> None:
    line = "x" * 300_000 + " unsupported gnu version! " + "y" * 300_000
    assert Search(parse(line)).has("unsupported gnu version")


def test_no_word_is_cut_where_a_text_is_read_in_parts() -> None:
    """The parts end with lines; one line longer than a part is a part of its own."""
    lines = [f"word{number} of_line" for number in range(120_000)]
    lines[60_000] = " ".join(f"long{number}" for number in range(200_000))
    assert pattern.words("\n".join(lines)) == frozenset(word for line in lines for word in line.split())
