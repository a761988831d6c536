"""`cuwheel find`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.version import Version

from cuwheel.delivery.find_answer import Skipped, words_of_skipped
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Facts, Row, short, table
from cuwheel.support import limited, quoting
from cuwheel.verdicts import torch_releases
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support import printable
from cuwheel_core.support.wording import a_few, counted, rough_seconds, size, without_error_names

if TYPE_CHECKING:
    from cuwheel.delivery.find_answer import Find, FoundFile
    from cuwheel.machine.fleet import Machine

_GROUPS = 12  # reasons
_LISTED = 3  # versions of a group
_REASONS = 2
_CONDITIONS = 6  # in full; further ones are counted and named in short
_PREVIEWS = 3
_NAMED = 3  # machines


def document(answer: Find, *, verbose: bool) -> Document:
    title = f"cuwheel find {answer.name}"
    if answer.rows:
        return Document(title, (*_of_fleet(answer, verbose=verbose), *_beside(answer)))
    where = ", ".join(_machine(each) for each in answer.machines)
    chosen = next((each for each in answer.candidates if each.chosen), None)
    if chosen is None:
        known = "is known to run" if answer.stopped else "runs"
        blocks: list[Block] = [Heading(f"No release of {answer.name} {known} on {where}"), *_so_far(answer, None)]
    else:
        newest = max((each.version for each in answer.candidates), key=Version)
        other = f" (the newest is {newest})" if newest != chosen.version else ""
        runs = {"partial": "runs in part on", "unknown": "may run on"}.get(chosen.outcome, "runs on")
        sentence = f"{answer.name} {chosen.version} {runs} {where}{other}"
        hint: list[Block] = []
        if chosen.needs_a_gpu_to_tell:
            sentence = f"{answer.name}: cannot tell, {where} has no GPU that cuwheel can see"
            command = quoting.here(["cuwheel", "find", answer.name, "--on", "h100"])
            hint = [Verbatim((f"  Name one: {command}", f"  The newest whose tags fit is {chosen.version}:"))]
        elif chosen.outcome == "unknown" and chosen.known_from:
            sentence = f"{answer.name} {chosen.version}: no CUDA code that can be judged{other}"
        blocks = [Heading(sentence), *_so_far(answer, chosen), *hint]
        command = quoting.here(answer.install)
        blocks += _chosen(chosen, command, verbose=verbose)
        if chosen.compiling:
            words = f"  compiled before the first start, {rough_seconds(*chosen.compiling)} of one core:"
            blocks.append(Verbatim((words, f"  {command} --compile")))
    # Of a machine whose GPU nobody knows the others say as little as the first.
    untold = chosen is not None and chosen.needs_a_gpu_to_tell and not verbose
    others = [] if untold else [each for each in answer.candidates if not each.chosen]
    releases = others if verbose or untold else _once_a_release(answer.candidates)
    if chosen is None:  # what was looked into says why
        releases = sorted(releases, key=lambda each: not each.known_from)
    if releases:
        rows = map(_row, releases) if verbose else _brief(releases)
        heading = Heading("The others" if chosen else "Why not")
        blocks += [heading, table((short("release"), short("outcome"), "why"), rows)]
    # Newer than the driver: it runs once it is compiled.
    cured = next((each for each in others if each.compiling and each.predicted_error), None)
    if cured and (chosen is None or limited.version(cured.version) > limited.version(chosen.version)):
        for_ = ",".join(dict.fromkeys(str(Arch(each.capability)) for each in answer.machines if each.capability))
        command = quoting.here(["cuwheel", "graft", f"{answer.name}=={cured.version}", "--compile", for_, "-o", "OUT"])
        took = rough_seconds(*cured.compiling) if cured.compiling else ""
        words = f"  {cured.version} runs once its PTX is compiled for this GPU, {took} of one core:"
        blocks.append(Verbatim((words, f"  {command}")))
    if rest := len(others) - len(releases):
        what = "one more file" if rest == 1 else f"{rest:,} more files"
        blocks.append(Paragraph(f"  and {what} of these releases, which serve this machine no better (--verbose)"))
    return Document(title, (*blocks, *_beside(answer)))


def _beside(answer: Find) -> Iterator[Block]:
    """What was passed over, where else wheels come from, and what it took."""
    if answer.previews:
        what = a_few(answer.previews, _PREVIEWS)
        yield Paragraph(f"  passed over, since they are pre-releases: {what} (--pre takes them, too)")
    if answer.elsewhere:
        ways = (tuple(each.split(": ", 1)) for each in answer.elsewhere)
        yield from (Heading("Where wheels for a Jetson come from"), table((short("source"), "how"), ways))
    if answer.downloaded:
        yield Paragraph(f"  {size(answer.downloaded)} of wheels were downloaded for this; none is kept")


def _of_fleet(answer: Find, *, verbose: bool) -> Iterator[Block]:
    """A line for each kind of machine, and the command that locks for all of them."""
    nobody = [name for each in answer.rows if each.chosen is None for name in each.machines]
    versions = {each.chosen.version for each in answer.rows if each.chosen}
    count = sum(len(each.machines) for each in answer.rows)
    if not versions:
        runs = "is known to run on any" if answer.stopped else "runs on any"
        yield Heading(f"No release of {answer.name} {runs} of {counted(count, 'machine')}")
    else:
        release = next(iter(versions)) if len(versions) == 1 else "in several releases"
        some = f"{count - len(nobody)} of {counted(count, 'machine')}, nothing on {a_few(nobody, _NAMED)}"
        where = some if nobody else f"all {counted(count, 'machine')}"
        yield Heading(f"{answer.name} {release} runs on {where}")
    yield from _so_far(answer, None)
    rows = []
    for each in answer.rows:
        names = ", ".join(each.machines) if verbose else a_few(each.machines, _NAMED)
        if each.chosen is None:
            rows.append((names, "nothing", "", each.why))
            continue
        told = [f"needs {one}" for one in _needs(each.chosen, verbose=verbose)] or list(each.chosen.reasons[:_REASONS])
        rows.append((names, each.chosen.version, _outcome(each.chosen), printable.Lines(told)))
    yield table(("machine", short("release"), short("outcome"), "with"), rows)
    if answer.lock:
        yield Verbatim((f"  one lock for each kind of machine: {quoting.here(answer.lock)}",))
    if verbose:
        yield Heading("All files")
        yield table((short("release"), short("outcome"), "why"), map(_row, answer.candidates))


def _so_far(answer: Find, chosen: FoundFile | None) -> Iterator[Block]:
    """Where it ended before it knew the best."""
    if answer.stopped is None:
        return
    best = f"; the newest that runs among them is {chosen.version}" if chosen else "; none of them runs"
    best = best if answer.judged or chosen else ""
    words = {"interrupted": "interrupted", "budget": "a larger --budget reads more", "slow": "the server is too slow"}
    releases = counted(answer.releases, "release")
    yield Paragraph(f"  {answer.judged} of {releases} judged{best} ({words[answer.stopped]})")


def _machine(machine: Machine) -> str:
    gpu = machine.gpu or machine.capability or ""
    named = f"{machine.name} ({gpu})" if gpu else machine.name
    if gpu and machine.name.lower() in gpu.lower():
        named = f"the {gpu}"
    return f"{named}, driver {machine.driver}" if machine.driver else named


def _chosen(chosen: FoundFile, command: str, *, verbose: bool) -> Iterator[Block]:
    yield Verbatim((f"  {command}",))
    by = ": ".join(filter(None, (chosen.outcome, "; ".join(chosen.reasons[:_REASONS]))))
    needs = _needs(chosen, verbose=verbose)
    rows = [] if chosen.needs_a_gpu_to_tell else [Row("by", by)]
    rows += [Row("needs", printable.Lines(needs))] if needs else []
    rows += [Row("hint", f"better with {chosen.advice}")] if chosen.advice else []
    rows += [Row("torch", _torch(chosen.torch))] if chosen.torch is not None else []
    rows += [Row("size", size(chosen.size))] if chosen.size else []
    if rows:
        yield Facts(tuple(Row(row.name.ljust(len("needs")), row.value) for row in rows))
    yield Verbatim((f"  file   {chosen.file}", *([f"  from   {chosen.url}"] if verbose else [])))


def _needs(chosen: FoundFile, *, verbose: bool) -> list[str]:
    """Every condition: those that do not fit are counted, and named in short."""
    beside = "torch-release" if chosen.torch is not None else ""  # which has a row of its own
    told = [each.with_parts(tag="") for each in chosen.requires if each.id != beside]
    needs = [each.text for each in told]
    rest = [] if verbose else told[_CONDITIONS:]
    if not rest:
        return needs
    return [*needs[:_CONDITIONS], f"and {len(rest)} more: {', '.join(dict.fromkeys(each.short for each in rest))}"]


def _torch(releases: Sequence[str]) -> str:
    return (
        torch_releases.torch_releases_in_words(releases) or "none of the releases that are known has all that it takes"
    )


def _once_a_release(candidates: Sequence[FoundFile]) -> list[FoundFile]:
    """Keeps the best file of each release but the chosen one: most others are for other systems and Pythons."""
    best: dict[str, FoundFile] = {}
    for each in candidates:
        known = best.setdefault(each.version, each)
        if each.known_from and not known.known_from and not known.chosen:
            best[each.version] = each
    return [each for each in best.values() if not each.chosen]


def _row(each: FoundFile) -> tuple[str, ...]:
    torch = [f"torch: {_torch(each.torch)}"] if each.torch is not None else []
    return each.file, _outcome(each), printable.Lines([*each.reasons, *torch])


def _outcome(each: FoundFile) -> str:
    return f"{each.outcome} {each.predicted_error.code}" if each.predicted_error else each.outcome


def _brief(others: Sequence[FoundFile]) -> Iterator[tuple[str, ...]]:
    """Fifty releases on a screen: those that share outcome and reason in one line."""
    groups: dict[tuple[str, str], list[FoundFile]] = {}
    for each in others:
        reason = without_error_names(next(iter(each.reasons), ""))
        key = each.skipped.value if each.skipped is Skipped.BETWEEN_ALIKE else reason
        groups.setdefault((_outcome(each), key), []).append(each)
    shown = list(groups.items())
    for (outcome, reason), alike in shown[:_GROUPS]:
        between = alike[0].skipped is Skipped.BETWEEN_ALIKE
        yield _releases(alike), outcome, words_of_skipped(Skipped.BETWEEN_ALIKE, of_many=True) if between else reason
    if rest := [each for _, alike in shown[_GROUPS:] for each in alike]:
        yield _releases(rest), "", "for other reasons: --verbose has them all"


def _releases(alike: Sequence[FoundFile]) -> str:
    versions = list(dict.fromkeys(each.version for each in alike))
    if len(versions) <= _LISTED:
        return ", ".join(versions)
    return f"{versions[0]} … {versions[-1]} ({len(versions)})"
