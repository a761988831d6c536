"""Candidates against machines: by their names, then by what is in them, by the rules of `check`.

What is in one is read as cheaply as it can be: from a facts file, the cache, or the wheel itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier

from cuwheel.delivery import catalogue
from cuwheel.delivery.find_answer import FoundFile, Origin
from cuwheel.device_code import source, starts, wheel_facts
from cuwheel.device_code.contents import Survey
from cuwheel.device_code.survey import Sparing, survey_wheel
from cuwheel.facts import packages
from cuwheel.machine import python_environment
from cuwheel.network import addresses, client, transfer
from cuwheel.support import confined, files, limited, log
from cuwheel.verdicts import pins, wheel_tags
from cuwheel.verdicts.check_rules import ANOTHER_MACHINE
from cuwheel.verdicts.judge import judge_all
from cuwheel.verdicts.loading import loading
from cuwheel.verdicts.verdict import worst_outcome
from cuwheel.wheel.file import WheelFile
from cuwheel_core.device_code.items import ZipItem
from cuwheel_core.device_code.libraries import READ_IN_PART
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import cuda_libraries
from cuwheel_core.support.patterns import matches_any
from cuwheel_core.support.wording import a_few, file_name, size
from cuwheel_core.verdicts.choice import UNSUPPORTED_PTX
from cuwheel_core.verdicts.condition import condition, merged
from cuwheel_core.verdicts.predict import GOOD, Outcome
from cuwheel_core.wheel.tags import release_of_file

if TYPE_CHECKING:
    from packaging.version import Version
    from typing_extensions import Self

    from cuwheel.delivery.candidates import Candidate
    from cuwheel.delivery.catalogue import CatalogueReader
    from cuwheel.device_code.contents import TorchExports
    from cuwheel.device_code.wheel_facts import WheelFacts
    from cuwheel.machine.fleet import Machine
    from cuwheel.network.transfer import Budget
    from cuwheel.verdicts.pins import Pin
    from cuwheel.verdicts.verdict import Verdict
    from cuwheel_core.device_code.items import Item
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.support.finding import Finding
    from cuwheel_core.wheel.metadata import Distribution
    from cuwheel_core.wheel.tags import WheelName


# What is in a candidate.

_LARGEST_FACTS = 1 << 26


class Contents(NamedTuple):
    """`origin`: where it was read."""

    survey: Survey
    origin: Origin


def known_facts(candidate: Candidate, catalogues: Sequence[CatalogueReader]) -> Contents | None:
    """Without asking its index."""
    if kept := _kept_facts(candidate):
        return Contents(wheel_facts.survey(kept), "cache")
    if known := catalogue.look_up(catalogues, candidate):
        return Contents(wheel_facts.survey(known), "catalogue")
    return None


def facts_beside(candidate: Candidate, session: client.Session, *, ask: bool) -> Contents | None:
    """From a facts file beside the wheel. `ask`: also for one that no index mentions."""
    data = _data_beside(candidate, session, ask=ask)
    facts = _checked_facts(data, candidate) if data else None
    if facts is None:
        return None
    keep_facts(candidate, facts)
    return Contents(wheel_facts.survey(facts), "facts file")


def _data_beside(candidate: Candidate, session: client.Session, *, ask: bool) -> bytes | None:
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


def _checked_facts(data: bytes, candidate: Candidate) -> WheelFacts | None:
    """Reads a candidate's facts; None, and a warning, if they are another wheel's, or not what the index says."""
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


def read_wheel(candidate: Candidate, session: client.Session, budget: Budget, judge: CandidateJudge) -> Contents:
    """From the wheel: of one on a server only as much as decides; nothing is kept but facts."""
    skipped: list[str] = []  # because of what these machines are

    def decides(library: Library, distribution: Distribution) -> bool:
        found = judge.fails_by(library, distribution)
        skipped.extend([library.path] if found else [])
        return found

    def is_elsewhere(library: Library, distribution: Distribution) -> bool:
        found = judge.is_elsewhere(library, distribution)
        skipped.extend([library.path] if found else [])
        return found

    with _opened(candidate, session, budget) as wheel:
        sparing = Sparing(decides, is_elsewhere, lambda items: _announce(wheel, items, candidate, budget, starts.LARGE))
        if candidate.path or not candidate.listing.sha256:
            found = survey_wheel(wheel, detail="containers", sparing=None if candidate.path else sparing)
            return Contents(found, "wheel")
        facts = wheel_facts.of_wheel(wheel, sha256=candidate.listing.sha256, sparing=sparing)
    if not skipped:  # else it is known for these machines alone
        keep_facts(candidate, facts)
    return Contents(wheel_facts.survey(facts), "wheel")


def facts_of(candidate: Candidate, session: client.Session, budget: Budget) -> WheelFacts:
    """All facts of a wheel: kept ones, else from the wheel."""
    if (kept := _kept_facts(candidate)) and not was_read_in_part(kept.findings):
        return kept
    with _opened(candidate, session, budget) as wheel:
        if candidate.path is None:
            _announce(wheel, source.source_of_wheel(wheel).items, candidate, budget)
        facts = wheel_facts.of_wheel(wheel, sha256=None if candidate.path else candidate.listing.sha256)
    keep_facts(candidate, facts)
    return facts


def was_read_in_part(findings: Iterable[Finding]) -> bool:
    return any(each.rule == READ_IN_PART for each in findings)


def _opened(candidate: Candidate, session: client.Session, budget: Budget) -> WheelFile:
    listing = candidate.listing
    if candidate.path:
        return WheelFile(candidate.path)
    from cuwheel.network.remote import RemoteFile  # noqa: PLC0415 - most have a facts file

    return WheelFile(Path(candidate.file), RemoteFile(listing.url, session=session, budget=budget, size=listing.size))


def _announce(
    wheel: WheelFile, items: Iterable[Item], candidate: Candidate, budget: Budget, most: int | None = None
) -> None:
    """Says what is going to be read, of each library at most so much; refused where that is beyond the budget."""
    stored = sum(min(each.member.stored, most or each.member.stored) for each in items if isinstance(each, ZipItem))
    budget.must_allow(candidate.listing.url, stored)
    if stored:
        log.info("reading %s of %s (%s)", size(stored), release_of_file(candidate.file), size(wheel.size))


def _place_in_cache(candidate: Candidate) -> Path | None:
    """Where facts are kept, by the hash and the server: what one says of a hash is not believed of another's file."""
    if candidate.listing.sha256 is None:
        return None
    server = "" if candidate.path else "//{1}:{2}".format(*addresses.origin(candidate.listing.url))
    key = files.sha256_of(f"{candidate.listing.sha256}{server}".encode())
    return files.cache_folder() / "facts-files" / key[:2] / f"{key}{wheel_facts.SUFFIX}"


