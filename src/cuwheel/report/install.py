"""`cuwheel install`: the document of its answer."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

from cuwheel.delivery.find_answer import Find, FoundFile
from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim, findings_section
from cuwheel.report.tables import Facts, Row, figure, short, table
from cuwheel.support import quoting
from cuwheel_core.support import printable
from cuwheel_core.support.wording import a_few, counted, size
from cuwheel_core.verdicts.condition import outcome_in_words

if TYPE_CHECKING:
    from cuwheel.delivery.install_answer import EditablePlan, Install, Package
    from cuwheel.support.cause import Cause

_CAUSES = 3
_FIXES = 2
_PASSED = {"another version": "no other version", "source build": "no build from source", "cpu build": "no CPU build"}
_NAMED = 3


def document(answer: Install, *, verbose: bool) -> Document:
    title = f"cuwheel install {answer.name}"
    if answer.parts or answer.downloaded:
        return Document(title, tuple(_fleet(answer)))
    blocks: list[Block] = [Heading(_headline(answer))]
    if answer.recovered:
        text = f"  an earlier install of {answer.recovered} was interrupted: the environment was restored"
        blocks.append(Paragraph(text))
    if answer.allowing:
        blocks.append(Verbatim((f"  if it may be: {quoting.here(answer.allowing)}",)))
    chosen = {each.file: each for each in answer.candidates if each.chosen}
    compiled = {each.file for each in answer.compiled}
    blocks += [Facts(tuple(_taken(each, chosen.get(each.file or ""), compiled))) for each in answer.packages]
    if any(each.version is None for each in answer.packages):
        if chosen:  # it would run by itself: what stands against it is told above
            return Document(title, tuple(blocks))
        none = Find(name=answer.name, machines=answer.machines, candidates=answer.candidates, downloaded=0)
        from cuwheel.report import find  # noqa: PLC0415 - mostly there is one

        return Document(title, (*blocks, *find.document(none, verbose=verbose).blocks))
    if answer.editable:
        blocks.append(Facts(tuple(_editable(answer.editable))))
    blocks += _changes(answer)
    for made in answer.compiled:
        blocks.append(Facts((Row("compiled", f"{made.pieces} pieces of PTX", origin=made.file),)))
    for each in answer.slimmed:
        sizes = f"{size(each.bytes_before)} to {size(each.bytes_after)}"
        blocks.append(Facts((Row("slimmed", sizes, origin=each.file),)))
    if answer.pins:
        wanted = printable.Lines(f"{name}={value}" for name, value in answer.pins.items())
        where = ", ".join(answer.pinned)
        tense = "would be written to" if answer.dry_run else "written to"
        blocks.append(Facts((Row("set", wanted, origin=f"{tense} {where}" if where else ""),)))
    if answer.written and not (answer.undone or answer.rolled_back or answer.problem):
        undo = quoting.here(["cuwheel", "install", "--undo", "--env", answer.env])
        blocks.append(Verbatim((f"  to put it back: {undo}",)))
    if answer.problem:
        blocks += [Heading("Why"), Paragraph(printable.Lines(f"  {each}" for each in answer.problem.splitlines()))]
        blocks += [_cause(each) for each in answer.causes[:_CAUSES]]
    return Document(title, (*blocks, *findings_section(answer.findings, "Beside that")))


def _headline(answer: Install) -> str:
    """What became of it."""
    named = [f"{each.name} {each.version}" if each.version else each.name for each in answer.packages]
    what = a_few(named, _NAMED) if named else answer.name
    are = "are" if named[1:] else "is"
    where = f"in {answer.env}"
    if answer.undone:
        return f"{answer.name} was taken back: {answer.env} is as it was before"
    if answer.rolled_back:
        return f"{what} failed: {answer.env} was put back as it was"
    if answer.problem or any(each.version is None for each in answer.packages):
        return f"{what} {are} not installed: nothing was changed {where}"
    if answer.refused:
        replaced = a_few([each.name for each in answer.refused], _NAMED)
        return f"{what} {are} not installed {where}: {replaced} would be replaced"
    if not (answer.written or answer.changes or answer.pinned or answer.editable):
        return f"{what} {are} installed {where}: nothing to change"
    if not answer.dry_run:
        tried = ", ".join(f"{each.name} {each.outcome}" for each in answer.checks)
        return f"{what} {are} installed {where}; {tried or 'there is no module to import'}"
    unknown = "; cannot tell whether that runs" if answer.exit_status == EXIT_UNKNOWN else ""
    return f"{what} would be installed {where} (--dry-run){unknown}"


def _taken(package: Package, chosen: FoundFile | None, compiled: Container[str]) -> Iterator[Row]:
    if package.version:
        yield Row("take", f"{package.name} {package.version}", origin=package.file or f"built from {package.wanted}")
    if chosen:
        published = " as published" if chosen.file in compiled else ""
        yield Row("outcome", f"{chosen.outcome}{published}", "; ".join(chosen.reasons[:_FIXES]))
        yield from [Row("needs", printable.Lines(chosen.conditions))] if chosen.conditions else []
    if package.fallback:
        yield Row("fallback", package.fallback, origin=package.why)
    elif not package.version:
        yield Row("take", "nothing", origin=package.why)
    yield from (Row(_PASSED[each.way], each.reason) for each in package.passed)
    if plan := package.build:
        torch = f", torch {plan.torch}" if plan.torch else ""
        made = f"{', '.join(plan.archs)} with CUDA {plan.toolkit}, {plan.compiler}, Python {plan.python}{torch}"
        yield Row("build", made, origin=plan.source)


def _editable(plan: EditablePlan) -> Iterator[Row]:
    yield Row("editable", plan.folder)
    yield Row("compile", f"{', '.join(plan.archs)} with CUDA {plan.toolkit}, {plan.compiler}")
    yield from (Row("run", each, command=True) for each in plan.commands)


def _fleet(answer: Install) -> Iterator[Block]:
    yield Heading(_fleet_headline(answer))
    columns = ("machines", "package", "how", figure("files"))
    rows = []
    for part in answer.parts:
        names = ", ".join(part.machines)
        if part.problem:
            rows.append((names, "nothing", part.problem, ""))
        for each in part.packages:
            needs = outcome_in_words(each.outcome, each.requires)
            how = (needs if each.version else each.why, each.fallback, *_pins(part.pins))
            taken = f"{each.name} {each.version or '-'}"
            rows.append((names, taken, "; ".join(filter(None, how)), str(len(part.files))))
    if rows:
        yield table(columns, rows)
    if answer.lock:
        place = [] if answer.lock == "." else [answer.lock]
        command = quoting.here(["cuwheel", "install", "--locked", *place])
        yield Paragraph(f"  written: {', '.join(answer.locks)}")
        yield Verbatim((f"  on each machine: {command}",))


def _fleet_headline(answer: Install) -> str:
    files = f"{counted(len(answer.downloaded), 'file')} in the folder" if answer.downloaded else ""
    if not answer.parts:
        return f"{answer.name}: {files}"
    unserved = [part for part in answer.parts if part.problem or not all(each.version for each in part.packages)]
    nobody = a_few([name for part in unserved for name in part.machines], _NAMED)
    if len(unserved) == len(answer.parts):
        return f"{answer.name}: no lock was written, nothing serves {nobody}"
    kinds = counted(len(answer.parts) - len(unserved), "kind")
    done = "would be locked (--dry-run)" if answer.dry_run else "locked"
    nothing = f"nothing serves {nobody}" if unserved else ""
    return ", ".join(filter(None, (f"{answer.name}: {done} for {kinds} of machine", nothing, files)))


def _pins(pins: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in pins.items())


def _changes(answer: Install) -> list[Block]:
    if not answer.changes:
        return []
    columns = ("package", short("from"), short("to"), "")
    refused = {each.name for each in answer.refused}
    rows = [
        (each.name, each.from_ or "-", each.to or "-", f"refused: --allow {each.name}" if each.name in refused else "")
        for each in answer.changes
    ]
    names: dict[str, list[str]] = {}
    for each in answer.changes:
        names.setdefault(each.index, []).append(each.name)
    places = [f"  from {index}: {', '.join(there)}" for index, there in names.items() if index]
    if len(names) == 1 and len(rows) > 1:
        places = [f"  all from {index}" for index in names if index]
    return [Heading("Changes"), table(columns, rows), *([Paragraph(printable.Lines(places))] if places else [])]


def _cause(cause: Cause) -> Facts:
    rows = [Row("cause", cause.title, origin=f"{cause.id}, confidence {cause.confidence:.2f}")]
    rows += [Row("fix", each) for each in cause.fix[:_FIXES]]
    return Facts(tuple(rows))
