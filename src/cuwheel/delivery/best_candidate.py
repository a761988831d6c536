"""`cuwheel find`: every candidate judged, looking into as few wheels as the answer needs, the best first."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from packaging.tags import compatible_tags, cpython_tags
from packaging.version import Version

from cuwheel.delivery import candidates, catalogue, judging
from cuwheel.delivery.judging import Ruling
from cuwheel.errors import CuwheelError
from cuwheel.facts import versions
from cuwheel.machine import fleet, named
from cuwheel.machine.fleet import Machine, with_platform
from cuwheel.network import client
from cuwheel.network.remote import Budget, OverBudgetError
from cuwheel.support import log
from cuwheel.support.wording import size
from cuwheel.verdicts import wheel_tags
from cuwheel.verdicts.verdict import ORDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cuwheel.delivery.catalogue import Catalogue
    from cuwheel.delivery.judging import Contents, Judge
    from cuwheel.delivery.request import FindRequest
    from cuwheel.wheel.metadata import WheelName


# Which of several wheels of one release an installer takes: the order of its tags, for this machine or another.

_GLIBC_2 = 60  # a minor version that no system has yet
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_WINDOWS = {"x86_64": "win_amd64", "aarch64": "win_arm64"}
LAST = sys.maxsize


def tag_order_of(machine: Machine) -> Mapping[str, int]:
    """Tag → its place. What the machine does not say is taken as it is here: somebody asks for another GPU alone."""
    python = (
        tuple(int(each) for each in (machine.python or "").split(".")[:2] if each.isdigit()) or sys.version_info[:2]
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


def platform_of(machine: Machine) -> str:
    """The platform that an installer there prefers."""
    return next(_platforms(machine))


def _platforms(machine: Machine) -> Iterator[str]:
    machine = fleet.with_platform(machine)
    cpu = machine.cpu or ""
    if machine.os == "windows":
        yield _WINDOWS.get(cpu, f"win_{cpu}")
        return
    newest = versions.key(machine.glibc)[1] if machine.glibc else _GLIBC_2
    for minor in range(newest, 4, -1):
        yield f"manylinux_2_{minor}_{cpu}"
        if minor in _LEGACY:
            yield f"{_LEGACY[minor]}_{cpu}"
    yield f"linux_{cpu}"


_AT_ONCE = 8
_MISSES = 3  # facts files that are not there, before an index is taken to have none
_MOST_FACTS = 2000  # facts files that are asked for, of the newest releases
_MOST_READ = 100  # wheels that are read, one after the other
_OLDER_READ = 3  # older releases that are read for device code where a newer one has none
MAY_BE_TAKEN = 2  # the highest rank that is


class Found(Struct, frozen=True, kw_only=True):
    """`rulings`: the best first. `chosen`: the first of them, if it may be taken. `downloaded`: bytes of wheels."""

    name: str
    machines: tuple[Machine, ...]
    rulings: tuple[Ruling, ...]
    chosen: Ruling | None
    downloaded: int


def find(request: FindRequest, *, shallow: bool = False) -> Found:
    """`shallow`: where the newest release has no device code, it is taken, whatever older ones have."""
    wanted = candidates.parse_requirement(request.wanted)
    if request.pre:
        wanted.specifier.prereleases = True
    budget = Budget(request.budget)
    with client.Session() as session, ThreadPoolExecutor(1) as beside:
        looking = beside.submit(
            named.machines_asked_for, request.on, request.refine, env=request.env, gpus=request.gpus
        )
        where = candidates.configured_places(
            session.found, indexes=request.indexes, find_links=request.find_links, no_index=request.no_index
        )
        with log.progress(f"asking your indexes for {wanted.name}"):
            listed = candidates.list_candidates(wanted, where, session)
        machines = looking.result()
        bench = judging.Judge(machines, request.env, installed=bool(request.env or not request.on), shallow=shallow)
        order = tag_order_of(machines[0])
        complete = tuple(map(with_platform, machines))  # by_name alone: what nobody said stays a condition
        rulings = _preferred([judging.judge_by_name(each, complete) for each in listed], order)
        known = catalogue.opened(request.catalogues, session)
        rulings = _by_facts(_once_a_build(rulings), bench, session, known)
        rulings = list(_by_wheels(rulings, bench, session, budget))
    ranked = sorted(_preferred(rulings, order), key=_rank)
    chosen = next((each for each in ranked[:1] if each.rank <= MAY_BE_TAKEN), None)
    return Found(name=wanted.name, machines=machines, rulings=tuple(ranked), chosen=chosen, downloaded=budget.used)


def _preferred(rulings: Iterable[Ruling], order: Mapping[str, int]) -> list[Ruling]:
    """The newest release first; in one release what runs best, then the later build, then as installers choose.

    A plain wheel comes before a variant that is no better: not every installer takes variants.
    """
    found = sorted(rulings, key=lambda each: place_of_tags(each.candidate.wheel, order) if each.candidate.wheel else 0)
    found.sort(key=lambda each: bool(each.candidate.wheel and each.candidate.wheel.variant))
    found.sort(key=lambda each: (each.candidate.version, _build(each)), reverse=True)
    found.sort(key=lambda each: ORDER.index(each.outcome))
    found.sort(key=_release, reverse=True)
    return found


def _release(ruling: Ruling) -> Version:
    return Version(ruling.candidate.version.public)


def _build(ruling: Ruling) -> tuple[int, str]:
    build = ruling.candidate.wheel.build if ruling.candidate.wheel else None
    digits = (build or "").rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.")
    return (int(digits[:9]) if digits.isascii() and digits.isdigit() else -1, build or "")


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


def _by_facts(
    rulings: Sequence[Ruling], bench: Judge, session: client.Session, catalogues: Sequence[Catalogue]
) -> list[Ruling]:
    """With the verdicts of all whose facts are to be had without the wheel."""
    undecided = [each for each in rulings if not each.decided]
    read: dict[str, Contents | None] = {}
    with_facts = {index for index in _indexes(undecided) if _has_facts(index, undecided, session, read)}

    def look(ruling: Ruling) -> None:
        candidate = ruling.candidate
        read[candidate.file] = _facts(ruling, session, catalogues, ask=candidate.index in with_facts)

    rest = [each for each in undecided if each.candidate.file not in read][:_MOST_FACTS]
    with ThreadPoolExecutor(_AT_ONCE) as pool, log.progress("reading facts", len(rest)):
        list(pool.map(look, rest))
    bench.expect([each.survey for each in read.values() if each])
    return [
        bench.rule(each, known) if not each.decided and (known := read.get(each.candidate.file)) else each
        for each in rulings
    ]


def _indexes(rulings: Sequence[Ruling]) -> list[str]:
    return list(dict.fromkeys(each.candidate.index for each in rulings))


def _has_facts(
    index: str, rulings: Sequence[Ruling], session: client.Session, read: dict[str, Contents | None]
) -> bool:
    """Whether an index that does not say so has facts files all the same: found out with a few of them."""
    there = [each for each in rulings if each.candidate.index == index]
    unsaid = [each for each in there if not each.candidate.listing.facts and each.candidate.path is None]
    for ruling in unsaid[:_MISSES]:
        if found := _facts(ruling, session, ask=True):
            read[ruling.candidate.file] = found
            return True
    return False


def _facts(
    ruling: Ruling, session: client.Session, catalogues: Sequence[Catalogue] = (), *, ask: bool
) -> Contents | None:
    try:
        return judging.from_facts(ruling.candidate, session, catalogues, ask=ask)
    except CuwheelError as error:
        log.warning("the facts of %s cannot be read: %s", ruling.candidate.file, error.message)
        return None


def _by_wheels(rulings: Sequence[Ruling], bench: Judge, session: client.Session, budget: Budget) -> Iterator[Ruling]:
    """With the verdicts of those that had to be read, until no other could be better."""
    best = min((each for each in rulings if each.decided and each.rank <= MAY_BE_TAKEN), key=_rank, default=None)
    read: set[Version] = set()  # releases that were, after one that nothing speaks against
    patched = _last_patches(rulings)
    count = 0
    for each in rulings:
        if each.decided:
            yield each
            continue
        if count == _MOST_READ:
            reason = f"not looked into: {_MOST_READ} newer wheels were read; name a version to ask about this one"
            yield replace(each, reasons=(reason,), decided=True)
            continue
        patch = patched.get(_release(each).release[:2])
        if best and patch and _release(patch) >= _release(each):
            which = "a later patch" if _release(patch) > _release(each) else "another wheel"
            how = "does not run" if patch.rank > MAY_BE_TAKEN else "is no better"
            yield replace(each, reasons=(f"not looked into: {which} of it {how}",), decided=True)
            continue
        if best and _is_enough(best, each, read, bench):
            runs = "runs" if best.rank == 0 else "has nothing that speaks against it"
            yield replace(each, reasons=(f"not looked into: {best.candidate.version} {runs}",), decided=True)
            continue
        count += 1
        judged = _read(each, bench, session, budget)
        if judged.rank <= MAY_BE_TAKEN and (best is None or judged.rank < best.rank):
            best = judged
        elif best:
            read.add(_release(judged))
        yield judged


def _last_patches(rulings: Sequence[Ruling]) -> dict[tuple[int, ...], Ruling]:
    """By minor release, a file that was looked into and does not run well: patches before it were built alike."""
    failing = [each for each in rulings if each.decided and each.origin and each.rank > 0]
    return {_release(each).release[:2]: each for each in sorted(failing, key=_release)}


def _rank(ruling: Ruling) -> int:
    return ruling.rank


def _is_enough(best: Ruling, other: Ruling, read: set[Version], bench: Judge) -> bool:
    """Whether another need not be read. Where no GPU is known, and in packages without device code, none is better."""
    older = _release(best) > _release(other)
    if best.rank == 0:
        return older or best.outcome == ORDER[0]
    return older and (not bench.knows_gpu or len(read) >= _OLDER_READ)


def _read(ruling: Ruling, bench: Judge, session: client.Session, budget: Budget) -> Ruling:
    try:
        return bench.rule(ruling, judging.read_wheel(ruling.candidate, session, budget))
    except OverBudgetError:
        reason = (
            f"not read: it takes more than is left of the {size(budget.limit or 0)} that may be downloaded (--budget)"
        )
    except CuwheelError as error:
        reason = f"not read: {error.message}"
    return replace(ruling, reasons=(reason,), decided=True)
