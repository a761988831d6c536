"""`cuwheel catalogue`: facts of many releases, each wheel read once; and of each project the newest that runs on a GPU.

Which releases of a project are worth a row is decided by their names; their wheels are read here, a few at once, or by
the workers of a cluster. The page of an index shows a catalogue too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from cuwheel.clusters.task import Task
from cuwheel.delivery import candidates, index_folder, judging, page, page_verdicts
from cuwheel.delivery.candidates import Candidate, IndexFile
from cuwheel.delivery.catalogue import SHIPPED, CatalogueReader, Listed, Store
from cuwheel.delivery.judging import Rank
from cuwheel.delivery.transaction import Remove, Write
from cuwheel.device_code import wheel_facts
from cuwheel.device_code.wheel_facts import WheelFacts
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.network import client
from cuwheel.network.transfer import Budget, OverBudgetError
from cuwheel.support import codec, files, limited, log
from cuwheel.support.answer import Answer
from cuwheel.support.files import folder_lock
from cuwheel.verdicts.judge import judge_all
from cuwheel.version import __version__
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import gpus
from cuwheel_core.support.wording import size
from cuwheel_core.verdicts import predict
from cuwheel_core.wheel.tags import WheelName, platform_of

if TYPE_CHECKING:
    from cuwheel.clusters.engine import Engine
    from cuwheel.delivery.request import CatalogueRequest

Outcome: TypeAlias = Literal["added", "known", "failed", "over-budget"]
_UTC = timezone.utc


class Row(Struct, frozen=True, kw_only=True):
    """What became of a wheel, or of a project that could not be listed (`file` is then empty)."""

    name: str
    version: str
    file: str
    outcome: Outcome
    reason: str = ""


class Newest(Struct, frozen=True, kw_only=True):
    """`version` None: none of those that are held runs there. `outcome`: `unknown` where it has no code to judge."""

    machine: str
    version: str | None
    outcome: predict.Outcome


class ProjectReach(Struct, frozen=True, kw_only=True):
    """`versions`: those that are held, the newest first. `uploaded`: the newest one, where its index says it.

    `device_code`: whether any of them has some.
    """

    name: str
    versions: tuple[str, ...]
    uploaded: str | None
    device_code: bool
    newest: tuple[Newest, ...]


class Catalogue(Answer, frozen=True, kw_only=True):
    """`rows`: what `add` did. `projects`: what `list` found. `wheels`: how many are held, in `size` bytes.

    `downloaded`: bytes that were read of the wheels that were added, which have `bytes_of_wheels` in all.
    """

    schema: Literal["cuwheel.catalogue/1"] = "cuwheel.catalogue/1"
    place: str
    date: str | None
    wheels: int
    size: int = 0
    downloaded: int = 0
    bytes_of_wheels: int = 0
    rows: tuple[Row, ...] = ()
    projects: tuple[ProjectReach, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not any(each.outcome in ("failed", "over-budget") for each in self.rows)


def fill_catalogue(request: CatalogueRequest) -> Catalogue:
    """Resumable: a wheel whose facts are held already is not looked at again."""
    request.to.mkdir(parents=True, exist_ok=True)
    budget = Budget(request.budget)
    rows: list[Row] = []
    with (
        folder_lock(request.to, patient=True),
        client.Session() as session,
        _reader(request, session, budget) as reader,
    ):
        store = Store(request.to)
        where = candidates.configured_places(session.settings, indexes=request.indexes, find_links=request.find_links)
        for name in request.names or sorted({each.name for each in store.wheels}):
            with log.progress(f"asking your indexes for {name}"):
                wanted, problem = _listed(name, where, session, request)
            rows += [Row(name=name, version="", file="", outcome="failed", reason=problem)] if problem else []
            try:
                rows.extend(_project(wanted, store, reader))
            finally:  # whatever stops it
                store.save(datetime.now(_UTC).date().isoformat())
        added = {each.file for each in rows if each.outcome == "added"}
        return Catalogue(
            place=str(request.to),
            date=None,
            wheels=len(store.wheels),
            size=store.size,
            downloaded=budget.used,
            bytes_of_wheels=sum(each.size for each in store.wheels if each.file in added),
            rows=tuple(rows),
        )


@contextlib.contextmanager
def _reader(request: CatalogueRequest, session: client.Session, budget: Budget) -> Iterator[ReadHere | ReadOnCluster]:
    here = ReadHere(session, budget)
    if request.cluster is None:
        yield here
        return
    from cuwheel.clusters import engine  # noqa: PLC0415 - of an extra
    from cuwheel.network import cluster_access  # noqa: PLC0415 - of an extra

    with engine.open_engine(cluster_access.parse_address(request.cluster), files.cache_folder() / "cluster") as machine:
        yield ReadOnCluster(machine, here, budget)


def _listed(
    name: str, where: candidates.Places, session: client.Session, request: CatalogueRequest
) -> tuple[list[Candidate], str]:
    try:
        found = candidates.list_candidates(candidates.parse_requirement(name), where, session)
    except UsageError:
        raise
    except CuwheelError as error:
        return [], error.message
    since = datetime.now(_UTC) - timedelta(days=request.days) if request.days else None
    return list(_worth_a_row(found, request.platform, since)), ""


def _worth_a_row(found: Iterable[Candidate], platform: str, since: datetime | None) -> Iterator[Candidate]:
    """The newest and the oldest release of each minor version, and of its wheels one for the platform: all have the
    same code. Where neither runs, `find` reads none between them.

    A local version (`+cu126`) is a build of its own.
    """
    builds: dict[tuple[tuple[int, ...], str], list[Candidate]] = {}
    wanted = platform_of(platform)
    for each in found:
        if each.wheel is None or each.listing.yanked is not None or not each.listing.sha256 or _older(each, since):
            continue
        made_for = platform_of(each.wheel.platforms[0])
        # `any` says nothing of what is in it.
        if each.wheel.platforms != ("any",) and (made_for.os, made_for.cpu) != (wanted.os, wanted.cpu):
            continue
        # Where its releases begin with zeros (0.0.35), the first number that counts.
        leading = next((place for place, number in enumerate(each.version.release) if number), 0)
        build = (each.version.release[: max(leading + 1, 2)], each.version.local or "")
        builds.setdefault(build, []).append(each)
    for build in sorted(builds, reverse=True):
        versions = [each.version for each in builds[build]]
        for version in dict.fromkeys((max(versions), min(versions))):
            yield max((each for each in builds[build] if each.version == version), key=_preference)


def _preference(candidate: Candidate) -> tuple[bool, tuple[int, str, str], str]:
    """Which wheel of a release most would take: free-threaded Pythons (`cp314t`) are few, a later build is taken."""
    abi = candidate.wheel.abi if candidate.wheel else ""
    return not abi.endswith("t"), candidate.build, candidate.file


def _older(candidate: Candidate, since: datetime | None) -> bool:
    """Where an index does not say when, nothing is left out for it."""
    if since is None or not candidate.listing.uploaded:
        return False
    try:
        uploaded = datetime.fromisoformat(candidate.listing.uploaded.replace("Z", "+00:00"))
    except ValueError:
        return False
    return (uploaded if uploaded.tzinfo else uploaded.replace(tzinfo=_UTC)) < since


def _project(wanted: Sequence[Candidate], store: Store, reader: ReadHere | ReadOnCluster) -> Iterator[Row]:
    missing = [each for each in wanted if not store.has(each.listing.sha256 or "")]
    yield from (_row(each, "known") for each in wanted if each not in missing)
    for found in reader.read(missing):
        candidate, facts = found.candidate, found.facts
        if facts is None:
            large = f"{size(candidate.listing.size or 0)}, more than is left"
            yield (
                _row(candidate, "over-budget", large) if found.over_budget else _row(candidate, "failed", found.problem)
            )
            continue
        listed = Listed(
            file=candidate.file,
            name=_name_of(candidate),
            version=str(candidate.version),
            sha256=candidate.listing.sha256 or "",
            size=candidate.listing.size or facts.size,
            uploaded=candidate.listing.uploaded,
        )
        store.add(listed, facts)
        yield _row(candidate, "added")


def _name_of(candidate: Candidate) -> str:
    return candidate.wheel.project if candidate.wheel else ""


def _row(candidate: Candidate, outcome: Outcome, reason: str = "") -> Row:
    version = str(candidate.version)
    return Row(name=_name_of(candidate), version=version, file=candidate.file, outcome=outcome, reason=reason)


# Wheels of a project read into a catalogue: here, a few at once, or by the workers of a cluster.

_AT_ONCE = 2
_MEMORY = 10**9


class WheelRead(Struct, frozen=True, kw_only=True):
    """`facts`, or why there are none."""

    candidate: Candidate
    facts: WheelFacts | None = None
    problem: str = ""
    over_budget: bool = False


class ReadHere:
    def __init__(self, session: client.Session, budget: Budget) -> None:
        self._session, self._budget = session, budget

    def read(self, wanted: Sequence[Candidate]) -> Iterator[WheelRead]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(self._one, wanted)

    def _one(self, candidate: Candidate) -> WheelRead:
        try:
            return WheelRead(candidate=candidate, facts=judging.facts_of(candidate, self._session, self._budget))
        except OverBudgetError:
            return WheelRead(candidate=candidate, over_budget=True)
        except CuwheelError as error:
            log.warning("%s: %s", candidate.file, error.message)
            return WheelRead(candidate=candidate, problem=error.message)


class ReadInputs(Struct, frozen=True, kw_only=True):
    """A candidate on its way to a worker, and how much of the budget is left for it."""

    listing: IndexFile
    version: str
    index: str
    left: int | None


class ReadAnswer(Struct, frozen=True, kw_only=True):
    facts: WheelFacts | None
    downloaded: int


class ReadOnCluster:
    """Workers ask the indexes with their own settings. Files of this machine are read here."""

    def __init__(self, machine: Engine, here: ReadHere, budget: Budget) -> None:
        self._engine, self._here, self._budget = machine, here, budget

    def read(self, wanted: Sequence[Candidate]) -> Iterator[WheelRead]:
        yield from self._here.read([each for each in wanted if each.path])
        remote = {each.file: each for each in wanted if not each.path}
        expected = 0
        tasks = []
        for each in remote.values():
            left = None if self._budget.limit is None else self._budget.limit - self._budget.used - expected
            expected += each.listing.size or 0
            tasks.append(_task(each, left))
        for done in self._engine.run(tasks):
            yield self._read(remote[done.task.id], done.problem, done.text)

    def _read(self, candidate: Candidate, problem: str, text: str) -> WheelRead:
        if problem:
            return WheelRead(candidate=candidate, problem=problem)
        answer = codec.decode(text, ReadAnswer)
        self._budget.used += answer.downloaded
        if answer.facts is None:
            return WheelRead(candidate=candidate, over_budget=True)
        if answer.facts.file != candidate.file or answer.facts.sha256 != candidate.listing.sha256:
            return WheelRead(candidate=candidate, problem="the worker's facts are about another wheel")
        return WheelRead(candidate=candidate, facts=answer.facts)


def _task(candidate: Candidate, left: int | None) -> Task:
    given = ReadInputs(listing=candidate.listing, version=str(candidate.version), index=candidate.index, left=left)
    return Task(
        id=candidate.file,
        function="cuwheel.delivery.cataloguing:facts_on_worker",
        parameters=codec.encode(given).decode(),
        memory=_MEMORY,
        seconds=float(candidate.listing.size or 0),  # the largest take longest
    )


def facts_on_worker(task: Task, _inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """Reads the facts of a wheel on a worker."""
    inputs = codec.decode(task.parameters, ReadInputs)
    wheel = WheelName.parse(inputs.listing.file)
    candidate = Candidate(
        listing=inputs.listing, version=limited.version(inputs.version), wheel=wheel, index=inputs.index
    )
    budget = Budget(inputs.left)
    with client.Session() as session:
        try:
            found = judging.facts_of(candidate, session, budget)
        except OverBudgetError:
            found = None
    return codec.encode_any(ReadAnswer(facts=found, downloaded=budget.used)).decode(), {}


# What it tells: for each project and machine the newest release that runs there.


def reach_of_catalogue(place: str | Path | None, machines: Sequence[Machine]) -> Catalogue:
    """Tells what a catalogue's wheels run on; None: the one that ships. Without machines, every generation counts."""
    with client.Session() as session:
        found = CatalogueReader(place or SHIPPED, session)
        return Catalogue(
            place=str(place or "cuwheel"),
            date=found.contents.date,
            wheels=len(found.contents.wheels),
            projects=tuple(_reach(found, machines or _generations())),
        )


