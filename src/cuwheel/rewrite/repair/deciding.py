"""What repairing a wheel would do, decided by looking alone."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from cuwheel.facts import toolkits, versions
from cuwheel.finding import Finding
from cuwheel.rewrite.repair import contents, objections, paths, policies, requirements, search, sorting
from cuwheel.rewrite.repair.values import Decision, SearchPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.rewrite.repair.contents import Contents
    from cuwheel.rewrite.repair.policies import Policy
    from cuwheel.rewrite.repair.search import Searcher
    from cuwheel.rewrite.repair.sorting import Sorted
    from cuwheel.rewrite.repair.values import Wish

_TAG = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)", re.ASCII)
_OLD_TAGS = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}


def decide(wheel: Path, wish: Wish) -> Decision:
    """Raises where this is no sound wheel. What stands against a repair is in the findings, all of it at once."""
    found = contents.read(wheel)
    standing = objections.examine(found)
    machine = found.binaries[0].machine if found.binaries else None
    if machine is None or any(each.severity == "error" for each in standing):
        return _untouched(found, wish, machine, standing)
    searcher = search.Searcher(search.folders(wish.libraries, os.environ, machine), machine)
    claimed = _claimed(found, machine) if wish.policy is None else None
    policy, sorted_, because, problems = _chosen(found, wish, searcher, machine)
    platforms, policy, retold = _platforms(found, policy, claimed, machine)
    if retold == "kept":
        sorted_ = sorting.sort(found, wish, searcher, policy)
        because = ()
    inside = paths.inside_of(found.binaries)
    ways = tuple(_paths(found, sorted_, wish))
    required: tuple[str, ...] = ()
    doubts: list[Finding] = []
    if wish.requires:
        own = found.distribution.requires
        required, doubts = requirements.wanted(
            (*found.binaries, *sorted_.grafted.values()), sorted_.facts, wish.cuda_major, own
        )
    findings = (
        *standing,
        *problems,
        *doubts,
        *objections.of_needs(found, sorted_.facts, wish),
        *(objections.too_low(found, policy, because) if retold == "raised" else ()),
    )
    name = "-".join([*found.parts[:-1], ".".join(platforms)]) + ".whl"
    return Decision(
        wheel=wheel,
        wish=wish,
        file_name=name,
        machine=machine,
        policy=policy.name,
        because=because,
        platforms=platforms,
        libraries=sorted_.facts,
        paths=ways,
        requires=required,
        excluded=tuple(_excluded(found, sorted_, inside)),
        folders=tuple(each.path for each in searcher.folders),
        changes=tuple(_changes(found, platforms, sorted_, ways, required)),
        bytes_before=found.size,
        bundled=sum(each.bytes for each in sorted_.facts if each.fate == "kept-out"),
        findings=tuple(dict.fromkeys(findings)),
    )


def major_of(cuda: str | int | None) -> int | None:
    """`13.0`, `cu128` or 12 as people write a CUDA; one that the tables know."""
    if cuda is None:
        return None
    text = str(cuda).strip().lower()
    known = {versions.major(row.version) for row in toolkits.all_toolkits()}
    if text.isdecimal() and int(text[:9]) in known:
        return int(text)
    return versions.major(toolkits.find_toolkit(text).version)


def _chosen(
    found: Contents, wish: Wish, searcher: Searcher, machine: str
) -> tuple[Policy, Sorted, tuple[str, ...], tuple[Finding, ...]]:
    """The lowest policy that holds, or the one asked for; why no lower one does; what stands against it."""
    known = policies.policies(machine)
    if wish.policy:
        policy = policies.find(wish.policy, machine)
        sorted_ = sorting.sort(found, wish, searcher, policy)
        problems = tuple(unfit(policy, found, sorted_))
        return policy, sorted_, (), (_unfit_finding(policy, problems, known),) if problems else ()
    because: tuple[str, ...] = ()
    for policy in known:
        sorted_ = sorting.sort(found, wish, searcher, policy)
        problems = tuple(unfit(policy, found, sorted_))
        if not problems:
            return policy, sorted_, because, ()
        because = problems
    return policy, sorted_, because, (_unfit_finding(policy, problems, known),)


def unfit(policy: Policy, found: Contents, sorted_: Sorted) -> Iterator[str]:
    """What does not hold under a policy, in words."""
    for binary in (*found.binaries, *sorted_.grafted.values()):
        lacks = sorted(policy.lacks(binary.versions), key=lambda each: versions.key(each.partition("_")[2]))
        if lacks:
            yield f"{binary.path} needs {lacks[-1]}"
        for soname in binary.needed:
            if taken := sorted(policy.forbidden.get(soname, frozenset()) & binary.undefined):
                yield f"{binary.path} needs {taken[0]} of {soname}, which not every such machine has"
    for fact in sorted_.facts:
        if fact.fate == "kept-out" and fact.glibc and not versions.at_least(policy.glibc, fact.glibc):
            where = "kept out" if not fact.indirect else "needed by what is kept out"
            yield f"{fact.soname} ({where}) needs glibc {fact.glibc}"


def _unfit_finding(policy: Policy, problems: Sequence[str], known: Sequence[Policy]) -> Finding:
    newest = policy.name == known[-1].name
    return Finding(
        rule="policy-unfit",
        severity="error",
        message=f"the wheel cannot be {policy.name}" + (", the newest that auditwheel knows" if newest else ""),
        evidence=tuple(problems[:6]),
        fix="build on an older system (a manylinux image)" + ("" if newest else ", or ask for a newer policy"),
    )


def _claimed(found: Contents, machine: str) -> str | None:
    """The least glibc that the wheel's own tags ask for, if all of them are manylinux tags of its machine."""
    told = []
    for platform in found.platforms:
        plain = platform.removesuffix(f"_{machine}")
        match = _TAG.fullmatch(f"{_OLD_TAGS.get(plain, plain)}_{machine}")
        if match is None or plain == platform:
            return None
        told.append(f"{match[1]}.{match[2]}")
    return min(told, key=versions.key)


