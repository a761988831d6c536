"""Filling a catalogue: which releases of a project are worth a row, and their facts, each wheel streamed once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel import log
from cuwheel.compat import tags
from cuwheel.delivery import candidates, wheel_reading
from cuwheel.delivery.catalogue import Listed, Store
from cuwheel.errors import CuwheelError, UsageError
from cuwheel.locking import locked
from cuwheel.network import client
from cuwheel.network.remote import Budget, OverBudgetError
from cuwheel.units import size
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from packaging.version import Version

    from cuwheel.delivery.candidates import Candidate
    from cuwheel.delivery.request import CatalogueRequest

Outcome: TypeAlias = Literal["added", "known", "failed", "over-budget"]
_AT_ONCE = 2
_UTC = timezone.utc


class Row(Struct, frozen=True, kw_only=True):
    """What became of a wheel, or of a project that could not be listed (`file` is then empty)."""

    name: str
    version: str
    file: str
    outcome: Outcome
    reason: str = ""


class Filled(Struct, frozen=True, kw_only=True):
    rows: tuple[Row, ...]
    wheels: int
    downloaded: int


def fill(request: CatalogueRequest) -> Filled:
    """Resumable: a wheel whose facts are held already is not looked at again."""
    request.to.mkdir(parents=True, exist_ok=True)
    budget = Budget(request.budget)
    rows: list[Row] = []
    with locked(request.to, patient=True), client.Session() as session:
        store = Store(request.to)
        where = candidates.places(session.found, indexes=request.indexes, find_links=request.find_links)
        for name in request.names:
            with log.progress(f"asking your indexes for {name}"):
                wanted, problem = _listed(name, where, session, request)
            rows += [Row(name=name, version="", file="", outcome="failed", reason=problem)] if problem else []
            rows += _project(wanted, store, session, budget)
            store.save(datetime.now(_UTC).date().isoformat())
        return Filled(rows=tuple(rows), wheels=len(store.wheels), downloaded=budget.used)


def _listed(
    name: str, where: candidates.Places, session: client.Session, request: CatalogueRequest
) -> tuple[list[Candidate], str]:
    try:
        found = candidates.listed(candidates.wanted(name), where, session)
    except UsageError:
        raise
    except CuwheelError as error:
        return [], error.message
    since = datetime.now(_UTC) - timedelta(days=request.days) if request.days else None
    return list(_worth_a_row(found, request.platform, since)), ""


def _worth_a_row(found: Iterable[Candidate], platform: str, since: datetime | None) -> Iterator[Candidate]:
    """The newest release of each minor version, and of its wheels one for the platform: all have the same code.

    A local version (`+cu126`) is a build of its own.
    """
    newest: dict[tuple[tuple[int, ...], str], Candidate] = {}
    wanted = tags.platform_of(platform)
    for each in found:
        if each.wheel is None or each.listing.yanked is not None or not each.listing.sha256 or _older(each, since):
            continue
        made_for = tags.platform_of(each.wheel.platforms[0])
        if (made_for.os, made_for.cpu) != (wanted.os, wanted.cpu):
            continue
        build = (_minor(each.version), each.version.local or "")
        known = newest.get(build)
        if known is None or _preference(each) > _preference(known):
            newest[build] = each
    yield from (newest[each] for each in sorted(newest, reverse=True))


def _minor(version: Version) -> tuple[int, ...]:
    """Where its releases begin with zeros (0.0.35), the first number that counts."""
    leading = next((place for place, number in enumerate(version.release) if number), 0)
    return version.release[: max(leading + 1, 2)]


def _preference(candidate: Candidate) -> tuple[Version, bool, str]:
    """Of a release the wheel that most would take: free-threaded Pythons (`cp314t`) are few."""
    abi = candidate.wheel.abi if candidate.wheel else ""
    return candidate.version, not abi.endswith("t"), candidate.file


def _older(candidate: Candidate, since: datetime | None) -> bool:
    """Where an index does not say when, nothing is left out for it."""
    if since is None or not candidate.listing.uploaded:
        return False
    try:
        uploaded = datetime.fromisoformat(candidate.listing.uploaded.replace("Z", "+00:00"))
    except ValueError:
        return False
    return (uploaded if uploaded.tzinfo else uploaded.replace(tzinfo=_UTC)) < since


def _project(wanted: Sequence[Candidate], store: Store, session: client.Session, budget: Budget) -> list[Row]:
    lock = threading.Lock()

    def work(candidate: Candidate) -> Row:
        sha256 = candidate.listing.sha256 or ""
        name = normalised(candidate.wheel.name) if candidate.wheel else ""
        row = Row(name=name, version=str(candidate.version), file=candidate.file, outcome="known")
        if store.has(sha256):
            return row
        try:
            facts = wheel_reading.facts_of(candidate, session, budget)
        except OverBudgetError:
            return _ended(row, "over-budget", f"{size(candidate.listing.size or 0)}, more than is left")
        except CuwheelError as error:
            log.warning("%s: %s", candidate.file, error.message)
            return _ended(row, "failed", error.message)
        listed = Listed(
            file=candidate.file,
            name=name,
            version=str(candidate.version),
            sha256=sha256,
            size=candidate.listing.size or facts.size,
            uploaded=candidate.listing.uploaded,
        )
        with lock:
            store.add(listed, facts)
        return _ended(row, "added")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, wanted))


def _ended(row: Row, outcome: Outcome, reason: str = "") -> Row:
    return Row(name=row.name, version=row.version, file=row.file, outcome=outcome, reason=reason)
