"""What `cuwheel install` and `cuwheel build --editable` answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.delivery.find_answer import FoundFile
from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.machine.fleet import Machine
from cuwheel.network.resolver import Release
from cuwheel.proving.outcomes import Result
from cuwheel.support.answer import Answer
from cuwheel.support.cause import Cause
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.condition import Condition, texts
from cuwheel_core.verdicts.predict import Outcome

Fallback: TypeAlias = Literal["older version", "newer version", "source build", "cpu build"]
Way: TypeAlias = Literal["another version", "source build", "cpu build"]


class PlannedBuild(Struct, frozen=True, kw_only=True):
    """What is built, for what, and with what. `requires`: as its metadata says before it is built."""

    name: str
    version: str
    source: str
    cuda: str
    archs: tuple[str, ...]
    python: str
    backend: str
    toolkit: str
    compiler: str
    torch: str | None
    requires: tuple[str, ...]


class Passed(Struct, frozen=True, kw_only=True):
    """A fallback that was not taken, and why."""

    way: Way
    reason: str


class Package(Struct, frozen=True, kw_only=True):
    """What is taken for one requirement; `version` is null where nothing is.

    `fallback`: what it is in place of a wheel of the newest release, `why` that one is not taken, and `passed` the
    fallbacks before it that came to nothing. `build`: what is built from source, and how. `requires`: what must hold
    for the outcome; `conditions`: that in words.
    """

    name: str
    wanted: str
    version: str | None
    file: str | None
    outcome: Outcome
    fallback: Fallback | None
    why: str
    passed: tuple[Passed, ...]
    build: PlannedBuild | None
    requires: tuple[Condition, ...] = ()
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", texts(self.requires))


class Change(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A package: `from` is null where it is new, `to` where it is gone. `index`: where its file is from, if known."""

    name: str
    from_: str | None
    to: str | None
    index: str = ""


class Slimmed(Struct, frozen=True, kw_only=True):
    """Bytes of the wheel's file."""

    file: str
    bytes_before: int
    bytes_after: int


class CompiledWheel(Struct, frozen=True, kw_only=True):
    """`pieces`: of machine code that were made of its PTX."""

    file: str
    pieces: int


class EditablePlan(Struct, frozen=True, kw_only=True):
    """`commands`: what is run, for a shell, with the variables that matter."""

    folder: str
    cuda: str
    archs: tuple[str, ...]
    toolkit: str
    compiler: str
    commands: tuple[str, ...]


class Part(Struct, frozen=True, kw_only=True):
    """What a kind of machine of a fleet installs. `problem`: why nothing, where that is not about one package."""

    machines: tuple[str, ...]
    packages: tuple[Package, ...]
    pins: dict[str, str]
    files: tuple[Release, ...]
    problem: str


class Install(Answer, frozen=True, kw_only=True):
    """`changes`: what changes in the environment, or with `dry_run` would. `refused`: those that `--allow` must name;
    `allowing`: the command that allows them, as words.

    `rolled_back`: the environment is as it was before, because of `problem`. `written`: it was changed. `undone`: the
    last install was put back. `fallback`: that of the first package that has one. `pins`: what has to
    be set for these packages on this machine, and `pinned` the files that `--pin` changes to say so.
    `parts`: of a lock, by kind of machine; `lock`: the folder that it was written to, and `locks` the files in it.
    `downloaded`: files of it.
    `slimmed`: wheels from which `--slim` cut what these GPUs never load; `compiled`: those that `--compile` gave
    machine code. `editable`: the project's folder that `build --editable` installs, and how.
    """

    schema: Literal["cuwheel.install/1"] = "cuwheel.install/1"
    name: str
    env: str
    machines: tuple[Machine, ...]
    packages: tuple[Package, ...]
    candidates: tuple[FoundFile, ...]
    changes: tuple[Change, ...]
    refused: tuple[Change, ...]
    pins: dict[str, str]
    pinned: tuple[str, ...]
    slimmed: tuple[Slimmed, ...]
    compiled: tuple[CompiledWheel, ...]
    editable: EditablePlan | None
    fallback: Fallback | None
    dry_run: bool
    written: bool
    rolled_back: bool
    undone: bool
    recovered: str
    problem: str
    lock: str | None
    locks: tuple[str, ...]
    parts: tuple[Part, ...]
    downloaded: tuple[str, ...]
    checks: tuple[Result, ...]
    causes: tuple[Cause, ...]
    findings: tuple[Finding, ...]
    allowing: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        """False where nothing runs, a change was refused, or the environment was put back."""
        if self.undone:
            return True
        taken = all(each.version for each in (*self.packages, *(each for part in self.parts for each in part.packages)))
        taken = taken and not any(part.problem for part in self.parts)
        return taken and not (self.refused or self.rolled_back or self.problem)

    @property
    def exit_status(self) -> int | None:
        """The status of a dry run of which nobody can tell whether the package runs: not known is not yes."""
        undecided = any(each.chosen and each.needs_a_gpu_to_tell for each in self.candidates)
        return EXIT_UNKNOWN if self.dry_run and undecided and self.succeeded else None


def initial_answer(
    name: str,
    env: Path | None = None,
    packages: tuple[Package, ...] = (),
    **known: Any,  # noqa: ANN401 - its fields
) -> Install:
    """Nothing was done yet."""
    fields: dict[str, Any] = {
        "machines": (),
        "candidates": (),
        "changes": (),
        "refused": (),
        "pins": {},
        "pinned": (),
        "slimmed": (),
        "compiled": (),
        "editable": None,
        "fallback": next((each.fallback for each in packages if each.fallback), None),
        "dry_run": False,
        "written": False,
        "rolled_back": False,
        "undone": False,
        "recovered": "",
        "problem": "",
        "lock": None,
        "locks": (),
        "parts": (),
        "downloaded": (),
        "checks": (),
        "causes": (),
        "findings": (),
    }
    return Install(**{**fields, **known, "name": name, "env": str(env) if env else "", "packages": packages})
