"""The gate: may a wheel leave the build? Every one is inspected and held against the plan that it was built from."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import gate_code, gate_units
from cuwheel.building.gate_units import DEBUG, Case
from cuwheel.building.values import GateRequest, GateResult
from cuwheel.device_code.survey import survey
from cuwheel.support.finding import finding
from cuwheel.verdicts import library_rules, wheel_tags
from cuwheel.verdicts.judge import judge_all
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile
from cuwheel_core.facts import cuda_libraries as facts_packages
from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support import wording
from cuwheel_core.support.finding import Fix, gravest_first
from cuwheel_core.support.finding import examine as examine_checks
from cuwheel_core.support.wording import file_name, first_few, size

if TYPE_CHECKING:
    from cuwheel.building.tables import GateTable
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.verdict import Verdict
    from cuwheel_core.device_code.libraries import Library, Platform
    from cuwheel_core.support.finding import Finding, RuleFunction


# May the wheel go out: size, libraries it needs or holds, the C library, paths of this machine?

_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - looked for, not written to
_SHOWN = 4


def wheel_unreadable(case: Case) -> Iterator[Finding]:
    for where, found in (
        *(("", each) for each in case.survey.findings),
        *((library.path, each) for library in case.survey.libraries for each in library.findings),
    ):
        if found.severity == "error":
            message = f"{where}: {found.message}" if where and where not in found.message else found.message
            yield finding("wheel-unreadable", message, evidence=found.evidence)


def wheel_over_budget(case: Case) -> Iterator[Finding]:
    limit = case.wanted.table.size or ""
    budget = wording.read_size(limit)
    if budget is not None:
        yield from _over_budget(case.survey, budget, limit)


def _over_budget(found: Survey, budget: int, limit: str) -> Iterator[Finding]:
    if found.size <= budget:
        return
    by_arch: Counter[Arch] = Counter()
    for library in found.libraries:
        for row in library.device_code:
            by_arch[row.arch] += row.bytes
    largest = sorted(found.libraries, key=lambda each: -each.size)[:_SHOWN]
    archs = ", ".join(f"{arch} {size(by_arch[arch])}" for arch in sorted(by_arch, key=machine_code_first))
    yield finding(
        "wheel-over-budget",
        f"it is {size(found.size)} and at most {limit} is allowed: {size(found.size - budget)} too much",
        evidence=(
            *(f"{each.path} {size(each.size)}" for each in largest),
            *((f"device code: {archs}",) if archs else ()),
        ),
        fix="plan fewer architectures (cuwheel plan), compress (nvcc --compress-mode=size), or raise the limit",
    )


def forbidden_library(case: Case) -> Iterator[Finding]:
    patterns = case.wanted.table.forbidden
    for library in case.survey.libraries:
        for name in library.needed:
            if pattern := _match(patterns, facts_packages.plain_name(name)):
                yield finding(
                    "forbidden-library",
                    f"{library.path} needs {name}, which is forbidden ({pattern})",
                    fix=f"link without it, or statically; or remove {pattern!r} from [gate] forbidden",
                )
        if pattern := _match(patterns, facts_packages.plain_name(file_name(library.path))):
            yield finding(
                "forbidden-library",
                f"{library.path} is in the wheel, but it is forbidden ({pattern})",
                fix=f'leave it out: [repair] exclude = ["{facts_packages.plain_name(file_name(library.path))}"]',
            )


def _match(patterns: Iterable[str], name: str) -> str:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), "")


def is_of_nvidia(library: Library) -> facts_packages.Library | None:
    """Which of NVIDIA's libraries this file is, if it is one."""
    if library.format not in ("elf", "pe") or library.type == "relocatable":
        return None
    found = facts_packages.known_library(facts_packages.plain_name(file_name(library.path)))
    # A few bear plain words as names (libcheckpoint.so): those are anybody's.
    return found if found and (".so." in found.pattern or found.pattern.lower().endswith(".dll")) else None


def nvidia_library_inside(case: Case) -> Iterator[Finding]:
    for library in case.survey.libraries:
        found = is_of_nvidia(library)
        if found and found.from_driver:
            yield finding(
                "nvidia-library-inside",
                f"{library.path} belongs to the driver and must never be shipped",
                evidence=(size(library.size),),
                fix=f'[repair] exclude = ["{facts_packages.plain_name(file_name(library.path))}"]',
                severity="error",
            )
        elif found:
            packages = sorted({package.name for package in found.packages})
            yield finding(
                "nvidia-library-inside",
                f"{library.path} is NVIDIA's {found.component}, {size(library.size)}",
                evidence=(f"it is also in {' or '.join(packages)}",) if packages else (),
            )


