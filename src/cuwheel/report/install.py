"""`cuwheel install`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.delivery import install_lock, together
from cuwheel.delivery.choosing import Fallback, Passed, PlannedBuild
from cuwheel.delivery.environment_changes import Change
from cuwheel.delivery.install_lock import LockedFile
from cuwheel.delivery.installing import EditablePlan, Slimmed
from cuwheel.diagnosis.diagnosis import Cause
from cuwheel.machine.fleet import Machine
from cuwheel.proving.outcomes import Result
from cuwheel.report import find
from cuwheel.report.document import Column, Document, Facts, Findings, Heading, Paragraph, Row, Table
from cuwheel.report.find import Candidate
from cuwheel.support import quoting
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size
from cuwheel.verdicts.predict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.delivery.choosing import Choice
    from cuwheel.delivery.fleet_install import Resolved
    from cuwheel.delivery.installing import Installed
    from cuwheel.report.document import Block

_CAUSES = 3
_FIXES = 2


class Package(Struct, frozen=True, kw_only=True):
    """What is taken for one requirement; `version` is null where nothing is.

    `fallback`: what it is in place of a wheel of the newest release, `why` that one is not taken, and `passed` the
    fallbacks before it that came to nothing. `build`: what is built from source, and how.
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


class Part(Struct, frozen=True, kw_only=True):
    """What a kind of machine of a fleet installs. `problem`: why nothing, where that is not about one package."""

    machines: tuple[str, ...]
    packages: tuple[Package, ...]
    pins: dict[str, str]
    files: tuple[LockedFile, ...]
    problem: str


class Install(Struct, frozen=True, kw_only=True):
    """`changes`: what changes in the environment, or with `dry_run` would. `refused`: those that `--allow` must name.

    `rolled_back`: the environment is as it was before, because of `problem`. `written`: it was changed. `undone`: the
    last install was put back. `fallback`: that of the first package that has one. `pins`: what has to
    be set for these packages on this machine, and `pinned` the files that `--pin` changes to say so.
    `parts`: of a lock, by kind of machine; `lock`: the file that was written. `downloaded`: files of it.
    `slimmed`: wheels from which `--slim` cut what these GPUs never load. `editable`: the project's folder that
    `build --editable` installs, and how.
    """

    schema: Literal["cuwheel.install/1"] = "cuwheel.install/1"
    name: str
    env: str
    machines: tuple[Machine, ...]
    packages: tuple[Package, ...]
    candidates: tuple[Candidate, ...]
    changes: tuple[Change, ...]
    refused: tuple[Change, ...]
    pins: dict[str, str]
    pinned: tuple[str, ...]
    slimmed: tuple[Slimmed, ...]
    editable: EditablePlan | None
    fallback: Fallback | None
    dry_run: bool
    written: bool
    rolled_back: bool
    undone: bool
    recovered: str
    problem: str
    lock: str | None
    parts: tuple[Part, ...]
    downloaded: tuple[str, ...]
    checks: tuple[Result, ...]
    causes: tuple[Cause, ...]
    findings: tuple[Finding, ...]

    @property
    def succeeded(self) -> bool:
        """False where nothing runs, a change was refused, or the environment was put back."""
        if self.undone:
            return True
        taken = all(each.version for each in (*self.packages, *(each for part in self.parts for each in part.packages)))
        taken = taken and not any(part.problem for part in self.parts)
        return taken and not (self.refused or self.rolled_back or self.problem)


