"""`cuwheel check`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.machine.fleet import Machine
from cuwheel.report.document import Column, Document, Facts, Findings, Heading, Mark, Matrix, Paragraph, Row, Table
from cuwheel.support.finding import SEVERITIES, Finding
from cuwheel.support.wording import a_few, file_name
from cuwheel.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.device_code.libraries import Survey
    from cuwheel.report.document import Block, Look
    from cuwheel.verdicts.predict import Outcome
    from cuwheel.verdicts.verdict import LibraryVerdict

_EVIDENCE = 3
_NAMES = 4
_ROWS = 40  # machines in the table; where there are more, those alike are one row
_SHORT = 40  # characters of a condition that stands in a cell
_LOOKS: dict[Outcome, Look] = {
    "native": "good",
    "compatible": "good",
    "jit": "fair",
    "partial": "poor",
    "unknown": "none",
    "fails": "bad",
}
_MEANINGS = (
    ("native", "machine code made for exactly this GPU"),
    ("compatible", "machine code made for an earlier capability of the same major"),
    ("jit", "runs, after the driver has compiled or linked it at first start"),
    ("partial", "some of it runs and some fails"),
    ("fails", "does not run"),
    ("unknown", "the device code or the GPU is not known"),
)


class Target(Struct, frozen=True, kw_only=True):
    """`target` is what was asked for, `name` what it says it is."""

    target: str
    name: str


def targets_of(surveys: Sequence[Survey]) -> tuple[Target, ...]:
    """Each by what it says it is; where several say the same, with the platform."""
    names = [_name(each) for each in surveys]
    return tuple(
        Target(target=each.target, name=f"{name} {_platform(each)}" if names.count(name) > 1 else name)
        for each, name in zip(surveys, names, strict=True)
    )


def _name(survey: Survey) -> str:
    distribution = survey.distribution
    return f"{distribution.name} {distribution.version}" if distribution else file_name(survey.target)


def _platform(survey: Survey) -> str:
    distribution = survey.distribution
    return distribution.tags[0].rpartition("-")[2] if distribution and distribution.tags else survey.target


class Check(Struct, frozen=True, kw_only=True):
    """A verdict for every target on every machine, target by target."""

    schema: Literal["cuwheel.check/1"] = "cuwheel.check/1"
    targets: tuple[Target, ...]
    machines: tuple[Machine, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def succeeded(self) -> bool:
        """False where anything fails anywhere."""
        return all(verdict.outcome != "fails" for verdict in self.verdicts)


def document(answer: Check, *, verbose: bool) -> Document:
    title = ", ".join(each.name for each in answer.targets[:_NAMES])
    blocks: list[Block] = [Heading(title), _matrix(answer)]
    shown = {verdict.outcome for verdict in answer.verdicts}
    blocks.append(Facts(tuple(Row(word, meaning) for word, meaning in _MEANINGS if word in shown)))
    if parts := tuple(_in_part(answer)):
        blocks += [Heading("In part"), Table((Column("on"), Column("what works, and what does not")), parts)]
    if conditions := tuple(_conditions(answer)):
        columns = (Column("on"), Column("the verdict holds only if"))
        blocks += [Heading("Conditions"), Table(columns, conditions)]
    if findings := tuple(_findings(answer, verbose=verbose)):
        blocks += [Heading("Reasons"), Findings(findings)]
    if verbose:
        for verdict in answer.verdicts:
            blocks += _libraries(verdict, answer)
    return Document(f"cuwheel check {title}", tuple(blocks))


def _matrix(answer: Check) -> Matrix:
    several = len(answer.machines)
    rows: dict[tuple[str, tuple[Mark, ...]], list[Machine]] = {}
    for index, machine in enumerate(answer.machines):
        name = machine.name if several <= _ROWS else ""  # many are told by what they are
        marks = tuple(map(_mark, answer.verdicts[index::several]))
        rows.setdefault((f"{name}\n{_described(machine)}", marks), []).append(machine)
    return Matrix(
        caption="Machines and packages",
        columns=tuple(target.name for target in answer.targets),
        rows=tuple(Row(a_few([each.name for each in alike], 1), _described(alike[0])) for alike in rows.values()),
        cells=tuple(marks for _, marks in rows),
    )


def _mark(verdict: Verdict) -> Mark:
    error = verdict.predicted_error
    note = f"error {error.code}" if error else _if(verdict.conditions)
    if verdict.summary:
        note = ": ".join(filter(None, (verdict.summary.partition(":")[0], note)))
    return Mark(text=verdict.outcome, look=_LOOKS[verdict.outcome], note=note)


def _if(conditions: tuple[str, ...]) -> str:
    """What the verdict rests on, in the few words that a cell has room for; all of it stands under Conditions."""
    if not conditions:
        return ""
    if len(conditions) > 1:
        return f"on {len(conditions)} conditions (below)"
    return f"if {conditions[0]}" if len(conditions[0]) <= _SHORT else "on one condition (below)"


def _described(machine: Machine) -> str:
    gpu = machine.gpu if machine.gpu and machine.gpu.lower() != machine.name.lower() else ""
    capability = machine.capability if machine.capability != machine.name else ""
    driver = f"driver {machine.driver}" if machine.driver else ""
    count = f"{machine.count} ×" if machine.count > 1 else ""
    return " ".join(filter(None, (count, gpu, capability, driver)))


def _conditions(answer: Check) -> Iterator[tuple[str, str]]:
    """Each condition once, with all that it is a condition of."""
    return _once(answer, ((verdict, each) for verdict in answer.verdicts for each in verdict.conditions))


def _in_part(answer: Check) -> Iterator[tuple[str, str]]:
    return _once(answer, ((verdict, verdict.summary) for verdict in answer.verdicts if verdict.summary))


def _once(answer: Check, told: Iterable[tuple[Verdict, str]]) -> Iterator[tuple[str, str]]:
    alike: dict[str, list[Verdict]] = {}
    for verdict, text in told:
        alike.setdefault(text, []).append(verdict)
    for text, verdicts in alike.items():
        yield _where(answer, verdicts), text


def _where(answer: Check, verdicts: list[Verdict]) -> str:
    """The machines, and the targets where there are several; nothing where it is all of them."""
    if len(verdicts) == len(answer.verdicts):
        return "all" if len(answer.verdicts) > 1 else answer.verdicts[0].machine
    machines = list(dict.fromkeys(verdict.machine for verdict in verdicts))
    names = {target.target: target.name for target in answer.targets}
    targets = list(dict.fromkeys(names[verdict.target] for verdict in verdicts))
    of = f" ({', '.join(targets)})" if 0 < len(targets) < len(answer.targets) else ""
    return a_few(machines, _NAMES) + of


def _findings(answer: Check, *, verbose: bool) -> Iterator[Finding]:
    """Each finding once, the gravest first, with the machines it was found for."""
    alike: dict[tuple[str, str, str], list[tuple[Verdict, Finding]]] = {}
    for verdict in answer.verdicts:
        for finding in verdict.findings:
            alike.setdefault((finding.rule, finding.severity, finding.message), []).append((verdict, finding))
    for found in sorted(alike.values(), key=lambda each: SEVERITIES.index(each[0][1].severity)):
        first = found[0][1]
        where = _where(answer, [verdict for verdict, _ in found]) if len(answer.verdicts) > 1 else ""
        evidence = tuple(dict.fromkeys(item for _, finding in found for item in finding.evidence))
        yield replace(
            first,
            message=f"{where}: {first.message}" if where else first.message,
            evidence=evidence if verbose else _shortened(evidence),
        )


def _shortened(evidence: tuple[str, ...]) -> tuple[str, ...]:
    if len(evidence) <= _EVIDENCE:
        return evidence
    return (*evidence[: _EVIDENCE - 1], f"{evidence[_EVIDENCE - 1]}, and {len(evidence) - _EVIDENCE} more (--verbose)")


def _libraries(verdict: Verdict, answer: Check) -> Iterator[Block]:
    names = {target.target: target.name for target in answer.targets}
    yield Heading(f"{names[verdict.target]} on {verdict.machine}")
    if not verdict.libraries:
        yield Paragraph("  no library with device code")
        return
    columns = (Column("library"), Column("verdict", wrap=False), Column("containers"), Column("takes"))
    yield Table(columns, tuple(_library(each) for each in verdict.libraries))


def _library(library: LibraryVerdict) -> tuple[str, ...]:
    loaded = {True: "", False: " (not loaded)", None: " (perhaps)"}[library.loaded]
    counted = library.containers
    counts = (("native", counted.native), ("compatible", counted.compatible), ("jit", counted.jit))
    counted_words = [f"{count} {how}" for how, count in (*counts, ("none", counted.none)) if count]
    error = f" {library.predicted_error.code}" if library.predicted_error else ""
    return (
        file_name(library.path) + loaded,
        library.outcome + error,
        ", ".join(counted_words),
        _some(f"{each.arch} × {each.count}" for each in library.rests_on),
    )


def _some(texts: Iterable[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:_NAMES]) + (" …" if len(listed) > _NAMES else "")