def _kept_facts(candidate: Candidate) -> WheelFacts | None:
    place = _place_in_cache(candidate)
    if place is None:
        return None
    try:
        facts = wheel_facts.load(place)
    except CuwheelError:  # there is none, or another cuwheel wrote it
        return None
    return facts if facts.sha256 == candidate.listing.sha256 and facts.file == candidate.file else None


def keep_facts(candidate: Candidate, facts: WheelFacts) -> None:
    """A cache that cannot be written is no reason to fail."""
    place = _place_in_cache(candidate)
    if place is None:
        return
    try:
        below = place.parent.relative_to(files.cache_folder())
        files.write(
            confined.make_folders(files.cache_folder(), below.as_posix()) / place.name, wheel_facts.encoded(facts)
        )
    except (OSError, CuwheelError) as error:
        log.debug("the facts of %s are not kept: %s", candidate.file, error)


_ARCHS = 4
_OF_TORCH = ("torch-symbols-missing", "torch-abi-differs")  # also of libraries that are said to be optional


_NO_LIBRARY = "no-library-to-load"
_NEVER_INSTALLED = ("zip-link",)  # whatever its device code serves: installers differ in what they make of it


class Rank(IntEnum):
    """What a ruling comes to, the best first. The first three may be taken."""

    RUNS = 0
    LOSES = 1  # it runs, with something to lose
    UNOPPOSED = 2  # nothing speaks against it
    UNREAD = 3
    FAILS = 4
    SOURCE = 5  # it has to be built

    @property
    def may_be_taken(self) -> bool:
        return self <= Rank.UNOPPOSED


