"""Why a wheel is not as planned: what the compiler calls of its build say."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.build.gate_archives import words_of
from cuwheel.compat import arch_lists
from cuwheel.units import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.build.gate_values import Wanted
    from cuwheel.record.values import Call

FORCE = "force-archs = true   (or --force-archs): nvcc then compiles the plan's architectures, whatever it is told"
_SHOWN = 3
_WITH_VALUE = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code")
_SOURCES = (".cu", ".c", ".cc", ".cpp", ".cxx", ".ptx")
_NO_WORK = (
    "--version",
    "-V",
    "--dryrun",
    "-dryrun",
    "--help",
    "-h",
    "--list-gpu-arch",
    "--list-gpu-code",
    "-E",
    "-M",
    "-MM",
)


class Reason(NamedTuple):
    """`words` follow the finding's own; `fix` where the calls tell one."""

    words: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


def wrong_nvcc(wanted: Wanted) -> tuple[str, ...]:
    """Calls of an nvcc that is not the planned toolkit's, in words."""
    if not wanted.toolkit_root:
        return ()
    root = os.path.realpath(wanted.toolkit_root) + os.sep
    strangers: dict[str, list[Call]] = {}
    for call in _nvcc_calls(wanted):
        if not os.path.realpath(call.program).startswith(root) and not call.program.startswith(wanted.toolkit_root):
            strangers.setdefault(call.program, []).append(call)
    return tuple(
        f"{program} was called {_times(len(calls))}, first in call {calls[0].number}"
        for program, calls in strangers.items()
    )


def for_unplanned(wanted: Wanted, archs: Iterable[str]) -> Reason:
    """Which calls asked for what nobody planned."""
    extra = set(archs)
    asking = [(call, there) for call, there in _lists(wanted) if extra & there]
    if asking:
        return Reason(
            "the build system told nvcc so itself",
            tuple(f"{_named(call)} asks for {_joined(extra & there)}" for call, there in asking[:_SHOWN])
            + _more(asking),
            FORCE,
        )
    return _silent(wanted)


def for_missing(wanted: Wanted, archs: Iterable[str]) -> Reason:
    """Which calls did not ask for what was planned."""
    lacking = set(archs)
    short = [(call, there) for call, there in _lists(wanted) if there and lacking - there]
    if short:
        return Reason(
            "the build system gave nvcc a list of its own",
            tuple(f"{_named(call)} asks for {_joined(there)}" for call, there in short[:_SHOWN]) + _more(short),
            FORCE,
        )
    return _silent(wanted)


def _silent(wanted: Wanted) -> Reason:
    """Calls that name no architecture: nvcc then takes its own default."""
    silent = [call for call, there in _lists(wanted) if not there]
    if silent:
        return Reason(
            "nvcc was given no architecture and took its own default: the list never reached it",
            tuple(map(_named, silent[:_SHOWN])) + _more(silent),
            FORCE,
        )
    if wanted.record is None:
        return Reason("a build system that ignored the list, perhaps, or has one of its own", (), FORCE)
    return Reason()


def _more(listed: Sequence[object]) -> tuple[str, ...]:
    return (f"and {len(listed) - _SHOWN} calls more",) if len(listed) > _SHOWN else ()


def _nvcc_calls(wanted: Wanted) -> Iterator[Call]:
    for call in wanted.record.calls if wanted.record else ():
        if call.tool == "nvcc" and not call.failed:
            yield call


def _lists(wanted: Wanted) -> Iterator[tuple[Call, set[str]]]:
    """Calls that compile or link device code, with the architectures that each names."""
    for call in _nvcc_calls(wanted):
        words = list(words_of(call))
        if not any(word in _NO_WORK for word in words) and _has_input(words):
            named = arch_lists.read_nvcc(" ".join(_arch_words(words)))
            yield call, {str(arch) for arch in named.archs}


def _has_input(words: Sequence[str]) -> bool:
    return any(not word.startswith("-") and word.endswith((*_SOURCES, ".o", ".obj", ".a")) for word in words)


def _arch_words(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        if before in _WITH_VALUE:
            yield f"{before}={word}"
        elif word.startswith(tuple(f"{option}=" for option in _WITH_VALUE)):
            yield word
        before = word


def _named(call: Call) -> str:
    """`call 12 (nvcc add.cu)`."""
    words = list(words_of(call))
    told = next((word for word in words if word.endswith(_SOURCES) and not word.startswith("-")), "")
    made = next((after for word, after in pairwise(words) if word == "-o"), "")
    return f"call {call.number} ({call.name} {file_name(told or made)})".replace(" )", ")")


def _joined(archs: Iterable[str]) -> str:
    return " ".join(sorted(archs, key=lambda each: (each.split("_")[0] != "sm", len(each), each)))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
