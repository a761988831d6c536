"""Is the device code what was planned, by whom it was to be compiled?"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.building import gate_units
from cuwheel.building.gate_units import DEBUG, Case, Unit, containers_of, joined
from cuwheel.building.recording.calls import Call, is_trial, parse_call, summarize_call
from cuwheel.support.finding import finding
from cuwheel_core.facts import cuda_libraries, toolkits, versions
from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support.wording import file_name, first_few

if TYPE_CHECKING:
    from cuwheel.building.values import GateRequest
    from cuwheel_core.facts.rows.toolkits import Toolkit
    from cuwheel_core.support.finding import Finding


# Why a wheel is not as planned: what the compiler calls of its build say.

FORCE = (
    "force-archs = true   (or --set force-archs=true): nvcc then compiles the plan's architectures, whatever the build "
    "passes it"
)
_SHOWN = 3
_NO_WORK = frozenset(("-E", "--preprocess", "-M", "-MM", "-dryrun", "--dryrun", "--version", "-V", "--help", "-h"))


class Reason(NamedTuple):
    """`words` follow the finding's own; `fix` where the calls tell one."""

    words: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


def wrong_nvcc(wanted: GateRequest) -> tuple[str, ...]:
    """Compilations by an nvcc that is not the planned toolkit's, in words. Asking for its version does no harm."""
    if not wanted.toolkit_root:
        return ()
    strangers: dict[str, list[Call]] = {}
    for call, _ in _lists(wanted):
        if not _is_own(call.program, wanted):
            strangers.setdefault(call.program, []).append(call)
    return tuple(
        f"{program} was called {'once' if len(calls) == 1 else f'{len(calls)} times'}, first in call {calls[0].number}"
        for program, calls in strangers.items()
    )


def _is_own(program: str, wanted: GateRequest) -> bool:
    """Whether a compiler is the planned toolkit's: by a link too, or as a copy in the record's folder."""
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


def for_unplanned(wanted: GateRequest, archs: Iterable[str]) -> Reason:
    """Which calls asked for unplanned code."""
    extra = set(archs)
    asking = [(call, asked) for call, asked in _lists(wanted) if extra & asked]
    if asking:
        return Reason(
            "the build system passed it to nvcc itself",
            _calls(asking, words=lambda each: f"{_named(each[0])} asks for {_joined(extra & each[1])}"),
            FORCE,
        )
    return _silent(wanted)


def for_missing(wanted: GateRequest, archs: Iterable[str]) -> Reason:
    """Which calls did not ask for what was planned."""
    lacking = set(archs)
    short = [(call, asked) for call, asked in _lists(wanted) if asked and lacking - asked]
    if short:
        return Reason(
            "the build system passed nvcc a list of its own",
            _calls(short, words=lambda each: f"{_named(each[0])} asks for {_joined(each[1])}"),
            FORCE,
        )
    return _silent(wanted)


def _silent(wanted: GateRequest) -> Reason:
    """Calls that name no architecture: nvcc then takes its own default."""
    silent = [call for call, archs in _lists(wanted) if not archs]
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


def _nvcc_calls(wanted: GateRequest) -> Iterator[Call]:
    for call in wanted.record.calls if wanted.record else ():
        if call.tool == "nvcc" and not call.failed:
            yield call


def _lists(wanted: GateRequest) -> Iterator[tuple[Call, set[str]]]:
    """Calls that compile or link device code of the project, with the architectures that each names."""
    for call in _nvcc_calls(wanted):
        parsed = parse_call(call)
        if parsed.inputs and not _NO_WORK.intersection(call.words) and not is_trial(call):
            yield call, set(parsed.archs)


def _named(call: Call) -> str:
    """`call 12 (nvcc add.cu)`."""
    return f"call {call.number} ({summarize_call(call, parse_call(call)).what})"


def _joined(archs: Iterable[str]) -> str:
    return " ".join(sorted(archs, key=lambda each: (each.split("_")[0] != "sm", len(each), each)))


_PTX = "compute_"
_ALLOWED = 3


def built_without_device_code(case: Case) -> Iterator[Finding]:
    with_code = [library.path for library in case.libraries if library.device_code]
    if not case.wanted.table.device_code:
        if with_code:
            yield finding(
                "built-without-device-code",
                "it contains CUDA device code, but [gate] device-code = false says it has none",
                evidence=first_few(with_code),
                fix="remove that line from the configuration",
                severity="warning",
            )
    elif not with_code:
        count = len(case.libraries)
        evidence = f"{count} {'library was' if count == 1 else 'libraries were'} read" if count else "it has no library"
        yield finding("built-without-device-code", "it contains no CUDA device code", evidence=(evidence,))


