"""`cuwheel build`: the document of its answer, for the terminal and for the page beside the wheels."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.report import build_details, build_timeline, variants
from cuwheel.report.build import GOOD
from cuwheel.report.document import (
    Amount,
    Column,
    Document,
    Facts,
    Findings,
    Heading,
    Mark,
    Matrix,
    Paragraph,
    Row,
    Table,
    Verbatim,
)
from cuwheel.support.wording import a_few, duration, file_name, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.values import Outcome
    from cuwheel.report.build import Build, Job, Merged, Tools
    from cuwheel.report.document import Block, Look
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.planning.plan import Served

_LOOKS: dict[Outcome, Look] = {
    "built": "good",
    "resumed": "good",
    "planned": "fair",
    "skipped": "none",
    "refused": "poor",
    "failed": "bad",
}
# Notes on what the build decided or changed by itself, and on what its variants do not do.
_ALWAYS_SHOWN = ("guard-injected", "naming-chosen", "variant-unsaid", "variant-outranked")
_OUTPUT_LINES = 12
_NAMED = 4


def document(answer: Build, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(_headline(answer)), *_overview(answer, verbose=verbose), *_facts(answer)]
    if findings := _findings(answer, verbose=verbose):
        blocks += [Heading("Findings"), Findings(findings)]
    if answer.workers:
        blocks += [Heading("Workers"), *build_timeline.over_workers(answer.workers), _on_workers(answer)]
    for job in answer.jobs:
        blocks += _job(answer, job, verbose=verbose)
    for each in answer.merged:
        blocks += _merged(answer, each)
    blocks += variants.blocks(answer.variants)
    if answer.variants_failed:
        blocks += [Heading("No variants"), Verbatim(tuple(f"  {line}" for line in answer.variants_failed.splitlines()))]
    for machine in answer.unserved:
        blocks.append(Paragraph(f"not served: {machine.machine}: {'; '.join(machine.why)}"))
    return Document(f"cuwheel build {_name(answer)}", tuple(blocks))


def _on_workers(answer: Build) -> Table:
    rows = tuple(
        (each.worker, each.name, Amount(duration(each.ended - each.began), each.ended)) for each in answer.workers
    )
    return Table((Column("worker", wrap=False), Column("did"), Column("time", numeric=True)), rows)


def _name(answer: Build) -> str:
    return f"{answer.source.name} {answer.source.version}".strip() or file_name(answer.source.asked)


def _headline(answer: Build) -> str:
    jobs = [job for job in answer.jobs if job.outcome != "skipped"]  # those are served by the wheel of another
    wanted = _counted(len(jobs), "wheel")
    made = sum(job.outcome in GOOD for job in jobs)
    counted = wanted if made == len(jobs) else f"{made} of {wanted}"
    if answer.dry_run:
        return f"{_name(answer)}: {counted} would be built (--dry-run)"
    return f"{_name(answer)}: {counted} in {duration(answer.seconds)}"


def _overview(answer: Build, *, verbose: bool) -> Iterator[Block]:
    what = (Column("CUDA", wrap=False), Column("Python", wrap=False), Column("for"))
    came = (
        Column("outcome", wrap=False),
        Column("size", numeric=True),
        Column("files", numeric=True),
        Column("time", numeric=True),
    )
    columns = what if answer.dry_run else (*what, *came)
    if answer.jobs:
        yield Table(columns, tuple(_line(job)[: len(columns)] for job in answer.jobs))
    if verbose and not answer.dry_run:
        yield from _matrix(answer.jobs)


def _line(job: Job) -> tuple[str | Amount, ...]:
    compiled = job.calls.compiled
    return (
        job.cuda,
        job.python or "any",
        " ".join((*job.archs, *job.ptx)),
        job.outcome,
        Amount(size(job.wheel.size), job.wheel.size) if job.wheel else Amount("", 0),
        Amount(str(compiled) if compiled else "", compiled),
        Amount(duration(job.seconds) if job.seconds else "", job.seconds),
    )


def _matrix(jobs: Sequence[Job]) -> Iterator[Block]:
    cudas = tuple(dict.fromkeys(job.cuda for job in jobs))
    pythons = tuple(dict.fromkeys(job.python for job in jobs))
    at = {(job.python, job.cuda): job for job in jobs}
    if len(cudas) > 1 and len(pythons) > 1:  # a single row or column says no more than the table
        yield Matrix(
            caption="Python and CUDA versions",
            columns=tuple(f"CUDA {each}" for each in cudas),
            rows=tuple(Row(f"Python {each}" if each else "any Python", "") for each in pythons),
            cells=tuple(tuple(_mark(at.get((python, cuda))) for cuda in cudas) for python in pythons),
        )


def _mark(job: Job | None) -> Mark:
    if job is None:
        return Mark("–", "none")
    return Mark(job.outcome, _LOOKS[job.outcome], size(job.wheel.size) if job.wheel else "")


def _facts(answer: Build) -> Iterator[Block]:
    source = answer.source
    words = [source.asked, f"{source.files:,} files" if source.files else ""]
    words += [
        f"sha256 {source.sha256[:12]}" if source.sha256 else "",
        f"commit {source.commit[:12]}" if source.commit else "",
    ]
    rows = [Row("source", ", ".join(filter(None, words)))]
    if answer.configuration:
        rows.append(Row("configuration", "\n".join(answer.configuration)))
    if answer.recipe:
        used = "\n".join(answer.recipe.settings)
        rows.append(Row("recipe", f"using the recipe for {answer.recipe.name}: {answer.recipe.why}\n{used}".strip()))
    if answer.output:
        label = "would go to" if answer.dry_run else "written to"
        rows.append(Row(label, answer.output, origin=" ".join(file_name(each) for each in answer.written)))
    yield Facts(tuple(rows))


def _findings(answer: Build, *, verbose: bool) -> tuple[Finding, ...]:
    """Findings of the build and of its jobs; the same finding of several jobs once. Notes only with --verbose."""
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for job_id, finding in (
        *(("", each) for each in answer.findings),
        *((job.id, each) for job in answer.jobs for each in job.findings),
    ):
        if verbose or finding.severity != "note" or finding.rule in _ALWAYS_SHOWN:
            alike.setdefault((finding.rule, finding.message), []).append((job_id, finding))
    return tuple(_where(found, len(answer.jobs)) for found in alike.values())


def _where(found: list[tuple[str, Finding]], jobs: int) -> Finding:
    ids = [job_id for job_id, _ in found if job_id]
    first = found[0][1]
    if not ids or jobs == 1:
        return first
    where = "all" if len(ids) == jobs else ", ".join(ids)
    return replace(first, message=f"{where}: {first.message}")


def _job(answer: Build, job: Job, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{job.id}: {job.outcome}")
    yield from _failure(job)
    if rows := tuple(_job_facts(answer, job, verbose=verbose)):
        yield Facts(rows)
    if verbose and job.wheel:
        yield from build_details.sizes(job.wheel)
    if verbose and job.calls.spans:
        yield from build_timeline.blocks(job)
        yield build_details.slowest(job)
    if answer.dry_run or verbose:
        yield from build_details.settings(job)
    if verbose and job.tools and job.tools.archives:
        yield build_details.archives(job.tools)


def _merged(answer: Build, merged: Merged) -> Iterator[Block]:
    """The one wheel that was wanted."""
    yield Heading(f"{' + '.join(merged.jobs)}: {'merged' if merged.wheel else 'not merged'}")
    if merged.wheel:
        name = merged.wheel.path.removeprefix(f"{answer.output}/")
        yield Facts((Row("wheel", name, origin=f"{size(merged.wheel.size)}, sha256 {merged.wheel.sha256}"),))
    else:
        yield Verbatim(tuple(f"  {line}" for line in merged.reason.splitlines()))
    if merged.findings:
        yield Findings(merged.findings)


def _job_facts(answer: Build, job: Job, *, verbose: bool) -> Iterator[Row]:
    if job.reason:
        yield Row("because", job.reason)
    if job.wheel:
        # Where it lies is said above for all of them, and in eighty columns there is room for its name alone.
        place = PurePath(job.wheel.path)
        shown = place.name if place.parent == PurePath(answer.output) else job.wheel.path
        yield Row("wheel", shown, origin=f"{size(job.wheel.size)}, sha256 {job.wheel.sha256}" if verbose else "")
    if job.coverage and (verbose or job.outcome == "planned"):
        yield Row("runs on", "\n".join(_runs_on(job.coverage)))
    if job.tools:
        yield from _made_with(job.tools, verbose=verbose)
    if job.calls.total:
        yield Row("compilers", _calls(job))
    if job.phases:
        yield Row("took", ", ".join(f"{each.name} {duration(each.seconds)}" for each in job.phases))
    for each in job.listed:
        origin = f"{_counted(each.containers, 'container')}, {size(each.bytes)}"
        yield Row(
            "not planned", f"{file_name(each.library)}: {' '.join(each.archs)}", origin=f"{each.origin}: {origin}"
        )
    if job.log and not job.failure and (verbose or job.outcome == "refused"):
        yield Row("log", job.log)
    if job.record and verbose:
        yield Row("record", job.record)


def _runs_on(coverage: Sequence[Served]) -> Iterator[str]:
    """Machines that are served alike, together: a fleet may have thousands."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for each in coverage:
        alike.setdefault((each.capability, each.how, each.by), []).append(each.machine)
    for (capability, how, by), names in alike.items():
        yield f"{a_few(names, _NAMED)} ({capability}): {how}, {by}"


