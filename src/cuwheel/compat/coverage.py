"""Which GPUs a library's device code reaches, as far as the code alone tells: `check` knows the machine too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cuwheel.compat.targets import serves
from cuwheel.errors import UnknownNameError
from cuwheel.facts import architectures
from cuwheel.facts.arch import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.facts.arch import Capability
    from cuwheel.inspection.values import Library


Archs: TypeAlias = tuple[Arch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Capabilities by how every container serves them; `partial`: some containers do, others do not.

    `future`: every container has PTX that GPUs later than all known ones can use.
    """

    native: tuple[str, ...]
    jit: tuple[str, ...]
    partial: tuple[str, ...]
    future: bool


def of(library: Library) -> Coverage | None:
    """None where there is no device code. Needs the library's containers."""
    linked, relocatable = _containers(library)
    if not (linked or relocatable):
        return None
    fleet = architectures.current_capabilities()
    how = {device: _how(device, linked, relocatable) for device in fleet}
    return Coverage(
        native=tuple(str(device) for device in fleet if how[device] == "native"),
        jit=tuple(str(device) for device in fleet if how[device] == "jit"),
        partial=tuple(str(device) for device in fleet if how[device] == "partial"),
        future=any(group and all(map(_has_plain_ptx, group)) for group in (linked, relocatable)),
    )


def _how(device: Capability, linked: Sequence[Archs], relocatable: Sequence[Archs]) -> str:
    """The driver takes linked code; failing that it links the relocatable objects, if every one of them fits."""
    served = [_served(archs, device) for archs in linked]
    if linked and all(each == "native" for each in served):
        return "native"
    if linked and all(served):
        return "jit"
    objects = [_served(archs, device) for archs in relocatable]
    if relocatable and all(objects):
        return "jit"
    return "partial" if any(served) else ""


def words(coverage: Coverage) -> str:
    """The coverage in one sentence."""
    said = []
    if coverage.native:
        said.append(f"runs natively on {ranges(coverage.native)}")
    beyond = [each for each in coverage.jit if not coverage.native or _later(each, coverage.native)]
    between = [each for each in coverage.jit if each not in beyond]
    if between:
        said.append(f"{ranges(between)} through PTX compiled by the driver")
    if coverage.future:
        said.append("newer GPUs through PTX compiled by the driver")
    elif beyond:
        said.append(f"{ranges(beyond)} through PTX")
    else:
        said.append("no newer GPU (there is no PTX for it)")
    if coverage.partial:
        said.append(f"only part of it serves {ranges(coverage.partial)}")
    return "; ".join(said)


def ranges(capabilities: Iterable[str]) -> str:
    """`7.5 to 9.0, 10.0, 12.0`: a run has no known capability missing in between."""
    order = [str(each) for each in architectures.current_capabilities()]
    runs: list[list[str]] = []
    for each in sorted(capabilities, key=order.index):
        if runs and order.index(each) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(_run(run) for run in runs)


def _run(run: list[str]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run)  # noqa: PLR2004 - a pair is a list


def _containers(library: Library) -> tuple[list[Archs], list[Archs]]:
    """The lists of architectures of linked and of relocatable containers: thousands of them share a few."""
    lists = dict.fromkeys(container.code for container in library.containers)
    found = [[library.device_code[index] for index in code] for code in lists]
    inside = {index for code in lists for index in code}
    found += [[code] for index, code in enumerate(library.device_code) if index not in inside]
    groups: tuple[dict[Archs, None], dict[Archs, None]] = ({}, {})
    for rows in found:
        if archs := _archs(row.arch for row in rows):
            groups[all(not row.linked for row in rows)][archs] = None
    return list(groups[0]), list(groups[1])


def _archs(names: Iterable[str]) -> Archs:
    archs = []
    for name in dict.fromkeys(names):
        try:
            archs.append(Arch.parse(name))
        except UnknownNameError:  # a kind or number that no toolkit has written yet
            continue
    return tuple(arch for arch in archs if arch.kind != "lto")


def _served(archs: Archs, device: Capability) -> str:
    kinds = {arch.kind for arch in archs if serves(arch, device)}
    return "native" if "sm" in kinds else "jit" if kinds else ""


def _has_plain_ptx(archs: Archs) -> bool:
    return any(arch.kind == "compute" and not arch.suffix for arch in archs)


def _later(capability: str, native: tuple[str, ...]) -> bool:
    order = [str(each) for each in architectures.current_capabilities()]
    return order.index(capability) > order.index(native[-1])
