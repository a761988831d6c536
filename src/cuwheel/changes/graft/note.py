"""`cuwheel-graft.json` in a dist-info folder: what was put into a wheel, from where, and what proved that it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from cuwheel.changes.graft.outcome import GraftedLibrary
from cuwheel.support import codec
from cuwheel.support.finding import Finding
from cuwheel.version import __version__

if TYPE_CHECKING:
    from cuwheel.wheel.file import WheelFile

NAME = "cuwheel-graft.json"
_LIMIT = 1 << 22


class Giver(Struct, frozen=True, kw_only=True):
    """A wheel that went in, by its content."""

    file: str
    version: str
    sha256: str


class Origin(Struct, frozen=True, kw_only=True):
    """The wheel that a part was split from. `archs`: all that it had; `orders`: how its containers have them."""

    sha256: str
    version: str
    archs: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]


class Note(Struct, frozen=True, kw_only=True):
    """`forced`: what spoke against it, and was overruled by a person.

    Of a wheel that was grafted before, `donors`, `libraries` and `forced` of then come first.
    """

    schema: Literal["cuwheel.graft-note/1"] = "cuwheel.graft-note/1"
    tool: str = f"cuwheel {__version__}"
    base: Giver | None = None
    donors: tuple[Giver, ...] = ()
    libraries: tuple[GraftedLibrary, ...] = ()
    forced: tuple[Finding, ...] = ()
    part_of: Origin | None = None


def read(wheel: WheelFile) -> Note | None:
    """None where there is none, or none that can be understood: it proves nothing then."""
    name = wheel.info + NAME
    if name not in wheel.members or wheel.sizes[name] > _LIMIT:
        return None
    try:
        return codec.decode(wheel.read(name), Note)
    except msgspec.DecodeError:
        return None