def planned_architecture_missing(case: Case) -> Iterator[Finding]:
    yield from _missing("planned-architecture-missing", case, lambda unit: gate_units.missing_archs(unit, case.wanted))
    loose = {row.arch for library in case.libraries if not library.containers for row in library.device_code}
    lacking = [arch for arch in case.wanted.archs if arch not in loose]
    if loose and lacking and not any(case.judged()):
        yield finding(
            "planned-architecture-missing", f"no cubin for {joined(lacking)}", evidence=(f"found {joined(loose)}",)
        )


def planned_ptx_missing(case: Case) -> Iterator[Finding]:
    yield from _missing("planned-ptx-missing", case, lambda unit: gate_units.missing_ptx(unit, case.wanted))


def _missing(rule: str, case: Case, lacks: Callable[[Unit], tuple[Arch, ...]]) -> Iterator[Finding]:
    """Containers of a library that lack the same, together."""
    alike: dict[tuple[str, tuple[Arch, ...]], list[Unit]] = {}
    total: dict[str, int] = {}
    for unit in case.judged():
        total[unit.library] = total.get(unit.library, 0) + 1
        if lacking := lacks(unit):
            alike.setdefault((unit.library, lacking), []).append(unit)
    for (library, lacking), units in alike.items():
        reason = for_missing(case.wanted, lacking)
        yield finding(
            rule,
            f"{library}: {joined(lacking)} was planned but is missing from "
            f"{containers_of(len(units), total[library])}{_because(reason, units)}",
            evidence=(*first_few(units, words=_held), *reason.evidence),
            fix=reason.fix or None,
        )


def _held(unit: Unit) -> str:
    return f"{unit.words} has {joined(unit.archs) or 'nothing'}"


def _because(reason: Reason, units: list[Unit]) -> str:
    if all(unit.device_linked for unit in units):
        return ": the device link used another architecture list than the objects"
    return f": {reason.words}" if reason.words else ""


def architecture_not_planned(case: Case) -> Iterator[Finding]:
    yield from _unplanned("architecture-not-planned", case, ptx=False)


def ptx_not_planned(case: Case) -> Iterator[Finding]:
    yield from _unplanned("ptx-not-planned", case, ptx=True)


def _unplanned(rule: str, case: Case, *, ptx: bool) -> Iterator[Finding]:
    alike: dict[str, list[tuple[Unit, list[Arch]]]] = {}
    total: dict[str, int] = {}
    for unit in case.from_sources():
        total[unit.library] = total.get(unit.library, 0) + 1
        if extra := [arch for arch in case.unplanned(unit) if arch.startswith(_PTX) == ptx]:
            alike.setdefault(unit.library, []).append((unit, extra))
    yield from (_unplanned_in(rule, case, library, found, total[library]) for library, found in alike.items())
    yield from _unplanned_loose(rule, case, ptx=ptx)


def _unplanned_in(rule: str, case: Case, library: str, found: list[tuple[Unit, list[Arch]]], total: int) -> Finding:
    extra = {arch for _, archs in found for arch in archs}
    allow = _allow(library, extra)
    reason = _why_unplanned(case, [unit for unit, _ in found], extra)
    return finding(
        rule,
        f"{library}: {joined(extra)} in {containers_of(len(found), total)}, not planned"
        + (f": {reason.words}" if reason.words else ""),
        evidence=(*first_few(found, words=lambda each: f"{each[0].words} has {joined(each[1])}"), *reason.evidence),
        fix="; ".join(filter(None, (reason.fix, f"to accept it: {allow}"))),
    )


def _why_unplanned(case: Case, units: Collection[Unit], archs: Collection[str]) -> Reason:
    archives = list(dict.fromkeys(unit.origin.path for unit in units if unit.origin))
    if archives and all(unit.origin for unit in units):
        return Reason(f"it comes from {archives[0]}, which does not belong to the toolkit")
    if strangers := wrong_nvcc(case.wanted):
        return Reason("the build called another nvcc than the planned one", strangers, _own_nvcc(case))
    return for_unplanned(case.wanted, archs)


def _allow(library: str, archs: Collection[Arch]) -> str:
    """The line that lets them stay, in this library alone."""
    words = ", ".join(f'"{file_name(library)}:{arch}"' for arch in sorted(archs, key=machine_code_first)[:_ALLOWED])
    return f"[gate] allow = [{words}{', …' if len(archs) > _ALLOWED else ''}]"


