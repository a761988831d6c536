"""The donor of `graft --add`: the missing architectures and a witness, built as the base was."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cuwheel.building.request import BuildRequest, Fit
from cuwheel.changes.graft import subject as subjects
from cuwheel.changes.graft.act import not_for_jetson
from cuwheel.changes.graft.subject import Subject
from cuwheel.device_code import target
from cuwheel.device_code.description import Description, Tools
from cuwheel.device_code.survey import survey
from cuwheel.errors import UsageError
from cuwheel.facts.tables import tables
from cuwheel.machine.world import World
from cuwheel.support import log
from cuwheel.toolchains.providers import index
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Arch

if TYPE_CHECKING:
    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel_core.device_code.libraries import Library


@contextlib.contextmanager
def with_built_donors(request: GraftRequest) -> Iterator[GraftRequest]:
    """The request with a donor for each CUDA version in place of `add` and `source`.

    The same request where it asks for nothing to be built.
    """
    if not request.add:
        yield request
        return
    with tempfile.TemporaryDirectory(prefix="cuwheel-graft-") as folder:
        wanted = dict.fromkeys(request.cuda or (None,))
        donors = [_build(request, cuda, Path(folder, cuda or "newest")) for cuda in wanted]
        yield dataclasses.replace(request, donors=donors, add=(), source=None, cuda=None)  # noqa: TID251 - a request


def _build(request: GraftRequest, cuda: str | None, folder: Path) -> Path:
    """`cuda`: of the libraries that are to grow; None for the newest."""
    from cuwheel.building import pipeline  # noqa: PLC0415 - a graft of finished wheels builds nothing

    base = Path(target.downloaded_if_pinned(request.base))
    wanted = _missing(base, tuple(request.add), cuda)
    traces = _traces(base, wanted.libraries)
    asked = BuildRequest(
        request.source or ".",
        machines=[str(each.capability) for each in traces.listed or wanted.listed],
        cuda=[_release(wanted.cuda, traces.compilers)],
        # A compiler cache would run nvcc's steps itself, and none of them with the ids of the base.
        settings={"plan": {"native": True}, "naming": "none", "repair": {"enabled": False}, "cache": False},
        fit=Fit(
            archs=tuple(map(str, wanted.compiled)),
            module_ids=traces.module_ids,
            paths=traces.paths,
            components=() if _was_without_nvtx(wanted) else ("nvtx",),
        ),
        output=folder,
        cpu=wanted.cpu,
    )
    made = pipeline.build(asked, os.environ)
    for each in made.answer.jobs:
        if each.wheel and each.outcome in ("built", "resumed"):
            return each.wheel.file
    job = made.jobs[0]
    problem = job.problem.what if job.problem else "; ".join(each.message for each in job.answer.findings)
    raise MalformedError(str(request.source), f"could not be built for {', '.join(wanted.compiled)}: {problem}")


def _release(cuda: str, compilers: frozenset[str]) -> str:
    """The patch release with the compiler of the base, where that is known: another one may write other code."""
    if cuda != versions.minor(cuda) or len(compilers) != 1:
        return cuda
    (compiler,) = compilers
    return index.release_with(compiler) or cuda


class _Missing(Struct, frozen=True, kw_only=True):
    """`listed`: what the base has. `compiled`: what to build: the new ones, and the witness last.

    `libraries`: those of the base that are to grow. `cpu`: their processor, where it is not this machine's. `tools`:
    what built them, where the base says it.
    """

    tools: Tools | None
    cpu: str | None
    cuda: str
    libraries: tuple[str, ...]
    listed: tuple[Arch, ...]
    compiled: tuple[Arch, ...]


def _missing(base: Path, add: tuple[str, ...], cuda: str | None) -> _Missing:
    if base.suffix != ".whl":
        raise UsageError(
            f"{base.name} is not a wheel, and --add builds one", hint="give the wheel that it is in, or a donor"
        )
    surveyed = survey(str(base), detail="rows")
    libraries = [each for each in surveyed.libraries if each.toolkits and each.device_code]
    known = sorted({each.toolkits[-1] for each in libraries}, key=versions.key)
    if not known:
        raise UsageError(f"{base.name} has no machine code, so it is not known what it was built with")
    chosen = cuda or known[-1]
    growing = [each for each in libraries if each.toolkits[-1] == versions.minor(chosen)]
    if not growing:
        raise UsageError(f"{base.name} has no library for CUDA {chosen}", hint=f"it has: {', '.join(known)}")
    wanted = tuple(dict.fromkeys(map(Arch.parse, add)))
    cpu = _processor(base, growing, wanted)
    common = set.intersection(
        *({row.arch for row in each.device_code if row.kind == "cubin" and row.linked} for each in growing)
    )
    if common_names := [each for each in wanted if each in common]:
        raise UsageError(f"{base.name} already has {', '.join(common_names)}")
    if not common:
        raise UsageError(f"no architecture is in all libraries of {base.name} for CUDA {chosen}: none can be a witness")
    listed = tuple(sorted(common, key=lambda each: (each.capability, each.suffix)))
    # The witness is the one with the least code.
    sizes = {
        arch: sum(row.real_bytes for each in growing for row in each.device_code if row.arch == arch) for arch in listed
    }
    return _Missing(
        tools=_tools(surveyed.description, chosen),
        cpu=cpu,
        cuda=chosen,
        libraries=tuple(each.path for each in growing),
        listed=listed,
        compiled=(*wanted, min(listed, key=lambda each: sizes[each])),
    )


def _tools(described: Description | None, cuda: str) -> Tools | None:
    """The tools that made a wheel; where several builds were merged into it, those for this CUDA version."""
    if described is None:
        return None
    merged = [each.toolchain for each in described.merged if each.cuda == versions.minor(cuda)]
    return described.toolchain or next(iter(merged), None)


def _was_without_nvtx(base: _Missing) -> bool:
    """Whole toolkits have its headers, and with them CUB includes more, which is in the code of the wheel to fit.

    Not so where that was built with a toolkit of parts, and says which.
    """
    archives = base.tools.archives if base.tools else ()
    return bool(archives) and not any("nvtx" in each.file for each in archives)


def _processor(base: Path, libraries: Sequence[Library], wanted: Sequence[Arch]) -> str | None:
    """The processor that a donor is compiled for, if not this machine's.

    What cannot be done is refused before minutes of it.
    """
    machine = World.here()
    kinds = {(each.format, each.machine) for each in libraries}
    if kinds == {("pe" if os.name == "nt" else "elf", machine.cpu)}:
        return None
    crossing = [row.target for row in tables().toolchains.cross if row.on == machine.cpu and os.name != "nt"]
    if cpu := next((each for each in crossing if kinds == {("elf", each)}), None):
        return cpu
    foreign = next(each for each in libraries if (each.format, each.machine) != ("elf", machine.cpu))
    kind = f"{foreign.machine} {'Windows' if foreign.format == 'pe' else 'Linux'}"
    more = "".join(
        f"; it is {each.message}"
        for each in not_for_jetson(libraries, dict.fromkeys((each.path for each in libraries), wanted))
    )
    raise UsageError(
        f"{base.name} is for {kind}, which this machine does not build for{more}",
        hint="run it on such a machine, or build a donor there: cuwheel graft BASE DONOR",
    )


class _Traces(NamedTuple):
    """What the code tells of a build. `listed`: its architectures; empty where nothing says it, or not one thing.

    `paths`: of files. `compilers`: their versions.
    """

    module_ids: tuple[str, ...]
    paths: tuple[str, ...]
    listed: tuple[Arch, ...]
    compilers: frozenset[str]


def _traces(base: Path, libraries: Sequence[str]) -> _Traces:
    """Where the base was built elsewhere, only with its ids are kernels called the same.

    A list in the names of CUB's kernels is the build's, also where an architecture was removed since.
    """
    ids: dict[str, None] = {}
    paths: dict[str, None] = {}
    lists: set[tuple[str, ...]] = set()
    compilers: set[str] = set()
    with WheelFile(base) as wheel, tempfile.TemporaryDirectory(prefix="cuwheel-graft-") as folder:
        for name in libraries:
            copy = Path(folder, "library")
            with copy.open("wb") as file:
                wheel.copy_to(name, file)
            with Subject(copy, name) as subject:
                ids |= dict.fromkeys(subjects.module_ids_of(subject))
                paths |= dict.fromkeys(subjects.source_paths(subject))
                compilers |= subject.compilers
                lists |= {subjects.listed_numbers(text) for text in subjects.arch_lists_in(subject.names)}
    log.debug("%s: %d module ids, lists of architectures %s, compilers %s", base.name, len(ids), lists, compilers)
    listed = [Arch.parse(f"sm_{number[:-1]}") for number in lists.pop()] if len(lists) == 1 else []
    return _Traces(tuple(ids), tuple(paths), tuple(listed), frozenset(compilers))
