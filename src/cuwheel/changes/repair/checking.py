"""What a repaired wheel must be, looked at as if somebody else had made it."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from cuwheel.changes.repair import objections, paths, policies, sorting
from cuwheel.errors import MalformedError
from cuwheel.support.finding import Finding
from cuwheel.wheel.file import installed_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.repair.contents import Binary, Contents
    from cuwheel.changes.repair.decision import Decision
    from cuwheel.changes.repair.policies import Policy


def check(decision: Decision, before: Contents, after: Contents) -> tuple[Finding, ...]:
    """Raises with everything that is wrong. What is left to say of a wheel that is right is returned."""
    wrong = [
        *_nothing_of_nvidias(before, after),
        *_nothing_missing(decision, after),
        *_the_same_code(before, after),
        *_as_decided(decision, before, after),
    ]
    if wrong:
        raise MalformedError(
            decision.wheel,
            "the repair went wrong, so nothing was written: " + "; ".join(wrong[:6]),
            hint="this is a bug in cuwheel: please report it",
        )
    return tuple(_searches_build_machine(after))


def _nothing_of_nvidias(before: Contents, after: Contents) -> Iterator[str]:
    came = {each.path for each in before.binaries}
    for binary in after.binaries:
        if binary.path not in came and objections.nvidias(binary.path, binary.soname):
            yield f"NVIDIA's {binary.path} was copied into the wheel"


def _nothing_missing(decision: Decision, after: Contents) -> Iterator[str]:
    kept = {each.soname for each in decision.of("kept-out")}
    inside = paths.inside_of(after.binaries)
    policy = _policy(decision, after)
    for binary in after.binaries:
        for soname in binary.needed:
            if soname in kept or (policy and policies.is_from_system(soname, policy)):
                continue
            places = inside.get(soname, ())
            if not places:
                yield f"{binary.path} needs {soname}, which nothing provides"
            elif decision.windows:
                if not _is_added(binary, places, decision, after):
                    yield f"{binary.path} needs {soname}, and no folder that is added has it"
            elif not any(paths.leads(binary, each) for each in places) and installed_path(binary.path):
                yield f"{binary.path} needs {soname}, and its search path does not lead there"
        if sorting.asked_for(binary.soname or "", ("libpython*",)):
            yield f"{binary.path} is a library of the Python interpreter"


def _is_added(binary: Binary, places: Sequence[str], decision: Decision, after: Contents) -> bool:
    """Beside it, in a folder that its package adds, or copied by delvewheel, which adds that folder itself."""
    folders = {folder for each in decision.paths for folder in each.after}
    folders |= {_folder(binary.path), f"{after.name.name}.libs"}
    return any(_folder(each) in folders for each in places)


def _folder(path: str) -> str:
    return posixpath.dirname(installed_path(path) or path)


def _policy(decision: Decision, after: Contents) -> Policy | None:
    if decision.machine and decision.windows:
        return policies.windows(after.name, decision.machine)
    return policies.find(decision.policy, decision.machine) if decision.policy and decision.machine else None


def _the_same_code(before: Contents, after: Contents) -> Iterator[str]:
    """Device code and symbols are what they were: only the loader's table changed."""
    now = {each.path: each for each in after.binaries}
    for binary in before.binaries:
        there = now.get(binary.path)
        if there is None:
            continue  # a script that became a shim: its library is elsewhere
        if there.device_code != binary.device_code:
            yield f"{binary.path} lost device code"
        if there.soname != binary.soname:
            yield f"{binary.path} lost its name"


def _as_decided(decision: Decision, before: Contents, after: Contents) -> Iterator[str]:
    if after.platforms != decision.platforms:
        yield f"its tags are {'.'.join(after.platforms)}"
    lost = {each for each in before.members - after.members if not each.endswith((".jws", ".p7s"))}
    if lost:
        yield f"{', '.join(sorted(lost)[:3])} were lost"
    grafted = {each.path for each in after.binaries} - {each.path for each in before.binaries}
    folder = f"{before.name.name}.libs/"
    expected = len({each.place for each in decision.of("grafted")})
    came = len([each for each in grafted if each.startswith(folder) or decision.windows])
    if came != expected:
        yield f"{came} libraries were copied, but {expected} were planned"


def _searches_build_machine(after: Contents) -> Iterator[Finding]:
    for binary in after.binaries:
        odd = [each for each in binary.search_path if not each.startswith(("$ORIGIN", "${ORIGIN}"))]
        if odd:
            yield Finding(
                rule="search-path-of-a-machine",
                severity="warning",
                message=f"{binary.path} searches folders of the build machine",
                evidence=tuple(odd[:5]),
                fix="move it into the package: outside it, no search path can be set",
            )
