"""The same failure however it was printed, wrapped, coloured, stamped or cut: the same cause. Hostile text: no harm."""

from __future__ import annotations

import random
import re
import string
import textwrap
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuwheel.diagnosis import text
from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.explain import explain

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = [(id_, example) for id_, file in knowledge().causes.items() for example in file.example]
NOISE = [
    "Collecting numpy",
    "copying build/lib/ops/__init__.py -> out",
    'src/a.cu(12): warning #177-D: variable "x" was declared but never referenced',
    "[3/17] building object b.o",
    "-- Detecting CXX compile features - done",
    "  detected during instantiation of function f",
]


def stamped(log: str, _choice: random.Random) -> str:
    return "".join(f"2026-01-02T03:04:{index % 60:02}.1234567Z {line}\n" for index, line in enumerate(log.splitlines()))


def coloured(log: str, choice: random.Random) -> str:
    return "".join(f"\x1b[{choice.randrange(30, 38)};1m{line}\x1b[0m\n" for line in log.splitlines())


def indented(log: str, _choice: random.Random) -> str:
    return textwrap.indent(log, "      ")


def with_windows_line_ends(log: str, _choice: random.Random) -> str:
    return log.replace("\n", "\r\n")


def in_a_builder(log: str, choice: random.Random) -> str:
    return "".join(f"#{choice.randrange(30)} {index}.31 {line}\n" for index, line in enumerate(log.splitlines()))


def cut_at_80(log: str, _choice: random.Random) -> str:
    lines = (line[start : start + 80] for line in log.splitlines() for start in range(0, max(1, len(line)), 80))
    return "\n".join(lines) + "\n"


def wrapped_at_80(log: str, _choice: random.Random) -> str:
    lines = (textwrap.fill(line, 80, break_long_words=False, break_on_hyphens=False) for line in log.splitlines())
    return "\n".join(lines) + "\n"


def among_others(log: str, choice: random.Random) -> str:
    before = "\n".join(choice.choice(NOISE) for _ in range(200))
    after = "\n".join(choice.choice(NOISE) for _ in range(50))
    return f"{before}\n{log}\n{after}\n"


def repeated(log: str, _choice: random.Random) -> str:
    return log * 20


def elsewhere(log: str, choice: random.Random) -> str:
    """Other people's folders."""
    name = "".join(choice.choices(string.ascii_lowercase, k=8))
    return re.sub(r"/venv/|/src/|/srv/", f"/data/{name}/", log)


def with_other_patch_releases(log: str, choice: random.Random) -> str:
    """`2.4.1` of anything as another patch release; majors and minors mean something."""
    return re.sub(r"(?<![\d.])(\d+\.\d+)\.(\d)(?![\d.])", lambda match: f"{match[1]}.{choice.randrange(10)}", log)


def in_capitals(log: str, _choice: random.Random) -> str:
    return log.replace("error", "ERROR").replace("fatal", "Fatal")


VARIATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    stamped,
    coloured,
    indented,
    with_windows_line_ends,
    in_a_builder,
    cut_at_80,
    wrapped_at_80,
    among_others,
    repeated,
    elsewhere,
    with_other_patch_releases,
    in_capitals,
)


def first(log: str) -> str | None:
    found = explain(text.parse(log)).causes
    return found[0].id if found else None


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("vary", VARIATIONS, ids=lambda vary: vary.__name__)
def test_the_cause_stays_the_same(vary: Callable[[str, random.Random], str], step: int) -> None:
    """Every sixth example in one way, the next ones in the next way; with `--all` all of them in all ways."""
    choice = random.Random(7)  # noqa: S311 - for tests
    changed = [
        (id_, answer)
        for id_, example in EXAMPLES[VARIATIONS.index(vary) % step :: step]
        if (answer := first(vary(example.log.strip() + "\n", choice))) != id_
    ]
    assert changed == []


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_variations_of_variations(step: int) -> None:
    choice = random.Random(11)  # noqa: S311 - for tests
    wrapping = {cut_at_80, wrapped_at_80}
    others = [each for each in VARIATIONS if each not in wrapping]
    for id_, example in EXAMPLES[::step]:
        log = example.log.strip() + "\n"
        for vary in choice.sample(others, 3):
            log = vary(log, choice)
        assert first(log) == id_


@pytest.mark.parametrize("step", [599, pytest.param(7, marks=pytest.mark.slow)])
def test_a_cut_off_paste_is_explained_or_not_but_never_otherwise(step: int) -> None:
    """Half of a log may say less. It must not say something else with the same confidence."""
    wrong = []
    for id_, example in EXAMPLES:
        log = example.log.strip()
        whole = {cause.id for cause in explain(text.parse(log)).causes}
        for end in range(len(log) // 2, len(log), step):
            found = explain(text.parse(log[:end])).causes
            if found and found[0].id not in whole and found[0].confidence > 0.8:
                wrong.append((id_, found[0].id, log[end - 40 : end]))
    assert wrong == []


WORDS = sorted({word for _, example in EXAMPLES for word in example.log.split()})


@given(st.lists(st.sampled_from([*WORDS, "\n", "\r", "'", "(", "{", "*", "<", "\x1b[31m"]), max_size=300))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_words_in_any_order_do_no_harm(words: list[str]) -> None:
    found = explain(text.parse(" ".join(words)))
    assert all(0 <= cause.confidence <= 1 for cause in found.causes)
    assert [cause.confidence for cause in found.causes] == sorted((c.confidence for c in found.causes), reverse=True)


@given(st.binary(max_size=3000))
@settings(max_examples=150, deadline=None)
def test_any_bytes_do_no_harm(data: bytes) -> None:
    explain(text.parse(text.decode(data)))


@given(
    st.lists(
        st.sampled_from(sorted({needle for word in WORDS for needle in (word, word * 40)})), min_size=1, max_size=3
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_signature_runs_away(words: list[str]) -> None:
    """Half a megabyte of the words that signatures look for, on long lines and short ones."""
    line = " ".join(words)
    log = "\n".join([(line + " ") * max(1, 60_000 // len(line))] * 4 + [line] * (200_000 // (len(line) + 1)))
    began = time.process_time()
    explain(text.parse(log))
    assert time.process_time() - began < 5
