"""What stands against repairing a wheel, and what a person should know about its libraries."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.repair.needs import folders_for
from cuwheel.facts import packages
from cuwheel.facts.more_libraries import VARIABLE
from cuwheel.support.finding import finding
from cuwheel.wheel.file import installed_path
from cuwheel.wheel.requirements import parse
from cuwheel_core.facts import cuda_libraries
from cuwheel_core.support.wording import a_few, counted, file_name, size
from cuwheel_core.wheel.tags import MACOS, MUSL, OF_CUDA, normalised, platform_of

if TYPE_CHECKING:
    from cuwheel.changes.repair.answer import Fact
    from cuwheel.changes.repair.contents import Contents
    from cuwheel.changes.repair.policies import Policy
    from cuwheel.changes.repair.request import RepairRequest
    from cuwheel_core.support.finding import Finding

_OTHER_SYSTEMS = {
    MACOS: ("macOS, where there is no CUDA", "delocate-wheel"),
    MUSL: ("musl, for which NVIDIA makes no libraries", "auditwheel repair, in a musllinux image"),
}
_HASH = re.compile(r"-(?:[0-9a-f]{8}(?=\.so)|[0-9a-f]{32}(?=\.dll))")
_SHOWN = 8
_MOST_COPIED = 60


def objections_to(found: Contents) -> tuple[Finding, ...]:
    """Before anything is looked for. An error among them ends it."""
    return (
        *_unread(found),
        *_platform(found),
        *_without_libraries(found),
        *_machines(found),
        *_purelib(found),
        *_hashes(found),
    )


def _unread(found: Contents) -> Iterator[Finding]:
    for each in found.findings:
        yield replace(each, severity="error") if each.rule == "library-foreign" else each


def _platform(found: Contents) -> Iterator[Finding]:
    for platform in found.platforms:
        made_for = platform_of(platform)
        if made_for.os in _OTHER_SYSTEMS:
            what, tool = _OTHER_SYSTEMS[made_for.os]
            yield finding(
                "other-platform",
                f"the wheel is for {what}, which cuwheel does not repair",
                evidence=(platform,),
                fix=f"use {tool} instead",
            )
            return
        if platform != "any" and made_for.os != "linux" and (made_for.os != "windows" or made_for.cpu not in OF_CUDA):
            yield finding(
                "other-platform",
                f"cuwheel does not repair wheels for {platform}",
                fix="CUDA wheels are made for Linux and Windows",
            )
            return
    for binary in found.binaries:
        if any(each.startswith("libc.musl-") for each in binary.needed):
            yield finding(
                "other-platform",
                f"{binary.path} is linked with musl, for which NVIDIA makes no libraries",
                fix="build it on a glibc system",
            )
            return


def _without_libraries(found: Contents) -> Iterator[Finding]:
    if found.binaries or found.findings:
        return
    pure = found.platforms == ("any",)
    yield finding(
        "no-libraries",
        "the wheel has no native code, so there is nothing to repair"
        + ("" if pure else f", but its tag is {found.name.platform}"),
        fix="" if pure else "check whether the build left its libraries out",
        severity="note" if pure else "warning",
    )


def _machines(found: Contents) -> Iterator[Finding]:
    machines = sorted({each.machine for each in found.binaries})
    kinds = {cpu for platform in found.platforms if (cpu := platform_of(platform).cpu)}
    if len(machines) > 1:
        yield finding(
            "several-machines",
            f"the wheel has libraries for {' and '.join(machines)}: no tag fits them all",
            evidence=tuple(f"{each.path}: {each.machine}" for each in found.binaries[:_SHOWN]),
        )
    elif machines and machines[0] not in OF_CUDA:
        yield finding("other-platform", f"its libraries are for {machines[0]}, which CUDA does not support")
    elif machines and kinds and kinds != set(machines):
        yield finding(
            "wrong-machine",
            f"the tag says {', '.join(sorted(kinds))}, but the libraries are for {machines[0]}",
            evidence=(found.name.platform, found.binaries[0].path),
        )


def _purelib(found: Contents) -> Iterator[Finding]:
    bad = [each.path for each in found.binaries if each.path.split("/")[1:2] == ["purelib"] and ".data/" in each.path]
    if bad:
        yield finding(
            "library-in-purelib",
            "native libraries are in the folder for pure Python, where no tag protects them",
            evidence=tuple(bad[:_SHOWN]),
        )


def _hashes(found: Contents) -> Iterator[Finding]:
    """RECORD is written anew: a file that was damaged, or changed, would get a hash that bears it out."""
    if wrong := found.wrong:
        yield finding(
            "record-hash",
            f"the hash of {counted(len(wrong), 'file')} is not the one in RECORD",
            evidence=tuple(wrong[:_SHOWN]),
        )


def objections_to_needs(found: Contents, facts: Sequence[Fact], request: RepairRequest) -> tuple[Finding, ...]:
    """Once everything has been looked for."""
    return (
        *_missing(facts),
        *_nvidia_inside(found),
        *_newer_than_the_table(facts),
        *_other_major(found, request),
        *_framework(found, facts, request),
        *_not_led(found, facts),
    )


def _missing(facts: Iterable[Fact]) -> Iterator[Finding]:
    """All of them in one: they were looked for in nearly the same folders."""
    missing = [each for each in facts if each.fate == "missing"]
    if not missing:
        return
    one = len(missing) == 1
    names = a_few([each.soname for each in missing], _SHOWN)
    folders = list(dict.fromkeys(looked.folder for each in missing for looked in each.trail))
    odd = (f"{looked.folder}/{each.soname} {looked.found}" for each in missing for looked in each.trail if looked.odd)
    needs = (f"{each.soname} is needed by {', '.join(each.needed_by[:3])}" for each in missing[:_SHOWN])
    yield finding(
        "library-missing",
        f"{names} {'was' if one else 'were'} not found, and users would not have {'it' if one else 'them'}",
        evidence=(
            *needs,
            *list(odd)[:_SHOWN],
            f"searched {a_few(folders, _SHOWN)}" if folders else "no folder to search is known here",
        ),
        fix="--lib-dir FOLDER if you have it, or if users have it: "
        # To be copied: with some of them the next run would say the rest. The names are somebody else's.
        + " ".join(f"--exclude {shlex.quote(each.soname)}" for each in missing[:_MOST_COPIED]),
    )


def _nvidia_inside(found: Contents) -> Iterator[Finding]:
    bundled = [each for each in found.binaries if nvidias(each.path, each.soname)]
    if bundled:
        yield finding(
            "nvidia-inside",
            f"the wheel already contains {size(sum(each.size for each in bundled))} of NVIDIA's own libraries",
            evidence=tuple(each.path for each in bundled[:_SHOWN]),
        )


def nvidias(path: str, soname: str | None) -> bool:
    """Whether a file is one of NVIDIA's libraries, also under the name that grafting gives it."""
    names = (file_name(path), soname or "")
    return any(cuda_libraries.component_of(_HASH.sub("", each)) for each in names if each)


