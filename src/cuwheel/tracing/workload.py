"""What traced workloads loaded of each build of a library: several traces as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel.errors import MalformedError
from cuwheel.facts.arch import Capability
from cuwheel.support import codec, files
from cuwheel.support.wording import file_name
from cuwheel.tracing.traced import LibraryUse, Load, Process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA = "cuwheel.trace/1"
_LIMIT = 1 << 28
_HINT = "make one with cuwheel trace -o trace.json -- COMMAND"


class Use(Struct, frozen=True, kw_only=True):
    """Of one build of a library. `offsets`: where what was loaded of it stands in the file.

    `images`: hashes of what its own code made in memory and handed to the driver, such as cubins that it unpacked;
    `unclear`: one of those is nowhere in the file.
    """

    name: str
    build_id: str
    size: int
    offsets: frozenset[int]
    images: frozenset[str] = frozenset()
    unclear: bool = False


class Workload(Struct, frozen=True, kw_only=True):
    """`commands`: what was traced, without arguments that may be secrets. `problems`: why a trace may not be whole."""

    commands: tuple[str, ...]
    gpus: tuple[Capability, ...]
    uses: tuple[Use, ...]
    problems: tuple[str, ...] = ()

    def use_of(self, build_id: str | None, size: int) -> Use | None:
        return next((each for each in self.uses if (each.build_id, each.size) == (build_id, size)), None)


class _File(Struct, frozen=True, kw_only=True):
    """As `cuwheel trace -o` writes it, as far as it is needed here."""

    schema: str
    command: tuple[str, ...] = ()
    processes: tuple[Process, ...]
    libraries: tuple[LibraryUse, ...]
    loads: tuple[Load, ...]
    unread: int = 0


def read(paths: Sequence[Path]) -> Workload:
    """Files of `trace -o`."""
    found = [(path, _read(path)) for path in paths]
    gpus = (gpu.capability for _, each in found for process in each.processes for gpu in process.gpus)
    uses: dict[tuple[str, str, int], Use] = {}
    for _, each in found:
        for use in _uses(each):
            key = use.name, use.build_id, use.size
            before = uses.get(key, use)
            offsets, images = before.offsets | use.offsets, before.images | use.images
            uses[key] = msgspec.structs.replace(use, offsets=offsets, images=images)
    return Workload(
        commands=tuple(dict.fromkeys(_command(path, each) for path, each in found)),
        gpus=tuple(dict.fromkeys(gpus)),
        uses=tuple(uses.values()),
        problems=tuple(f"{path}: {problem}" for path, each in found for problem in _problems(each)),
    )


def _read(path: Path) -> _File:
    data = files.read(path, _LIMIT, "a trace")
    try:
        named = codec.decode(data, dict[str, object])
        codec.refuse_newer(named, SCHEMA, path)
        found = codec.decode(data, _File) if named.get("schema") == SCHEMA else None
    except msgspec.DecodeError as error:
        raise MalformedError(path, f"is not a trace: {error}", _HINT) from error
    if found is None:
        raise MalformedError(path, "is not a trace", _HINT)
    return found


def _uses(found: _File) -> list[Use]:
    """A library without a build id cannot be known again, and one whose size was not written down neither."""
    made = []
    for library in found.libraries:
        if not library.build_id or not library.size:
            continue
        loads = [each for each in found.loads if each.library == library.library]
        images = [each for each in found.loads if each.library is None and each.caller == library.library]
        made.append(
            Use(
                name=file_name(library.library),
                build_id=library.build_id,
                size=library.size,
                offsets=frozenset(each.offset for each in loads if each.offset is not None),
                images=frozenset(each.hash for each in images if each.hash),
            )
        )
    return made


def _command(path: Path, found: _File) -> str:
    if found.command:
        return " ".join(found.command)
    return next((each.script or each.program for each in found.processes if each.script or each.program), path.name)


def _problems(found: _File) -> list[str]:
    """Why what it lists may not be all that was loaded."""
    problems = []
    if not found.loads:
        problems.append("no device code was loaded in it")
    lost = sum(each.lost for each in found.processes) + found.unread
    if lost:
        problems.append(f"{lost:,} of its events were lost")
    unseen = [number for number, each in enumerate(found.processes) if each.kernels and not _loads_of(found, number)]
    if unseen:
        problems.append("a process launched kernels whose code was not seen, as with the runtime of CUDA 11")
    if any(library.build_id and not library.size for library in found.libraries):
        problems.append("it was made by an earlier cuwheel, which did not write down the sizes of libraries")
    return problems


def _loads_of(found: _File, process: int) -> list[Load]:
    return [each for each in found.loads if each.process == process]