def answer_of(done: Installed, *, dry_run: bool = False) -> Install:
    found = [find.answer_of(each.found) for each in done.choices]
    packages = tuple(map(_package, done.choices)) or tuple(_of_part(done.part))
    parts = tuple(map(_part, done.fleet.kinds)) if done.fleet else ()
    return Install(
        name=done.name,
        env=done.prefix,
        machines=found[0].machines if found else done.machines,
        packages=packages,
        candidates=tuple(candidate for each in found for candidate in each.candidates),
        changes=done.changes,
        refused=done.refused,
        pins=done.settings.needed,
        pinned=tuple(each.path for each in done.pinned),
        slimmed=done.slimmed,
        editable=done.editable,
        fallback=next((each.fallback for each in packages if each.fallback), None),
        dry_run=dry_run,
        written=done.written,
        rolled_back=done.rolled_back,
        undone=done.undone,
        recovered=done.recovered,
        problem=done.problem,
        lock=done.lock,
        parts=parts,
        downloaded=done.downloaded,
        checks=done.checks,
        causes=done.causes,
        findings=(*together.setting_findings(done.settings, written=bool(done.pinned)), *done.findings),
    )


def document(answer: Install, *, verbose: bool) -> Document:
    title = f"cuwheel install {answer.name}"
    if answer.parts or answer.downloaded:
        return Document(title, tuple(_fleet(answer)))
    blocks: list[Block] = [Heading(f"{answer.name} in {answer.env}")]
    if answer.recovered:
        blocks.append(
            Paragraph(f"  an earlier install of {answer.recovered} was interrupted: the environment was restored")
        )
    chosen = {each.file: each for each in answer.candidates if each.chosen}
    blocks += [Facts(tuple(_taken(each, chosen.get(each.file or "")))) for each in answer.packages]
    if any(each.version is None for each in answer.packages):
        none = find.Find(name=answer.name, machines=answer.machines, candidates=answer.candidates, downloaded=0)
        return Document(title, (*blocks, *find.document(none, verbose=verbose).blocks))
    if answer.editable:
        blocks.append(Facts(tuple(_editable(answer.editable))))
    blocks += _changes(answer)
    for each in answer.slimmed:
        sizes = f"{size(each.bytes_before)} to {size(each.bytes_after)}"
        blocks.append(Facts((Row("slimmed", sizes, origin=each.file),)))
    if answer.pins:
        wanted = "\n".join(f"{name}={value}" for name, value in answer.pins.items())
        where = ", ".join(answer.pinned)
        tense = "would be written to" if answer.dry_run else "written to"
        blocks.append(Facts((Row("set", wanted, origin=f"{tense} {where}" if where else ""),)))
    blocks.append(Paragraph(f"  {_outcome(answer)}"))
    if answer.problem:
        blocks += [Heading("Why"), Paragraph(f"  {answer.problem}")]
        blocks += [_cause(each) for each in answer.causes[:_CAUSES]]
    if answer.findings:
        blocks += [Heading("Beside that"), Findings(answer.findings)]
    return Document(title, tuple(blocks))


def _part(kind: Resolved) -> Part:
    return Part(
        machines=tuple(each.name for each in kind.machines),
        packages=tuple(map(_package, kind.choices)),
        pins=kind.part.pins if kind.part else {},
        files=kind.part.files if kind.part else (),
        problem=kind.problem,
    )


def _of_part(part: install_lock.Part | None) -> Iterator[Package]:
    """As the lock has it."""
    files = {each.name: each for each in part.files} if part else {}
    for name in part.packages if part else ():
        file = files.get(name)
        yield Package(
            name=name,
            wanted=name,
            version=file.version if file else None,
            file=file.file if file else None,
            outcome="unknown",
            fallback=None,
            why="the lock says so",
            passed=(),
            build=None,
        )


def _package(choice: Choice) -> Package:
    candidate = choice.ruling.candidate if choice.ruling else None
    planned = choice.build.version if choice.build else None
    return Package(
        name=choice.name,
        wanted=choice.wanted,
        version=str(candidate.version) if candidate else planned,
        file=candidate.file if candidate else None,
        outcome=choice.ruling.outcome if choice.ruling else "unknown",
        fallback=choice.fallback,
        why=choice.why,
        passed=choice.passed,
        build=choice.build,
    )