def glibc_over_ceiling(case: Case) -> Iterator[Finding]:
    ceiling = case.wanted.table.glibc
    over = [
        each for each in case.survey.libraries if ceiling and each.glibc and not versions.at_least(ceiling, each.glibc)
    ]
    if over:
        newest = max((each.glibc or "" for each in over), key=versions.key)
        yield finding(
            "glibc-over-ceiling",
            f"it needs glibc {newest}, but may need at most {ceiling}",
            evidence=first_few(f"{each.path} needs GLIBC_{each.glibc}" for each in over),
        )


def search_path_into_build_machine(case: Case) -> Iterator[Finding]:
    for library in case.survey.libraries:
        kind = "RPATH" if library.rpath else "RUNPATH"
        entries = [*library.rpath, *library.runpath]
        within = [entry for entry in entries if _is_here(entry, case)]
        others = [entry for entry in entries if entry not in within and not entry.startswith(("$ORIGIN", "${ORIGIN}"))]
        if within:
            yield finding(
                "search-path-into-build-machine",
                f"{library.path}: its {kind} points to folders of the build machine",
                evidence=first_few(within),
            )
        if others:
            named = "absolute" if all(entry.startswith("/") for entry in others) else "relative to the current folder"
            yield finding(
                "search-path-into-build-machine",
                f"{library.path}: its {kind} has folders that are {named}",
                evidence=first_few(repr(entry) for entry in others),
                severity="warning",
            )


def _is_here(entry: str, case: Case) -> bool:
    places = [*case.wanted.places, case.wanted.toolkit_root, tempfile.gettempdir(), *_TEMPORARY]
    return any(_lies_in(entry, place) for place in places if place)


def _lies_in(entry: str, place: str) -> bool:
    folder = os.path.normpath(place)
    if folder == os.sep or not entry.startswith(os.sep):
        return False
    ways = (os.path.normpath(entry), os.path.realpath(entry))
    return any(each == folder or each.startswith(folder + os.sep) for each in ways)


def allow_without_effect(case: Case) -> Iterator[Finding]:
    unplanned: set[tuple[str, str]] = {
        (unit.library, arch) for unit in case.units for arch in unit.archs - case.planned
    }
    unplanned |= {
        (library.path, arch)
        for library in case.libraries
        for row in library.device_code
        for arch in ({row.arch} - case.planned | ({DEBUG} if row.debug_count else set()))
    }
    used = {case.allowance.word(library, arch) for library, arch in unplanned}
    used |= {case.allowance.whole(library.path) for library in case.survey.libraries if library.device_code}
    if unused := [word for word in case.wanted.table.allow if word not in used]:
        yield finding(
            "allow-without-effect", f"nothing in this wheel needs [gate] allow = {', '.join(map(repr, unused))}"
        )


def wheel_could_be_smaller(case: Case) -> Iterator[Finding]:
    for library in case.libraries:
        for check in (library_rules.uncompressed_device_code, library_rules.relocatable_code_kept):
            for found in check(library):
                message = f"{library.path}: {found.message}"
                yield finding("wheel-could-be-smaller", message, evidence=found.evidence, fix=found.fix)


# Does it run on the machines that it is for?


def verdicts_on(found: Survey, machines: Sequence[Machine], built_for: Platform | None = None) -> tuple[Verdict, ...]:
    """Gives `check`'s verdicts, of the machines alone: another Python is another job's, and pip brings libraries.

    What the wheel's tags say is no condition of a machine. `built_for`: of the two distributions of CUDA for arm64
    the one that built it, of a wheel in which that is not written down yet.
    """
    bare = [replace(each, python=None, free_threaded=False, libraries=None, loads=()) for each in machines]
    if built_for:
        known = (replace(each, platform=each.platform or built_for) for each in found.libraries)
        found = replace(found, libraries=tuple(known))
    return tuple(replace(each, requires=each.requires_beyond_tag) for each in judge_all(found, bare))


