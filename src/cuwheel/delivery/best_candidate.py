"""`cuwheel find`: every candidate judged, looking into as few wheels as the answer needs, the best first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags

from cuwheel.delivery import candidates, catalogue, judging
from cuwheel.delivery.candidates import Places
from cuwheel.delivery.find_answer import Find, FoundFile, Skipped, Stopped
from cuwheel.delivery.install_answer import Fallback, Package, Passed, PlannedBuild
from cuwheel.delivery.judging import CandidateJudge, Contents, Rank, Ruling
from cuwheel.delivery.request import FindRequest
from cuwheel.delivery.search_policy import Policy, Skip
from cuwheel.machine import fleet, python_environment
from cuwheel.machine.fleet import Machine, Refinement, with_platform
from cuwheel.machine.world import World
from cuwheel.network import client
from cuwheel.network.transfer import Budget, OverBudgetError, TooSlowError
from cuwheel.support import limited, log
from cuwheel.verdicts.verdict import ORDER
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import linux_platforms, platform_of, windows_platform

if TYPE_CHECKING:
    from cuwheel_core.wheel.tags import WheelName


# Which of several wheels of one release an installer takes: the order of its tags, for this machine or another.

_GLIBC_2 = 60  # a minor version that no system has yet
_LAST_MINOR = 99  # of Python, as its tags have it
LAST = sys.maxsize


def tag_order_of(machine: Machine) -> Mapping[str, int]:
    """Tag → its place. What the machine does not say is taken as it is here: somebody asks for another GPU alone."""
    said = [number for each in (machine.python or "").split(".")[:2] if (number := bounded.whole(each)) is not None]
    # Each minor version has tags of its own, down to the first: one of nine digits would take all memory.
    python = tuple(min(number, _LAST_MINOR) for number in said) or sys.version_info[:2]
    platforms = list(_platforms(machine))
    interpreter = f"cp{python[0]}{python[1]}" if len(python) > 1 else f"cp{python[0]}"
    abis = [f"{interpreter}t"] if machine.free_threaded else None
    found = [
        *cpython_tags(python, abis, platforms=platforms),
        *compatible_tags(python, interpreter, platforms=platforms),
    ]
    return {str(tag): place for place, tag in reversed(list(enumerate(found)))}


def place_of_tags(wheel: WheelName | None, order: Mapping[str, int]) -> int:
    """The lowest is taken; a source distribution comes after all wheels."""
    if wheel is None:
        return LAST
    return min(order.get(each, LAST) for each in wheel.tags)


def _platforms(machine: Machine) -> Iterator[str]:
    machine = fleet.with_platform(machine)
    cpu = machine.cpu or ""
    if machine.os == "windows":
        yield windows_platform(cpu)
        return
    newest = min((*versions.key(machine.glibc or ""), _GLIBC_2, _GLIBC_2)[1], _GLIBC_2)
    yield from linux_platforms(cpu, newest)


class Choice(Struct, frozen=True, kw_only=True):
    """What is taken for one requirement, and all that was found for it: nothing where `taken` and `build` are None.

    `wanted`: as somebody wrote it; `requirement`: the same, parsed, perhaps without versions that were tried before.
    `rulings`: the best first. `downloaded`, `releases`, `stopped`, `previews`: as in `Find`.
    `build`: what would be built, in a dry run. `fallback`: what it is instead of the newest release's wheel, and `why`.
    """

    name: str
    requirement: Requirement
    wanted: str = ""
    machines: tuple[Machine, ...]
    rulings: tuple[Ruling, ...]
    taken: Ruling | None
    downloaded: int = 0
    releases: int = 0
    stopped: Stopped | None = None
    previews: tuple[str, ...] = ()
    build: PlannedBuild | None = None
    fallback: Fallback | None = None
    why: str = ""
    passed: tuple[Passed, ...] = ()

    @property
    def is_made(self) -> bool:
        return self.taken is not None or self.build is not None

    @property
    def candidates(self) -> tuple[FoundFile, ...]:
        """What is shown of all files."""
        return tuple(each.shown(chosen=each is self.taken) for each in self.rulings)

    @property
    def package(self) -> Package:
        """What is shown of it where something is installed."""
        planned = self.build.version if self.build else None
        return Package(
            name=self.name,
            wanted=self.wanted,
            version=self.taken.version if self.taken else planned,
            file=self.taken.file if self.taken else None,
            outcome=self.taken.outcome if self.taken else "unknown",
            fallback=self.fallback,
            why=self.why,
            passed=self.passed,
            build=self.build,
            requires=self.taken.requires if self.taken else (),
        )

    @property
    def answer(self) -> Find:
        """What is shown of it where nothing is installed."""
        return Find(
            name=self.name,
            machines=self.machines,
            candidates=self.candidates,
            downloaded=self.downloaded,
            releases=self.releases,
            judged=len({each.release for each in self.rulings if each.known_from}),
            stopped=self.stopped,
            previews=self.previews,
            elsewhere=tuple(self._elsewhere()),
        )

    def _elsewhere(self) -> Iterator[str]:
        served = self.taken is not None and self.taken.outcome != "unknown"
        if served or not any(each.runs_l4t for each in self.machines):
            return
        from cuwheel.diagnosis import causes  # noqa: PLC0415 - most machines are no Jetson

        for way in causes.ways_out(
            "newer-jetpack", "jetpack-wheels", "jetson-index", "build-on-device", "build-for-jetson"
        ):
            yield f"{way.title}: {way.general or way.text}"


class Search(Struct, frozen=True, kw_only=True):
    """For what, where and with what means something is looked for: resolved once, for any number of packages.

    `env`: the environment that it is for; None where nobody sees it. `budget`: for all of them together. `has_facts`:
    whether an index has facts files, as far as that was found out. `read`: what is known of wheels, by address:
    one that brings torch along asks for it again, with other limits. `keeps_torch`: a torch that the machines are said
    to have is theirs; False where it was chosen here.
    """

    request: FindRequest
    env: Path | None
    session: client.Session
    places: Places
    budget: Budget
    probed: Callable[[], tuple[Machine, ...]]
    has_facts: dict[str, bool] = field(default_factory=dict)
    read: dict[str, Contents] = field(default_factory=dict)
    keeps_torch: bool = True

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self.probed()

    def on_machines(self, machines: tuple[Machine, ...]) -> Search:
        """The same for these alone. What was read of a wheel for others need not be all that matters here."""
        return replace(self, probed=lambda: machines, read={})

    def with_torch(self, version: str, cuda: str | None) -> Search:
        """The same machines with another torch; None for `cuda` leaves what is known of it."""
        refine = Refinement(torch=version, torch_cuda=cuda)
        return replace(self, probed=lambda: tuple(map(refine.apply, self.machines)), keeps_torch=False)


@contextmanager
def search_for(request: FindRequest, env: Path | None) -> Iterator[Search]:
    """The machines are looked at while indexes are asked."""
    with client.Session() as session, ThreadPoolExecutor(1) as pool:
        looking = pool.submit(fleet.machines_asked_for, request.on, request.refine, env=env)
        yield Search(
            request=request,
            env=env,
            session=session,
            places=candidates.configured_places(
                session.settings, indexes=request.indexes, find_links=request.find_links, no_index=request.no_index
            ),
            budget=Budget(request.budget),
            probed=looking.result,
        )


def find(search: Search, wanted: Requirement, *, shallow: bool = False) -> Choice:
    """`shallow`: where the newest release has no device code, it is taken, whatever older ones have."""
    request, session = search.request, search.session
    if request.pre:
        wanted = copy(wanted)
        wanted.specifier = limited.specifiers(str(wanted.specifier), prereleases=True)
    before = search.budget.used
    with log.progress(f"asking your indexes for {wanted.name}"):
        listed = candidates.list_all(wanted, search.places, session)
    machines = search.machines
    installed = bool(search.env or not request.on)
    judge = CandidateJudge(machines, search.env, installed=installed, keeps_torch=search.keeps_torch and not installed)
    policy = Policy(every=request.all_releases, knows_gpu=judge.knows_gpu and not shallow)
    for complete in _completed(machines, search.env):  # by_name alone: what nobody said stays a condition
        order = tag_order_of(complete[0])
        by_name = _once_a_build(_preferred([judging.judge_by_name(each, complete) for each in listed.allowed], order))
        reader = WheelReader(judge, search, by_name)
        ranked = sorted(_preferred(policy.search(by_name, reader), order), key=attrgetter("rank"))
        taken = next((each for each in ranked[:1] if each.rank.may_be_taken), None)
        if taken or reader.stopped:
            break
    previews = [judging.judge_by_name(each, complete) for each in listed.previews]
    fitting = [each for each in previews if not each.decided]
    newer = {each.candidate.version for each in fitting if taken is None or each.release > taken.release}
    return Choice(
        name=wanted.name,
        requirement=wanted,
        machines=machines,
        rulings=tuple(ranked),
        taken=taken,
        previews=tuple(map(str, sorted(newer, reverse=True))),
        downloaded=search.budget.used - before,
        releases=len({each.release for each in by_name if not each.decided}),
        stopped=reader.stopped,
    )


def _completed(machines: Sequence[Machine], env: Path | None) -> Iterator[tuple[Machine, ...]]:
    """What nobody said of system, processor and Python is as here: somebody asks for another GPU alone. Where nothing
    runs with the Python of here, any other is as good.
    """
    placed = tuple(map(with_platform, machines))
    if not all(each.python for each in machines):
        here, _ = python_environment.locate(World.here(), env)
        yield tuple(
            each if each.python else replace(each, python=here.version, free_threaded=here.free_threaded)
            for each in placed
        )
    yield placed


def _preferred(rulings: Iterable[Ruling], order: Mapping[str, int]) -> list[Ruling]:
    """The newest release first; in one release what runs best, then the later build, then as installers choose.

    A plain wheel comes before a variant that is no better: not every installer takes variants.
    """
    found = sorted(rulings, key=lambda each: place_of_tags(each.candidate.wheel, order) if each.candidate.wheel else 0)
    found.sort(key=lambda each: bool(each.candidate.wheel and each.candidate.wheel.variant))
    found.sort(key=lambda each: (each.candidate.version, each.candidate.build), reverse=True)
    found.sort(key=lambda each: ORDER.index(each.outcome))
    found.sort(key=attrgetter("release"), reverse=True)
    return found


def _once_a_build(rulings: Sequence[Ruling]) -> list[Ruling]:
    """Where a machine's Python is not known, a release has a wheel for each: one of them tells of the others."""
    first: dict[tuple[object, ...], Ruling] = {}
    found = []
    for each in rulings:
        wheel = each.candidate.wheel
        if wheel is None or each.decided:
            found.append(each)
            continue
        made_for = platform_of(wheel.platforms[0])
        key = (each.candidate.version, wheel.build, wheel.variant, made_for.os, made_for.cpu)
        known = first.setdefault(key, each)
        found.append(each if known is each else Skip(Skipped.SAME_BUILD, (known.file,)).told_of(each))
    return found