class Ruling(FoundFile, frozen=True, kw_only=True):
    """What became of a candidate: what is shown of it, and what only the choice needs.

    `decided`: nobody need look into it any more. `requirements`: its Requires-Dist. `device_code`: whether it has some.
    `needs`: libraries of CUDA that are not in it and that it loads.
    `pin`: the setting with which it is judged. `survey`: of a package that such a setting is known for.
    `in_part`: of its libraries only as much was read as a verdict needs.
    """

    candidate: Candidate
    rank: Rank = Rank.UNREAD
    requirements: tuple[str, ...] = ()
    device_code: bool | None = None
    needs: tuple[str, ...] = ()
    pin: Pin | None = None
    survey: Survey | None = None
    in_part: bool = False
    decided: bool = True

    @classmethod
    def on(cls, candidate: Candidate, **fields: Any) -> Self:  # noqa: ANN401 - fields of its own
        """A ruling on a candidate, which nobody has looked into."""
        listing = candidate.listing
        return cls(
            candidate=candidate,
            file=listing.file,
            version=str(candidate.version),
            url=listing.url,
            sha256=listing.sha256,
            size=listing.size,
            kind="wheel" if candidate.wheel else "source",
            index=candidate.index,
            **fields,
        )

    def shown(self, *, chosen: bool) -> FoundFile:
        """What is shown of it."""
        fields = {name: getattr(self, name) for name in FoundFile.__struct_fields__}
        return FoundFile(**{**fields, "chosen": chosen})

    @property
    def release(self) -> Version:
        """Its version without a label: `2.7.1` of `2.7.1+cu128`."""
        return limited.version(self.candidate.version.public)

    @property
    def is_to_be_read(self) -> bool:
        """Whether the file itself has not been, or not all that matters of it."""
        return self.known_from != "wheel" or self.in_part

    @property
    def yanked(self) -> bool:
        return self.candidate.listing.yanked is not None


def judge_by_name(candidate: Candidate, machines: Sequence[Machine]) -> Ruling:
    """What its name and its index say: undecided where that is no obstacle."""
    listing = candidate.listing
    if candidate.wheel is None:
        reason = "a source distribution: it has to be built (cuwheel build)"
        return Ruling.on(candidate, rank=Rank.SOURCE, reasons=(reason,))
    problems = (
        [f"withdrawn by its publisher{f': {listing.yanked}' if listing.yanked else ''}"]
        if listing.yanked is not None
        else []
    )
    for machine in machines:
        found = wheel_tags.fits_on_machine(candidate.wheel.tags, machine)
        own = [*found[0].problems, *_python_problems(listing.requires_python, machine)]
        own += _gil_problems(candidate.wheel, machine)
        problems += [_judged(machine, each, machines) for each in own]
    if problems:
        return Ruling.on(candidate, outcome="fails", rank=Rank.FAILS, reasons=tuple(dict.fromkeys(problems)))
    return Ruling.on(candidate, decided=False)


def _python_problems(wanted: str | None, machine: Machine) -> Iterator[str]:
    if not wanted or machine.python is None:
        return
    try:
        allowed = limited.specifiers(wanted)
    except InvalidSpecifier:
        return  # installers pass over it too
    known = machine.python if machine.python.count(".") > 1 else f"{machine.python}.99"  # its last patch release
    if not allowed.contains(known, prereleases=True):
        yield f"it requires Python {wanted}, and this is {machine.python}"


def _gil_problems(wheel: WheelName, machine: Machine) -> Iterator[str]:
    """A machine whose Python nobody named has a usual one."""
    if machine.python is None and (python := wheel_tags.without_gil(wheel.tags)):
        yield f"it is for {python}, which has to be asked for (--set python=…)"


def _judged(machine: Machine, reason: str, machines: Sequence[Machine]) -> str:
    return f"{machine.name}: {reason}" if len(machines) > 1 else reason


