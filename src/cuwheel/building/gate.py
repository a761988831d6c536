"""The gate: may a wheel leave the build? Every one is inspected and held against the plan that it was built from."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building import gate_code, gate_units
from cuwheel.building.gate_units import DEBUG, Case, by_kind_and_number
from cuwheel.building.values import GateRequest, GateResult
from cuwheel.device_code.survey import survey
from cuwheel.facts import packages as facts_packages
from cuwheel.facts import versions
from cuwheel.support import wording
from cuwheel.support.finding import gravest_first
from cuwheel.support.wording import file_name, first_few, size
from cuwheel.verdicts import library_rules, wheel_tags
from cuwheel.verdicts import rule as rules
from cuwheel.verdicts.rule import Found, rule
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.building.tables import GateTable
    from cuwheel.device_code.libraries import Library, Survey
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.rule import Rule


# May the wheel go out: size, libraries it needs or holds, the C library, paths of this machine?

_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - looked for, not written to
_SHOWN = 4


@rule(
    "wheel-unreadable",
    severity="error",
    why="What cannot be read cannot be checked: a library that was cut short, a damaged fat binary.",
    source="the inspection of the wheel",
    fix="build it again; if that does not help, find out what changed the file after linking (strip, patchelf)",
)
def wheel_unreadable(case: Case) -> Iterator[Found]:
    for where, finding in (
        *(("", each) for each in case.survey.findings),
        *((library.path, each) for library in case.survey.libraries for each in library.findings),
    ):
        if finding.severity == "error":
            message = f"{where}: {finding.message}" if where and where not in finding.message else finding.message
            yield Found(message=message, evidence=finding.evidence)


@rule(
    "wheel-over-budget",
    severity="error",
    why="Indexes limit the size of files, and users wait for downloads: `[gate] size` is the most that this wheel may "
    "take.",
    source="the configuration",
)
def wheel_over_budget(case: Case) -> Iterator[Found]:
    limits = case.wanted.table.size
    budget = wording.read_size(limits) if limits else None
    if budget is None or case.survey.size <= budget:
        return
    by_arch: Counter[str] = Counter()
    for library in case.survey.libraries:
        for row in library.device_code:
            by_arch[row.arch] += row.bytes
    largest = sorted(case.survey.libraries, key=lambda each: -each.size)[:_SHOWN]
    archs = ", ".join(f"{arch} {size(by_arch[arch])}" for arch in sorted(by_arch, key=by_kind_and_number))
    yield Found(
        message=f"it is {size(case.survey.size)} and at most {limits} is allowed: {size(case.survey.size - budget)} "
        "too much",
        evidence=(
            *(f"{each.path} {size(each.size)}" for each in largest),
            *((f"device code: {archs}",) if archs else ()),
        ),
        fix="plan fewer architectures (cuwheel plan), compress (nvcc --compress-mode=size), or raise [gate] size",
    )


@rule(
    "forbidden-library",
    severity="error",
    why="""`[gate] forbidden` names libraries that users of this wheel do not have, or must not get twice: the wheel may
    neither need nor contain them.""",
    source="the configuration",
)
def forbidden_library(case: Case) -> Iterator[Found]:
    patterns = case.wanted.table.forbidden
    for library in case.survey.libraries:
        for name in library.needed:
            if pattern := _match(patterns, facts_packages.plain_name(name)):
                yield Found(
                    message=f"{library.path} needs {name}, which is forbidden ({pattern})",
                    fix=f"link without it, or statically; or remove {pattern!r} from [gate] forbidden",
                )
        if pattern := _match(patterns, facts_packages.plain_name(file_name(library.path))):
            yield Found(
                message=f"{library.path} is in the wheel, but it is forbidden ({pattern})",
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


@rule(
    "nvidia-library-inside",
    severity="warning",
    why="""NVIDIA's libraries are hundreds of megabytes and come as packages of their own; two copies in one process do
    not share their state. Those that belong to the driver must match the machine's kernel module: a copy in a wheel
    breaks every machine except the one it was taken from.""",
    source="NVIDIA's packages on the index; jax and torch, which load the packages' libraries",
    fix="[repair] leaves them out, and with `requires = true` asks for their packages instead",
)
def nvidia_library_inside(case: Case) -> Iterator[Found]:
    for library in case.survey.libraries:
        found = is_of_nvidia(library)
        if found and found.from_driver:
            yield Found(
                message=f"{library.path} belongs to the driver and must never be shipped",
                evidence=(size(library.size),),
                severity="error",
                fix=f'[repair] exclude = ["{facts_packages.plain_name(file_name(library.path))}"]',
            )
        elif found:
            packages = sorted({package.name for package in found.packages})
            yield Found(
                message=f"{library.path} is NVIDIA's {found.component}, {size(library.size)}",
                evidence=(f"it is also in {' or '.join(packages)}",) if packages else (),
            )


@rule(
    "glibc-over-ceiling",
    severity="error",
    why="""A symbol version above that of a machine's C library fails at import: version `GLIBC_2.34' not found.
    `[gate] glibc` is the version on the oldest machine that must run it.""",
    source="ELF symbol versioning (Linux Standard Base): the version needs of the files",
    fix="build on an older system: cuwheel build --provider container, with a manylinux image",
)
def glibc_over_ceiling(case: Case) -> Iterator[Found]:
    ceiling = case.wanted.table.glibc
    over = [
        each for each in case.survey.libraries if ceiling and each.glibc and not versions.at_least(ceiling, each.glibc)
    ]
    if over:
        newest = max((each.glibc or "" for each in over), key=versions.key)
        yield Found(
            message=f"it needs glibc {newest}, but may need at most {ceiling}",
            evidence=first_few(f"{each.path} needs GLIBC_{each.glibc}" for each in over),
        )


@rule(
    "search-path-into-build-machine",
    severity="error",
    why="""An RPATH or RUNPATH that names a build folder finds nothing on other machines, or it finds what somebody put
    there, which is a way to inject another library.""",
    source="ld.so(8)",
    fix="CMAKE_INSTALL_RPATH='$ORIGIN' with CMAKE_INSTALL_RPATH_USE_LINK_PATH=OFF, or let [repair] set it",
)
def search_path_into_build_machine(case: Case) -> Iterator[Found]:
    for library in case.survey.libraries:
        kind = "RPATH" if library.rpath else "RUNPATH"
        entries = [*library.rpath, *library.runpath]
        within = [entry for entry in entries if _is_here(entry, case)]
        others = [entry for entry in entries if entry not in within and not entry.startswith(("$ORIGIN", "${ORIGIN}"))]
        if within:
            yield Found(
                message=f"{library.path}: its {kind} points to folders of the build machine", evidence=first_few(within)
            )
        if others:
            named = "absolute" if all(entry.startswith("/") for entry in others) else "relative to the current folder"
            yield Found(
                message=f"{library.path}: its {kind} has folders that are {named}",
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


@rule(
    "allow-without-effect",
    severity="note",
    why="An entry of `[gate] allow` that no wheel needs is a hole through which the next mistake slips.",
    source="the configuration",
    fix="remove it from [gate] allow",
)
def allow_without_effect(case: Case) -> Iterator[Found]:
    there = {(unit.library, arch) for unit in case.units for arch in unit.archs - case.planned}
    there |= {
        (library.path, arch)
        for library in case.libraries
        for row in library.device_code
        for arch in ({row.arch} - case.planned | ({DEBUG} if row.debug_count else set()))
    }
    used = {case.allowance.word(library, arch) for library, arch in there}
    used |= {case.allowance.whole(library.path) for library in case.survey.libraries if library.device_code}
    if unused := [word for word in case.wanted.table.allow if word not in used]:
        yield Found(message=f"nothing in this wheel needs [gate] allow = {', '.join(map(repr, unused))}")


@rule(
    "wheel-could-be-smaller",
    severity="note",
    why="Uncompressed device code, and objects kept beside the linked code, only cost bytes.",
    source="see uncompressed-device-code and relocatable-code-kept",
)
def wheel_could_be_smaller(case: Case) -> Iterator[Found]:
    for library in case.libraries:
        for each in (library_rules.uncompressed_device_code, library_rules.relocatable_code_kept):
            for finding in each.findings(library):
                yield Found(message=f"{library.path}: {finding.message}", evidence=finding.evidence, fix=finding.fix)


LIMITS = (
    wheel_unreadable,
    wheel_over_budget,
    forbidden_library,
    nvidia_library_inside,
    glibc_over_ceiling,
    search_path_into_build_machine,
    allow_without_effect,
    wheel_could_be_smaller,
)


RULES: tuple[Rule[Case], ...] = (*gate_code.RULES, *LIMITS)
_TAG_RULES = tuple(each for each in wheel_tags.RULES if each.severity == "error")  # a plain linux tag is not wrong


def examine_merged(found: Survey, table: GateTable) -> GateResult:
    """A wheel of several that passed already, each against its own plan: what only the whole can get wrong."""
    case = Case(survey=found, wanted=GateRequest(archs=(), ptx=(), cuda="", table=table), units=())
    findings = (*wheel_over_budget.findings(case), *_about_tags(found))
    failed = table.enabled and any(finding.severity == "error" for finding in findings)
    return GateResult(findings=findings, listed=(), succeeded=not failed)


def _about_tags(found: Survey) -> tuple[Finding, ...]:
    with WheelFile(Path(found.target)) as wheel:
        return rules.examine(_TAG_RULES, WheelSubject(wheel=wheel, survey=found))


def examine(found: Survey, wanted: GateRequest) -> GateResult:
    """`found` with `detail="containers"` or more, of a wheel that is still where it was read."""
    if any(library.registration.containers and not library.containers for library in found.libraries):
        found = survey(found.target, detail="containers")
    foreign = tuple(library for library in found.libraries if is_of_nvidia(library))
    theirs = {library.path for library in foreign}
    own = [library for library in found.libraries if library.containers and library.path not in theirs]
    case = Case(survey=found, wanted=wanted, units=gate_units.read_units(found, own, wanted), foreign=foreign)
    judged = (*rules.examine(RULES, case), *_about_tags(found))
    findings = gravest_first(judged)
    failed = wanted.table.enabled and any(finding.severity == "error" for finding in findings)
    return GateResult(findings=findings, listed=case.listed(), succeeded=not failed)