_AT_ONCE = 8
_MISSES = 3  # facts files that are not there, before an index is taken to have none
_MOST_FACTS = 2000  # facts files that are asked for, of the newest releases


class WheelReader:
    """What is in wheels, read as cheaply as it can be: what is known already, then facts files, then the wheels.

    Facts are asked for a few releases at a time: an index may have thousands, and the newest that runs is enough.
    """

    def __init__(self, judge: CandidateJudge, search: Search, listed: Sequence[Ruling]) -> None:
        self.stopped: Stopped | None = None
        self._judge, self._search = judge, search
        self._catalogues = catalogue.open_catalogues(search.request.catalogues, search.session)
        undecided = [each for each in listed if not each.decided]
        self._batch_of = {
            each.file: batch for batch in _by_release(undecided[:_MOST_FACTS]) for each in batch
        }  # each with those that are asked for at the same time
        self._asked: set[str] = set()
        self._judged: dict[str, Ruling] = {}

    def is_offered(self, ruling: Ruling) -> bool:
        """Whether its index says that there is a facts file, or a catalogue has the facts."""
        offered = ruling.candidate.listing.facts or catalogue.holds(self._catalogues, ruling.candidate)
        return bool(offered) and self._asked_for(ruling) is not None

    def judged(self, ruling: Ruling) -> Ruling | None:
        return self._judged.get(ruling.file)

    def known(self, ruling: Ruling) -> Ruling | None:
        if ruling.file not in self._judged:
            self._rule([ruling], [self._without_asking(ruling)])
        return self._judged.get(ruling.file)

    def look(self, ruling: Ruling) -> Ruling:
        if known := self._asked_for(ruling):
            return known
        search, place = self._search, ruling.url
        try:
            if place not in search.read:
                search.read[place] = judging.read_wheel(ruling.candidate, search.session, search.budget, self._judge)
            return self._judge.rule(ruling, search.read[place])
        except OverBudgetError as error:
            self.stopped = "budget"
            why = Skip(Skipped.OVER_BUDGET, (error.words,))
        except TooSlowError as error:
            self.stopped = "slow"
            why = Skip(Skipped.TOO_SLOW, (error.message,))
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            why = Skip(Skipped.CUT_SHORT)
        except CuwheelError as error:
            why = Skip(Skipped.UNREADABLE, (error.message,))
        return why.told_of(ruling)

    def _asked_for(self, ruling: Ruling) -> Ruling | None:
        """The verdict by facts that are kept or beside the wheel, asked for together with those around it."""
        batch = self._batch_of.get(ruling.file, ())
        if ruling.file not in self._asked and self.stopped != "interrupted":
            self._asked |= {each.file for each in batch}
            try:
                self._ask_for_facts(batch)
            except KeyboardInterrupt:
                self.stopped = "interrupted"
        return self.known(ruling)

    def _ask_for_facts(self, batch: Sequence[Ruling]) -> None:
        """Of wheels that are older than one that is known to run, no facts are asked for."""
        self._rule(batch, map(self._without_asking, batch))
        running = (each.release for each in batch if self._runs(each))
        best = None if self._search.request.all_releases else max(running, default=None)
        unknown = [each for each in batch if each.file not in self._judged]
        others = [each for each in unknown if best is None or each.release >= best]
        if not others:
            return
        has_facts = self._search.has_facts
        with ThreadPoolExecutor(_AT_ONCE) as pool, log.progress("reading facts"):
            for index in {each.index for each in others} - has_facts.keys():
                has_facts[index] = self._is_asked_for_facts(index, others, pool)
            self._rule(others, pool.map(lambda each: self._beside(each, ask=has_facts[each.index]), others))

    def _runs(self, ruling: Ruling) -> bool:
        known = self._judged.get(ruling.file)
        return known is not None and known.rank is Rank.RUNS

    def _rule(self, asked: Sequence[Ruling], contents: Iterable[Contents | None]) -> None:
        known = [(each, found) for each, found in zip(asked, contents, strict=True) if found]
        self._judge.expect([found.survey for _, found in known])
        self._judged |= {each.file: self._judge.rule(each, found) for each, found in known}

    def _without_asking(self, ruling: Ruling) -> Contents | None:
        """What is known of a candidate already: read for another question, kept, or in a catalogue."""
        read = self._search.read
        try:
            if ruling.url not in read and (found := judging.known_facts(ruling.candidate, self._catalogues)):
                read[ruling.url] = found
        except CuwheelError as error:
            log.warning("the facts of %s cannot be read: %s", ruling.file, error.message)
        return read.get(ruling.url)

    def _is_asked_for_facts(self, index: str, rulings: Sequence[Ruling], pool: ThreadPoolExecutor) -> bool:
        """Whether an index that does not say so has facts files all the same: found out with a few of them."""
        there = [each for each in rulings if each.index == index]
        unsaid = [each for each in there if not each.candidate.listing.facts and each.candidate.path is None]
        return any(pool.map(lambda each: self._beside(each, ask=True), unsaid[:_MISSES]))

    def _beside(self, ruling: Ruling, *, ask: bool) -> Contents | None:
        try:
            return judging.facts_beside(ruling.candidate, self._search.session, ask=ask)
        except CuwheelError as error:
            log.warning("the facts of %s cannot be read: %s", ruling.file, error.message)
            return None


def _by_release(rulings: Sequence[Ruling]) -> Iterator[list[Ruling]]:
    """Whole releases, in their order, as many as are asked for at once."""
    batch: list[Ruling] = []
    for _, files in groupby(rulings, key=attrgetter("release")):
        batch += files
        if len(batch) >= _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