def _unplanned_loose(rule: str, case: Case, *, ptx: bool) -> Iterator[Finding]:
    """Cubins that stand in no container: data files, mostly."""
    for library in case.libraries:
        inside = {index for container in library.containers for index in container.code}
        extra = {row.arch for index, row in enumerate(library.device_code) if index not in inside} - case.planned
        extra = {arch for arch in extra if not case.allowance.word(library.path, arch) and arch.startswith(_PTX) == ptx}
        if extra:
            yield finding(
                rule,
                f"{library.path}: {joined(extra)}, not planned",
                evidence=("it is not in a container",),
                fix=f"to accept it: {_allow(library.path, extra)}",
            )


def compiled_by_other_cuda(case: Case) -> Iterator[Finding]:
    planned = toolkits.find_toolkit(case.wanted.cuda)
    alike: dict[tuple[str, str], list[Unit]] = {}
    for unit in case.from_sources():
        for by in _compiled_by(unit, planned):
            alike.setdefault((unit.library, by), []).append(unit)
    for (library, by), units in alike.items():
        strangers = wrong_nvcc(case.wanted)
        yield finding(
            "compiled-by-other-cuda",
            f"{library}: {by}, but CUDA {planned.version} was planned"
            + (": the wrong nvcc was used" if strangers or not case.wanted.record else ""),
            evidence=(*first_few(units, words=lambda unit: unit.words), *strangers),
            fix=_own_nvcc(case),
            severity=None if any(unit.registered for unit in units) else "warning",
        )


def _compiled_by(unit: Unit, planned: Toolkit) -> Iterator[str]:
    if unit.toolkit and unit.toolkit != planned.version:
        yield f"compiled by CUDA {unit.toolkit}"
        return
    for isa in sorted({code.ptx_isa for code in unit.codes if code.ptx_isa} - {planned.ptx_isa}):
        by = next((row.version for row in reversed(toolkits.all_toolkits()) if row.ptx_isa == isa), None)
        yield f"PTX of ISA {isa}{f', as CUDA {by} writes it' if by else ''}"


def _own_nvcc(case: Case) -> str:
    root = case.wanted.toolkit_root
    nvcc = f"{root}/bin/nvcc" if root else "the planned toolkit's nvcc"
    return f"make the build use {nvcc} (CUDACXX, CUDA_HOME, CMAKE_CUDA_COMPILER) instead of a path of its own"


def other_nvcc_called(case: Case) -> Iterator[Finding]:
    strangers = wrong_nvcc(case.wanted)
    planned = toolkits.find_toolkit(case.wanted.cuda)
    explained_already = any(True for unit in case.from_sources() for _ in _compiled_by(unit, planned))
    if strangers and not explained_already:
        # A cubin names its compiler's release, PTX its ISA alone, which several releases share.
        of_ptx = {unit.library for unit in case.from_sources() if {arch[: len(_PTX)] for arch in unit.archs} == {_PTX}}
        why = f", and of {', '.join(sorted(of_ptx))} only PTX tells, which may be of another CUDA" if of_ptx else ""
        yield finding(
            "other-nvcc-called",
            f"the build called another nvcc than the planned one{why}",
            evidence=strangers,
            fix=_own_nvcc(case),
            severity="error" if of_ptx else None,
        )


def linked_with_other_cuda(case: Case) -> Iterator[Finding]:
    major = versions.major(case.wanted.cuda)
    for library in case.libraries:
        for name in library.needed:
            majors = cuda_libraries.library_majors(name)
            if majors and major not in majors:
                named = " or ".join(map(str, majors))
                yield finding(
                    "linked-with-other-cuda",
                    f"{library.path} needs {name}, which is CUDA {named}'s, but {case.wanted.cuda} was planned",
                    evidence=tuple(f"RUNPATH {each}" for each in (*library.runpath, *library.rpath))[:2],
                )


def debug_code_built(case: Case) -> Iterator[Finding]:
    for library in case.libraries:
        count = sum(row.debug_count for row in library.device_code)
        if count and not case.allowance.word(library.path, DEBUG):
            archs = joined(row.arch for row in library.device_code if row.debug_count)
            yield finding(
                "debug-code-built",
                f"{library.path}: device code was compiled for debugging",
                evidence=(f"{count} {'entry' if count == 1 else 'entries'} for {archs}",),
            )


ARCHITECTURES = (
    built_without_device_code,
    planned_architecture_missing,
    architecture_not_planned,
    planned_ptx_missing,
    ptx_not_planned,
)
RULES = (
    built_without_device_code,
    compiled_by_other_cuda,
    other_nvcc_called,
    linked_with_other_cuda,
    planned_architecture_missing,
    architecture_not_planned,
    planned_ptx_missing,
    ptx_not_planned,
    debug_code_built,
)