def _generations() -> tuple[Machine, ...]:
    """The first GPUs of each generation, and of each major capability in it: where support begins and ends."""
    first = {
        (gpus.find_architecture(each).generation, each.major): each for each in reversed(gpus.current_capabilities())
    }
    return tuple(Machine(name=str(each), capability=each) for each in sorted(first.values()))


def _reach(catalogue: CatalogueReader, machines: Sequence[Machine]) -> Iterator[ProjectReach]:
    wheels = sorted(catalogue.contents.wheels, key=lambda each: each.name)
    for name, group in groupby(wheels, key=lambda each: each.name):
        found = sorted(group, key=_version, reverse=True)
        yield ProjectReach(
            name=name,
            versions=tuple(dict.fromkeys(each.version for each in found)),
            uploaded=found[0].uploaded,
            device_code=any(
                library.device_code
                for each in found
                if (facts := catalogue.facts(each.sha256))
                for library in facts.libraries
            ),
            newest=tuple(_newest(catalogue, found, machines)),
        )


def _version(listed: Listed) -> Version:
    try:
        return limited.version(listed.version)
    except InvalidVersion:
        return limited.version("0")


def _newest(catalogue: CatalogueReader, wheels: Sequence[Listed], machines: Sequence[Machine]) -> Iterator[Newest]:
    """A release is judged once for all machines that no newer one serves. One that serves in part comes last."""
    waiting = {each.name: each for each in machines}
    answers: dict[str, Newest] = {}
    for listed in wheels:
        asked = tuple(each for each in waiting.values() if _is_for(listed, each))
        facts = catalogue.facts(listed.sha256) if asked else None
        if facts is None:
            continue
        for machine, verdict in zip(asked, judge_all(wheel_facts.survey(facts), asked), strict=True):
            found = Newest(machine=machine.name, version=listed.version, outcome=verdict.outcome)
            rank = judging.rank_of_verdict(verdict)
            if rank in (Rank.RUNS, Rank.UNOPPOSED):
                answers[machine.name] = found
                del waiting[machine.name]
            elif rank is Rank.LOSES:
                answers.setdefault(machine.name, found)
    for machine in machines:
        yield answers.get(machine.name, Newest(machine=machine.name, version=None, outcome="fails"))


