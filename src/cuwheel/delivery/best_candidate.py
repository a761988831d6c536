"""`cuwheel find`: every candidate judged, looking into as few wheels as the answer needs, the best first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.tags import compatible_tags, cpython_tags

from cuwheel.delivery import candidates, catalogue, judging
from cuwheel.delivery.candidates import Places
from cuwheel.delivery.judging import CandidateJudge, Contents, Ruling
from cuwheel.delivery.request import FindRequest
from cuwheel.errors import EXIT_INTERRUPTED, EXIT_UNKNOWN, CuwheelError
from cuwheel.facts import versions
from cuwheel.machine import fleet
from cuwheel.machine.fleet import Machine, Refinement, with_platform
from cuwheel.network import client
from cuwheel.network.transfer import Budget, OverBudgetError, TooSlowError
from cuwheel.support import limited, log
from cuwheel.support.answer import Answer
from cuwheel.verdicts import wheel_tags
from cuwheel.verdicts.check_rules.host import GPU_NOT_KNOWN
from cuwheel.verdicts.choice import CudaError
from cuwheel.verdicts.predict import Outcome
from cuwheel.verdicts.verdict import ORDER

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

    from cuwheel.delivery.catalogue import CatalogueReader
    from cuwheel.wheel.metadata import WheelName


# Which of several wheels of one release an installer takes: the order of its tags, for this machine or another.

_GLIBC_2 = 60  # a minor version that no system has yet
_WINDOWS = {cpu: tag for tag, cpu in wheel_tags.WINDOWS_CPUS.items()}
LAST = sys.maxsize


def tag_order_of(machine: Machine) -> Mapping[str, int]:
    """Tag → its place. What the machine does not say is taken as it is here: somebody asks for another GPU alone."""
    python = (
        tuple(limited.digits(each) for each in (machine.python or "").split(".")[:2] if each.isdecimal())
        or sys.version_info[:2]
    )
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
        yield _WINDOWS.get(cpu, f"win_{cpu}")
        return
    newest = versions.key(machine.glibc)[1] if machine.glibc else _GLIBC_2
    yield from wheel_tags.linux_platforms(cpu, newest)


_AT_ONCE = 8
_MISSES = 3  # facts files that are not there, before an index is taken to have none
_MOST_FACTS = 2000  # facts files that are asked for, of the newest releases
_MOST_READ = 100  # wheels that are read, one after the other
_MOST_SLOW = 3  # wheels that come too slowly, before no other is tried
_MOST_LARGE = 20  # wheels larger than what is left of the budget: only their directories were read
_OLDER_READ = 3  # older releases that are read for device code where a newer one has none
MAY_BE_TAKEN = 2  # the highest rank that is


class FoundFile(Struct, frozen=True, kw_only=True):
    """A file of an index. `known_from`: a `facts file`, the `cache`, the `wheel`; null where nobody looked into it.

    `reasons`: of what fails, why; of what runs, the code that it takes. `chosen`: the one that is best.
    `torch`: of an extension, the minor releases of torch whose symbols and versions it goes with. `compiling`: what
    compiling its PTX ahead of time takes of one core in seconds, at least and at most, where that helps. `advice`: a
    setting that is not needed, and with which it loads a library that suits the driver better.
    """

    file: str
    version: str
    url: str
    sha256: str | None
    size: int | None
    kind: Literal["wheel", "source"]
    index: str
    outcome: Outcome
    chosen: bool
    reasons: tuple[str, ...]
    conditions: tuple[str, ...]
    predicted_error: CudaError | None
    known_from: str | None
    torch: tuple[str, ...] | None
    compiling: tuple[float, float] | None = None
    advice: str = ""

    @property
    def needs_a_gpu_to_tell(self) -> bool:
        """It may run: nobody can tell, since the machine has no GPU that is known."""
        return self.outcome == "unknown" and self.reasons[:1] == (GPU_NOT_KNOWN,)


Stopped: TypeAlias = Literal["budget", "slow", "interrupted"]


class Find(Answer, frozen=True, kw_only=True):
    """Candidates, the best first. `downloaded`: bytes of wheels that had to be read.

    `releases`: how many have a wheel for such a machine; `judged`: how many of these were looked into. `stopped`: why
    it ended before it knew the best: the budget was spent, the server was too slow, or somebody pressed Ctrl-C.
    `elsewhere`: for a Jetson that none is known to serve, where its wheels come from. `extras`: that were asked for.
    """

    schema: Literal["cuwheel.find/1"] = "cuwheel.find/1"
    name: str
    machines: tuple[Machine, ...]
    candidates: tuple[FoundFile, ...]
    downloaded: int
    releases: int = 0
    judged: int = 0
    stopped: Stopped | None = None
    elsewhere: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        """False where there is none to take."""
        return any(each.chosen for each in self.candidates)

    @property
    def exit_status(self) -> int | None:
        """What is known is shown, and whoever called hears of the Ctrl-C all the same; not known is not yes."""
        if self.stopped == "interrupted":
            return EXIT_INTERRUPTED
        undecided = any(each.chosen and each.needs_a_gpu_to_tell for each in self.candidates)
        return EXIT_UNKNOWN if undecided else None


class Found(Struct, frozen=True, kw_only=True):
    """`rulings`: the best first. `chosen`: the first of them, if it may be taken. The others as in `Find`."""

    name: str
    machines: tuple[Machine, ...]
    rulings: tuple[Ruling, ...]
    chosen: Ruling | None
    downloaded: int
    releases: int = 0
    stopped: Stopped | None = None

    @property
    def answer(self) -> Find:
        """What is shown of it."""
        return Find(
            name=self.name,
            machines=self.machines,
            candidates=tuple(_shown(each, chosen=each is self.chosen) for each in self.rulings),
            downloaded=self.downloaded,
            releases=self.releases,
            judged=len({each.release for each in self.rulings if each.origin}),
            stopped=self.stopped,
            elsewhere=tuple(self._elsewhere()),
        )

    def _elsewhere(self) -> Iterator[str]:
        served = self.chosen is not None and self.chosen.outcome != "unknown"
        if served or not any(each.runs_l4t for each in self.machines):
            return
        from cuwheel.diagnosis import causes  # noqa: PLC0415 - most machines are no Jetson

        for way in causes.ways_out(
            "newer-jetpack", "jetpack-wheels", "jetson-index", "build-on-device", "build-for-jetson"
        ):
            yield f"{way.title}: {way.general or way.text}"


def _shown(ruling: Ruling, *, chosen: bool) -> FoundFile:
    listing = ruling.candidate.listing
    return FoundFile(
        file=listing.file,
        version=str(ruling.candidate.version),
        url=listing.url,
        sha256=listing.sha256,
        size=listing.size,
        kind="wheel" if ruling.candidate.wheel else "source",
        index=ruling.candidate.index,
        outcome=ruling.outcome,
        chosen=chosen,
        reasons=ruling.reasons,
        conditions=ruling.conditions,
        predicted_error=ruling.predicted_error,
        known_from=ruling.origin,
        torch=ruling.torch,
        compiling=ruling.compiling,
        advice=f"{ruling.pin.setting}: {ruling.pin.why}" if ruling.pin and not ruling.pin.must else "",
    )


class Search(Struct, frozen=True, kw_only=True):
    """For what, where and with what means something is looked for: resolved once, for any number of packages.

    `env`: the environment that it is for; None where nobody sees it. `budget`: for all of them together. `has_facts`:
    whether an index has facts files, as far as that was found out. `read`: what is known of wheels, by address:
    one that brings torch along asks for it again, with other limits.
    """

    request: FindRequest
    env: Path | None
    session: client.Session
    places: Places
    budget: Budget
    probed: Callable[[], tuple[Machine, ...]]
    has_facts: dict[str, bool] = field(default_factory=dict)
    read: dict[str, Contents] = field(default_factory=dict)

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self.probed()

    def with_torch(self, version: str, cuda: str | None) -> Search:
        """The same machines with another torch; None for `cuda` leaves what is known of it."""
        refine = Refinement(torch=version, torch_cuda=cuda)
        return replace(self, probed=lambda: tuple(map(refine.apply, self.machines)))


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


def find(search: Search, wanted: Requirement, *, shallow: bool = False) -> Found:
    """`shallow`: where the newest release has no device code, it is taken, whatever older ones have."""
    request, session = search.request, search.session
    if request.pre:
        wanted = copy(wanted)
        wanted.specifier = limited.specifiers(str(wanted.specifier), prereleases=True)
    before = search.budget.used
    with log.progress(f"asking your indexes for {wanted.name}"):
        listed = candidates.list_candidates(wanted, search.places, session)
    machines = search.machines
    judge = CandidateJudge(machines, search.env, installed=bool(search.env or not request.on), shallow=shallow)
    order = tag_order_of(machines[0])
    complete = tuple(map(with_platform, machines))  # by_name alone: what nobody said stays a condition
    rulings = _once_a_build(_preferred([judging.judge_by_name(each, complete) for each in listed], order))
    releases = len({each.release for each in rulings if not each.decided})
    look = _Look(judge, search)
    rulings = list(look.into_wheels(look.into_facts(rulings)))
    ranked = tuple(sorted(_preferred(rulings, order), key=attrgetter("rank")))
    return Found(
        name=wanted.name,
        machines=machines,
        rulings=ranked,
        chosen=next((each for each in ranked[:1] if each.rank <= MAY_BE_TAKEN), None),
        downloaded=search.budget.used - before,
        releases=releases,
        stopped=look.stopped,
    )


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
        made_for = wheel_tags.platform_of(wheel.platforms[0])
        key = (each.candidate.version, wheel.build, wheel.variant, made_for.os, made_for.cpu)
        known = first.setdefault(key, each)
        reason = f"not looked into: {known.candidate.file} is of the same release"
        found.append(each if known is each else replace(each, reasons=(reason,), decided=True))
    return found


class _Look:
    """What is in candidates, the newest release first, until no other could be better; with `--all` in every one.

    `stopped`: why that was not possible.
    """

    def __init__(self, judge: CandidateJudge, search: Search) -> None:
        self.stopped: Stopped | None = None
        self._judge, self._session, self._budget = judge, search.session, search.budget
        self._has_facts, self._known = search.has_facts, search.read
        self._everything = search.request.all_releases
        self._catalogues = catalogue.open_catalogues(search.request.catalogues, search.session)

    def into_facts(self, rulings: Sequence[Ruling]) -> list[Ruling]:
        """Adds the verdicts of those whose facts are to be had without the wheel."""
        judged: dict[str, Ruling] = {}
        try:
            for ruling in self._with_facts([each for each in rulings if not each.decided]):
                judged[ruling.candidate.file] = ruling
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        return [judged.get(each.candidate.file, each) for each in rulings]

    def _with_facts(self, undecided: Sequence[Ruling]) -> Iterator[Ruling]:
        """A few releases at a time: an index may have thousands, and the newest that runs is enough."""
        rest = undecided[:_MOST_FACTS]
        with ThreadPoolExecutor(_AT_ONCE) as pool, log.progress("reading facts", len(rest)) as shown:
            for batch in _by_release(rest):
                ruled = [*self._ruled(batch, map(self._without_asking, batch))]
                yield from ruled
                running = () if self._everything else (each.release for each in ruled if each.rank == 0)
                best = max(running, default=None)
                here = {each.candidate.file for each in ruled}
                others = [each for each in batch if each.candidate.file not in here and _may_be_better(each, best)]
                for index in {each.candidate.index for each in others} - self._has_facts.keys():
                    self._has_facts[index] = self._is_asked_for_facts(index, others, pool)
                asked = pool.map(
                    lambda each: _beside(each, self._session, ask=self._has_facts[each.candidate.index]), others
                )
                ruled = [*self._ruled(others, asked)]
                yield from ruled
                shown.advance(len(batch))
                if not self._everything and (best or any(each.rank == 0 for each in ruled)):
                    return

    def _without_asking(self, ruling: Ruling) -> Contents | None:
        """What is known of a candidate already: read for another question, kept, or in a catalogue."""
        place = ruling.candidate.listing.url
        if place not in self._known and (found := _known(ruling, self._catalogues)):
            self._known[place] = found
        return self._known.get(place)

    def _ruled(self, asked: Sequence[Ruling], contents: Iterable[Contents | None]) -> Iterator[Ruling]:
        """Those of which something is known."""
        known = [(each, found) for each, found in zip(asked, contents, strict=True) if found]
        self._judge.expect([found.survey for _, found in known])
        return (self._judge.rule(each, found) for each, found in known)

    def _is_asked_for_facts(self, index: str, rulings: Sequence[Ruling], pool: ThreadPoolExecutor) -> bool:
        """Whether an index that does not say so has facts files all the same: found out with a few of them."""
        there = [each for each in rulings if each.candidate.index == index]
        unsaid = [each for each in there if not each.candidate.listing.facts and each.candidate.path is None]
        return any(pool.map(lambda each: _beside(each, self._session, ask=True), unsaid[:_MISSES]))

    def into_wheels(self, rulings: Sequence[Ruling]) -> Iterator[Ruling]:
        """Adds the verdicts of those that had to be read."""
        usable = (each for each in rulings if each.decided and each.rank <= MAY_BE_TAKEN)
        best = min(usable, key=attrgetter("rank"), default=None)
        read: set[Version] = set()  # releases that were looked into, after one that nothing speaks against
        # By minor release, a file that was looked into and does not run well: patches before it were built alike.
        failing = [each for each in rulings if each.decided and each.origin and each.rank > 0]
        patched = {_minor(each.release): each for each in sorted(failing, key=attrgetter("release"))}
        # Such patches. Where nothing else runs the oldest of them is read, and the others unless it fails alike.
        passed_over: dict[str, Ruling] = {}
        oldest = {_series(each): each for each in sorted(failing, key=attrgetter("release"), reverse=True)}
        count = large = slow = 0
        for each in chain(rulings, _oldest_first(passed_over)):
            if each.decided:
                if best and each.origin and each.release < best.release:
                    read.add(each.release)
                yield each
                continue
            if each.candidate.file in passed_over:
                reason = _between(each, oldest.get(_series(each)), patched[_minor(each.release)])
                if not reason and best and _series(best) == _series(each):
                    reason = _runs(best) if _is_enough(best, each, read, self._judge) else ""
                elif not reason and best:
                    reason = self._needless(best, each, patched, read)
            else:
                reason = "" if self._everything else self._needless(best, each, patched, read)
                if reason and best is None:
                    passed_over[each.candidate.file] = each
                    continue
            if not reason and self.stopped == "interrupted":
                reason = "not looked into: it was interrupted before"
            elif not reason and count == _MOST_READ:
                reason = f"not looked into: {_MOST_READ} newer wheels were read; name a version to ask about this one"
            elif not reason and large == _MOST_LARGE:
                reason = f"not looked into: {_MOST_LARGE} newer wheels were larger than what is left of --budget"
            elif not reason and slow == _MOST_SLOW:
                reason = "not looked into: the server is too slow"
            if reason:
                yield replace(each, reasons=(reason,), decided=True)
                continue
            count += 1
            judged = self._read(each)
            large += judged.origin is None and self.stopped == "budget"
            slow += judged.origin is None and self.stopped == "slow"
            if judged.rank <= MAY_BE_TAKEN and (best is None or judged.rank < best.rank):
                best = judged
            elif best:
                read.add(judged.release)
            if judged.origin and judged.rank > MAY_BE_TAKEN:
                patched.setdefault(_minor(judged.release), judged)
                oldest[_series(judged)] = min(judged, oldest.get(_series(judged), judged), key=attrgetter("release"))
            yield judged

    def _needless(
        self, best: Ruling | None, other: Ruling, patched: Mapping[tuple[int, ...], Ruling], read: set[Version]
    ) -> str:
        """Why another need not be read; empty where it may be better."""
        patch = patched.get(_minor(other.release))
        if patch and (patch.release >= other.release if best else _is_later_patch(patch, other)):
            which = "a later patch" if patch.release > other.release else "another wheel"
            how = "does not run" if patch.rank > MAY_BE_TAKEN else "is no better"
            return f"not looked into: {which} of it {how}"
        if best and _is_enough(best, other, read, self._judge):
            return _runs(best)
        return ""

    def _read(self, ruling: Ruling) -> Ruling:
        place = ruling.candidate.listing.url
        try:
            if place not in self._known:
                self._known[place] = judging.read_wheel(ruling.candidate, self._session, self._budget, self._judge)
            return self._judge.rule(ruling, self._known[place])
        except OverBudgetError as error:
            self.stopped = "budget"
            reason = f"not read: {error.words} of --budget"
        except TooSlowError as error:
            self.stopped = "slow"
            reason = f"not read: {error.message}"
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            reason = "not read to its end: it was interrupted"
        except CuwheelError as error:
            reason = f"not read: {error.message}"
        return replace(ruling, reasons=(reason,), decided=True)


def _minor(release: Version) -> tuple[int, ...]:
    """The minor release that a version belongs to; of 0.0.35 and its kind each is one by itself, and none a patch."""
    return release.release[:2] if any(release.release[:2]) else release.release


def _series(ruling: Ruling) -> tuple[tuple[int, ...], str | None]:
    """The patches of one build of a minor release."""
    return _minor(ruling.release), ruling.candidate.version.local


def _oldest_first(passed_over: Mapping[str, Ruling]) -> Iterator[Ruling]:
    """Yields the oldest of each series and then its others, the newest first."""
    series: dict[object, list[Ruling]] = {}
    for each in passed_over.values():
        series.setdefault(_series(each), []).append(each)
    for patches in series.values():
        yield from (patches[-1], *patches[:-1])


def _between(other: Ruling, before: Ruling | None, after: Ruling) -> str:
    """Why a patch need not be read that stands between two which fail alike; empty where it may be better."""
    if before is None or before.release >= other.release or before.predicted_error != after.predicted_error:
        return ""
    return f"not looked into: neither {before.candidate.version} nor {after.candidate.version} runs"


def _runs(best: Ruling) -> str:
    runs = "runs" if best.rank == 0 else "has nothing that speaks against it"
    return f"not looked into: {best.candidate.version} {runs}"


def _is_later_patch(one: Ruling, other: Ruling) -> bool:
    """Whether one is a later release of the same build: a release with several has one for other GPUs, perhaps."""
    return one.release > other.release and one.candidate.version.local == other.candidate.version.local


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


def _is_enough(best: Ruling, other: Ruling, read: set[Version], judge: CandidateJudge) -> bool:
    """Whether another need not be read. Where no GPU is known, and in packages without device code, none is better."""
    older = best.release > other.release
    if best.rank == 0:
        return older or (best.release == other.release and best.outcome == ORDER[0])
    return older and (not judge.knows_gpu or len(read) >= _OLDER_READ)


def _may_be_better(other: Ruling, best: Version | None) -> bool:
    return best is None or other.release >= best


def _known(ruling: Ruling, catalogues: Sequence[CatalogueReader]) -> Contents | None:
    try:
        return judging.known_facts(ruling.candidate, catalogues)
    except CuwheelError as error:
        log.warning("the facts of %s cannot be read: %s", ruling.candidate.file, error.message)
        return None


def _beside(ruling: Ruling, session: client.Session, *, ask: bool) -> Contents | None:
    try:
        return judging.facts_beside(ruling.candidate, session, ask=ask)
    except CuwheelError as error:
        log.warning("the facts of %s cannot be read: %s", ruling.candidate.file, error.message)
        return None
