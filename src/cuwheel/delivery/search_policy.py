"""Which wheels `find` looks into: in what order, what makes a look needless, and what ends the search.

The policy asks a reader what is in a wheel, and never whether somebody knew that already. So the choice follows from
the question and from what the places say that were asked, and never from what an earlier question left in the cache.
What a place offers by itself (a facts file that its index lists, an entry of a catalogue) costs nothing: it is always
looked at, until something runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery.find_answer import Skipped, Stopped, words_of_skipped
from cuwheel.delivery.judging import Rank, Ruling
from cuwheel.verdicts.verdict import ORDER

if TYPE_CHECKING:
    from packaging.version import Version


class Reader(Protocol):
    """What is in wheels. `stopped`: why it could not read all that it was asked for."""

    stopped: Stopped | None

    def is_offered(self, ruling: Ruling) -> bool:
        """Whether the place that lists a wheel says what is in it, too."""

    def judged(self, ruling: Ruling) -> Ruling | None:
        """The verdict, where it was given on the way."""

    def known(self, ruling: Ruling) -> Ruling | None:
        """The verdict, where no server has to be asked for it."""

    def look(self, ruling: Ruling) -> Ruling:
        """The verdict, whatever it costs."""


class Limits(NamedTuple):
    """How far a search goes. `older`: releases that are looked into for device code where a newer one has none."""

    read: int = 100  # wheels, one after the other
    large: int = 20  # wheels larger than what is left of the budget: only their directories were read
    slow: int = 3  # wheels that came too slowly
    older: int = 3


LIMITS = Limits()


class Skip(NamedTuple):
    """Why a wheel is not looked into. `names`: what the words are about."""

    why: Skipped
    names: tuple[object, ...] = ()

    def told_of(self, ruling: Ruling) -> Ruling:
        return replace(ruling, reasons=(words_of_skipped(self.why, *self.names),), skipped=self.why, decided=True)


class Policy(Struct, frozen=True, kw_only=True):
    """`every`: nothing is needless. `knows_gpu`: an older release may have code for it where a newer one has none."""

    every: bool = False
    knows_gpu: bool = True

    def search(self, listed: Iterable[Ruling], reader: Reader) -> list[Ruling]:
        """Those that are listed, the newest release first, each with its verdict or with why it has none."""
        walk = Walk(self, reader)
        return [each for _, wheels in groupby(listed, key=minor_of) for each in walk.through(list(wheels))]


class Walk:
    """How far a search has come. `best`: what would be chosen now. `no_better`: what was looked into and does not run
    well, by the build that it is a patch of. `older`: releases that were looked into and are older than the best.
    """

    def __init__(self, policy: Policy, reader: Reader) -> None:
        self.policy, self.reader = policy, reader
        self.best: Ruling | None = None
        self.no_better: dict[Build, list[Ruling]] = {}
        self.older: set[Version] = set()
        self.read = self.large = self.slow = 0

    def through(self, wheels: Sequence[Ruling]) -> Iterator[Ruling]:
        """One minor release: its newest patch, then what may be better; patches that one failed for stand back.

        If none runs, an older minor release would be the alternative, and those that stood back are looked into first.
        """
        waiting: list[tuple[Ruling, Skip]] = []
        for each in wheels:
            passed = None if each.decided else self.first_of(NEEDLESS + STOPS, each)
            if passed and passed.why in STANDS_BACK:
                waiting.append((each, passed))
            else:
                yield each if each.decided else self.passed_or_judged(each, passed)
        if self.runs():
            yield from (passed.told_of(each) for each, passed in waiting)
            return
        by_build: dict[Build, list[tuple[Ruling, Skip]]] = {}
        for each, passed in waiting:
            by_build.setdefault(build_of(each), []).append((each, passed))
        for build, patches in by_build.items():
            for each, stood_back in (patches[-1], *patches[:-1]):  # the oldest tells of those between
                if self.best and self.runs() and build_of(self.best) != build:
                    yield stood_back.told_of(each)
                else:
                    yield self.passed_or_judged(each, self.first_of(RECONSIDERED + STOPS, each))

    def first_of(self, rules: Sequence[Rule], wheel: Ruling) -> Skip | None:
        """What the first rule says that has something to say."""
        if self.policy.every:
            rules = STOPS
        return next((passed for rule in rules if (passed := rule(self, wheel))), None)

    def passed_or_judged(self, wheel: Ruling, passed: Skip | None) -> Ruling:
        if passed is None:
            return self.looked_into(wheel)
        free = passed.why is Skipped.ALREADY_RUNS and self.reader.judged(wheel)
        return free or passed.told_of(wheel)

    def looked_into(self, wheel: Ruling) -> Ruling:
        self.read += not self.reader.is_offered(wheel)
        judged = self.reader.look(wheel)
        self.large += judged.skipped is Skipped.OVER_BUDGET
        self.slow += judged.skipped is Skipped.TOO_SLOW
        if judged.rank.may_be_taken and (self.best is None or _is_better(judged, self.best)):
            self.best = judged
        elif self.best and judged.release < self.best.release:
            self.older.add(judged.release)
        if judged.known_from and judged.rank is not Rank.RUNS:
            self.no_better.setdefault(build_of(judged), []).append(judged)
        return judged

    def runs(self) -> bool:
        return self.best is not None and self.best.rank is Rank.RUNS


def _is_better(one: Ruling, other: Ruling) -> bool:
    """By rank, then the newer release, then what runs better of it."""
    if one.rank != other.rank:
        return one.rank < other.rank
    if one.release != other.release:
        return one.release > other.release
    return ORDER.index(one.outcome) < ORDER.index(other.outcome)


# What makes a look needless: rules of one signature, the first that speaks decides.

Build: TypeAlias = tuple[tuple[int, ...], "str | None", "str | None"]
Rule: TypeAlias = Callable[[Walk, Ruling], "Skip | None"]


def minor_of(ruling: Ruling) -> tuple[int, ...]:
    """The minor release that a version belongs to; of 0.0.35 and its kind each is one by itself, and none a patch."""
    release = ruling.release.release
    return release[:2] if any(release[:2]) else release


def build_of(ruling: Ruling) -> Build:
    """What the patches of a minor release have in common that were built alike: for one CUDA, as one variant."""
    wheel = ruling.candidate.wheel
    return minor_of(ruling), ruling.candidate.version.local, str(wheel.variant) if wheel and wheel.variant else None


def something_runs_already(walk: Walk, wheel: Ruling) -> Skip | None:
    """A newer release runs, or of the same one a wheel as well as any could."""
    best = walk.best
    if best is None or not walk.runs():
        return None
    as_well = best.release == wheel.release and best.outcome == ORDER[0]
    return Skip(Skipped.ALREADY_RUNS, (best.candidate.version,)) if best.release > wheel.release or as_well else None


def older_ones_have_no_code_either(walk: Walk, wheel: Ruling) -> Skip | None:
    """Where no GPU is known, and in packages without device code, none is better than the newest."""
    best = walk.best
    if best is None or walk.runs() or best.release <= wheel.release or walk.reader.is_offered(wheel):
        return None
    enough = not walk.policy.knows_gpu or len(walk.older) >= LIMITS.older
    return Skip(Skipped.NOTHING_AGAINST, (best.candidate.version,)) if enough else None


def a_later_patch_is_no_better(walk: Walk, wheel: Ruling) -> Skip | None:
    """Patches of a build are made alike: where a later one fails, those before it mostly do."""
    later = next((each for each in walk.no_better.get(build_of(wheel), ()) if each.release > wheel.release), None)
    if later is None or walk.reader.is_offered(wheel):
        return None
    return Skip(Skipped.LATER_PATCH_NO_BETTER if later.rank.may_be_taken else Skipped.LATER_PATCH_FAILS)


def it_is_between_two_alike(walk: Walk, wheel: Ruling) -> Skip | None:
    """The oldest patch of a build and a later one fail in the same way: so do those between."""
    alike = walk.no_better.get(build_of(wheel), ())
    before = min(alike, key=attrgetter("release"), default=None)
    after = next((each for each in alike if each.release > wheel.release), None)
    if before is None or after is None or before.release >= wheel.release:
        return None
    if (before.rank, before.predicted_error) != (after.rank, after.predicted_error):
        return None
    if before.rank.may_be_taken:
        return Skip(Skipped.LATER_PATCH_NO_BETTER)
    return Skip(Skipped.BETWEEN_ALIKE, (before.candidate.version, after.candidate.version))


def it_was_interrupted(walk: Walk, wheel: Ruling) -> Skip | None:
    """What is known by then still counts."""
    stopped = walk.reader.stopped == "interrupted" and not walk.reader.known(wheel)
    return Skip(Skipped.INTERRUPTED) if stopped else None


def many_were_read(walk: Walk, wheel: Ruling) -> Skip | None:
    most = LIMITS.read
    return Skip(Skipped.MANY_READ, (most,)) if walk.read >= most and not walk.reader.is_offered(wheel) else None


def many_were_large(walk: Walk, wheel: Ruling) -> Skip | None:
    most = LIMITS.large
    return Skip(Skipped.MANY_LARGE, (most,)) if walk.large >= most and not walk.reader.known(wheel) else None


def the_server_is_slow(walk: Walk, wheel: Ruling) -> Skip | None:
    most = LIMITS.slow
    return Skip(Skipped.SERVER_SLOW) if walk.slow >= most and not walk.reader.known(wheel) else None


NEEDLESS: tuple[Rule, ...] = (
    something_runs_already, older_ones_have_no_code_either, a_later_patch_is_no_better,
)  # fmt: skip
RECONSIDERED: tuple[Rule, ...] = (something_runs_already, older_ones_have_no_code_either, it_is_between_two_alike)
STOPS: tuple[Rule, ...] = (it_was_interrupted, many_were_read, many_were_large, the_server_is_slow)
STANDS_BACK = (Skipped.LATER_PATCH_FAILS, Skipped.LATER_PATCH_NO_BETTER)
