"""What slimming will do, and what it came to: the plan, the answer that JSON shows, and the note that stays behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries.plan import Dropped, FileChange, LibraryPlan
from cuwheel.changes.graft.answer import CompiledCode, Reached
from cuwheel.changes.in_place import TOOL
from cuwheel.changes.slim.request import Kind, SlimTask
from cuwheel.device_code.contents import Bitcode
from cuwheel.support import codec, quoting
from cuwheel.support.answer import Answer
from cuwheel_core.device_code.libraries import Library
from cuwheel_core.support.finding import Finding

if TYPE_CHECKING:
    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.graft.compiled import Making, Plan  # noqa: TC004 - never decoded

_HEAVY = 5
_HEAVY_BYTES = 1_000_000
_NEARLY_ALL = 0.95


class Kept(Struct, frozen=True, kw_only=True):
    """What is left of a library after cutting by use: pieces are containers, and cubins that stand in none.

    `loaded` is false where the workload never loaded anything of it: whatever needs it will no longer work.
    """

    path: str
    pieces: int
    kept: int
    loaded: bool


class SlimPlan(Struct, frozen=True, kw_only=True):
    """What is to become of all libraries. `plans` and `removed` go by their paths.

    `bitcode`: files for compilers, of which some may be removed. `refused`: why nothing may be written. `kept`: what
    cutting by use leaves of each. `ahead`: what is compiled first.
    """

    task: SlimTask
    libraries: tuple[Library, ...]
    plans: dict[str, LibraryPlan]
    removed: tuple[str, ...]
    findings: tuple[Finding, ...]
    refused: tuple[Finding, ...]
    kept: tuple[Kept, ...] = ()
    ahead: Plan | None = None
    bitcode: tuple[Bitcode, ...] = ()

    @property
    def to_write(self) -> tuple[LibraryPlan, ...]:
        """The largest first: it takes longest."""
        plans = (plan for path, plan in self.plans.items() if plan.changes and path not in self.removed)
        return tuple(sorted(plans, key=lambda plan: -plan.bytes_before))

    @property
    def expected(self) -> tuple[FileChange, ...]:
        """What becomes of every library with device code, and of bitcode; sizes are estimates."""
        return self._with_others(plan.expected for plan in self.plans.values())

    def files(self, results: Iterable[Rewritten]) -> tuple[FileChange, ...]:
        """What became of every library with device code, and of bitcode."""
        done = {result.change.path: result.change for result in results}
        return self._with_others(done.get(path, plan.unchanged) for path, plan in self.plans.items())

    def _with_others(self, changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
        removed = [
            FileChange(
                path=library.path,
                fate="removed",
                bytes_before=library.size,
                bytes_after=0,
                dropped=tuple(
                    Dropped(kind=row.kind, arch=row.arch, section=row.section, count=row.count, bytes=row.bytes)
                    for row in library.device_code
                ),
            )
            for library in self.libraries
            if library.path in self.removed
        ]
        bitcode = (
            FileChange(
                path=each.path,
                fate="removed",
                bytes_before=each.bytes,
                bytes_after=0,
                dropped=(Dropped(kind="bitcode", arch=each.arch, section="", count=1, bytes=each.bytes),),
            )
            if each.path in self.removed
            else FileChange(path=each.path, fate="unchanged", bytes_before=each.bytes, bytes_after=each.bytes)
            for each in self.bitcode
        )
        return tuple(sorted([*changes, *removed, *bitcode], key=lambda each: each.path))


class Size(Struct, frozen=True, kw_only=True):
    bytes_before: int
    bytes_after: int


class Remaining(Struct, frozen=True, kw_only=True):
    """What the libraries still consist of: `host code`, `device code` and so on."""

    name: str
    bytes: int


class Heavy(Struct, frozen=True, kw_only=True):
    """A library that slim left as it is, or nearly, and what most of it is."""

    path: str
    bytes: int
    mostly: str


class Slim(Answer, frozen=True, kw_only=True):
    """`targets`: the machines it was made for, or `all`. In a dry run sizes after are estimates.

    `total` is of the libraries with device code. `container`: the line for a Dockerfile. `workload`: what was traced,
    where it was cut by use; `kept`: what that left of each library. `compiled`: what was made of PTX, or would be;
    `reached`: what `check` says of those libraries. `seconds`: what compiling was estimated to take of one core, at
    least and at most.
    """

    schema: Literal["cuwheel.slim/1"] = "cuwheel.slim/1"
    target: str
    kind: Kind
    action: Literal["slim", "undo", "commit"] = "slim"
    targets: tuple[str, ...]
    dry_run: bool
    written: bool
    refused: bool
    output: str | None
    files: tuple[FileChange, ...]
    total: Size
    wheel: Size | None
    remaining: tuple[Remaining, ...]
    heavy: tuple[Heavy, ...]
    undo: str | None
    container: str | None
    findings: tuple[Finding, ...]
    workload: tuple[str, ...] | None = None
    kept: tuple[Kept, ...] = ()
    compiled: tuple[CompiledCode, ...] = ()
    reached: tuple[Reached, ...] = ()
    seconds: tuple[float, float] | None = None

    @property
    def is_for_other_gpus(self) -> bool:
        """Nothing was changed because nothing in it is for these machines: somebody has the wrong file, or GPU."""
        untouched = all(each.fate == "unchanged" for each in self.files)
        return untouched and any(each.rule == "nothing-for-targets" for each in self.findings)

    @property
    def succeeded(self) -> bool:
        return not (self.refused or self.is_for_other_gpus) and not (
            self.action == "undo" and any(each.severity == "error" for each in self.findings)
        )


def total_of(files: Sequence[FileChange]) -> Size:
    return Size(
        bytes_before=sum(each.bytes_before for each in files), bytes_after=sum(each.bytes_after for each in files)
    )


def answer_of(
    plan: SlimPlan,
    files: tuple[FileChange, ...],
    findings: Sequence[Finding],
    *,
    written: bool = False,
    output: str | None = None,
    wheel: Size | None = None,
    undo: str | None = None,
    made: Making | None = None,
) -> Slim:
    """`files`: what became of the libraries, or the plan's estimates. `findings`: beside those that refuse.

    A library that cannot be read is left as it is, and no reason to stop. `made`: what was compiled.
    """
    task = plan.task
    unread = (replace(each, severity="warning") if each.severity == "error" else each for each in findings)
    return Slim(
        target=task.target,
        kind=task.kind,
        targets=task.machine_names,
        dry_run=task.request.dry_run,
        written=written,
        refused=bool(plan.refused),
        output=output,
        files=files,
        total=total_of(files),
        wheel=wheel,
        remaining=_remaining(plan, files),
        heavy=_heavy(plan, files),
        undo=undo,
        container=_container_line(task, files, output),
        findings=(*plan.refused, *unread),
        workload=task.commands,
        kept=plan.kept,
        compiled=made.rows if made else plan.ahead.rows() if plan.ahead else (),
        reached=tuple(made.reached) if made else (),
        seconds=plan.ahead.seconds if plan.ahead else None,
    )


def _remaining(plan: SlimPlan, files: Sequence[FileChange]) -> tuple[Remaining, ...]:
    """What the libraries consist of afterwards, the largest part first."""
    sums = _bytes_by_part(each for each in plan.libraries if each.path not in plan.removed)
    kept = [each for each in files if each.path not in plan.removed]
    code = sum(row.bytes for each in kept for row in each.dropped)
    code += sum(row.bytes_before - row.bytes_after for each in kept for row in each.recompressed)
    code -= sum(row.bytes for each in kept for row in each.added)
    debug = sum(each.debug for each in kept)
    sums["debug"] -= debug
    if code:
        sums["device code"] = max(sums.get("device code", 0) - code, 0)
        sums["other"] = sums.get("other", 0) + code + debug - sum(each.bytes_before - each.bytes_after for each in kept)
    parts = (Remaining(name=name, bytes=count) for name, count in sums.items() if count > 0)
    return tuple(sorted(parts, key=lambda each: -each.bytes))


def _heavy(plan: SlimPlan, files: Sequence[FileChange]) -> tuple[Heavy, ...]:
    """The largest libraries that hardly became smaller, and what they mostly are."""
    after = {each.path: each.bytes_after for each in files}
    rest = [
        each
        for each in plan.libraries
        if each.size >= _HEAVY_BYTES and after.get(each.path, each.size) > _NEARLY_ALL * each.size
    ]
    found = []
    for library in sorted(rest, key=lambda each: -each.size)[:_HEAVY]:
        largest = _bytes_by_part([library]).most_common(1)
        found.append(Heavy(path=library.path, bytes=library.size, mostly=largest[0][0] if largest else "other"))
    return tuple(found)


def _bytes_by_part(libraries: Iterable[Library]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for library in libraries:
        for part in library.parts:
            sums[part.name] += part.bytes
    return sums


def _container_line(task: SlimTask, files: Sequence[FileChange], output: str | None) -> str | None:
    """What a Dockerfile has to say. A build machine has no GPU: so capabilities, never `this`."""
    if task.workload or all(each.fate == "unchanged" for each in files):
        return None
    total = total_of(files)
    if total.bytes_after > _NEARLY_ALL * total.bytes_before:  # not worth a line
        return None
    if task.kind == "wheel" and output and "-win" not in PurePath(output).name:  # images are of Linux
        folder = PurePath(output).parent.name or "."
        return f"RUN --mount=type=bind,source={folder},target=/w pip install /w/*.whl"
    if task.kind != "environment" or quoting.is_of_windows(task.target):  # images are of Linux
        return None
    names = ",".join(dict.fromkeys(each.capability or each.name for each in task.machines)) if task.machines else "all"
    return f"RUN pip install … && cuwheel slim --env {quoting.posix([task.target])} --for {names} --commit"


class Note(Struct, frozen=True, kw_only=True):
    """`cuwheel-slim.json` in a dist-info folder: what was removed from the distribution, by what, for which machines.

    `version`: of the distribution before. `earlier`: the notes of runs before this one, the latest first.
    `workload`: where it was cut by use, what was traced.
    """

    schema: str = "cuwheel.slim-note/1"
    tool: str
    targets: tuple[str, ...]
    cuda: str | None
    version: str
    files: tuple[FileChange, ...]
    workload: tuple[str, ...] | None = None
    earlier: tuple[msgspec.Raw, ...] = ()


def note_of(task: SlimTask, version: str, files: Iterable[FileChange], before: bytes | None) -> bytes:
    """The note of a distribution. `before`: the one that is there already, if any."""
    earlier: tuple[msgspec.Raw, ...] = ()
    if before:
        old = codec.understood(before, dict[str, object]) or {}
        older = old.pop("earlier", [])
        rest = older if isinstance(older, list) else []
        earlier = tuple(msgspec.Raw(codec.encode(each)) for each in (old, *rest) if each)
    return codec.indented(
        Note(
            tool=TOOL,
            targets=task.machine_names,
            cuda=task.cuda,
            version=version,
            files=tuple(each for each in files if each.fate != "unchanged"),
            workload=task.commands,
            earlier=earlier,
        )
    )