class CandidateJudge:
    """Judges what is in candidates. `env`: the environment whose torch they would use; None where it is not known."""

    def __init__(
        self,
        machines: Sequence[Machine],
        env: Path | None,
        *,
        installed: bool,
        shallow: bool = False,
        keeps_torch: bool = False,
    ) -> None:
        """`shallow`: nobody looks for device code in older releases. `keeps_torch`: what requires another than the one
        that somebody asked about does not do.
        """
        self._keeps_torch = keeps_torch
        self._shallow = shallow
        self._machines, self._env, self._installed = tuple(machines), env, installed
        self._torch: TorchExports | None = None
        self._asked: frozenset[str] = frozenset()

    @property
    def knows_gpu(self) -> bool:
        return not self._shallow and any(each.capability for each in self._machines)

    def expect(self, surveys: Sequence[Survey]) -> None:
        """Read torch's symbols once for all of these."""
        wanted = python_environment.symbols_of_torch(surveys)
        if self._installed and not wanted <= self._asked:
            self._asked |= wanted
            found = python_environment.torch_exports(self._env, self._asked)
            self._torch = found if found and self._has_torch(found.version) else None

    def _has_torch(self, version: str) -> bool:
        """Somebody may ask about another torch than the one that is installed."""
        known = {each.torch.partition("+")[0] for each in self._machines if each.torch}
        return known <= {version.partition("+")[0]}

    def rule(self, ruling: Ruling, contents: Contents) -> Ruling:
        self.expect([contents.survey])
        pin = pins.needed_pin(contents.survey, self._machines, self._torch)
        machines = [pin.on(each) for each in self._machines] if pin else self._machines
        verdicts = judge_all(contents.survey, machines, self._torch)
        outcome = worst_outcome(each.outcome for each in verdicts)
        errors = [
            _judged(machine, _text(finding), self._machines)
            for machine, verdict in zip(self._machines, verdicts, strict=True)
            for finding in verdict.findings
            if finding.severity == "error" or finding.rule in _OF_TORCH
        ]
        fitting: tuple[str, ...] | None = None
        if contents.survey.torch_symbols:
            from cuwheel.verdicts import torch_releases  # noqa: PLC0415 - few are extensions of torch

            fitting = torch_releases.fitting_torch_releases(contents.survey)
            if not self._installed and (lacking := list(self._lacking(contents.survey))) and not errors:
                errors, outcome = lacking, "fails"
        if any(each.rule in _NEVER_INSTALLED for each in contents.survey.findings):
            outcome = "fails"
        known = any(each.torch for each in self._machines)
        replaced = tuple(dict.fromkeys(self._replaced(contents.survey))) if known else ()
        if replaced and self._keeps_torch:
            outcome = "fails"
        lost = [*replaced, *(each for each in verdicts if each.main_part_fails)]
        rank = rank_of(outcome, errors)
        setting = [condition("variable-set", setting=pin.setting, detail=pin.why)] if pin and pin.must else []
        in_part = [each for each in contents.survey.findings if each.rule == READ_IN_PART]
        unread = [condition("read-in-part", detail=each.message) for each in in_part]
        required = merged(((each.machine, each.requires) for each in verdicts), len(self._machines))
        return replace(
            ruling,
            outcome=outcome,
            rank=max(rank, Rank.LOSES) if lost else rank,
            reasons=tuple(dict.fromkeys((*errors, *replaced))) or tuple(self._words(verdicts)),
            requires=tuple(dict.fromkeys((*setting, *required, *unread))),
            predicted_error=next((each.predicted_error for each in verdicts if each.predicted_error), None),
            known_from=contents.origin,
            requirements=contents.survey.distribution.requires if contents.survey.distribution else (),
            device_code=any(each.device_code for each in contents.survey.libraries),
            needs=tuple(sorted(_needs(contents.survey, machines[0]))),
            pin=pin,
            advice=f"{pin.setting}: {pin.why}" if pin and not pin.must else "",
            survey=contents.survey if pins.loading_variable(contents.survey) else None,
            torch=fitting,
            in_part=was_read_in_part(contents.survey.findings),
            compiling=self._compiling(contents.survey, verdicts),
            decided=True,
        )

    def fails_by(self, library: Library, distribution: Distribution) -> bool:
        """Whether this one library alone makes a distribution fail: its package loads it whatever else it has."""
        profile = packages.find_profile(distribution.name, distribution.version)
        if (
            profile is None
            or profile.loads != "every"
            or matches_any(library.path, (*profile.optional, *profile.linked))
        ):
            return False
        return any(each.outcome == "fails" for each in self._of_one(library, distribution))

    def is_elsewhere(self, library: Library, distribution: Distribution) -> bool:
        """Whether a library is for another processor or system than all these machines have."""
        found = self._of_one(library, distribution)
        return all(any(each.rule in ANOTHER_MACHINE for each in verdict.findings) for verdict in found)

    def _of_one(self, library: Library, distribution: Distribution) -> tuple[Verdict, ...]:
        alone = Survey(
            target=library.path, kind="wheel", size=0, distribution=distribution, libraries=(library,), findings=()
        )
        return judge_all(alone, self._machines)

    def _compiling(self, survey: Survey, verdicts: Sequence[Verdict]) -> tuple[float, float] | None:
        """At least, and at most, for all machines on which that would help."""
        from cuwheel.verdicts.ahead_of_time import seconds_ahead  # noqa: PLC0415 - most have machine code
        from cuwheel_core.verdicts.predict import reach_of  # noqa: PLC0415

        helped = [
            machine
            for machine, verdict in zip(self._machines, verdicts, strict=True)
            if verdict.outcome == "jit" or verdict.predicted_error == UNSUPPORTED_PTX
        ]
        reaches = [reach_of(each) for each in survey.libraries] if helped else []
        found = [each for machine in helped if (each := seconds_ahead(reaches, machine))]
        return (sum(least for least, _ in found), sum(most for _, most in found)) if found else None

    def _lacking(self, survey: Survey) -> Iterator[str]:
        """`check` says nothing where a library that nobody knows might bring them. Another release is better."""
        from cuwheel.verdicts import torch_releases  # noqa: PLC0415 - few are extensions of torch

        for machine in self._machines:
            if machine.torch and (names := torch_releases.lacking_torch_symbols(survey, machine.torch)):
                what = "a symbol" if len(names) == 1 else f"{len(names)} symbols"
                yield _judged(machine, f"it needs {what} that torch {machine.torch} does not have", self._machines)

    def _replaced(self, survey: Survey) -> Iterator[str]:
        """A torch that it does not go with, installed, asked for or planned: an installer would bring another one."""
        from cuwheel.verdicts import torch_releases  # noqa: PLC0415 - few are extensions of torch

        for wanted in torch_releases.torch_requirements(survey):
            for machine in self._machines:
                if machine.torch and not torch_releases.requirement_allows(wanted, machine.torch):
                    there = self._installed and python_environment.torch_version(self._env) == machine.torch
                    why = "is installed" if there else "is asked for"
                    yield f"it requires torch{wanted.specifier}, and torch {machine.torch} {why}"

    def _words(self, verdicts: Sequence[Verdict]) -> Iterator[str]:
        """Says in words what code each machine takes, or why that is not known."""
        for machine, verdict in zip(self._machines, verdicts, strict=True):
            archs = sorted(
                {taken.arch for each in verdict.libraries if each.loaded is not False for taken in each.rests_on}
            )
            if verdict.outcome != "unknown" and archs:
                yield _judged(machine, f"takes {a_few(archs, _ARCHS)}", self._machines)
            yield from (_judged(machine, each.message, self._machines) for each in verdict.findings if not archs)


