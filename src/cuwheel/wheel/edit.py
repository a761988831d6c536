"""A wheel made from another. What is not changed stays byte for byte, and RECORD says what is in the new one."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from packaging.requirements import InvalidRequirement
from packaging.version import InvalidVersion

from cuwheel.errors import UsageError
from cuwheel.support import files, limited
from cuwheel.wheel import record
from cuwheel.wheel.file import DATA, INFO, WheelFile
from cuwheel.wheel.zip_writer import Traits, ZipWriter
from cuwheel_core.errors import MalformedError
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.wheel.record import Digest
    from cuwheel_core.wheel.tags import WheelName


# METADATA and WHEEL with other values of some fields, and not one other byte changed.

_OWN = re.compile(
    rb"(?P<field>requires-dist:\s*)(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)


def changed_metadata(
    text: bytes, *, name: tuple[str, str] | None = None, version: str | None = None, requires: Sequence[str] = ()
) -> bytes:
    """`name`: the old and the new one; a distribution that requires itself (`foo[all]`) keeps doing so."""
    lines = text.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    head = next((index for index, line in enumerate(lines) if not line.strip()), len(lines))
    there: set[str] = set()
    for index, line in enumerate(lines[:head]):
        field = line.partition(b":")[0].lower()
        if field == b"name" and name:
            lines[index] = b"Name: " + name[1].encode() + end
        elif field == b"version" and version:
            lines[index] = b"Version: " + version.encode() + end
        elif field == b"requires-dist":
            lines[index] = _renamed_requirement(line, name) if name else line
            there.add(_plain_requirement(lines[index].partition(b":")[2].strip().decode("utf-8", "replace")))
    wanted = {plain: spelt for spelt in requires if (plain := _checked_requirement(spelt)) not in there}
    added = [b"Requires-Dist: " + each.encode() + end for each in wanted.values()]
    place = _behind_requirements(lines, head)
    if place and added and not lines[place - 1].endswith(b"\n"):
        lines[place - 1] += end
    return b"".join([*lines[:place], *added, *lines[place:]])


def _behind_requirements(lines: Sequence[bytes], head: int) -> int:
    """After the last of them, continuation lines included; else at the end of the header."""
    found = [index for index in range(head) if lines[index].lower().startswith(b"requires-dist:")]
    if not found:
        return head
    place = found[-1] + 1
    while place < head and lines[place][:1] in (b" ", b"\t"):
        place += 1
    return place


def tagged_wheel(text: bytes, tags: Sequence[str], *, impure: bool) -> bytes:
    """WHEEL with these tags in the place of its own. `impure`: it has code for one kind of machine, and says so."""
    lines = text.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    kept: list[bytes] = []
    place = None
    for line in lines:
        field = line.partition(b":")[0].strip().lower()
        if field == b"tag":
            place = len(kept) if place is None else place
        elif field == b"root-is-purelib" and impure:
            kept.append(b"Root-Is-Purelib: false" + end)
        else:
            kept.append(line if line.endswith(b"\n") else line + end)
    place = len(kept) if place is None else place
    return b"".join([*kept[:place], *(b"Tag: " + each.encode() + end for each in tags), *kept[place:]])


def _renamed_requirement(line: bytes, name: tuple[str, str]) -> bytes:
    match = _OWN.fullmatch(line)
    if match is None or normalised(match["name"].decode()) != normalised(name[0]):
        return line
    return match["field"] + name[1].encode() + match["rest"]


def _plain_requirement(requirement: str) -> str:
    """Two spellings of one requirement are one."""
    try:
        return str(limited.requirement(requirement))
    except InvalidRequirement:
        return requirement


def _checked_requirement(requirement: str) -> str:
    try:
        return str(limited.requirement(requirement))
    except InvalidRequirement as error:
        raise UsageError(f"{requirement!r} is not a requirement: {error}", hint="such as numpy>=2") from error


class Taken(NamedTuple):
    """A member of another wheel, as it is compressed there."""

    wheel: WheelFile
    member: str


Content: TypeAlias = bytes | Path | Taken


class WheelEdit:
    """Say what to change, then `write`. The wheel must be sound; signatures are dropped, as they sign the old RECORD.

    `anew`: compress everything again; else what is unchanged is copied as it is compressed.
    """

    def __init__(self, wheel: WheelFile, *, anew: bool = False) -> None:
        if wheel.name is None or not wheel.info:
            raise MalformedError(wheel.path, "is not a wheel")
        self.wheel, self._anew = wheel, anew
        self.name: WheelName = wheel.name
        self._info = wheel.info
        self._replaced: dict[str, Content] = {}
        self._added: dict[str, Content] = {}
        self._dropped: set[str] = set(wheel.signatures)

    def rename(self, *, name: str | None = None, version: str | None = None) -> None:
        """The distribution; what is imported is called as before."""
        inside_name, _, inside_version = self._info.removesuffix(f"{INFO}/").rpartition("-")
        if name:
            inside_name = normalised(name).replace("-", "_")
            self.name = self.name._replace(name=inside_name)
        if version:
            version = _checked(version)
            inside_version = version.replace("-", "_")
            self.name = self.name._replace(version=inside_version)
        self._info = f"{inside_name}-{inside_version}{INFO}/"
        renamed = (self.wheel.distribution.name, name) if name else None
        self._change("METADATA", changed_metadata(self._now("METADATA"), name=renamed, version=version))

    def retag(self, *, python: str | None = None, abi: str | None = None, platforms: Sequence[str] = ()) -> None:
        """Other tags in the file's name and in WHEEL, each several joined by dots."""
        platform = ".".join(platforms) or self.name.platform
        self.name = self.name._replace(python=python or self.name.python, abi=abi or self.name.abi, platform=platform)
        impure = not all(each == "any" for each in self.name.platforms)
        self._change("WHEEL", tagged_wheel(self._now("WHEEL"), self.name.tags, impure=impure))

    def label(self, variant: str | None) -> None:
        """The label of a variant in the file's name (PEP 825); None takes it away."""
        self.name = self.name._replace(variant=variant)

    def require(self, requirements: Iterable[str]) -> None:
        """More requirements behind those that it has."""
        self._change("METADATA", changed_metadata(self._now("METADATA"), requires=tuple(requirements)))

    def replace(self, member: str, content: Content) -> None:
        """In its place, stored or deflated as before."""
        self._replaced[member] = content

    def add(self, member: str, content: Content) -> None:
        """At the end; one that is there already goes."""
        self._dropped.add(member)
        self._added[member] = content

    def drop(self, members: Iterable[str]) -> None:
        self._dropped.update(members)

    def new_name(self, member: str) -> str:
        """The name of a member in the new wheel. Installers take every `*.data` folder at the top for the wheel's."""
        if member.startswith(self.wheel.info):
            return self._info + member.removeprefix(self.wheel.info)
        top, slash, rest = member.partition("/")
        return f"{self._info.removesuffix(f'{INFO}/')}{DATA}/{rest}" if slash and top.endswith(DATA) else member

    def write(self, made: Path) -> None:
        """All of it on the disk, read again as a wheel. The file need not be called so yet."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

        with made.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            writer = ZipWriter(file, pool)
            self._write_members(writer)
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
        self._check(made)

    def write_into(self, folder: Path) -> Path:
        """Under the name that it has now."""
        made = folder / str(self.name)
        self.write(made)
        return made

    def _write_members(self, writer: ZipWriter) -> None:
        """Every member in its order; what is added comes before RECORD, which is the last."""
        wheel, own = self.wheel, self.wheel.info + "RECORD"
        infos = {info.filename: info for info in wheel.zip.infos}
        changed: dict[str, Digest] = {}
        for name, info in infos.items():
            if name in self._replaced and name not in self._dropped:
                changed[name] = self._put(writer, name, self._replaced[name], info)
            elif name not in self._dropped and name != own:
                traits = Traits.of(info, self.new_name(info.filename))
                if self._anew:
                    writer.add(traits, self.wheel.zip.chunks(self.wheel.members[info.filename]), info.file_size)
                else:
                    writer.copy(traits, info, self.wheel.zip.packed_chunks(info))
        added = {
            self.new_name(name): self._put(writer, name, content, infos[wheel.info + "METADATA"])
            for name, content in self._added.items()
        }
        text = record.changed(
            wheel.read(own).decode("utf-8", "surrogateescape"),
            changed,
            removed=self._dropped,
            added=added,
            renamed={name: self.new_name(name) for name in infos},
        )
        self._put(writer, own, text.encode("utf-8", "surrogateescape"), infos[own])

    def _put(self, writer: ZipWriter, name: str, content: Content, like: zipfile.ZipInfo) -> Digest:
        """`like`: whose times and rights it gets. What was stored stays so, unless all is compressed again."""
        if isinstance(content, Taken):
            zip_ = content.wheel.zip
            info = zip_.info(content.member)
            writer.copy(Traits.of(info, self.new_name(name)), info, zip_.packed_chunks(info))
            return content.wheel.digest(content.member)
        digest = record.digest_of_chunks(_chunks(content))
        deflate = self._anew or like.compress_type != zipfile.ZIP_STORED
        writer.add(Traits.of(like, self.new_name(name)), _chunks(content), digest.size, deflate=deflate)
        return digest

    def _now(self, name: str) -> bytes:
        """A text of the dist-info folder, with the changes so far."""
        now = self._replaced.get(self.wheel.info + name)
        return now if isinstance(now, bytes) else self.wheel.read(self.wheel.info + name)

    def _change(self, name: str, text: bytes) -> None:
        self._replaced[self.wheel.info + name] = text

    def _check(self, made: Path) -> None:
        """Its RECORD must list what is in it, as far as the original's did."""
        with WheelFile(made) as new:
            before = {self.new_name(each) for each in self.wheel.unlisted}
            wrong = [*sorted(new.unlisted - before), *(each.message for each in new.findings)]
            if wrong or new.info != self._info:
                shown = ", ".join(wrong[:5]) or new.info
                raise MalformedError(
                    made,
                    f"RECORD and the files do not match: {shown}",
                    hint="this is a bug in cuwheel: please report it",
                )


def _chunks(content: bytes | Path) -> Iterator[bytes]:
    return iter((content,)) if isinstance(content, bytes) else files.chunks(content)


def _checked(version: str) -> str:
    try:
        return str(limited.version(version))
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is not a version: {error}", hint="such as 1.2+cu130") from error
