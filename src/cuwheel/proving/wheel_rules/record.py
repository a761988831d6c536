"""RECORD: every file once, with the hash that it has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cuwheel.support.wording import a_few, first_few
from cuwheel.verdicts.rule import Found, rule
from cuwheel.verdicts.wheel_tags import WheelSubject, one_or_many
from cuwheel.wheel import file
from cuwheel.wheel.metadata import RecordRow, record_rows
from cuwheel.wheel.record import SIGNATURES
from cuwheel.wheel.zip_reader import escapes

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = "recording installed projects, packaging.python.org/specifications"
_REPAIR = "build it again, or download it again; a tool that changes a wheel must also rewrite RECORD"


def _rows(subject: WheelSubject) -> list[RecordRow]:
    return [row for row in record_rows(subject.wheel.record or "") if row.path]


def _unreadable(text: str) -> str:
    """What is wrong with lines that are not rows of a table."""
    bad = [str(number) for number, row in enumerate(record_rows(text), 1) if not row.path]
    return f"line {a_few(bad, 1)}" if bad else ""


def _own(subject: WheelSubject) -> set[str]:
    """RECORD itself and its signatures have no row with a hash."""
    info = subject.wheel.info
    return {f"{info}RECORD", *(info + name for name in SIGNATURES)}


@rule(
    "record-rows",
    severity="error",
    why="""RECORD lists every file of the wheel, each once. What is missing from it is never uninstalled and never
    checked; a row without a file is a file that was lost.""",
    source=_SOURCE,
    fix=_REPAIR,
)
def rows(subject: WheelSubject) -> Iterator[Found]:
    if subject.wheel.record is None:
        return
    listed = [row.path for row in _rows(subject)]
    if problem := _unreadable(subject.wheel.record):
        yield Found(message=f"RECORD cannot be read as a table: {problem}")
    there = set(subject.wheel.sizes)
    if extra := there - set(listed) - _own(subject):
        yield Found(
            message=f"{one_or_many(len(extra), 'a file is', 'files are')} in the wheel and not in RECORD",
            evidence=first_few(sorted(extra)),
        )
    if lost := {path for path in listed if path not in there and not path.endswith("/")} - _own(subject):
        yield Found(
            message=f"{one_or_many(len(lost), 'a file is', 'files are')} in RECORD and not in the wheel",
            evidence=first_few(sorted(lost)),
        )
    if twice := {path for path, count in Counter(listed).items() if count > 1}:
        yield Found(
            message=f"RECORD lists {one_or_many(len(twice), 'a file', 'files')} more than once",
            evidence=first_few(sorted(twice)),
        )


@rule(
    "record-unsafe-path",
    severity="error",
    why="A path that leaves the environment lets an uninstall delete other files.",
    source=_SOURCE,
    fix="do not install it",
)
def unsafe_path(subject: WheelSubject) -> Iterator[Found]:
    if paths := {row.path for row in _rows(subject) if escapes(row.path)}:
        yield Found(message="RECORD names files outside the installation folder", evidence=first_few(sorted(paths)))


@rule(
    "record-hash",
    severity="error",
    why="The hash in RECORD proves that a file is the one that was built. Installers may refuse a wheel without it.",
    source=_SOURCE,
    fix=_REPAIR,
)
def hashes(subject: WheelSubject) -> Iterator[Found]:
    named = [row for row in _rows(subject) if row.path in subject.wheel.sizes and row.path not in _own(subject)]
    strong = [row for row in named if file.is_strong(row.hash)]
    if weak := {f"{row.path} ({row.hash[:40] or 'none'})" for row in named} - {
        f"{row.path} ({row.hash[:40] or 'none'})" for row in strong
    }:
        yield Found(message="RECORD has no hash, or a weak one, for some files", evidence=first_few(sorted(weak)))
    wrong, broken = file.compare_hashes(subject.wheel, {row.path: row.hash for row in strong})
    if wrong:
        yield Found(
            message=f"the hash of {one_or_many(len(wrong), 'a file', 'files')} is not the one in RECORD",
            evidence=first_few(sorted(wrong)),
        )
    sizes = subject.wheel.sizes
    if other := {row.path for row in named if row.size and row.size != str(sizes[row.path])} - wrong:
        yield Found(message="the size in RECORD is not that of the file", evidence=first_few(sorted(other)))
    if broken:
        yield Found(
            message=f"{one_or_many(len(broken), 'a file', 'files')} in the wheel cannot be unpacked",
            evidence=first_few(sorted(f"{name}: {problem}" for name, problem in broken.items())),
        )


RULES = (rows, unsafe_path, hashes)