def _newer_than_the_table(facts: Iterable[Fact]) -> Iterator[Finding]:
    for fact in facts:
        nvidias_own = fact.fate == "kept-out" and not fact.indirect and cuda_libraries.component_of(fact.soname)
        if nvidias_own and cuda_libraries.known_library(fact.soname) is None:
            yield finding(
                "library-not-in-table",
                f"{fact.soname} is NVIDIA's and was kept out, but the table does not list this version: no "
                f"search path leads to it, and no package can be required",
                evidence=tuple(fact.needed_by[:3]),
                fix=f"upgrade cuwheel, or provide a file with a row for its package: {VARIABLE}=rows.toml",
            )


def _other_major(found: Contents, request: RepairRequest) -> Iterator[Finding]:
    if request.cuda_major is None:
        return
    for binary in found.binaries:
        rows = [row for row in map(cuda_libraries.known_library, binary.needed) if row and row.majors]
        wrong = [row for row in rows if request.cuda_major not in row.majors]
        if wrong:
            majors = " or ".join(map(str, wrong[0].majors))
            yield finding(
                "other-cuda",
                f"{binary.path} needs {wrong[0].pattern}, which is for CUDA {majors}, not {request.cuda_major}",
            )


def _framework(found: Contents, facts: Iterable[Fact], request: RepairRequest) -> Iterator[Finding]:
    required = {normalised(each.name) for each in map(parse, found.distribution.requires) if each}
    for name in dict.fromkeys(filter(None, (packages.framework_of(each.soname) for each in facts))):
        if name not in required and name not in request.exclude:
            yield finding(
                "framework-not-required",
                f"the wheel needs libraries of {name}, which were kept out, and does not require {name}",
                evidence=tuple(each.soname for each in facts if packages.framework_of(each.soname) == name)[:_SHOWN],
                fix=f"add {name} to the project's dependencies (or --exclude {name} if it will always be there)",
            )


def _not_led(found: Contents, facts: Iterable[Fact]) -> Iterator[Finding]:
    kept = {each.soname for each in facts if each.fate == "kept-out" and folders_for(each.soname, None)}
    for binary in found.binaries:
        if installed_path(binary.path) is None and (needs := [each for each in binary.needed if each in kept]):
            yield finding(
                "installed-elsewhere",
                f"{binary.path} is installed outside site-packages: no search path can lead to {needs[0]}",
                evidence=tuple(needs[:_SHOWN]),
            )


def too_low(found: Contents, policy: Policy, because: Sequence[str]) -> tuple[Finding, ...]:
    return (
        finding(
            "tag-too-low",
            f"the tag {found.name.platform} promises too much and becomes {policy.name}",
            evidence=tuple(because[:_SHOWN]),
        ),
    )
