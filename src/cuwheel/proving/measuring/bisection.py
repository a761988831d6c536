"""The first version or commit that has a fault, by trials of those in between."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cuwheel.building import pipeline, sources
from cuwheel.building.request import BuildRequest
from cuwheel.errors import ToolError, UnavailableError, UnknownNameError, UsageError
from cuwheel.proving.measuring import campaign, execution, gpu_samples, journal, measured_environments, sequential
from cuwheel.proving.measuring.campaign import Equipment, Runner, Turn, Wish
from cuwheel.proving.measuring.journal import Line
from cuwheel.proving.measuring.sequential import Found
from cuwheel.support import log, quoting, system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cuwheel.proving.measuring.measured_environments import Environment
    from cuwheel.proving.measuring.trials_file import Condition, Plan

_SAMPLE_S = 0.5
_LONGEST = 12  # of a commit's name, as people write it


class Span(Struct, frozen=True, kw_only=True):
    """What is searched: `package` on the index, or commits of the repository `source`.

    `machines`: what `build` makes each commit for; `build` false: the trials run in the checkout itself.
    """

    good: str
    bad: str
    package: str | None = None
    source: Path | None = None
    machines: tuple[str, ...] = ()
    build: bool = True


class Odds(Struct, frozen=True, kw_only=True):
    """`error`: the chance of a wrong answer. `bad_rate`: None to measure it."""

    error: float = 0.05
    good_rate: float = 0.0
    bad_rate: float | None = None


class Bisected(Struct, frozen=True, kw_only=True):
    """`names`: of the candidates, the good one first and the bad one last."""

    names: tuple[str, ...]
    found: Found


Releases: TypeAlias = "Callable[[str], Iterable[Version]]"


def names(span: Span, releases_of: Releases) -> tuple[str, ...]:
    """Of all candidates, in order. `releases_of`: of a package, on the indexes that are configured."""
    return _versions(span, releases_of) if span.package else _commits(span)


def _versions(span: Span, releases_of: Releases) -> tuple[str, ...]:
    ends = [_version(each) for each in (span.good, span.bad)]
    known = sorted({*releases_of(str(span.package))} | {each for each in ends if each.is_prerelease})
    for each in ends:
        if each not in known:
            near = [str(version) for version in known[-5:]]
            raise UnknownNameError(f"release of {span.package}", str(each), hint=f"the newest are {', '.join(near)}")
    between = [each for each in known if min(ends) <= each <= max(ends)]
    return tuple(map(str, between if ends[0] < ends[1] else between[::-1]))


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(f"{text!r} is not a version", hint="--good 2.9.0 --bad 2.11.0") from None


def _commits(span: Span) -> tuple[str, ...]:
    """Along the first parents: what was merged is one step."""
    source = span.source or Path()
    try:
        good, bad = (_commit(source, each) for each in (span.good, span.bad))
        listed = sources.git(source, "rev-list", "--first-parent", "--reverse", f"{good}..{bad}").split()
        sources.git(source, "merge-base", "--is-ancestor", good, bad)
    except ToolError as error:
        reason = (error.output.strip().splitlines() or ["git says no more"])[-1]
        raise UsageError(
            f"{source}: {span.good} is not a commit before {span.bad}: {reason}",
            hint="git log shows the commits",
        ) from error
    return (good, *listed)


def _commit(source: Path, text: str) -> str:
    return sources.git(source, "rev-parse", "--verify", "--end-of-options", f"{text}^{{commit}}").strip()


def run(plan: Plan, folder: Path, wish: Wish, span: Span, odds: Odds, releases_of: Releases) -> Bisected:
    """Every run is in the journal: a bisection that was ended goes on where it was, by the runs that it has."""
    (base,) = _only_one(plan, wish)
    listed = names(span, releases_of)
    if len(listed) < 2:  # noqa: PLR2004 - a good one and a bad one
        raise UsageError(f"{span.good} and {span.bad} are the same", hint="--good OLD --bad NEW")
    bisected = replace(
        plan,
        axes={**plan.axes, "candidate": tuple(listed)},
        conditions=tuple(_condition(base, span, each, folder) for each in listed),
    )
    with journal.opened(folder) as writer, gpu_samples.sampling(_SAMPLE_S) as sampler:
        before = journal.state(folder)
        campaign.must_fit(bisected, folder, before, wish)
        header = campaign.new_header(bisected, before, wish, sampler, {})
        writer.add(Line(header=header))
        if before.unfinished:
            campaign.settle(writer, before.unfinished, header.mark)
            before = journal.state(folder)
        prepared = _Prepared(bisected, span, listed, folder)
        equipment = Equipment(sampler, writer, execution.run)
        runner = Runner(bisected, folder, header, prepared.environment, equipment, before)
        attempt = _attempts(runner, before.results, listed)
        log.info("%d candidates, %d of them to decide at most", len(listed), sequential.steps(len(listed)))
        found = sequential.bisect(
            len(listed), attempt, error=odds.error, good_rate=odds.good_rate, bad_rate=odds.bad_rate, tell=log.info
        )
    return Bisected(names=listed, found=found)


def _only_one(plan: Plan, wish: Wish) -> list[Condition]:
    chosen = [plan.conditions[number] for number in campaign.selected(plan, wish.only)]
    if len(chosen) > 1:
        words = " ".join(f"--only {axis}={value}" for axis, value in chosen[0].choices.items())
        raise UsageError(
            f"a bisection runs one condition, and these are {len(chosen)}",
            hint=f"choose the one that fails most: cuwheel trials bisect FILE {words} …",
        )
    return chosen


def _condition(base: Condition, span: Span, name: str, folder: Path) -> Condition:
    choices = {**base.choices, "candidate": name}
    if span.package:
        return replace(base, choices=choices, install=(*base.install, f"{span.package}=={name}"))
    checkout = folder / "checkouts" / name
    return replace(base, choices=choices) if span.build else replace(base, choices=choices, directory=str(checkout))


def _attempts(
    runner: Runner, known: dict[tuple[int, int], journal.Outcome], listed: tuple[str, ...]
) -> Callable[[int], bool]:
    """Runs of a candidate: first those that the journal has, then new ones."""
    taken: Counter[int] = Counter()

    def attempt(candidate: int) -> bool:
        turn = Turn(candidate, taken[candidate])
        taken[candidate] += 1
        outcome = known.get(turn)
        if outcome is None:
            outcome = runner.take(turn).outcome
            log.info("%s: %s", listed[candidate][:_LONGEST], outcome)
        return outcome != "passed"

    return attempt


class _Prepared:
    """Candidates are installed, checked out or built when their first run comes."""

    def __init__(self, plan: Plan, span: Span, listed: tuple[str, ...], folder: Path) -> None:
        self._plan, self._span, self._listed, self._folder = plan, span, listed, folder
        self._made: dict[int, Environment] = {}

    def environment(self, number: int) -> Environment:
        if number not in self._made:
            self._made[number] = self._prepare(number)
        return self._made[number]

    def _prepare(self, number: int) -> Environment:
        condition, name = self._plan.conditions[number], self._listed[number]
        install: tuple[str, ...] = condition.install
        if self._span.source:
            checkout = _checked_out(self._span.source, name, self._folder / "checkouts")
            install = (*install, *(self._built(checkout, name) if self._span.build else ()))
        place = self._folder / "environments"
        return measured_environments.prepared(condition.env, install, Path(self._plan.folder), place)

    def _built(self, checkout: Path, name: str) -> tuple[str, ...]:
        output = self._folder / "wheels" / name
        if there := sorted(output.glob("*.whl")):
            return tuple(map(str, there))
        log.info("building %s", name[:_LONGEST])
        request = BuildRequest(checkout, machines=self._span.machines, output=output)
        made = pipeline.build(request, dict(os.environ))
        wheels = [str(job.wheel.path) for job in made.jobs if job.wheel]
        if not wheels:
            reasons = "; ".join(job.reason for job in made.jobs) or "no job"
            alone = quoting.here(["cuwheel", "build", str(checkout)])
            raise UnavailableError(
                f"commit {name[:_LONGEST]} cannot be built: {reasons}",
                hint=f"try it by itself: {alone}; or narrow --good and --bad",
            )
        return (wheels[0],)


def _checked_out(source: Path, name: str, to: Path) -> Path:
    """The files of a commit; the repository's own checkout stays as it is."""
    place = to / name
    if not place.is_dir():
        to.mkdir(parents=True, exist_ok=True)
        unfinished = to / f".{name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        sources.git(source, "clone", "--quiet", "--shared", "--no-checkout", source.absolute(), unfinished)
        sources.git(unfinished, "checkout", "--quiet", "--detach", name)
        system_calls.rename_over(unfinished, place)
    return place
