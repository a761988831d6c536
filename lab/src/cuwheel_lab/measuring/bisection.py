"""The first version or commit that has a fault, by trials of those in between."""

from __future__ import annotations

import functools
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cuwheel.building import pipeline, sources
from cuwheel.building.request import BuildRequest
from cuwheel.errors import ToolError, UnavailableError, UsageError
from cuwheel.support import limited, log, quoting, system_calls
from cuwheel.support.answer import Answer
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.support import wording
from cuwheel_lab.measuring import campaign, execution, journal, rates
from cuwheel_lab.measuring.campaign import CampaignOptions, Runner, Turn

if TYPE_CHECKING:
    from cuwheel_lab.measuring.execution import MeasuredEnvironment
    from cuwheel_lab.measuring.trials_file import Condition, Plan


# Bisection of a fault that is not certain: each candidate is run until it is decided at a stated error rate.
#
# Wald's sequential test: after each run the evidence for "as bad as the bad one" is weighed against "as good as the
# good one", and no more runs are made than that takes.

# One run of a candidate: whether it failed.
Attempt: TypeAlias = Callable[[int], bool]
Side: TypeAlias = Literal["good", "bad", "undecided"]
ENOUGH_FAILURES = 5  # of the bad one, until its rate is known well enough
MOST_RUNS = 300  # of one candidate


class Rates(Struct, frozen=True, kw_only=True):
    """Between which two a candidate is decided: it fails at most as often as `good`, or at least as often as `bad`."""

    good: float
    bad: float


class Decision(Struct, frozen=True, kw_only=True):
    """What was decided of one candidate, by its place in the list."""

    candidate: int
    side: Side
    runs: int
    failures: int


class Found(Struct, frozen=True, kw_only=True):
    """`first_bad`: the first candidate that has the fault, None where it could not be decided.

    `foretold`: runs that were expected when the rates were known. `problem`: why there is no answer.
    """

    first_bad: int | None = None
    rates: Rates | None = None
    decisions: tuple[Decision, ...]
    foretold: int | None = None
    problem: str = ""

    @property
    def runs(self) -> int:
        return sum(each.runs for each in self.decisions)


def steps(candidates: int) -> int:
    """How many candidates between the first, which is good, and the last, which is bad, have to be decided."""
    return max(0, math.ceil(math.log2(candidates - 1))) if candidates > 1 else 0


def decide(candidate: int, attempt: Attempt, between: Rates, error: float) -> Decision:
    """`error`: the chance of a wrong decision, either way."""
    limit = math.log((1 - error) / error)
    on_failure = math.log(between.bad / between.good) if between.good else math.inf
    on_success = math.log((1 - between.bad) / (1 - between.good)) if between.bad < 1 else -math.inf
    weight, failures = 0.0, 0
    for runs in range(1, MOST_RUNS + 1):
        failed = attempt(candidate)
        failures += failed
        weight += on_failure if failed else on_success
        if abs(weight) >= limit:
            return Decision(candidate=candidate, side="bad" if weight > 0 else "good", runs=runs, failures=failures)
    return Decision(candidate=candidate, side="undecided", runs=MOST_RUNS, failures=failures)


def expected_runs(between: Rates, error: float) -> tuple[float, float]:
    """The runs of a good and of a bad candidate on average (Wald's approximation; exact if a good one never fails)."""
    limit = math.log((1 - error) / error)
    if between.bad >= 1:
        return (1.0, 1.0)
    lost = math.log((1 - between.bad) / (1 - between.good))
    if not between.good:
        until_good = math.ceil(-limit / lost)
        return (until_good, (1 - (1 - between.bad) ** until_good) / between.bad)
    won = math.log(between.bad / between.good)
    drift = [rate * won + (1 - rate) * lost for rate in (between.good, between.bad)]
    step = (1 - 2 * error) * limit
    return (max(1.0, step / -drift[0]), max(1.0, step / drift[1]))


def foretell(candidates: int, between: Rates, error: float) -> int:
    """How many runs a bisection takes on average: half of the candidates in between are bad."""
    each = error / (steps(candidates) + 2)
    good, bad = expected_runs(between, each)
    return math.ceil(steps(candidates) * (good + bad) / 2 + good)


