"""A catalogue: the facts of many wheels of other people's indexes, each under the hash of its wheel.

A folder, or a place on a server: `catalogue.json` lists the wheels, and `packs/` holds the facts files of all wheels of
a project, which are much alike, compressed in one. Who knows a wheel's hash from its index knows so what is in it,
without the wheel.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from cuwheel.device_code import wheel_facts
from cuwheel.network import addresses, client, transfer
from cuwheel.support import codec, confined, files, log
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.support import buffer
from cuwheel_core.wheel.tags import WheelName, platform_of

if TYPE_CHECKING:
    from cuwheel.delivery.candidates import Candidate
    from cuwheel.device_code.wheel_facts import WheelFacts

LIST: Final = "catalogue.json"
NONE: Final = "none"
SCHEMA: Final = "cuwheel.catalogue-list/1"
SHIPPED = Path(__file__).with_name("catalogue")  # what this release of cuwheel knows of the public index
_PACKS = "packs"
_MOST_LIST, _MOST_FACTS, _MOST_PACKED = 1 << 27, 1 << 26, 1 << 24
_LEVEL = 19
_PROJECT = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"


class Listed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wheel whose facts are held. `uploaded`: when, as its index writes it."""

    file: str
    name: Annotated[str, Meta(pattern=_PROJECT)]  # it becomes a path
    version: str
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    size: int = 0
    uploaded: str | None = None