def _needs(survey: Survey, machine: Machine) -> set[str]:
    inside = {cuda_libraries.as_compared(file_name(each.path)) for each in survey.libraries}
    inside |= {each.soname for each in survey.libraries if each.soname}
    certain = frozenset(loading(survey, machine).certain)
    needed = {name for each in survey.libraries if each.path in certain for name in each.needed}
    wanted = {name for name in needed if cuda_libraries.as_compared(name) not in inside}
    return {name for name in wanted if (row := cuda_libraries.known_library(name)) and not row.from_driver}


def _text(finding: Finding) -> str:
    """Also what is missing of torch, and of a package that finds no library to load what helps."""
    if finding.rule in _OF_TORCH and finding.evidence:
        return f"{finding.message} ({finding.evidence[0]})"
    return f"{finding.message}; {finding.fix}" if finding.rule == _NO_LIBRARY else finding.message


def rank_of(outcome: Outcome, errors: Sequence[object]) -> Rank:
    """The rank of a verdict among rulings.

    A library that the rest works without does not make a release worse than an older one.
    """
    if outcome in GOOD or (outcome == "partial" and not errors):
        return Rank.RUNS
    return {"partial": Rank.LOSES, "unknown": Rank.UNOPPOSED}.get(outcome, Rank.FAILS)


def rank_of_verdict(verdict: Verdict) -> Rank:
    rank = rank_of(verdict.outcome, [each for each in verdict.findings if each.severity == "error"])
    return max(rank, Rank.LOSES) if verdict.main_part_fails else rank