def _made_with(tools: Tools, *, verbose: bool) -> Iterator[Row]:
    compiler = tools.host_compiler
    host = f", {compiler.kind} {compiler.version}" if compiler else ""
    where = f"{tools.root}, {compiler.path}" if compiler else tools.root
    yield Row("made with", f"nvcc {tools.nvcc} from {tools.provider}{host}", origin=where if verbose else "")
    if verbose and tools.others:
        yield Row("with", ", ".join(f"{name} {version}" for name, version in tools.others.items()))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _calls(job: Job) -> str:
    calls = job.calls
    summary = (
        f"{_counted(calls.total, 'call')}, {_counted(calls.compiled, 'source file')}, {duration(calls.seconds)} in all"
    )
    if calls.hits is not None:
        asked = calls.hits + (calls.misses or 0)
        summary += f"; cache: {calls.hits} of {asked} hit" + (f" ({calls.hits / asked:.0%})" if asked else "")
    return summary


def _failure(job: Job) -> Iterator[Block]:
    failure = job.failure
    if failure is None:
        return
    rows = [Row("failed", failure.what, origin=f"in {failure.phase}" if failure.phase else "")]
    for cause in failure.causes[:2]:
        rows.append(Row("cause", f"{cause.title} ({cause.id}, {cause.confidence:.0%})"))
        rows += [Row("fix", each) for each in cause.fix[:2]]
    yield Facts(tuple(rows))
    lines = [f"$ {failure.command}"] if failure.command else []
    lines += failure.output.splitlines()[-_OUTPUT_LINES:]
    # Long paths, and to be copied: a table would break them.
    lines += [f"run it again: {failure.replay}"] if failure.replay else []
    lines += [f"log: {job.log}"] if job.log else []
    if lines:
        yield Verbatim(tuple(f"  {line}" for line in lines))
