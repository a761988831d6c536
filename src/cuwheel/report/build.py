"""`cuwheel build`: the document of its answer, and what is written beside the wheels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building.answer import GOOD, Build, Job, Merged, Outcome, Piece, Span, Tools, Wheel, WorkerSpan
from cuwheel.report import html, variants
from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim, findings_section
from cuwheel.report.drawings import Bar, Timeline, lanes_of, ticks_of_time
from cuwheel.report.plan import proviso_rows
from cuwheel.report.tables import Amount, Facts, Look, Mark, Matrix, Row, Table, figure, map_of_code, short, table
from cuwheel.support import files
from cuwheel.support.answer import to_json
from cuwheel_core.errors import UnreadableError
from cuwheel_core.facts.arch import machine_code_first
from cuwheel_core.support import printable, wording
from cuwheel_core.support.wording import a_few, counted, duration, file_name, size

if TYPE_CHECKING:
    from cuwheel.verdicts.planning.plan import Served
    from cuwheel_core.support.finding import Finding


__all__ = ["Build", "document"]

# What the page of a build tells of each job, and a dry run of what is to come: settings, sizes, times, hashes.

_SLOWEST = 10
_MACHINES = 3  # named in a row


def settings(job: Job) -> Iterator[Block]:
    if job.commands:
        yield Paragraph("Commands:")
        yield Verbatim(tuple(f"  {each}" for each in job.commands))
    if job.settings:
        yield Paragraph("Every setting:")
        shown = (
            Row(each.name, each.value, origin="prepended to the existing value" if each.how == "prepend" else "")
            for each in job.settings
        )
        yield Facts(tuple(shown))
        if job.tools and job.tools.provider != "container":  # in an image nothing is recorded
            yield Paragraph("plus LD_PRELOAD and CUWHEEL_RECORD, which record the compiler calls")


def sizes(wheel: Wheel) -> Iterator[Block]:
    with_code = [library for library in wheel.libraries if library.archs]
    if not with_code:
        return
    unplanned = {each.arch for library in with_code for each in library.archs if not each.planned}
    listed = sorted(unplanned, key=machine_code_first)
    yield map_of_code(
        "Bytes of device code for each architecture" + (f"; not planned: {' '.join(listed)}" if listed else ""),
        {library.path: {each.arch: each.bytes for each in library.archs} for library in with_code},
    )


def slowest(job: Job) -> Table:
    ended = [span for span in job.calls.spans if span.ended is not None]
    slowest = sorted(ended, key=lambda span: (span.began - (span.ended or 0), span.number))[:_SLOWEST]
    longest = max(((span.ended or 0) - span.began for span in slowest), default=0.0) or 1.0
    return table(
        (figure("slowest calls"), short("tool"), "file", figure("seconds")),
        (
            (
                Amount(f"{span.number}", span.number),
                span.name + (" (cached)" if span.cache_hit else ""),
                file_name(span.file),
                Amount(duration(took := (span.ended or 0) - span.began), took, took / longest),
            )
            for span in slowest
        ),
    )


def archives(tools: Tools) -> Table:
    rows = ((each.name, each.version, each.sha256) for each in tools.archives)
    return table(("toolkit", short("version"), "sha256"), rows)


# The compiler calls of a job in time: from its record to spans, from spans to the drawing on the page.

_MOST_ROWS = 32
_PROGRAMS = {"cicc": "cicc", "ptxas": "ptxas", "gcc": "host", "g++": "host", "cudafe++": "host", "cl": "host"}
_LEGEND = (
    ("phase", "steps of the job"),
    ("nvcc", "nvcc"),
    ("compiler", "host compiler"),
    ("linker", "linker"),
    ("hit", "from the cache"),
    ("failed", "failed"),
)
_INSIDE = (("cicc", "inside nvcc: cicc"), ("ptxas", "ptxas"), ("host", "host compiler and cudafe++"))


def blocks(job: Job) -> Iterator[Timeline]:
    """The steps of the job above, what ran at the same time in as many rows below."""
    bars = [_bar(span, job.seconds) for span in job.calls.spans]
    end = max([job.seconds, *(bar.began + bar.seconds for bar in bars)]) or 1.0
    phases = tuple(
        Bar(each.name, each.began, each.seconds, "phase", f"{each.name}: {each.seconds:.1f} s") for each in job.phases
    )
    lanes = lanes_of(bars)
    kinds = {bar.kind for bar in bars} | ({"phase"} if phases else set())
    inner = {kind for bar in bars for kind, _ in bar.parts}
    hidden = sum(map(len, lanes[_MOST_ROWS:]))
    yield Timeline(
        caption=f"{job.id}: compiler calls in time, at most {len(lanes)} at once"
        + (f"; {hidden} are not drawn" if hidden else ""),
        seconds=end,
        rows=(*((phases,) if phases else ()), *lanes[:_MOST_ROWS]),
        legend=(
            *(each for each in _LEGEND if each[0] in kinds),
            *(each for each in _INSIDE if each[0] in inner),
        ),
        ticks=ticks_of_time(end),
    )


def over_workers(spans: Sequence[WorkerSpan]) -> Iterator[Timeline]:
    """A row for each worker of a cluster; two where it did two things at once."""
    names = sorted({span.worker for span in spans})
    rows: list[tuple[Bar, ...]] = []
    for name in names[:_MOST_ROWS]:
        own = [span for span in spans if span.worker == name]
        bars = [
            Bar(
                span.name,
                span.began,
                span.ended - span.began,
                "failed" if span.failed else "phase",
                f"{name}: {span.name}\n{span.ended - span.began:.1f} s",
            )
            for span in own
        ]
        rows += lanes_of(bars)
    end = max((span.ended for span in spans), default=1.0) or 1.0
    used = sum(span.ended - span.began for span in spans) / (end * max(len(names), 1))
    yield Timeline(
        caption=f"{len(names)} workers, at work for {wording.percent(used)} of the time: {', '.join(names)}",
        seconds=end,
        rows=tuple(rows),
        legend=(("phase", "a share or a job"), ("failed", "failed")),
        ticks=ticks_of_time(end),
    )


def _bar(span: Span, end: float) -> Bar:
    ended = span.ended if span.ended is not None else max(end, span.began)
    took = max(ended - span.began, 0.0)
    failed = span.state not in ("succeeded", "started")
    kind = "failed" if failed else "hit" if span.cache_hit else span.tool
    tip = f"{span.number}: {span.name} {span.file}\n{took:.2f} s, {span.state}" + (", cached" if span.cache_hit else "")
    shown = sorted(span.pieces, key=lambda piece: -piece.seconds)
    tip += "".join(f"\n  {piece.name} {piece.arch} {piece.seconds:.2f} s" for piece in shown[:12])
    return Bar(file_name(span.file) or span.name, span.began, took, kind, tip, _parts(span.pieces))


def _parts(pieces: Iterable[Piece]) -> tuple[tuple[str, float], ...]:
    """Shares of the time that nvcc itself measured; its own start-up is in none of them."""
    listed = list(pieces)
    total = sum(piece.seconds for piece in listed)
    if not total:
        return ()
    return tuple(
        (next((kind for name, kind in _PROGRAMS.items() if name in piece.name), "other"), piece.seconds / total)
        for piece in listed
    )


_LOOKS: dict[Outcome, Look] = {
    "built": "good",
    "resumed": "good",
    "planned": "fair",
    "skipped": "none",
    "refused": "poor",
    "failed": "bad",
}
# Notes on what the build decided or changed by itself, and on what its variants do not do.
_ALWAYS_SHOWN = (
    "guard-injected",
    "naming-chosen",
    "python-not-here",
    "runs-on-condition",
    "variant-unsaid",
    "variant-outranked",
)
_OUTPUT_LINES = 12
_NAMED = 4


def document(answer: Build, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(_headline(answer)), *_overview(answer, verbose=verbose), *_facts(answer)]
    blocks += findings_section(_findings(answer, verbose=verbose))
    if answer.workers:
        rows = (
            (each.worker, each.name, Amount(duration(each.ended - each.began), each.ended)) for each in answer.workers
        )
        columns = (short("worker"), "did", figure("time"))
        blocks += [Heading("Workers"), *over_workers(answer.workers), table(columns, rows)]
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


def _name(answer: Build) -> str:
    return f"{answer.source.name} {answer.source.version}".strip() or file_name(answer.source.asked)


def _headline(answer: Build) -> str:
    jobs = [job for job in answer.jobs if job.outcome != "skipped"]  # those are served by the wheel of another
    wanted = counted(len(jobs), "wheel")
    made = sum(job.outcome in GOOD for job in jobs)
    all_told = wanted if made == len(jobs) else f"{made} of {wanted}"
    if answer.dry_run:
        return f"{_name(answer)}: {all_told} would be built (--dry-run)"
    return f"{_name(answer)}: {all_told} in {duration(answer.seconds)}"


def _overview(answer: Build, *, verbose: bool) -> Iterator[Block]:
    what = (short("CUDA"), short("Python"), "code", "for")
    came = (short("outcome"), figure("size"), figure("files"), figure("time"))
    columns = what if answer.dry_run else (*what, *came)
    if answer.jobs:
        yield table(columns, (_line(job)[: len(columns)] for job in answer.jobs))
    if verbose and not answer.dry_run:
        cudas = tuple(dict.fromkeys(job.cuda for job in answer.jobs))
        pythons = tuple(dict.fromkeys(job.python for job in answer.jobs))
        at = {(job.python, job.cuda): job for job in answer.jobs}
        if len(cudas) > 1 and len(pythons) > 1:  # a single row or column says no more than the table
            yield Matrix(
                caption="Python and CUDA versions",
                columns=tuple(f"CUDA {each}" for each in cudas),
                rows=tuple(Row(f"Python {each}" if each else "any Python", "") for each in pythons),
                cells=tuple(tuple(_mark(at.get((python, cuda))) for cuda in cudas) for python in pythons),
            )


def _line(job: Job) -> tuple[str | Amount, ...]:
    compiled = job.calls.compiled
    return (
        job.cuda,
        job.python or "any",
        " ".join((*job.archs, *job.ptx)),
        a_few(list(dict.fromkeys(each.machine for each in job.coverage)), _MACHINES),
        job.outcome,
        Amount(size(job.wheel.size), job.wheel.size) if job.wheel else Amount("", 0),
        Amount(str(compiled) if compiled else "", compiled),
        Amount(duration(job.seconds) if job.seconds else "", job.seconds),
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
        rows.append(Row("configuration", printable.Lines(answer.configuration)))
    if answer.recipe:
        used = f"using the recipe for {answer.recipe.name}: {answer.recipe.why}"
        rows.append(Row("recipe", printable.Lines((used, *answer.recipe.settings))))
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
    return replace(first, about=where)


def _job(answer: Build, job: Job, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{job.id}: {job.outcome}")
    yield from _failure(job)
    if rows := tuple(_job_facts(answer, job, verbose=verbose)):
        yield Facts(rows)
    if verbose and job.wheel:
        yield from sizes(job.wheel)
    if verbose and job.calls.spans:
        yield from blocks(job)
        yield slowest(job)
    if answer.dry_run or verbose:
        yield from settings(job)
    if verbose and job.tools and job.tools.archives:
        yield archives(job.tools)


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
        yield Row("because", printable.Lines(job.reason.splitlines()))
    if job.wheel:
        # Where it lies is said above for all of them, and in eighty columns there is room for its name alone.
        place = PurePath(job.wheel.path)
        shown = place.name if place.parent == PurePath(answer.output) else job.wheel.path
        yield Row("wheel", shown, origin=f"{size(job.wheel.size)}, sha256 {job.wheel.sha256}" if verbose else "")
    if job.coverage and (verbose or job.outcome == "planned"):
        yield Row("runs on", printable.Lines(_runs_on(job.coverage)))
        yield from proviso_rows(job.coverage)
    if job.tools:
        compiler = job.tools.host_compiler
        host = f", {compiler.kind} {compiler.version}" if compiler else ""
        where = f"{job.tools.root}, {compiler.path}" if compiler else job.tools.root
        yield Row(
            "made with", f"nvcc {job.tools.nvcc} from {job.tools.provider}{host}", origin=where if verbose else ""
        )
        if verbose and job.tools.others:
            yield Row("with", ", ".join(f"{name} {version}" for name, version in job.tools.others.items()))
    if job.calls.total:
        yield Row("compilers", _calls(job))
    if job.phases:
        yield Row("took", ", ".join(f"{each.name} {duration(each.seconds)}" for each in job.phases))
    for each in job.listed:
        origin = f"{counted(each.containers, 'container')}, {size(each.bytes)}"
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


def _calls(job: Job) -> str:
    calls = job.calls
    summary = (
        f"{counted(calls.total, 'call')}, {counted(calls.compiled, 'source file')}, {duration(calls.seconds)} in all"
    )
    if calls.hits is not None:
        asked = calls.hits + (calls.misses or 0)
        share = f" ({wording.percent(calls.hits / asked)})" if asked else ""
        summary += f"; cache: {calls.hits} of {asked} hit{share}"
    return summary


def _failure(job: Job) -> Iterator[Block]:
    failure = job.failure
    if failure is None:
        return
    rows = [
        Row("failed", printable.Lines(failure.what.splitlines()), origin=f"in {failure.phase}" if failure.phase else "")
    ]
    for cause in failure.causes[:2]:
        rows.append(Row("cause", f"{cause.title} ({cause.id}, {wording.percent(cause.confidence)})"))
        rows += [Row("fix", each) for each in cause.fix[:2]]
    yield Facts(tuple(rows))
    lines = [f"$ {failure.command}"] if failure.command else []
    lines += failure.output.splitlines()[-_OUTPUT_LINES:]
    # Long paths, and to be copied: a table would break them.
    lines += [f"run it again: {failure.replay}"] if failure.replay else []
    lines += [f"log: {job.log}"] if job.log else []
    if lines:
        yield Verbatim(tuple(f"  {line}" for line in lines))


# What is written beside the wheels: `SHA256SUMS`, the page, and `build.json`, which is the answer itself.

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\0]+\.whl)", re.ASCII)
SUMS, PAGE, ANSWER = "SHA256SUMS", "build.html", "build.json"


def write_beside_wheels(answer: Build, folder: Path) -> Build:
    """Each beside, then renamed; `build.json` last, because it names the others. Returns what it says."""
    # As `sha256sum --check` reads it, from within the folder: every wheel once, by name. What an earlier build
    # wrote of wheels that are still there stays: a folder may be filled by several.
    wheels = _earlier(folder)
    single = [job.wheel for job in answer.jobs if job.outcome != "refused"] if not answer.merged else []
    for wheel in (*single, *(each.wheel for each in answer.merged)):
        if wheel and wheel.sha256:
            wheels[_from(folder, wheel.path)] = wheel.sha256
    for made in answer.variants:
        wheels |= {_from(folder, each.path): each.sha256 for each in made.wheels}
        wheels |= {_from(folder, each): files.sha256(Path(each)) for each in made.plain}
    sums = "".join(f"{wheels[name]}  {name}\n" for name in sorted(wheels))
    names = [*([SUMS] if sums else []), PAGE, ANSWER]
    complete = replace(answer, written=tuple(str(folder / name) for name in names))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    if sums:
        files.write(folder / SUMS, sums)
    html.save(complete, folder / PAGE)
    files.write(folder / ANSWER, to_json(complete))
    return complete


def _earlier(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    matches = filter(None, map(_LINE.fullmatch, lines))
    return {match[2]: match[1] for match in matches if (folder / match[2]).is_file()}


def _from(folder: Path, path: str) -> str:
    """The path as it is called from the folder; in full on another drive of Windows."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path