def _platforms(
    found: Contents, policy: Policy, claimed: str | None, machine: str
) -> tuple[tuple[str, ...], Policy, str]:
    """A wheel that was tagged already keeps its tags, unless they promise too much."""
    if claimed and versions.at_least(claimed, policy.glibc):
        reached = [each for each in policies.policies(machine) if versions.at_least(claimed, each.glibc)]
        return found.platforms, reached[-1], "kept"
    return policy.platforms(machine), policy, "raised" if claimed else "new"


def _paths(found: Contents, sorted_: Sorted, wish: Wish) -> Iterator[SearchPath]:
    grafted = {each.soname for each in sorted_.facts if each.fate == "grafted"}
    inside: dict[str, list[str]] = paths.inside_of(found.binaries)
    for soname in grafted:
        inside.setdefault(soname, []).append(f"{found.parts[0]}.libs/{soname}")
    kept = {each.soname for each in sorted_.facts if each.fate == "kept-out"}
    for binary in found.binaries:
        if way := paths.of(binary, inside, kept.__contains__, wish.cuda_major):
            yield way


def _excluded(found: Contents, sorted_: Sorted, inside: dict[str, list[str]]) -> Iterator[str]:
    """What auditwheel must leave alone: what is kept out, and what is inside but would be taken from elsewhere."""
    for fact in sorted_.facts:
        if fact.fate == "kept-out":
            yield fact.soname
        elif fact.fate == "inside":
            askers = (each for each in found.binaries if fact.soname in each.needed)
            if not all(any(paths.leads(each, path) for path in inside[fact.soname]) for each in askers):
                yield fact.soname


def _changes(
    found: Contents,
    platforms: Sequence[str],
    sorted_: Sorted,
    ways: Sequence[SearchPath],
    required: Sequence[str],
) -> Iterator[str]:
    if tuple(platforms) != found.platforms:
        yield "tag"
    if sorted_.grafted or any(each.fate == "removed" for each in sorted_.facts):
        yield "libraries"
    if any(each.changes for each in ways):
        yield "search paths"
    if required:
        yield "requirements"


def _untouched(found: Contents, wish: Wish, machine: str | None, findings: tuple[Finding, ...]) -> Decision:
    """Nothing to repair, or nothing that can be."""
    return Decision(
        wheel=found.wheel,
        wish=wish,
        file_name=found.wheel.name,
        machine=machine,
        policy=None,
        because=(),
        platforms=found.platforms,
        libraries=(),
        paths=(),
        requires=(),
        excluded=(),
        folders=(),
        changes=(),
        bytes_before=found.size,
        bundled=0,
        findings=findings,
    )