def wrong_processor(case: Case) -> Iterator[Finding]:
    """Finds libraries for this machine's processor in a build for another: a compiler that was not told makes those."""
    own = [each for each in case.survey.libraries if case.wanted.cpu and each.format == "elf"]
    if wrong := [each for each in own if each.machine != case.wanted.cpu]:
        yield finding(
            "wrong-processor",
            f"{wording.a_few([each.path for each in wrong])} was not compiled for {case.wanted.cpu}",
            evidence=first_few(f"{each.path} is for {each.machine}" for each in wrong),
            fix="the project calls a compiler by name: it must take CC, CXX and CMAKE_TOOLCHAIN_FILE",
            severity="error",
        )


def fails_on_planned_machine(case: Case) -> Iterator[Finding]:
    on_condition: dict[tuple[str, ...], list[str]] = {}
    failing: dict[Finding | None, list[str]] = {}
    for verdict in verdicts_on(case.survey, case.wanted.machines):
        if verdict.outcome == "fails":
            reason = next((each for each in verdict.findings if each.severity == "error"), None)
            failing.setdefault(reason, []).append(verdict.machine)
        elif verdict.conditions:
            on_condition.setdefault(verdict.conditions, []).append(verdict.machine)
    for reason, names in failing.items():
        yield finding(
            "fails-on-planned-machine",
            f"it is for {wording.a_few(names)}, and fails there{f': {reason.message}' if reason else ''}",
            evidence=reason.evidence if reason else (),
            fix=reason.fix if reason else "",
        )
    for conditions, names in on_condition.items():
        yield finding("runs-on-condition", f"it runs on {wording.a_few(names)} if {'; '.join(conditions)}")


LIMITS = (
    wheel_unreadable,
    wheel_over_budget,
    forbidden_library,
    nvidia_library_inside,
    glibc_over_ceiling,
    search_path_into_build_machine,
    allow_without_effect,
    wheel_could_be_smaller,
    wrong_processor,
    fails_on_planned_machine,
)


RULES: tuple[RuleFunction[Case], ...] = (*gate_code.RULES, *LIMITS)
_TAG_RULES = tuple(each for each in wheel_tags.RULES if each is not wheel_tags.plain_linux)  # that one is not wrong


def examine_merged(found: Survey, table: GateTable) -> GateResult:
    """A wheel of several that passed already, each against its own plan: what only the whole can get wrong."""
    case = Case(survey=found, wanted=GateRequest(archs=(), ptx=(), cuda="", table=table), units=())
    findings = (*wheel_over_budget(case), *_about_tags(found))
    failed = table.enabled and any(finding.severity == "error" for finding in findings)
    return GateResult(findings=findings, listed=(), succeeded=not failed)


def _about_tags(found: Survey) -> tuple[Finding, ...]:
    with WheelFile(Path(found.target)) as wheel:
        return examine_checks(_TAG_RULES, WheelSubject(wheel=wheel, survey=found))


def examine_finished(found: Survey, *, most: int | None, archs: Sequence[Arch]) -> tuple[Finding, ...]:
    """Anybody's wheel or library, of whose build nothing is known: its size, and whether it is for these architectures.

    `found` as for `examine`. Without `archs` it may be for any.
    """
    findings = list(_over_budget(found, most, size(most)) if most else ())
    if archs:
        named = {kind: tuple(each for each in archs if each.kind == kind) for kind in ("sm", "compute")}
        case = _case(found, GateRequest(archs=named["sm"], ptx=named["compute"], cuda=""))
        fix = Fix(
            text="`cuwheel plan` writes a list as build systems take it; "
            "`cuwheel record -- COMMAND` shows what nvcc got"
        )
        findings += [replace(each, fixes=(fix,)) for each in examine_checks(gate_code.ARCHITECTURES, case)]
    return tuple(findings)


def _case(found: Survey, wanted: GateRequest) -> Case:
    if any(library.registration.containers and not library.containers for library in found.libraries):
        found = survey(found.target, detail="containers")
    foreign = tuple(library for library in found.libraries if is_of_nvidia(library))
    theirs = {library.path for library in foreign}
    own = [library for library in found.libraries if library.containers and library.path not in theirs]
    return Case(survey=found, wanted=wanted, units=gate_units.read_units(found, own, wanted), foreign=foreign)


def examine(found: Survey, wanted: GateRequest) -> GateResult:
    """`found` with `detail="containers"` or more, of a wheel that is still where it was read."""
    case = _case(found, wanted)
    found = case.survey
    judged = (*examine_checks(RULES, case), *_about_tags(found))
    findings = gravest_first(judged)
    failed = wanted.table.enabled and any(finding.severity == "error" for finding in findings)
    return GateResult(findings=findings, listed=case.listed(), succeeded=not failed)