def bisect(
    candidates: int,
    attempt: Attempt,
    *,
    error: float,
    good_rate: float = 0.0,
    bad_rate: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Found:
    """The first bad one of so many, of which the first is good and the last bad. Both are tried, too.

    `error`: the chance that the answer is wrong, over all decisions. `bad_rate`: how often the bad one fails; else it
    is measured first, and the decisions are made against a rate that it exceeds for all but sure.
    """
    each = error / (steps(candidates) + 2)
    last = candidates - 1
    decisions: list[Decision] = []
    measured = bad_rate is None
    if bad_rate is None:
        # Until there are enough failures: the bound on the rate holds for runs that end so.
        failures, runs = 0, 0
        while failures < ENOUGH_FAILURES and runs < MOST_RUNS:
            failures, runs = failures + attempt(last), runs + 1
        decisions.append(Decision(candidate=last, side="bad" if failures else "good", runs=runs, failures=failures))
        bad_rate = rates.lower_bound(failures, runs, each)
        if failures < ENOUGH_FAILURES or bad_rate <= good_rate:
            rarely = f"the bad one failed in {failures} of {runs} runs: too rarely to tell it from the good one"
            return Found(decisions=tuple(decisions), problem=rarely)
    between = Rates(good=good_rate, bad=bad_rate)
    foretold = foretell(candidates, between, error)
    bad = wording.percent(bad_rate)
    tell(f"{steps(candidates)} to decide in about {foretold} runs; one that fails in {bad} or more is bad")

    def side_of(candidate: int) -> Side:
        decisions.append(decide(candidate, attempt, between, each))
        return decisions[-1].side

    def found(first_bad: int | None, problem: str = "") -> Found:
        return Found(first_bad=first_bad, rates=between, decisions=tuple(decisions), foretold=foretold, problem=problem)

    if side_of(0) != "good":
        return found(None, "the good one fails too, or it could not be decided")
    if not measured and side_of(last) != "bad":
        return found(None, "the bad one does not fail that often, or it could not be decided")
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        side = side_of(middle)
        if side == "undecided":
            return found(None, "one in between fails more often than the good one and less often than the bad one")
        low, high = (middle, high) if side == "good" else (low, middle)
    return found(high)


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


class Candidate(Struct, frozen=True, kw_only=True):
    """A version or commit that was decided, and by how many runs."""

    name: str
    side: Side
    runs: int
    failures: int


class Bisection(Answer, frozen=True, kw_only=True):
    """`first_bad`: the first that has the fault; None where there is no answer, and `problem` says why.

    `error`: the chance that it is wrong, foretold. `rates`: of what counts as good and as bad.
    """

    schema: Literal["cuwheel.bisection/1"] = "cuwheel.bisection/1"
    what: str
    good: str
    bad: str
    candidates: tuple[str, ...]
    decided: tuple[Candidate, ...]
    last_good: str | None
    first_bad: str | None
    runs: int
    foretold: int | None
    error: float
    rates: Rates | None
    problem: str
    folder: str

    @property
    def succeeded(self) -> bool:
        return self.first_bad is not None


Releases: TypeAlias = "Callable[[str], Iterable[Version]]"


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
        return limited.version(text)
    except InvalidVersion:
        raise UsageError(f"{text!r} is not a version", hint="--good 2.9.0 --bad 2.11.0") from None


def _commits(span: Span) -> tuple[str, ...]:
    """Along the first parents: what was merged is one step."""
    source = span.source or Path()
    try:
        good, bad = (
            sources.git(source, "rev-parse", "--verify", "--end-of-options", f"{each}^{{commit}}").strip()
            for each in (span.good, span.bad)
        )
        listed = sources.git(source, "rev-list", "--first-parent", "--reverse", f"{good}..{bad}").split()
        sources.git(source, "merge-base", "--is-ancestor", good, bad)
    except ToolError as error:
        reason = (error.output.strip().splitlines() or ["git says no more"])[-1]
        raise UsageError(
            f"{source}: {span.good} is not a commit before {span.bad}: {reason}",
            hint="git log shows the commits",
        ) from error
    return (good, *listed)


def run_bisection(
    plan: Plan, folder: Path, options: CampaignOptions, span: Span, odds: Odds, releases_of: Releases
) -> Bisection:
    """Every run is in the journal: a bisection that was ended goes on where it was, by the runs that it has.

    `releases_of`: of a package, on the indexes that are configured.
    """
    chosen = [plan.conditions[number] for number in campaign.chosen_conditions(plan, options.only)]
    if len(chosen) > 1:
        words = " ".join(f"--only {axis}={value}" for axis, value in chosen[0].choices.items())
        raise UsageError(
            f"a bisection runs one condition, and these are {len(chosen)}",
            hint=f"choose the one that fails most: cuwheel lab trials bisect FILE {words} …",
        )
    (base,) = chosen
    listed = _versions(span, releases_of) if span.package else _commits(span)
    if len(listed) < 2:  # noqa: PLR2004 - a good one and a bad one
        raise UsageError(f"{span.good} and {span.bad} are the same", hint="--good OLD --bad NEW")
    bisected = replace(
        plan,
        axes={**plan.axes, "candidate": tuple(listed)},
        conditions=tuple(_condition(base, span, each, folder) for each in listed),
    )

    @functools.cache
    def environment_of(number: int) -> MeasuredEnvironment:
        """Candidates are installed, checked out or built when their first run comes."""
        condition, name = bisected.conditions[number], listed[number]
        install = condition.install
        if span.source:
            checkout = _checked_out(span.source, name, folder / "checkouts")
            install = (*install, *_built(checkout, name, span, folder)) if span.build else install
        return execution.prepare_environment(condition.env, install, Path(plan.folder), folder / "environments")

    with campaign.open_campaign(bisected, folder, options) as opened:
        runner = Runner(bisected, folder, opened, environment_of)
        attempt = _attempts(runner, opened.state.results, listed)
        log.info("%d candidates, %d of them to decide at most", len(listed), steps(len(listed)))
        found = bisect(
            len(listed), attempt, error=odds.error, good_rate=odds.good_rate, bad_rate=odds.bad_rate, tell=log.info
        )
    first = found.first_bad
    return Bisection(
        what=span.package or str(span.source),
        good=span.good,
        bad=span.bad,
        candidates=listed,
        decided=tuple(
            Candidate(name=listed[each.candidate], side=each.side, runs=each.runs, failures=each.failures)
            for each in found.decisions
        ),
        last_good=listed[first - 1] if first else None,
        first_bad=listed[first] if first is not None else None,
        runs=found.runs,
        foretold=found.foretold,
        error=odds.error,
        rates=found.rates,
        problem=found.problem,
        folder=str(folder),
    )


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


def _built(checkout: Path, name: str, span: Span, folder: Path) -> tuple[str, ...]:
    output = folder / "wheels" / name
    if built := sorted(output.glob("*.whl")):
        return tuple(map(str, built))
    log.info("building %s", name[:_LONGEST])
    made = pipeline.build(BuildRequest(checkout, machines=span.machines, output=output), dict(os.environ))
    wheels = [job.wheel.path for job in made.answer.jobs if job.wheel]
    if not wheels:
        reasons = "; ".join(job.reason for job in made.answer.jobs) or "no job"
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
