"""Prerequisites as a person states them: `cuda>=11.8`, `gcc>=9`, `torch-cuda`. Met or not, and by what."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.support import limited
from cuwheel.verdicts import machine_view as view

if TYPE_CHECKING:
    from cuwheel.machine.profile import MachineProfile

_FORM = re.compile(r"\s*([a-z][a-z0-9-]*)\s*((?:[<>=!~]=?|===).*)?", re.IGNORECASE)


class NeedResult(Struct, frozen=True, kw_only=True):
    need: str
    met: bool
    reason: str


class Need(Struct, frozen=True, kw_only=True):
    """`name`, and the versions that will do: any where `versions` is empty."""

    text: str
    name: str
    versions: str


def parse_needs(texts: Sequence[str]) -> tuple[Need, ...]:
    """All of them, or one error that names everything wrong with them."""
    from packaging.specifiers import InvalidSpecifier  # noqa: PLC0415

    needs, problems = [], []
    for text in texts:
        match = _FORM.fullmatch(text)
        name = match[1].lower() if match else ""
        versions = (match[2] or "") if match else ""
        try:
            limited.specifiers(versions)
        except InvalidSpecifier:
            problems.append(f"{text!r} is not of the form NAME or NAME>=VERSION")
            continue
        if name not in READERS:
            problems.append(f"{text!r}: unknown prerequisite {name or text!r}")
        needs.append(Need(text=text, name=name, versions=versions))
    if problems:
        raise UsageError("; ".join(problems), hint="known prerequisites: " + ", ".join(READERS))
    return tuple(needs)


def examine(needs: Sequence[Need], machine: MachineProfile) -> tuple[NeedResult, ...]:
    return tuple(_examine(need, machine) for need in needs)


def _examine(need: Need, machine: MachineProfile) -> NeedResult:
    from packaging.version import InvalidVersion  # noqa: PLC0415

    found = READERS[need.name](machine)
    if not found:
        return NeedResult(need=need.text, met=False, reason=f"no {need.name} was found")
    wanted = limited.specifiers(need.versions, prereleases=True)
    for version, where in found:
        try:
            if limited.version(version.split("+")[0]) in wanted:
                return NeedResult(need=need.text, met=True, reason=f"{version}, {where}")
        except InvalidVersion:
            continue
    has = ", ".join(f"{version} ({where})" for version, where in found)
    return NeedResult(need=need.text, met=False, reason=f"found {has}")


Readings = list[tuple[str, str]]


def _cuda(machine: MachineProfile) -> Readings:
    """The toolkit a build would use; where that is not clear, any of them."""
    chosen = view.toolkit_in_use(machine)
    toolkits = [chosen] if chosen else [each for each in machine.toolkits if each.nvcc]
    return [(each.version, each.root) for each in toolkits]


def _compiler(kind: str) -> Callable[[MachineProfile], Readings]:
    def read(machine: MachineProfile) -> Readings:
        return [(each.version, each.path) for each in machine.compilers if each.kind == kind]

    return read


def _tool(name: str) -> Callable[[MachineProfile], Readings]:
    def read(machine: MachineProfile) -> Readings:
        return [(each.version, each.path) for each in machine.tools if each.name == name]

    return read


def _framework(name: str, *, cuda: bool) -> Callable[[MachineProfile], Readings]:
    def read(machine: MachineProfile) -> Readings:
        found = machine.framework(name)
        version = (found.cuda if cuda else found.version) if found else None
        return [(version, f"{name} {found.version}")] if found and version else []

    return read


def _python(machine: MachineProfile) -> Readings:
    return [(machine.python.version, machine.python.prefix)] if machine.python else []


def _glibc(machine: MachineProfile) -> Readings:
    glibc = machine.system.glibc
    return [(glibc.value, glibc.found_via)] if glibc else []


def _driver(machine: MachineProfile) -> Readings:
    return [(machine.driver.version, machine.driver.found_via)] if machine.driver.version else []


def _driver_cuda(machine: MachineProfile) -> Readings:
    return [(machine.driver.cuda, f"driver {machine.driver.version}")] if machine.driver.cuda else []


def _gpu(machine: MachineProfile) -> Readings:
    return [(gpu.capability, gpu.name) for gpu in machine.gpus if gpu.capability]


READERS: dict[str, Callable[[MachineProfile], Readings]] = {
    "cuda": _cuda,
    "gcc": _compiler("gcc"),
    "clang": _compiler("clang"),
    "msvc": _compiler("msvc"),
    "cmake": _tool("cmake"),
    "ninja": _tool("ninja"),
    "python": _python,
    "glibc": _glibc,
    "driver": _driver,
    "driver-cuda": _driver_cuda,
    "gpu": _gpu,
    "torch": _framework("torch", cuda=False),
    "torch-cuda": _framework("torch", cuda=True),
    "jax": _framework("jax", cuda=False),
    "jax-cuda": _framework("jax", cuda=True),
}
