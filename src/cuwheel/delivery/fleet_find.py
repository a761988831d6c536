"""`cuwheel find` for several machines: what each kind of them gets, and one answer for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.delivery.find_answer import Find, Served
from cuwheel.machine import fleet
from cuwheel.verdicts.verdict import ORDER
from cuwheel_core.support.wording import a_few
from cuwheel_core.verdicts.condition import merged

if TYPE_CHECKING:
    from cuwheel.delivery.find_answer import FoundFile
    from cuwheel.delivery.request import FindRequest
    from cuwheel.machine.fleet import Machine

_NAMED = 5


def kinds_of_machine(request: FindRequest) -> dict[tuple[Machine, ...], list[str]]:
    """The machines of one kind, as far as anybody asks for one, with the names of all that are such."""
    kinds: dict[tuple[Machine, ...], tuple[tuple[Machine, ...], list[str]]] = {}
    for host in fleet.hosts_asked_for(request.on, request.refine, env=request.env):
        alike = tuple(replace(each, name="", count=1) for each in host)
        kinds.setdefault(alike, (host, []))[1].extend(each.name for each in host)
    return dict(kinds.values())


def combined(request: FindRequest, answers: Sequence[tuple[list[str], Find]]) -> Find:
    """One answer of those for each kind of machine."""
    rows = tuple(_served(names, answer) for names, answer in answers)
    return Find(
        name=answers[0][1].name,
        machines=tuple(chain.from_iterable(answer.machines for _, answer in answers)),
        candidates=tuple(_merged(answers)),
        downloaded=sum(answer.downloaded for _, answer in answers),
        releases=max(answer.releases for _, answer in answers),
        judged=max(answer.judged for _, answer in answers),
        stopped=next((answer.stopped for _, answer in answers if answer.stopped), None),
        previews=_once(chain.from_iterable(answer.previews for _, answer in answers)),
        elsewhere=_once(chain.from_iterable(answer.elsewhere for _, answer in answers)),
        extras=answers[0][1].extras,
        rows=rows,
        lock=tuple(_lock_command(request)) if any(each.chosen for each in rows) else (),
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _served(names: list[str], answer: Find) -> Served:
    chosen = next((each for each in answer.candidates if each.chosen), None)
    if chosen:
        return Served(machines=tuple(names), chosen=chosen)
    # What was looked into tells best why nothing runs.
    told = sorted(answer.candidates, key=lambda each: each.known_from is None)
    why = f"{told[0].version}: {'; '.join(told[0].reasons[:1])}" if told else "no index has such a release"
    return Served(machines=tuple(names), chosen=None, why=why)


def _merged(answers: Sequence[tuple[list[str], Find]]) -> Iterator[FoundFile]:
    """Each file once, those first that most machines get: what holds for one machine alone has its name before it."""
    by_file: dict[str, list[tuple[str, FoundFile]]] = {}
    for names, answer in answers:
        for each in answer.candidates:
            by_file.setdefault(each.file, []).append((a_few(names, _NAMED), each))
    ordered = sorted(by_file.values(), key=lambda told: -sum(each.chosen for _, each in told))
    for told in ordered:
        files = [each for _, each in told]
        worst = max(files, key=lambda each: ORDER.index(each.outcome))
        of_worst = [(names, each) for names, each in told if each.outcome == worst.outcome]
        yield replace(
            worst,
            chosen=len(files) == len(answers) and all(each.chosen for each in files),
            reasons=_told(((names, each.reasons) for names, each in of_worst), len(told)),
            requires=tuple(merged(((names, each.requires) for names, each in told), len(told))),
            known_from=next((each.known_from for each in files if each.known_from), None),
        )


def _told(texts: Iterable[tuple[str, tuple[str, ...]]], of: int) -> tuple[str, ...]:
    """Each text once, with the machines that it is about unless those are all (`of` kinds of them)."""
    machines: dict[str, list[str]] = {}
    for names, told in texts:
        for text in told:
            machines.setdefault(text, []).append(names)
    return tuple(text if len(names) == of else f"{', '.join(names)}: {text}" for text, names in machines.items())


def _lock_command(request: FindRequest) -> Iterator[str]:
    """For the fleet file that was asked about; without one, for the one that a person writes."""
    words = fleet.machine_words(request.on)
    named = next((each for each in words if isinstance(each, str) and each.endswith(".toml")), "")
    yield from (
        "cuwheel",
        "install",
        request.wanted,
        "--lock-for",
        named if len(words) == 1 and named else "fleet.toml",
    )
    yield from request.words_of_places
    yield from request.refine.words if request.refine else ()
    machines = fleet.machines_asked_for(request.on, request.refine)
    if python := next((version_here() for each in machines if each.python is None), None):
        yield from ("--set", f"python={python}")


def version_here() -> str:
    """The Python of the active environment, as a fleet file names one."""
    from cuwheel.machine import python_environment  # noqa: PLC0415 - where nobody named one alone
    from cuwheel.machine.world import World  # noqa: PLC0415

    here, _ = python_environment.locate(World.here(), None)
    return ".".join((here.version or "").split(".")[:2])
