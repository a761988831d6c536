"""Whether a donor's device code fits a base: rules of one signature, in the order in which they decide.

The first rule that is not met decides; what it says names the place. None of these proves the bodies of kernels:
that is for a witness, or the records of both builds.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.graft.subject import Held, Subject, arch_lists_in, code_difference, listed_numbers, same_code
from cuwheel.device_code.demangle import demangled
from cuwheel.support.finding import finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cuwheel_core.support.finding import Finding

_SHOWN = 3
_LONGEST_NAME = 100


class Match(NamedTuple):
    """A container of the base, by its number: what is present in it, in the donor's, and what that would add."""

    number: int
    present: tuple[Held, ...]
    donor: tuple[Held, ...]
    added: tuple[Held, ...]

    @property
    def shared(self) -> tuple[tuple[Held, Held], ...]:
        """Entries of both with the same kind and architecture, in pairs."""
        found = []
        for code in dict.fromkeys(each.code for each in self.present):
            ours = [each for each in self.present if each.code == code]
            theirs = [each for each in self.donor if each.code == code]
            found += list(zip(ours, theirs, strict=False))
        return tuple(found)


class Pair(NamedTuple):
    base: Subject
    donor: Subject
    matches: tuple[Match, ...]

    @property
    def growing(self) -> tuple[Match, ...]:
        return tuple(each for each in self.matches if each.added)


class _Rule(NamedTuple):
    """`check`: yields each place where the rule is not met, in words."""

    rule: str
    check: Callable[[Pair], Iterator[str]]
    fix: str | None = None


class Misfit(NamedTuple):
    """`why`: of the first place; `evidence`: others that the same rule found."""

    rule: str
    why: str
    fix: str | None = None  # where it is not that of the rule
    evidence: tuple[str, ...] = ()


