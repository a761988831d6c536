"""`cuwheel check`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim, findings_section
from cuwheel.report.tables import Facts, Look, Mark, MarkedLine, Matrix, Row, short, table
from cuwheel.support import quoting
from cuwheel_core.fix import in_words
from cuwheel_core.support import printable
from cuwheel_core.support.finding import SEVERITIES, Finding
from cuwheel_core.support.wording import a_few, file_name, without_error_names

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.verdict import Check, LibraryVerdict, Verdict
    from cuwheel_core.verdicts.condition import Condition
    from cuwheel_core.verdicts.predict import Outcome

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
_WORDS: dict[Outcome, str] = {
    "native": "runs",
    "compatible": "runs",
    "jit": "runs",
    "partial": "partly",
    "unknown": "unknown",
    "fails": "fails",
}
_NO_CODE = ("no-code-for-gpu", "device-link-without-code")
_REASONS = 8  # in the line of one machine
_JIT = "the driver compiles or links it at the first start"
_MEANINGS = (
    ("native", "machine code made for exactly this GPU"),
    ("compatible", "machine code made for an earlier capability of the same major"),
    ("jit", f"it runs: {_JIT}"),
    ("partial", "some of it runs and some fails"),
    ("fails", "does not run"),
    ("unknown", "the device code or the GPU is not known"),
)


def document(answer: Check, *, verbose: bool) -> Document:
    """The verdict first, a line a machine; then what it depends on, and what to do. Evidence is for `verbose`."""
    every, answer = answer, _without_repetitions(answer)
    single = answer.targets[0].name if len(answer.targets) == 1 else ""  # the name, where one package is asked about
    title = ", ".join(each.name for each in answer.targets[:_NAMES])
    if single and not verbose and (brief := _nothing_to_say_of_machines(answer, single)):
        return Document(f"cuwheel check {title}", brief)
    blocks: list[Block] = [Heading(_verdict_sentence(answer, single) if single else _sentence_of_several(every))]
    if not single and (taken := tuple(_taken_by_each(every))):
        blocks.append(Facts(taken))
    blocks.append(_matrix(answer, single))
    if not single and (
        told := tuple(_once(answer, ((each, each.summary) for each in answer.verdicts if each.summary)))
    ):
        blocks += [Heading("In part"), table(("on", "what works, and what does not"), told)]
    about_files = (
        each if single else replace(each, about=target.name) for target in answer.targets for each in target.findings
    )
    blocks += findings_section(about_files, "Not as it should be")
    needs: dict[str, list[Verdict]] = {}  # whoever has the wheel knows: no condition of the verdict
    for verdict in answer.verdicts:
        for by_tag in (each for each in verdict.requires if each.id == "wheel-tag"):
            needs.setdefault(by_tag.short, []).append(verdict)
    if needs:
        # Of a machine that is known in part less is asked than of one by its GPU alone: the most says it for all.
        most = [each for each in sorted(needs) if not any(other != each and other.endswith(each) for other in needs)]
        blocks.append(Facts(tuple(Row("needs", each + _whose(answer, needs[each])) for each in most)))
    in_line: set[Condition] = set()
    in_table: set[Condition] = set()
    for verdict in answer.verdicts:  # a lone short condition stands in the line of its machine
        found = verdict.requires_beyond_tag
        shown = single or not verdict.predicted_error  # which takes the room in a cell
        (in_line if shown and _has_room(found) else in_table).update(found)
    without = set() if verbose else in_line - in_table
    left = (
        (verdict, each.text)
        for verdict in answer.verdicts
        for each in verdict.requires_beyond_tag
        if each not in without
    )
    if conditions := tuple(_once(answer, left)):
        by_machines: dict[str, list[str]] = {}
        for where, condition in conditions:
            by_machines.setdefault(where, []).append(condition)
        rows = ((where, printable.Lines(told)) for where, told in by_machines.items())
        blocks += [Heading("Conditions"), table(("on", "the verdict holds only if"), rows)]
    if verbose:
        blocks += findings_section(_findings(answer, verbose=True), "Reasons")
        for verdict in answer.verdicts:
            blocks += _libraries(verdict, answer)
        return Document(f"cuwheel check {title}", tuple(blocks))
    # Where one package is asked about, the lines of the machines say what stands against it.
    said = answer.verdicts if single else ()
    obstacles = [(each, finding) for each in said for finding in each.obstacles]
    ways = ((each, in_words(fixes)) for each in said for fixes in each.fixes)
    if fixes := tuple(_once(answer, ways)):
        blocks += [Heading("Fix"), Facts(tuple(Row(where, text) for where, text in fixes))]
    blocks += findings_section(_findings(answer, verbose=False, without=obstacles), "Also" if single else "Reasons")
    if any(each.evidence for verdict in answer.verdicts for each in verdict.findings):
        blocks.append(Paragraph("The evidence for all of it: --verbose"))
    return Document(f"cuwheel check {title}", tuple(blocks))


def _nothing_to_say_of_machines(answer: Check, name: str) -> tuple[Block, ...]:
    """No CUDA code, or no GPU to ask about: one sentence, and what to do."""
    if all(each.has_no_code for each in answer.verdicts) and answer.succeeded:
        return (Heading(f"{name}: no CUDA code, nothing to check"),)
    if answer.succeeded and all(
        any(each.rule == "gpu-not-known" for each in verdict.findings) for verdict in answer.verdicts
    ):
        command = quoting.here(["cuwheel", "check", answer.targets[0].asked, "--on", "h100"])
        lines = (
            f"  Name one: {command}",
            "  or a capability, a fleet file, or what `cuwheel doctor --save` wrote there.",
        )
        where = a_few([each.machine for each in answer.verdicts], 1)
        return (Heading(f"{name}: cannot tell, {where} has no GPU that cuwheel can see"), Verbatim(lines))
    return ()


def _without_repetitions(answer: Check) -> Check:
    """Packages of which the same is to be said on every machine, as one."""
    several = len(answer.machines)
    alike: dict[tuple[object, ...], list[int]] = {}
    for index in range(len(answer.targets)):
        verdicts = answer.verdicts[index * several : (index + 1) * several]
        said = (
            (each.outcome, each.summary, each.conditions, [one.message for one in each.findings]) for each in verdicts
        )
        alike.setdefault((answer.targets[index].findings, *map(repr, said)), []).append(index)
    if len(alike) == len(answer.targets):
        return answer
    names = [" and ".join(answer.targets[index].name for index in each) for each in alike.values()]
    kept = [each[0] for each in alike.values()]
    return replace(
        answer,
        targets=tuple(replace(answer.targets[index], name=name) for index, name in zip(kept, names, strict=True)),
        verdicts=tuple(each for index in kept for each in answer.verdicts[index * several : (index + 1) * several]),
    )


def _verdict_sentence(answer: Check, name: str) -> str:
    """`torch 2.11.0: runs on 1 of 4 machines (16 of 164 GPUs)`."""
    if len(answer.verdicts) == 1:
        verdict = answer.verdicts[0]
        said = {"runs": "runs on", "partly": "runs in part on", "fails": "does not run on"}
        word = _WORDS[verdict.outcome]
        return (
            f"{name} {said[word]} {verdict.machine}"
            if word in said
            else f"{name}: cannot tell whether it runs on {verdict.machine}"
        )
    counts = dict.fromkeys(_WORDS.values(), 0)
    gpus = 0
    for machine, verdict in zip(answer.machines, answer.verdicts, strict=True):
        word = _WORDS[verdict.outcome]
        counts[word] += 1
        gpus += machine.count if word == "runs" else 0
    every = sum(each.count for each in answer.machines)
    machines = "kinds of machine" if every > len(answer.machines) else "machines"
    sentence = f"{name}: runs on {counts['runs']} of {len(answer.machines)} {machines}"
    sentence += f" ({gpus} of {every} GPUs)" if every > len(answer.machines) else ""
    sentence += f", in part on {counts['partly']}" if counts["partly"] else ""
    return sentence + (f"; not known of {counts['unknown']}" if counts["unknown"] else "")


def _sentence_of_several(answer: Check) -> str:
    """`foo 1.0 runs on 1 of 3 machines, bar 2.0 on 2`; of many packages how many machines run all of them."""
    several = len(answer.machines)
    ran = [_WORDS[each.outcome] == "runs" for each in answer.verdicts]
    if several == 1:
        return f"{sum(ran)} of {len(ran)} run on {answer.verdicts[0].machine}"
    kinds = "kinds of machine" if any(each.count > 1 for each in answer.machines) else "machines"
    if len(answer.targets) > _NAMES:
        whole = sum(all(ran[index::several]) for index in range(several))
        return f"{len(answer.targets)} packages: all of them run on {whole} of {several} {kinds}"
    counts = [sum(ran[start : start + several]) for start in range(0, len(ran), several)]
    first, *rest = zip((each.name for each in answer.targets), counts, strict=True)
    sentence = f"{first[0]} runs on {first[1]} of {several} {kinds}"
    return sentence + "".join(f", {name} on {count}" for name, count in rest)


def _taken_by_each(answer: Check) -> Iterator[Row]:
    """Rows for several builds of one package: which of them each machine runs."""
    several = len(answer.machines)
    names = {each.name.partition(" ")[0] for each in answer.targets}
    if len(answer.targets) == 1 or len(names) > 1 or not 1 < several <= _ROWS:
        return
    for index, machine in enumerate(answer.machines):
        verdicts = zip(answer.targets, answer.verdicts[index::several], strict=True)
        running = [each.name.partition(" ")[2] or each.name for each, it in verdicts if _WORDS[it.outcome] == "runs"]
        yield Row(machine.name, f"takes {' or '.join(running) or 'none of them'}")


def _matrix(answer: Check, single: str) -> Matrix:
    several = len(answer.machines)
    rows: dict[tuple[str, tuple[Mark, ...]], list[Machine]] = {}
    brief: dict[tuple[str, tuple[Mark, ...]], MarkedLine] = {}
    for index, machine in enumerate(answer.machines):
        name = machine.name if several <= _ROWS else ""  # many are told by what they are
        verdicts = answer.verdicts[index::several]
        key = (f"{name}\n{_described(machine)}", tuple(map(_mark, verdicts)))
        rows.setdefault(key, []).append(machine)
        if single:
            mark = Mark(text=_WORDS[verdicts[0].outcome], look=_LOOKS[verdicts[0].outcome])
            named = a_few([each.name for each in rows[key]], 1)
            brief[key] = MarkedLine(
                mark=mark, name=named, value=_described(machine, driver=not name), why=_why(verdicts[0], machine)
            )
    shown = {verdict.outcome for verdict in answer.verdicts}
    return Matrix(
        caption="Machines and packages",
        columns=tuple(target.name for target in answer.targets),
        rows=tuple(Row(a_few([each.name for each in alike], 1), _described(alike[0])) for alike in rows.values()),
        cells=tuple(marks for _, marks in rows),
        meanings=tuple(Row(word, meaning) for word, meaning in _MEANINGS if word in shown),
        brief=tuple(brief.values()),
    )


def _why(verdict: Verdict, machine: Machine) -> str:
    """In the line of a machine: how it runs, or everything that stands against it; which libraries is for --verbose."""
    if verdict.outcome == "partial":
        return verdict.summary
    if verdict.outcome in ("fails", "unknown"):
        worth = ("error",) if verdict.outcome == "fails" else ("error", "warning", "note")
        told = [
            f"no code for {machine.capability}"
            if each.rule in _NO_CODE
            else each.says
            if each.subject == "it" and not each.about
            else each.message
            for each in verdict.findings
            if each.severity in worth
        ]
        without_names = list(map(without_error_names, dict.fromkeys(told)))
        if len(without_names) > _REASONS:
            without_names[_REASONS:] = [f"and {len(without_names) - _REASONS:,} more findings: --verbose"]
        return printable.Lines(without_names) or dict(_MEANINGS)[verdict.outcome]
    meanings = {"compatible": "compatible (code for an earlier GPU of its major)", "jit": f"jit ({_JIT})"}
    return " ".join(filter(None, (meanings.get(verdict.outcome, verdict.outcome), _condition_in_short(verdict))))


def _mark(verdict: Verdict) -> Mark:
    error = verdict.predicted_error
    note = f"error {error.code}" if error else _condition_in_short(verdict)
    if verdict.summary:
        note = ": ".join(filter(None, (_in_part(verdict), note)))
    return Mark(text=verdict.outcome, look=_LOOKS[verdict.outcome], note=note)


def _in_part(verdict: Verdict) -> str:
    """What of it works, where a cell has no room for its summary."""
    if verdict.main_part_fails:
        return "starts, but its main part fails"
    kernels = any(each.main and each.outcome == "partial" for each in verdict.libraries)
    return "runs, but not all of its kernels" if kernels else "runs; an optional part does not"


def _condition_in_short(verdict: Verdict) -> str:
    """What it rests on, in the few words that a cell has room for; all of it stands under Conditions."""
    conditions = verdict.requires_beyond_tag
    if not conditions:
        return ""
    if len(conditions) > 1:
        return f"on {len(conditions)} conditions (below)"
    return f"if {conditions[0].text}" if _has_room(conditions) else "on one condition (below)"


def _has_room(conditions: Sequence[Condition]) -> bool:
    return len(conditions) == 1 and len(conditions[0].text) <= _SHORT


def _described(machine: Machine, *, driver: bool = True) -> str:
    gpu = machine.gpu if machine.gpu and machine.gpu.lower() != machine.name.lower() else ""
    capability = machine.capability if str(machine.capability) not in machine.name.split() else ""
    said = f"driver {machine.driver}" if machine.driver and driver else ""
    count = f"{machine.count} ×" if machine.count > 1 else ""
    return " ".join(filter(None, (count, gpu, capability, said)))


def _once(answer: Check, told: Iterable[tuple[Verdict, str]]) -> Iterator[tuple[str, str]]:
    """Each text once, behind all that it is said of."""
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
    return a_few(machines, _NAMES) + _whose(answer, verdicts)


def _whose(answer: Check, verdicts: list[Verdict]) -> str:
    """The targets, where it is not all of them: ` (foo 1.0, bar 2.0)`."""
    names = {target.target: target.name for target in answer.targets}
    targets = list(dict.fromkeys(names[verdict.target] for verdict in verdicts))
    return f" ({', '.join(targets)})" if 0 < len(targets) < len(answer.targets) else ""


def _findings(answer: Check, *, verbose: bool, without: Sequence[tuple[Verdict, Finding]] = ()) -> Iterator[Finding]:
    """Each finding once, the gravest first, with the machines it was found for."""
    alike: dict[tuple[str, str, str], list[tuple[Verdict, Finding]]] = {}
    skipped = {(id(verdict), id(finding)) for verdict, finding in without}
    for verdict in answer.verdicts:
        for finding in verdict.findings:
            if (id(verdict), id(finding)) in skipped:
                continue
            alike.setdefault((finding.rule, finding.severity, finding.message), []).append((verdict, finding))
    for found in sorted(alike.values(), key=lambda each: SEVERITIES.index(each[0][1].severity)):
        first = found[0][1]
        where = _where(answer, [verdict for verdict, _ in found]) if len(answer.verdicts) > 1 else ""
        evidence = tuple(dict.fromkeys(item for _, finding in found for item in finding.evidence))
        yield replace(
            first,
            about=": ".join(filter(None, (where, first.about))),
            evidence=evidence if verbose else (),
        )


def _libraries(verdict: Verdict, answer: Check) -> Iterator[Block]:
    names = {target.target: target.name for target in answer.targets}
    yield Heading(f"{names[verdict.target]} on {verdict.machine}")
    if not verdict.libraries:
        yield Paragraph("  no library with device code")
        return
    yield table(("library", short("verdict"), "containers", "takes"), map(_library, verdict.libraries))


def _library(library: LibraryVerdict) -> tuple[str, ...]:
    loaded = {True: "", False: " (not loaded)", None: " (perhaps)"}[library.loaded]
    counted = library.containers
    counts = (("native", counted.native), ("compatible", counted.compatible), ("jit", counted.jit))
    counted_words = [f"{count} {how}" for how, count in (*counts, ("none", counted.none)) if count]
    error = f" {library.predicted_error.code}" if library.predicted_error else ""
    taken = [f"{each.arch} × {each.count}" for each in library.rests_on]
    return (
        file_name(library.path) + loaded,
        library.outcome + error,
        ", ".join(counted_words),
        ", ".join(taken[:_NAMES]) + (" …" if len(taken) > _NAMES else ""),
    )
