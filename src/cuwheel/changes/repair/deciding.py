"""What repairing a wheel would do, decided by looking alone."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.repair import contents, objections, paths, policies, requirements, search, sorting, windows
from cuwheel.changes.repair.decision import Decision, SearchPath
from cuwheel.changes.repair.policies import Policy
from cuwheel.changes.repair.sorting import Sorted
from cuwheel.facts import toolkits, versions
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.changes.repair.contents import Contents
    from cuwheel.changes.repair.decision import Wish
    from cuwheel.changes.repair.search import Searcher

_TAG = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)", re.ASCII)
_OLD_TAGS = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}


def decide(wheel: Path, wish: Wish) -> Decision:
    """Raises if the wheel is not sound. Everything that prevents a repair is in the findings, all at once."""
    found = contents.read(wheel, hashes=True)
    standing = objections.examine(found)
    machine = found.binaries[0].machine if found.binaries else None
    if machine is None or any(each.severity == "error" for each in standing):
        return _untouched(found, wish, machine, standing)
    if found.windows:
        return windows.decide(found, wish, machine, standing)
    named = {each.path: each.search_path for each in found.binaries}
    searcher = search.Searcher(search.folders(wish.libraries, named, os.environ, machine), machine)
    choice = _chosen(found, wish, searcher, machine)
    required, doubts = requirements.of(found, choice.sorted, wish)
    ways = tuple(_paths(found, choice.sorted, wish))
    facts = choice.sorted.facts
    findings = (*standing, *choice.findings, *doubts, *objections.of_needs(found, facts, wish))
    return Decision(
        wheel=wheel,
        wish=wish,
        file_name=str(replace(found.name, platform=".".join(choice.platforms))),
        machine=machine,
        policy=choice.policy.name,
        because=choice.because,
        platforms=choice.platforms,
        libraries=facts,
        paths=ways,
        requires=required,
        excluded=tuple(sorting.excluded(choice.sorted)),
        folders=tuple(each.path for each in searcher.folders),
        changes=tuple(_changes(found, choice, ways, required)),
        bytes_before=found.size,
        bundled=sum(each.bytes for each in facts if each.fate == "kept-out"),
        findings=tuple(dict.fromkeys(findings)),
    )


class _Choice(Struct, frozen=True, kw_only=True):
    """A policy, what it makes of the libraries, and why no lower one holds."""

    policy: Policy
    sorted: Sorted
    platforms: tuple[str, ...]
    because: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def major_of(cuda: str | int | None) -> int | None:
    """`13.0`, `cu128` or 12 as people write a CUDA; one that the tables know."""
    if cuda is None:
        return None
    text = str(cuda).strip().lower()
    known = {versions.major(row.version) for row in toolkits.all_toolkits()}
    if text.isdecimal() and int(text[:9]) in known:
        return int(text)
    return versions.major(toolkits.find_toolkit(text).version)


def release_of(cuda: str | int | None) -> str | None:
    """`12.8` of `12.8.1` or `cu128`; None where only a major was said."""
    if cuda is None or str(cuda).strip().isdecimal():
        return None
    return versions.minor(toolkits.find_toolkit(str(cuda).strip().lower()).version)


def _chosen(found: Contents, wish: Wish, searcher: Searcher, machine: str) -> _Choice:
    """The lowest policy that holds, or the one asked for. A wheel that was tagged keeps its tags if they hold."""
    known = policies.policies(machine)
    candidates = (policies.find(wish.policy, machine),) if wish.policy else known
    because: tuple[str, ...] = ()
    for policy in candidates:
        sorted_ = sorting.sort(found, wish, searcher, policy)
        problems = tuple(unfit(policy, found, sorted_))
        if not problems:
            break
        because = problems
    choice = _Choice(policy=policy, sorted=sorted_, platforms=policy.platforms(machine), because=because)
    if problems:
        return replace(choice, because=(), findings=(_unfit_finding(policy, problems, known),))
    claimed = None if wish.policy else _claimed(found, machine)
    if claimed is None:
        return choice
    if not versions.at_least(claimed, policy.glibc):
        return replace(choice, findings=objections.too_low(found, policy, because))
    reached = [each for each in known if versions.at_least(claimed, each.glibc)][-1]
    sorted_again = sorting.sort(found, wish, searcher, reached)
    return _Choice(policy=reached, sorted=sorted_again, platforms=found.platforms)


def unfit(policy: Policy, found: Contents, sorted_: Sorted) -> Iterator[str]:
    """What does not hold under a policy, in words."""
    for binary in (*found.binaries, *sorted_.grafted.values()):
        lacks = sorted(policy.lacks(binary.versions), key=lambda each: versions.key(each.partition("_")[2]))
        if lacks:
            yield f"{binary.path} needs {lacks[-1]}"
        for soname in binary.needed:
            if taken := sorted(policy.forbidden.get(soname, frozenset()) & binary.undefined):
                yield f"{binary.path} needs {taken[0]} of {soname}, which not every such machine provides"
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
        fix="build on an older system (a manylinux image)" + ("" if newest else ", or choose a newer policy"),
    )


def _claimed(found: Contents, machine: str) -> str | None:
    """The least glibc that the wheel's own tags ask for, if all of them are manylinux tags of its machine."""
    claims = []
    for platform in found.platforms:
        plain = platform.removesuffix(f"_{machine}")
        match = _TAG.fullmatch(f"{_OLD_TAGS.get(plain, plain)}_{machine}")
        if match is None or plain == platform:
            return None
        claims.append(f"{match[1]}.{match[2]}")
    return min(claims, key=versions.key)


def _paths(found: Contents, sorted_: Sorted, wish: Wish) -> Iterator[SearchPath]:
    grafted = {each.soname for each in sorted_.facts if each.fate == "grafted"}
    inside: dict[str, list[str]] = paths.inside_of(found.binaries)
    for soname in grafted:
        inside.setdefault(soname, []).append(f"{found.name.name}.libs/{soname}")
    kept = {each.soname for each in sorted_.facts if each.fate == "kept-out"}
    for binary in found.binaries:
        if way := paths.of(binary, inside, kept.__contains__, wish.cuda_major):
            yield way


def _changes(found: Contents, choice: _Choice, ways: Sequence[SearchPath], required: Sequence[str]) -> Iterator[str]:
    if choice.platforms != found.platforms:
        yield "tag"
    if choice.sorted.grafted or any(each.fate == "removed" for each in choice.sorted.facts):
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
