"""Wheels of several CUDA versions that differ in added libraries alone, as one that has them all."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import locking as lock
from cuwheel.compat import tags
from cuwheel.errors import MalformedError
from cuwheel.facts import versions
from cuwheel.files import errors_of
from cuwheel.inspection import description
from cuwheel.inspection.description import Description, Part
from cuwheel.inspection.survey import survey
from cuwheel.stamping import described, guard, restamp, stamp
from cuwheel.wheel import record
from cuwheel.wheel.record import Digest
from cuwheel.wheel.zip_reader import ZipReader
from cuwheel.wheel.zip_writer import Traits, ZipWriter, data_offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.inspection.values import Survey

_CHUNK = 1 << 20
_SHOWN = 5
_OWN = ("RECORD", "WHEEL", description.NAME)  # written anew


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    path: Path
    reader: ZipReader
    archive: zipfile.ZipFile
    info: str  # its dist-info folder, with a slash
    digests: dict[str, Digest]
    told: Description

    @property
    def label(self) -> str:
        return f"the wheel for CUDA {self.told.cuda}"

    @property
    def head(self) -> tuple[str, ...]:
        """Name, version, Python and ABI."""
        name, version, *_, python, abi, _platform = self.path.name.removesuffix(".whl").split("-")
        return name, version, python, abi

    @property
    def platform(self) -> str:
        return self.path.name.removesuffix(".whl").rpartition("-")[2]

    @property
    def promise(self) -> tuple[bool, tuple[int, ...]]:
        """How much its tags promise, the least first: a plain linux tag promises nothing."""
        found = [tags.platform_of(each).glibc for each in self.platform.split(".")]
        known = [versions.key(each) for each in found if each]
        return not known, min(known, default=())

    def is_common(self, name: str) -> bool:
        """Whether it must be the same in all of them. The guard goes by what is in the whole wheel."""
        own = name.removeprefix(self.info) if name.startswith(self.info) else ""
        return own not in _OWN and name.rpartition("/")[2] != guard.FILE


def merge(wheels: Sequence[Path], to: Path) -> Path:
    """The new wheel, in the folder `to`. Raises with every difference that is not an added file."""
    with ExitStack() as stack:
        opened = [_open(each, stack) for each in wheels]
        if conflicts := list(dict.fromkeys(_conflicts(opened))):
            raise MalformedError(
                " and ".join(each.label for each in opened),
                "cannot be one:\n" + "\n".join(f"  {each}" for each in conflicts),
                hint="libraries that are named after their CUDA can be merged; for a wheel each: --naming local",
            )
        strictest = max(opened, key=lambda each: each.promise)
        name = "-".join([*opened[0].path.name.removesuffix(".whl").split("-")[:-1], strictest.platform]) + ".whl"
        to.mkdir(parents=True, exist_ok=True)
        with errors_of(to / name, f"{to / name} was not written"), lock.scratch(to) as folder:
            made = folder / name
            _write(opened, strictest, made)
            found = survey(made, detail="containers")
            wish = stamp.Wish(description=_described(opened, found), guard=restamp.guard_of(made, found))
            return stamp.stamp(made, to, wish)


def _open(path: Path, stack: ExitStack) -> _Opened:
    reader = ZipReader(path)
    stack.callback(reader.close)
    stamp.must_be_sound(path, reader)
    archive = stack.enter_context(zipfile.ZipFile(path))
    info = stamp.dist_infos(reader)[0] + "/"
    told = description.read(path)
    if told is None:
        raise MalformedError(path, "was not built by cuwheel: it has no description", hint="cuwheel build SOURCE")
    names = [each.filename for each in archive.infolist() if not each.is_dir()]
    digests = {each: _digest(archive, each) for each in names}
    return _Opened(path=path, reader=reader, archive=archive, info=info, digests=digests, told=told)


def _digest(archive: zipfile.ZipFile, name: str) -> Digest:
    hasher, size = hashlib.sha256(), 0
    with archive.open(name) as member:
        while chunk := member.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return Digest(sha256=hasher.hexdigest(), size=size)


def _conflicts(opened: Sequence[_Opened]) -> Iterator[str]:
    for first, other in combinations(opened, 2):
        for what, one, two in zip(("name", "version", "Python tag", "ABI"), first.head, other.head, strict=True):
            if one != two:
                yield f"the {what} is {one} in {first.label}, {two} in {other.label}"
        machines = [{tags.platform_of(each).cpu for each in it.platform.split(".")} for it in (first, other)]
        if machines[0] != machines[1]:
            yield f"the platform is {first.platform} in {first.label}, {other.platform} in {other.label}"
        common = first.digests.keys() & other.digests.keys()
        differing = sorted(each for each in common if first.is_common(each) and _differ(first, other, each))
        for name in differing[:_SHOWN]:
            where = f"in {first.label} and in {other.label}"
            yield f"{name} is {where}, and not the same{_why(first, other, name)}"
        if len(differing) > _SHOWN:
            yield f"and {len(differing) - _SHOWN} more files"


def _differ(one: _Opened, other: _Opened, name: str) -> bool:
    return one.digests[name] != other.digests[name]


def _why(one: _Opened, other: _Opened, name: str) -> str:
    """Of METADATA, the lines."""
    if name != f"{one.info}METADATA":
        return ""
    lines = [set(each.archive.read(name).decode("utf-8", "replace").splitlines()) for each in (one, other)]
    return ": " + "; ".join(sorted(lines[0] ^ lines[1])[:_SHOWN])


def _write(opened: Sequence[_Opened], strictest: _Opened, made: Path) -> None:
    """Each file once, from the first that has it, as it is compressed there."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    first = opened[0]
    digests: dict[str, Digest] = {}
    with made.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        writer = ZipWriter(file, pool)
        for each in opened:
            wanted = [info for info in each.archive.infolist() if info.filename not in (*digests, f"{each.info}RECORD")]
            for info in (info for info in wanted if not info.is_dir()):
                origin = strictest if info.filename == f"{first.info}WHEEL" else each
                told = origin.archive.getinfo(info.filename)
                offset = data_offset(origin.reader.source, told)
                writer.copy(Traits.of(told, told.filename), told, origin.reader.source, offset)
                digests[told.filename] = origin.digests[told.filename]
        own = f"{first.info}RECORD"
        text = record.listing(digests, own).encode("utf-8", "surrogateescape")
        writer.add(Traits.of(first.archive.getinfo(own), own), io.BytesIO(text), len(text))
        writer.finish()


def _described(opened: Sequence[_Opened], found: Survey) -> Description:
    told = [each.told for each in opened]
    return replace(
        told[0],
        cuda=", ".join(each.cuda for each in told),
        archs=tuple(dict.fromkeys(arch for each in told for arch in each.archs)),
        ptx=tuple(dict.fromkeys(arch for each in told for arch in each.ptx)),
        coverage=described.reach(found),
        plan=(),
        toolchain=None,
        merged=tuple(Part(cuda=each.cuda, archs=each.archs, ptx=each.ptx, toolchain=each.toolchain) for each in told),
    )