def _taken(package: Package, chosen: Candidate | None) -> Iterator[Row]:
    if package.version:
        yield Row("take", f"{package.name} {package.version}", origin=package.file or f"built from {package.wanted}")
    if chosen:
        yield Row("outcome", chosen.outcome, "; ".join(chosen.reasons[:_FIXES]))
    if package.fallback:
        yield Row("fallback", package.fallback, origin=package.why)
    elif not package.version:
        yield Row("take", "nothing", origin=package.why)
    yield from (Row("no " + each.way, each.reason) for each in package.passed)
    if package.build:
        yield Row("build", _build(package.build), origin=package.build.source)


def _build(plan: PlannedBuild) -> str:
    torch = f", torch {plan.torch}" if plan.torch else ""
    return f"{', '.join(plan.archs)} with CUDA {plan.toolkit}, {plan.compiler}, Python {plan.python}{torch}"


def _editable(plan: EditablePlan) -> Iterator[Row]:
    yield Row("editable", plan.folder)
    yield Row("compile", f"{', '.join(plan.archs)} with CUDA {plan.toolkit}, {plan.compiler}")
    yield from (Row("run", each) for each in plan.commands)


def _fleet(answer: Install) -> Iterator[Block]:
    yield Heading(f"{answer.name} for a fleet" if answer.parts else f"files of {answer.name}")
    columns = (Column("machines"), Column("package"), Column("how"), Column("files", numeric=True))
    rows = []
    for part in answer.parts:
        names = ", ".join(part.machines)
        if part.problem:
            rows.append((names, "nothing", part.problem, ""))
        for each in part.packages:
            how = (each.outcome if each.version else each.why, each.fallback, *_pins(part.pins))
            taken = f"{each.name} {each.version or '-'}"
            rows.append((names, taken, "; ".join(filter(None, how)), str(len(part.files))))
    if rows:
        yield Table(columns, tuple(rows))
    if answer.lock:
        command = quoting.here(["cuwheel", "install", "--locked", answer.lock])
        yield Paragraph(f"  written to {answer.lock}; on each machine: {command}")
    elif answer.parts:
        yield Paragraph(
            "  no lock was written: " + ("--dry-run" if answer.succeeded else "not every machine is served")
        )
    if answer.downloaded:
        yield Paragraph(f"  {len(answer.downloaded)} files are in the folder")


def _pins(pins: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in pins.items())


def _changes(answer: Install) -> list[Block]:
    if not answer.changes:
        return []
    columns = (Column("package"), Column("from", wrap=False), Column("to", wrap=False), Column(""))
    refused = {each.name for each in answer.refused}
    rows = (
        (each.name, each.from_ or "-", each.to or "-", f"refused: --allow {each.name}" if each.name in refused else "")
        for each in answer.changes
    )
    names: dict[str, list[str]] = {}
    for each in answer.changes:
        names.setdefault(each.index, []).append(each.name)
    places = [f"  from {index}: {', '.join(there)}" for index, there in names.items() if index]
    return [Heading("Changes"), Table(columns, tuple(rows)), *([Paragraph("\n".join(places))] if places else [])]


def _outcome(answer: Install) -> str:
    if answer.undone:
        return "the environment is as it was before"
    if answer.rolled_back:
        return "it failed: the environment was put back as it was"
    if answer.problem:
        return "nothing was changed"
    if answer.refused:
        return "nothing was changed: an installed package would be replaced"
    if answer.dry_run and answer.editable:
        return "nothing was changed: --dry-run"
    if answer.dry_run:
        changes = answer.changes or answer.pinned
        return "nothing was changed: --dry-run" if changes else "nothing to change: it is installed"
    if not answer.written:
        return "nothing to change: it is installed"
    tried = ", ".join(f"{each.name} {each.outcome}" for each in answer.checks)
    undo = quoting.here(["cuwheel", "install", "--undo", "--env", answer.env])
    return f"installed; {tried or 'it has no module to import'}\n  to put it back: {undo}"


def _cause(cause: Cause) -> Facts:
    rows = [Row("cause", cause.title, origin=f"{cause.id}, confidence {cause.confidence:.2f}")]
    rows += [Row("fix", each) for each in cause.fix[:_FIXES]]
    return Facts(tuple(rows))