class Contents(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """catalogue.json. `date`: when something was added last."""

    schema: Literal["cuwheel.catalogue-list/1"]
    date: str
    wheels: tuple[Listed, ...] = ()


_HINT = "cuwheel catalogue add NAME --to FOLDER makes one"


class CatalogueReader:
    """`place`: a folder, or the URL of one."""

    def __init__(self, place: str | Path, session: client.Session | None = None) -> None:
        self._place = str(place)
        self._folder = place if isinstance(place, Path) else addresses.local_path(place)
        self._session = session
        self._packs: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Lock()

    @cached_property
    def contents(self) -> Contents:
        return parse(self._read(LIST, _MOST_LIST), f"{self._place}/{LIST}")

    @cached_property
    def _known(self) -> dict[str, str]:
        """Hash → project."""
        return {each.sha256: each.name for each in self.contents.wheels}

    def facts(self, sha256: str | None) -> WheelFacts | None:
        """The facts of the wheel with this hash; None where the catalogue does not hold them."""
        if sha256 is None or sha256 not in self._known:
            return None
        found = wheel_facts.parse(self.encoded_facts(sha256, self._known[sha256]), f"{self._place}: {sha256}")
        return found if found.sha256 == sha256 else None

    def encoded_facts(self, sha256: str, project: str) -> bytes:
        """The facts of a wheel that is listed, as the file has them."""
        data = self._pack(project).get(sha256)
        if data is None:
            raise MalformedError(f"{self._place}/{_PACKS}/{project}.zst", f"does not hold {sha256}, which is listed")
        return data

    def _pack(self, project: str) -> dict[str, bytes]:
        """Lines of a hash and facts. Read once: whoever asks about a project asks about many of its wheels."""
        with self._lock:
            if project not in self._packs:
                place = f"{_PACKS}/{project}.zst"
                lines = unpacked(self._read(place, _MOST_PACKED), f"{self._place}/{place}").splitlines()
                self._packs[project] = {line[:64].decode("ascii", "replace"): line[65:] for line in lines}
            return self._packs[project]

    def of_sibling(self, wheel: WheelName, version: str) -> WheelFacts | None:
        """The facts of a wheel of this release and platform for another Python, which holds the same device code."""
        for listed in self._siblings(wheel, version):
            if found := self.facts(listed.sha256):
                return replace(found, file=str(wheel), tags=wheel.tags)
        return None

    def holds(self, candidate: Candidate) -> bool:
        """Whether it lists the wheel, or one of its release and platform for another Python."""
        wheel = candidate.wheel
        of_release = self._siblings(wheel, str(candidate.version)) if wheel else iter(())
        return candidate.listing.sha256 in self._known or any(True for _ in of_release)

    def _siblings(self, wheel: WheelName, version: str) -> Iterator[Listed]:
        for listed in self._releases.get((wheel.project, version), ()):
            other = WheelName.parse(listed.file)
            if other and _made_alike(other, wheel):
                yield listed

    @cached_property
    def _releases(self) -> dict[tuple[str, str], list[Listed]]:
        found: dict[tuple[str, str], list[Listed]] = {}
        for each in self.contents.wheels:
            found.setdefault((each.name, each.version), []).append(each)
        return found

    def _read(self, name: str, limit: int) -> bytes:
        if self._folder is None:
            return transfer.fetch(f"{self._place.rstrip('/')}/{name}", limit=limit, session=self._session)
        return files.read_limited(self._folder / name, limit, "a catalogue", hint=_HINT)


def _made_alike(one: WheelName, other: WheelName) -> bool:
    mine, theirs = (platform_of(each.platforms[0]) for each in (one, other))
    return (one.build, one.variant, mine.os, mine.cpu) == (other.build, other.variant, theirs.os, theirs.cpu)


def parse(data: bytes, name: str) -> Contents:
    return codec.parse(data, Contents, name, "a catalogue", schema=SCHEMA, hint=_HINT)


def unpacked(data: bytes, name: str) -> bytes:
    """Bounded: what was packed small may be large."""
    made = buffer.zstd_first_bytes(data, _MOST_FACTS + 1)
    if made is None:
        raise MalformedError(name, "its facts are damaged", _HINT)
    if len(made) > _MOST_FACTS:
        raise MalformedError(name, "its facts are larger than any wheel's")
    return made


def open_catalogues(places: Iterable[str | Path], session: client.Session) -> tuple[CatalogueReader, ...]:
    """Those that were named, then the one that ships; of `none`, none."""
    named = tuple(places)
    if NONE in named:
        return ()
    shipped = (SHIPPED,) if (SHIPPED / LIST).is_file() else ()
    return tuple(CatalogueReader(each, session) for each in (*named, *shipped))


def look_up(catalogues: Iterable[CatalogueReader], candidate: Candidate) -> WheelFacts | None:
    """Facts from the first that has them. One that cannot be read is a warning: the wheel itself can be."""
    for each in catalogues:
        try:
            if found := each.facts(candidate.listing.sha256):
                return found
            if candidate.wheel and (found := each.of_sibling(candidate.wheel, str(candidate.version))):
                return found
        except CuwheelError as error:
            log.warning("the catalogue is not used: %s", error.message)
    return None


def holds(catalogues: Iterable[CatalogueReader], candidate: Candidate) -> bool:
    """Whether one of them has a wheel's facts; `look_up` warns of one that cannot be read."""
    for each in catalogues:
        with contextlib.suppress(CuwheelError):
            if each.holds(candidate):
                return True
    return False


class Store:
    """A catalogue in a folder, to be added to: of each project one file, written anew when it is saved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listed: dict[str, Listed] = {}
        self._facts: dict[str, dict[str, bytes]] = {}  # by project, then hash
        self._changed: set[str] = set()
        if (folder / LIST).exists():
            held = CatalogueReader(folder)
            for each in held.contents.wheels:
                try:
                    facts = held.encoded_facts(each.sha256, each.name)
                except CuwheelError as error:
                    log.warning("%s is read anew: %s", each.file, error.message)
                    continue
                self._put(each, facts)
            self._changed = set()

    def has(self, sha256: str) -> bool:
        return sha256 in self._listed

    def add(self, listed: Listed, facts: WheelFacts) -> None:
        self._put(listed, wheel_facts.encoded(facts).strip())
        self._changed.add(listed.name)

    def _put(self, listed: Listed, facts: bytes) -> None:
        self._listed[listed.sha256] = listed
        self._facts.setdefault(listed.name, {})[listed.sha256] = facts

    def save(self, date: str) -> None:
        """Facts first, then the list that names them."""
        wheels = tuple(sorted(self._listed.values(), key=lambda each: (each.name, each.version, each.file)))
        packs = confined.make_folders(self.folder, _PACKS)
        for project in sorted(self._changed):
            lines = [
                each.sha256.encode() + b" " + self._facts[project][each.sha256] + b"\n"
                for each in wheels
                if each.name == project
            ]
            files.write(packs / f"{project}.zst", buffer.zstd_compressed(b"".join(lines), _LEVEL))
        if self._changed or not (self.folder / LIST).exists():
            made = Contents(schema=SCHEMA, date=date, wheels=wheels)
            files.write(self.folder / LIST, codec.encode(made) + b"\n")
        self._changed.clear()

    @property
    def wheels(self) -> tuple[Listed, ...]:
        return tuple(self._listed.values())

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(each.stat().st_size for each in (self.folder / LIST, *(self.folder / _PACKS).glob("*.zst")))