def possible(base: Subject, donor: Subject) -> Misfit | None:
    """Why the containers of two libraries cannot even be put side by side."""
    if base.machine != donor.machine:
        return Misfit(
            rule="graft-other-machine",
            why=f"the base is for {base.machine}, the donor for {donor.machine}",
        )
    for each in (base, donor):
        if each.file.file_type != "shared":
            return Misfit(rule="graft-unsupported", why=f"{each.name} is not a shared library")
        if not each.registration.wrappers:
            return Misfit(rule="graft-unsupported", why=f"{each.name} registers no device code")
    ours, theirs = _shape(base), _shape(donor)
    if ours == theirs:
        return None
    if len(ours) != len(theirs):
        why = f"the base has {len(ours)} containers, the donor {len(theirs)}"
    else:
        at = next(index for index, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
        why = f"container {at} of the base is {_words(ours[at])}, the donor's is {_words(theirs[at])}"
    return Misfit(rule="graft-other-registration", why=why)


def _shape(subject: Subject) -> list[tuple[str, int]]:
    """The section of each container and the version of the wrapper that names it."""
    versions = {each.container: each.version for each in reversed(subject.registration.wrappers)}
    return [(subject.walk.containers[index].section, versions.get(index, 0)) for index in subject.order]


def _words(shape: tuple[str, int]) -> str:
    kinds = {0: "named by no wrapper", 1: "registered as compiled", 2: "registered as device-linked"}
    return f"in {shape[0]}, {kinds.get(shape[1], f'registered with version {shape[1]}')}"


def matched(base: Subject, donor: Subject, state: Sequence[tuple[Held, ...]]) -> Pair:
    """`state`: what each container of the base holds by now, other donors' code included."""
    found = []
    for ours, theirs in zip(base.order, donor.order, strict=True):
        known = {each.code for each in state[ours]}
        added = tuple(each for each in donor.held[theirs] if each.code not in known)
        if ours in base.registration.unnamed and not any(_has_kernels(each) for each in added):
            added = ()  # such as the empty result of a device link, which nothing can find anyway
        found.append(Match(ours, state[ours], donor.held[theirs], added))
    return Pair(base, donor, tuple(sorted(found)))


def _has_kernels(held: Held) -> bool:
    return held.entry.kind not in ("cubin", "ptx") or bool(held.interface.kernels)


def _unnamed(pair: Pair) -> Iterator[str]:
    for match in pair.growing:
        if match.number in pair.base.registration.unnamed:
            yield f"container {match.number}: no wrapper of the base names it, so nothing tells where it is expected"


def _other_cuda(pair: Pair) -> Iterator[str]:
    if (ours := pair.base.toolkits) and (theirs := pair.donor.toolkits) and not theirs <= ours:
        yield f"the base was compiled with CUDA {', '.join(sorted(ours))}, the donor with {', '.join(sorted(theirs))}"


def _arch_list(pair: Pair) -> Iterator[str]:
    """CUB and Thrust put the list into the names of their kernels, and choose by it in host code."""
    for match in pair.growing:
        lists = {text for each in match.present for text in _lists(each)}
        for each in match.added:
            number = f"{each.entry.arch.capability.number}0"
            own = set(_lists(each))
            lacking = [text for text in (lists | own) if number not in listed_numbers(text)]
            if lacking or (own != lists and lists and own):
                listed = ", ".join(sorted(listed_numbers(min(lists or own))))
                other = ", ".join(sorted(listed_numbers(min(own)))) if own else "none"
                yield (
                    f"container {match.number}: the base's CUB or Thrust kernels were compiled for the list {listed}, "
                    f"the donor's {each.words} for {other}"
                )


def _lists(held: Held) -> Iterator[str]:
    """An empty kernel is the same whatever the list."""
    return arch_lists_in(name for name in held.interface.kernels if "EmptyKernel" not in name)


def _kernels(pair: Pair) -> Iterator[str]:
    for match in pair.growing:
        known = [set(each.interface.kernels) for each in match.present]
        if not known:
            continue
        always, ever = set.intersection(*known), set.union(*known)
        for each in match.added:
            names = set(each.interface.kernels)
            if missing := sorted(always - names):
                yield f"container {match.number}: the donor's {each.words} lacks the kernel {_readable(missing[0])}"
            elif extra := sorted(names - ever):
                name = _readable(extra[0])
                yield f"container {match.number}: the base has no kernel {name} of the donor's {each.words}"


def _parameters(pair: Pair) -> Iterator[str]:
    for match in pair.growing:
        for each in match.added:
            for name, sizes in each.interface.kernels.items():
                for other in match.present:
                    known = other.interface.kernels.get(name)
                    if sizes is not None and known is not None and sizes != known:
                        yield (
                            f"container {match.number}: {_readable(name)} takes parameters of {_sizes(known)} bytes in "
                            f"the base's {other.words}, of {_sizes(sizes)} in the donor's {each.words}"
                        )


def _variables(pair: Pair) -> Iterator[str]:
    """Those that the host names; others are a compiler's own tables, and differ between architectures."""
    for match in pair.growing:
        cubins = [each for each in match.present if each.entry.kind == "cubin"]
        for each in match.added if cubins else ():
            if each.entry.kind != "cubin":
                continue
            ours = {name: size for other in cubins for name, size in other.interface.variables.items()}
            theirs = each.interface.variables
            for name in sorted(ours.keys() | theirs.keys()):
                if ours.get(name) != theirs.get(name) and _host_names(pair, name):
                    yield (
                        f"container {match.number}: the variable {_readable(name)} has {ours.get(name, 'no')} bytes in "
                        f"the base, {theirs.get(name, 'none')} in the donor's {each.words}"
                    )


def _host_names(pair: Pair, name: str) -> bool:
    """Whether the name stands in the data of either host side, as what is registered by name does."""
    wanted = b"\0" + name.encode() + b"\0"
    for subject in (pair.base, pair.donor):
        for section in subject.sections:
            if section.role == "data" and section.size and wanted in subject.buffer.read(section.offset, section.size):
                return True
    return False


def _other_code(pair: Pair) -> Iterator[str]:
    for match in pair.matches:
        for ours, theirs in match.shared:
            if not same_code(ours, theirs):
                why = why_other_code(ours, theirs)
                yield f"container {match.number}: the {ours.words} code of both is not the same{why}"


def why_other_code(ours: Held, theirs: Held) -> str:
    """What tells somebody where to look: other tools, then instructions, then names."""
    if ours.entry.kind != "cubin":
        return ""
    tools, functions, variables, data = code_difference(ours, theirs)
    if tools:
        known = [", ".join(each) or "one that does not say its version" for each in tools]
        return f": the base's compiler was {known[0]}, the donor's {known[1]}"
    if functions:
        count = f"{len(functions)} functions" if len(functions) > 1 else "1 function"
        return f": the instructions of {count} differ, such as {_readable(functions[0])}"
    if variables:
        return f": only one of them has {_readable(variables[0])}, as where other headers were included"
    if data:
        return f": their data differ ({data[0]}), as where a path is in it"
    return ""


def _lto(pair: Pair) -> Iterator[str]:
    for match in pair.growing:
        for each in match.added:
            if each.entry.kind not in ("cubin", "ptx"):
                what = f"the donor's {each.words} is {each.entry.kind}"
                yield f"container {match.number}: {what}, which cannot be compared"


def _readable(name: str) -> str:
    shown = demangled([name]).get(name, name)
    if len(shown) <= _LONGEST_NAME:
        return shown
    return shown[: _LONGEST_NAME // 2] + "…" + shown[-_LONGEST_NAME // 2 :]  # what is static begins with its file's id


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "no"


# Names of kernels depend on the path, and two runs of `cuwheel build` share none: `graft --add` brings the base's.
_SAME = (
    "let cuwheel build the donor to fit: cuwheel graft BASE --add {added} --source FOLDER; or build it yourself from "
    "the same source at the same path, with the same flags and file order"
)
RULES = (
    _Rule(rule="graft-unsupported", check=_lto, fix="build the donor without link-time optimisation"),
    _Rule(rule="graft-unsupported", check=_unnamed),
    _Rule(rule="graft-other-cuda", check=_other_cuda),
    _Rule(rule="graft-arch-list", check=_arch_list),
    _Rule(rule="graft-other-kernels", check=_kernels, fix=_SAME),
    _Rule(rule="graft-other-parameters", check=_parameters, fix=_SAME),
    _Rule(rule="graft-other-variables", check=_variables, fix=_SAME),
    _Rule(rule="graft-other-code", check=_other_code, fix=_SAME),
)


def misfit(pair: Pair) -> Misfit | None:
    """The rule that decides against it, if any."""
    for rule, check, fix in RULES:
        found = list(itertools.islice(check(pair), _SHOWN))
        if found:
            added = dict.fromkeys(str(each.entry.arch) for match in pair.growing for each in match.added)
            return Misfit(rule, found[0], fix and fix.replace("{added}", ",".join(added)), tuple(found[1:]))
    return None


def misfit_finding(library: str, misfit: Misfit, *, forced: bool = False) -> Finding:
    return finding(
        misfit.rule,
        f"{library}: {misfit.why}",
        evidence=misfit.evidence,
        fix=misfit.fix,
        severity="warning" if forced else None,
    )
