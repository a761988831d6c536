"""`cuwheel-slim.json` in a dist-info folder: what was removed from the distribution, by what, for which machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel.changes.slim.outcome import FileChange
from cuwheel.support import codec
from cuwheel.version import __version__
from cuwheel.wheel.metadata import SLIM_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.machine.fleet import Machine

__all__ = ["SLIM_NOTE", "Note", "names_of", "text"]
SCHEMA = "cuwheel.slim-note/1"
TOOL = f"cuwheel {__version__}"
ALL = ("all",)


class Note(Struct, frozen=True, kw_only=True):
    """`version`: of the distribution before. `earlier`: the notes of runs before this one, the latest first.

    `workload`: where it was cut by use, what was traced.
    """

    schema: str = SCHEMA
    tool: str
    targets: tuple[str, ...]
    cuda: str | None
    version: str
    files: tuple[FileChange, ...]
    workload: tuple[str, ...] | None = None
    earlier: tuple[msgspec.Raw, ...] = ()


def names_of(targets: Sequence[Machine] | None) -> tuple[str, ...]:
    """As people named them, with the capability that counts."""
    if targets is None:
        return ALL
    return tuple(dict.fromkeys(_name(each) for each in targets))


def _name(machine: Machine) -> str:
    if machine.capability is None or machine.name == machine.capability:
        return machine.name
    return f"{machine.name} ({machine.capability})"


def text(
    *,
    targets: tuple[str, ...],
    cuda: str | None,
    version: str,
    files: Iterable[FileChange],
    before: bytes | None = None,
    workload: tuple[str, ...] | None = None,
) -> bytes:
    """`before`: the note that is there already."""
    note = Note(
        tool=TOOL,
        targets=targets,
        cuda=cuda,
        version=version,
        files=tuple(each for each in files if each.fate != "unchanged"),
        workload=workload,
        earlier=_earlier(before),
    )
    return codec.indented(note)


def _earlier(before: bytes | None) -> tuple[msgspec.Raw, ...]:
    if not before:
        return ()
    try:
        old = codec.decode(before, dict[str, object])
    except msgspec.DecodeError:
        return ()  # not ours
    older = old.pop("earlier", [])
    rest = older if isinstance(older, list) else []
    return tuple(msgspec.Raw(codec.encode(each)) for each in (old, *rest))
