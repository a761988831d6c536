"""`cuwheel verify`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim, last_lines
from cuwheel.report.proof import loaded_rows
from cuwheel.report.tables import Facts, Row, Table, figure, short, table
from cuwheel_core.support import printable
from cuwheel_core.support.finding import SEVERITIES, Finding, gravest_first
from cuwheel_core.support.wording import a_few, counted, size
from cuwheel_core.verdicts.condition import outcome_in_words

if TYPE_CHECKING:
    from cuwheel.proving.outcomes import Installation, Result, Verified, Verify
    from cuwheel.verdicts.verdict import Verdict

_LINES = 12
_EVIDENCE = 3
_WORST = ("crashed", "timeout", "memory", "failed", "skipped", "passed")


def document(answer: Verify, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    against = [each for wheel in answer.wheels for tried in wheel.installations for each in tried.contradictions]
    if against:
        blocks += [Heading("Predicted otherwise"), Findings(tuple(dict.fromkeys(against)))]
    blocks.append(Heading(f"{_named(answer)}: {_sum(answer)}"))
    for wheel in answer.wheels:
        blocks += _wheel(wheel, alone=not answer.wheels[1:], verbose=verbose)
    if answer.kit:
        kit = answer.kit
        blocks += [
            Heading("Kit"),
            Paragraph(f"{kit.path}: {size(kit.size)}, checks in it: {kit.checks}. On the GPU machine, then here:"),
        ]
        blocks.append(Verbatim((f"python3 {kit.path.rpartition('/')[2]}", "cuwheel verify --read proof.json")))
    if answer.configuration and verbose:
        blocks.append(Paragraph(f"checks of {answer.configuration}"))
    return Document(f"cuwheel verify {_named(answer)}", tuple(blocks))


def _named(answer: Verify) -> str:
    return a_few([f"{each.name} {each.version}" for each in answer.wheels], _EVIDENCE)


def _wheel(wheel: Verified, *, alone: bool, verbose: bool) -> Iterator[Block]:
    if not alone:
        yield Heading(f"{wheel.name} {wheel.version}")
    if verbose:
        yield Facts((Row("file", wheel.file), Row("sha256", wheel.sha256)))
    yield Paragraph(f"the file ({size(wheel.size)}): {_file(wheel)}")
    if wheel.findings:
        yield Findings(_shortened(wheel.findings, verbose=verbose))
    for tried in wheel.installations:
        yield from _installation(tried, verbose=verbose)


def _file(wheel: Verified) -> str:
    counts = {each: sum(finding.severity == each for finding in wheel.findings) for each in SEVERITIES}
    words = [counted(count, name) for name, count in counts.items() if count]
    return ", ".join(words) or "RECORD, tags, metadata and licences are fine"


def _installation(tried: Installation, *, verbose: bool) -> Iterator[Block]:
    yield Paragraph(_environment(tried))
    if tried.outcome == "planned":
        rows = ((each.name, each.kind, "with a GPU" if each.gpu else "anywhere") for each in tried.planned)
        yield table(("check", short("kind"), short("where")), rows)
        return
    if tried.problem:
        # Of a program that failed it has the output, line by line.
        ours = "\n  | " not in tried.problem
        yield (
            Paragraph(printable.Lines(tried.problem.splitlines()))
            if ours
            else Verbatim(tuple(tried.problem.splitlines()))
        )
    if tried.checks:
        yield _table(tried)
    if seen := loaded_rows(tried.checks):
        yield Facts(tuple(seen))
    for each in tried.checks:
        if each.output and (verbose or not each.good):
            yield Paragraph(f"{each.name} printed:")
            yield last_lines(each.output, None if verbose else _LINES)
    if tried.findings:
        yield Findings(_shortened(tried.findings, verbose=verbose))
    if tried.verdicts:
        yield Paragraph(printable.Lines(_verdict(each, tried) for each in tried.verdicts))
    if tried.folder:
        yield Paragraph(f"kept: {tried.folder}")


def _verdict(verdict: Verdict, tried: Installation) -> str:
    """What `check` says; of a machine without a GPU what it would say of the rest."""
    why = next((f": {each.message}" for each in verdict.findings if each.severity == "error"), "")
    text = f"check says of {verdict.machine}: {outcome_in_words(verdict.outcome, verdict.requires)}{why}"
    return text if tried.gpus else f"{text} (not counted: there is no GPU here)"


def _environment(tried: Installation) -> str:
    if tried.outcome == "planned":
        return f"Python {tried.python}: would install {', '.join(tried.requirements)} into a fresh environment, and run"
    if tried.outcome == "skipped":
        return f"Python {tried.python}: skipped"
    if tried.outcome == "failed":
        return f"Python {tried.python}: not installed"
    others = counted(len(tried.packages) - 1, "other package")
    words = [f"Python {tried.python}: installed in {tried.seconds:.1f} s with {others}"]
    if tried.emulator:
        words.append(f"under {tried.emulator}")
    words.append(f"GPUs of {', '.join(tried.gpus)}" if tried.gpus else "no GPU")
    words.append("checks without a network" if tried.network == "cut" else "checks with the network")
    if tried.stub:
        words.append("libcuda is a stub that answers 'no device'")
    return "; ".join(words)


def _table(tried: Installation) -> Table:
    rows = ((each.name, each.outcome, _time(each), each.problem or _imported(each)) for each in tried.checks)
    return table(("check", short("outcome"), figure("time"), "why"), rows)


def _time(result: Result) -> str:
    return "" if result.outcome == "skipped" else f"{result.seconds:.1f} s"


def _imported(result: Result) -> str:
    """The answer itself, where a check was a question: what it printed last."""
    if result.kind == "import":
        return result.version
    last = result.output.rstrip().rpartition("\n")[2].strip()
    return last if len(last) <= 100 else last[:99] + "…"  # noqa: PLR2004


def _shortened(findings: tuple[Finding, ...], *, verbose: bool) -> tuple[Finding, ...]:
    ordered = gravest_first(findings)
    return tuple(each if verbose else replace(each, evidence=each.evidence[:_EVIDENCE]) for each in ordered)


def _sum(answer: Verify) -> str:
    if answer.dry_run:
        return "nothing was installed or run (--dry-run)"
    if answer.kit:
        return "packed: nothing was installed here" if answer.succeeded else "packed, but the file has errors"
    if not any(wheel.installations for wheel in answer.wheels):
        return ("right" if answer.succeeded else "wrong") + " as a file; nothing was installed"
    tried = [each for wheel in answer.wheels for each in wheel.installations]
    results = [each for installation in tried for each in installation.checks]
    counts = {outcome: sum(each.outcome == outcome for each in results) for outcome in _WORST}
    findings = [each for wheel in answer.wheels for each in wheel.findings]
    findings += [each for installation in tried for each in (*installation.findings, *installation.contradictions)]
    errors = sum(each.severity == "error" for each in findings)
    absent = sum(each.outcome == "failed" for each in tried)
    words = [counted(errors, "error")] if errors else []
    words += [f"{absent} not installed"] if absent else []
    text = ", ".join([*words, *(f"{count} {outcome}" for outcome, count in counts.items() if count)])
    verdict = "verified" if answer.succeeded else "not verified"
    emulated = sorted({each.emulator for each in tried if each.emulator})
    verdict += f" under {', '.join(emulated)}" if emulated else ""
    return f"{verdict}: {text}" if text else verdict
