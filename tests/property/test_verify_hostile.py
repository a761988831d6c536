"""Wheels that nobody made in good faith: the rules name what is wrong, and do nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.device_code.survey import survey
from cuwheel.proving import checks, wheel_rules
from cuwheel.proving.runner.output import HEAD, TAIL, Bounded, Search, shown
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError
from tests.fixtures.small_wheel import Wheel

SOUND = Wheel(files={"subject/__init__.py": "x = 1\n" * 50, "subject/deep/data.bin": bytes(range(256)) * 4})
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def examined(path: Path) -> None:
    with WheelFile(path) as opened:
        checks.modules_of_wheel(opened)
        wheel_rules.examine(WheelSubject(wheel=opened, survey=survey(path)))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=12), st.integers(0, 3000))
def test_damaged_wheels(changes: list[tuple[int, int]], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = SOUND.write(Path(folder))
        raw = bytearray(path.read_bytes())
        for place, value in changes:
            raw[place % len(raw)] = value
        path.write_bytes(raw[:-cut] if 0 < cut < len(raw) and cut % 7 == 0 else raw)
        try:
            examined(path)
        except CuwheelError:
            return


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=4))
def test_texts_of_any_kind(rows: list[str], headers: list[str], tags: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        examined(Wheel(extra_rows=rows, headers=headers, wheel_tags=tags).write(Path(folder)))


@given(st.lists(st.binary(max_size=TAIL), max_size=8))
def test_the_beginning_and_the_end_of_any_output_are_kept(pieces: list[bytes]) -> None:
    kept, whole = Bounded(), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    assert kept.total == len(whole)
    if len(whole) <= HEAD + TAIL:
        assert kept.text() == shown(whole)
    else:
        assert kept.text().startswith(shown(whole[:HEAD]))
        assert kept.text().endswith(shown(whole[-TAIL:]))


@given(
    st.binary(min_size=1, max_size=40), st.lists(st.integers(1, 7), max_size=20), st.integers(0, 39), st.integers(1, 9)
)
def test_a_text_is_found_whatever_pieces_it_comes_in(whole: bytes, steps: list[int], at: int, size: int) -> None:
    wanted = whole[at % len(whole) :][:size].decode("latin-1").encode("ascii", "replace").decode()
    stream = whole.decode("latin-1").encode("ascii", "replace")
    search, place = Search([wanted, "absent text"]), 0
    for step in [*steps, len(stream)]:
        search.add(stream[place : place + step])
        place += step
    assert search.found == {wanted}