def _is_for(listed: Listed, machine: Machine) -> bool:
    """Whether a wheel is for a machine's system and processor; where nobody said, for the most usual ones."""
    wheel = WheelName.parse(listed.file)
    made_for = platform_of(wheel.platforms[0]) if wheel else None
    if made_for is None or made_for.os is None:
        return True
    return (made_for.os, made_for.cpu) == (machine.os or "linux", machine.cpu or "x86_64")


# A catalogue in the page of an index: of each package the newest release that runs on each kind of GPU.

_LOOKS = {"native": "good", "compatible": "good", "jit": "fair", "partial": "poor", "unknown": "none", "fails": "bad"}
_WORDS = {"jit": " jit", "partial": " partly", "unknown": " no code"}


def catalogue_page_steps(place: str) -> Iterator[Write | Remove]:
    """The page for a catalogue, or its removal for `none`.

    For a usual computer: the catalogue's wheels are for one platform, and a Jetson is another.
    """
    if place == index_folder.NO_CATALOGUE:
        yield Remove(index_folder.CATALOGUE_PAGE)
        return
    with log.progress("judging what the catalogue holds"):
        capabilities = page_verdicts.capabilities(page_verdicts.PLACES[0])
        machines = [Machine(name=str(each), capability=each) for each in capabilities]
        found = reach_of_catalogue(None if place == index_folder.SHIPPED_CATALOGUE else place, machines)
        rendered = page.render(
            "catalogue.html.j2",
            projects=found.projects,
            wheels=found.wheels,
            date=found.date,
            columns=[(str(each), gpus.find_architecture(each).generation) for each in capabilities],
            looks=_LOOKS,
            words=_WORDS,
            version=__version__,
        )
    yield Write(index_folder.CATALOGUE_PAGE, rendered)
