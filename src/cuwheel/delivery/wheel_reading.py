"""What is in a candidate, as cheaply as it can be known: from a facts file, the cache, or the wheel itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from cuwheel.delivery import catalogue
from cuwheel.device_code import source, wheel_facts
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import CuwheelError
from cuwheel.network import addresses, client, transfer
from cuwheel.network.remote import RemoteFile
from cuwheel.support import files, log
from cuwheel.support.wording import size
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.delivery.candidates import Candidate
    from cuwheel.delivery.catalogue import Catalogue
    from cuwheel.device_code.libraries import Survey
    from cuwheel.device_code.wheel_facts import WheelFacts
    from cuwheel.network.remote import Budget

Origin: TypeAlias = Literal["facts file", "cache", "catalogue", "wheel"]
_LARGEST_FACTS = 1 << 26


class Contents(NamedTuple):
    """`origin`: where it was read."""

    survey: Survey
    origin: Origin


def from_facts(
    candidate: Candidate, session: client.Session, catalogues: Sequence[Catalogue] = (), *, ask: bool
) -> Contents | None:
    """Without the wheel. `ask`: also for a facts file that no index mentions."""
    if kept := _kept(candidate):
        return Contents(wheel_facts.survey(kept), "cache")
    if known := catalogue.look_up(catalogues, candidate):
        return Contents(wheel_facts.survey(known), "catalogue")
    data = _beside(candidate, session, ask=ask)
    facts = _checked(data, candidate) if data else None
    if facts is None:
        return None
    keep(candidate, facts)
    return Contents(wheel_facts.survey(facts), "facts file")


def _beside(candidate: Candidate, session: client.Session, *, ask: bool) -> bytes | None:
    """The facts file that lies where the wheel does."""
    if candidate.path:
        place = candidate.path.with_name(candidate.file + wheel_facts.SUFFIX)
        return files.read_if_present(place, _LARGEST_FACTS, "facts of a wheel")
    if not (candidate.listing.facts or ask) or addresses.split(candidate.listing.url).query:
        return None
    try:
        return transfer.fetch(candidate.listing.url + wheel_facts.SUFFIX, limit=_LARGEST_FACTS, session=session)
    except client.NotThereError:
        return None


def _checked(data: bytes, candidate: Candidate) -> WheelFacts | None:
    """None, and a warning, where it is not what the index says, or about another wheel: the wheel itself decides."""
    listing = candidate.listing
    problem = ""
    if listing.facts and files.sha256_of(data) != listing.facts:
        problem = "its hash is not the one that the index lists"
    else:
        try:
            facts = wheel_facts.parse(data, candidate.file + wheel_facts.SUFFIX)
        except CuwheelError as error:
            problem = error.message
        else:
            if facts.file == candidate.file and listing.sha256 in (None, facts.sha256):
                return facts
            problem = "it is about another wheel"
    log.warning("the facts file of %s is not used: %s", candidate.file, problem)
    return None


def read(candidate: Candidate, session: client.Session, budget: Budget) -> Contents:
    """From the wheel: of one on a server only the libraries and what is about them; nothing is kept but facts."""
    if candidate.listing.sha256 and not candidate.path:
        return Contents(wheel_facts.survey(facts_of(candidate, session, budget)), "wheel")
    with _opened(candidate, session, budget) as wheel:
        return Contents(survey_wheel(wheel, detail="containers"), "wheel")


def facts_of(candidate: Candidate, session: client.Session, budget: Budget) -> WheelFacts:
    """All facts of a wheel: kept ones, else from the wheel."""
    if kept := _kept(candidate):
        return kept
    with _opened(candidate, session, budget) as wheel:
        facts = wheel_facts.of_wheel(wheel, sha256=None if candidate.path else candidate.listing.sha256)
    keep(candidate, facts)
    return facts


def _opened(candidate: Candidate, session: client.Session, budget: Budget) -> WheelFile:
    listing = candidate.listing
    if candidate.path:
        return WheelFile(candidate.path)
    wheel = WheelFile(Path(candidate.file), RemoteFile(listing.url, session=session, budget=budget, size=listing.size))
    try:
        stored = sum(each.member.stored for each in source.of_wheel(wheel).items if isinstance(each, source.ZipItem))
        budget.must_allow(listing.url, stored)
    except BaseException:
        wheel.close()
        raise
    log.info("reading %s of %s (%s)", size(stored), candidate.file, size(wheel.size))
    return wheel


def _place(candidate: Candidate) -> Path | None:
    """By the hash and the server: what one says of a hash is not believed of another's file."""
    if candidate.listing.sha256 is None:
        return None
    server = "" if candidate.path else "//{1}:{2}".format(*addresses.origin(candidate.listing.url))
    key = files.sha256_of(f"{candidate.listing.sha256}{server}".encode())
    return files.cache_folder() / "facts-files" / key[:2] / f"{key}{wheel_facts.SUFFIX}"


def _kept(candidate: Candidate) -> WheelFacts | None:
    place = _place(candidate)
    if place is None:
        return None
    try:
        facts = wheel_facts.load(place)
    except CuwheelError:  # there is none, or another cuwheel wrote it
        return None
    return facts if facts.sha256 == candidate.listing.sha256 and facts.file == candidate.file else None


def keep(candidate: Candidate, facts: WheelFacts) -> None:
    """A cache that cannot be written is no reason to fail."""
    place = _place(candidate)
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write(place, wheel_facts.encoded(facts))
    except (OSError, CuwheelError) as error:
        log.debug("the facts of %s are not kept: %s", candidate.file, error)
