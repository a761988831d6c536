"""Why a wheel is not as planned: what the compiler calls of its build say."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.building.recording import failures, summary
from cuwheel.support.units import first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.building.gate_values import Wanted
    from cuwheel.building.recording.calls import Call

FORCE = (
    "force-archs = true   (or --force-archs): nvcc then compiles the plan's architectures, whatever the build passes it"
)
_SHOWN = 3
_NO_WORK = frozenset(("-E", "--preprocess", "-M", "-MM", "-dryrun", "--dryrun", "--version", "-V", "--help", "-h"))


class Reason(NamedTuple):
    """`words` follow the finding's own; `fix` where the calls tell one."""

    words: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


def wrong_nvcc(wanted: Wanted) -> tuple[str, ...]:
    """Compilations by an nvcc that is not the planned toolkit's, in words. Asking for its version does no harm."""
    if not wanted.toolkit_root:
        return ()
    strangers: dict[str, list[Call]] = {}
    for call, _ in _lists(wanted):
        if not _is_own(call.program, wanted):
            strangers.setdefault(call.program, []).append(call)
    return tuple(
        f"{program} was called {_times(len(calls))}, first in call {calls[0].number}"
        for program, calls in strangers.items()
    )


def _is_own(program: str, wanted: Wanted) -> bool:
    """Of the planned toolkit, be it by a link, or in the record's folder, where a copy may stand in for it."""
    folders = (
        wanted.toolkit_root,
        os.path.realpath(wanted.toolkit_root),
        wanted.record.folder if wanted.record else "",
    )
    return any(
        path.startswith(folder.rstrip(os.sep) + os.sep)
        for folder in folders
        if folder
        for path in (program, os.path.realpath(program))
    )


def for_unplanned(wanted: Wanted, archs: Iterable[str]) -> Reason:
    """Which calls asked for unplanned code."""
    extra = set(archs)
    asking = [(call, there) for call, there in _lists(wanted) if extra & there]
    if asking:
        return Reason(
            "the build system passed it to nvcc itself",
            _calls(asking, words=lambda each: f"{_named(each[0])} asks for {_joined(extra & each[1])}"),
            FORCE,
        )
    return _silent(wanted)


def for_missing(wanted: Wanted, archs: Iterable[str]) -> Reason:
    """Which calls did not ask for what was planned."""
    lacking = set(archs)
    short = [(call, there) for call, there in _lists(wanted) if there and lacking - there]
    if short:
        return Reason(
            "the build system passed nvcc a list of its own",
            _calls(short, words=lambda each: f"{_named(each[0])} asks for {_joined(each[1])}"),
            FORCE,
        )
    return _silent(wanted)


def _silent(wanted: Wanted) -> Reason:
    """Calls that name no architecture: nvcc then takes its own default."""
    silent = [call for call, there in _lists(wanted) if not there]
    if silent:
        return Reason(
            "nvcc got no architecture and used its default: the list never reached it",
            _calls(silent, words=_named),
            FORCE,
        )
    if wanted.record is None:
        return Reason("perhaps the build system ignored the list, or has its own", (), FORCE)
    return Reason()


_calls = partial(first_few, most=_SHOWN, more="more calls")


def _nvcc_calls(wanted: Wanted) -> Iterator[Call]:
    for call in wanted.record.calls if wanted.record else ():
        if call.tool == "nvcc" and not call.failed:
            yield call


def _lists(wanted: Wanted) -> Iterator[tuple[Call, set[str]]]:
    """Calls that compile or link device code of the project, with the architectures that each names."""
    for call in _nvcc_calls(wanted):
        parsed = summary.parse(call)
        if parsed.inputs and not _NO_WORK.intersection(call.words) and not failures.is_trial(call):
            yield call, set(parsed.archs)


def _named(call: Call) -> str:
    """`call 12 (nvcc add.cu)`."""
    return f"call {call.number} ({summary.summarised(call, summary.parse(call)).what})"


def _joined(archs: Iterable[str]) -> str:
    return " ".join(sorted(archs, key=lambda each: (each.split("_")[0] != "sm", len(each), each)))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
