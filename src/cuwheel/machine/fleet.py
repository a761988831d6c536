"""Machines as `--on` and `--for` name them: what is known of each, and None for what is not.

What is not known is never assumed: it becomes a condition of the verdict.
"""

from __future__ import annotations

import platform
import sys
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import UnknownNameError
from cuwheel.facts import architectures, gpu_drivers, gpus, packages, toolkits
from cuwheel.facts.arch import Capability, looks_like_arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.machine.profile import Framework, MachineProfile, Python, Variable

Jit: TypeAlias = Literal["allowed", "disabled", "forced"]
System: TypeAlias = Literal["linux", "windows"]

_HERE = "this machine"
_JETSON = "Jetson"
_CPUS = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_SYSTEMS: dict[str, System] = {"Linux": "linux", "Windows": "windows"}
WITHOUT_GIL = "t"  # behind a version of Python, as its own tags have it
_SWITCHES: tuple[tuple[str, Jit], ...] = (("CUDA_FORCE_PTX_JIT", "forced"), ("CUDA_DISABLE_PTX_JIT", "disabled"))


def cpu_here() -> str:
    """This machine's processor, as wheels for Linux name it."""
    name = platform.machine().lower()
    return _CPUS.get(name, name)


class Software(Struct, frozen=True, kw_only=True):
    """What runs on a machine, as far as it is known."""

    driver: str | None = None
    driver_cuda: str | None = None
    os: System | None = None
    cpu: str | None = None
    glibc: str | None = None
    glibcxx: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    torch_cxx11_abi: bool | None = None
    jax_cuda: str | None = None


class Machine(Software, frozen=True, kw_only=True):
    """One kind of machine, `count` of them.

    `l4t`: the release on a Jetson; where it is not known, `tegra` says that it is one.
    `libraries`: the CUDA sonames that its environment provides. `python`: the interpreter's version.
    `torch_cxx11_abi`: how its torch was compiled. `toolkits`: the versions that are installed in the system.
    `loads`: what BNB_CUDA_VERSION and its like say, as NAME=VALUE. `gpu_seen`: the driver itself shows the GPU.
    `free_threaded`: its Python has no GIL.
    """

    name: str
    capability: Capability | None
    gpu: str | None = None
    product: str | None = None
    tegra: bool = False
    l4t: str | None = None
    jit: Jit = "allowed"
    libraries: tuple[str, ...] | None = None
    toolkits: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    gpu_seen: bool = False
    free_threaded: bool = False
    count: int = 1

    @property
    def runs_l4t(self) -> bool:
        return self.tegra or self.l4t is not None

    def loads_by(self, variable: str) -> str | None:
        """The value of a variable that chooses what a package loads."""
        return next((each.partition("=")[2] for each in self.loads if each.startswith(f"{variable}=")), None)


class Refinement(Software, frozen=True, kw_only=True):
    """What the command line says of every machine; None leaves what is known as it is. `python` may be `3.13t`."""

    l4t: str | None = None
    jit: Jit | None = None

    def apply(self, machine: Machine) -> Machine:
        changes = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if not changes:
            return machine
        if "driver" in changes and "driver_cuda" not in changes:
            changes["driver_cuda"] = None  # of the other driver
        if "driver" in changes or "driver_cuda" in changes:
            changes["gpu_seen"] = False
        if python := changes.get("python"):
            changes |= {"python": python.removesuffix(WITHOUT_GIL), "free_threaded": python.endswith(WITHOUT_GIL)}
        if cpu := changes.get("cpu"):
            changes["cpu"] = _CPUS.get(cpu.lower(), cpu.lower())
        return with_l4t(replace(machine, **changes))


def with_l4t(machine: Machine) -> Machine:
    """The CUDA of a Jetson's driver by its L4T, where nothing else says it."""
    row = toolkits.jetson_release(machine.l4t) if machine.l4t and not machine.driver_cuda else None
    return replace(machine, driver_cuda=row.cuda) if row else machine


def with_platform(machine: Machine) -> Machine:
    """What it does not say of its system and processor is as it is here: somebody asks for another GPU alone."""
    here: System = "windows" if sys.platform == "win32" else "linux"
    return replace(machine, os=machine.os or here, cpu=machine.cpu or cpu_here())


def from_gpu(text: str, name: str | None = None) -> Machine:
    """A GPU by its name, or a capability. Some say more: their processor, and of a Tegra that it runs L4T."""
    return replace(_of_gpu(text), name=name or text)


@cache
def _of_gpu(text: str) -> Machine:
    if looks_like_arch(text):
        capability = architectures.current(Capability.parse(text))
        tegra = capability in architectures.current_capabilities() and architectures.find_architecture(capability).tegra
        machine = Machine(name=text, capability=capability, product=_JETSON if tegra else None)
    else:
        gpu = gpus.find_gpu(text)
        tegra, host = gpu.tegra is not None, gpu_drivers.host_of(gpu.name)
        machine = Machine(name=text, capability=gpu.capability, gpu=gpu.name, product=gpu.product)
        if host:
            machine = replace(machine, cpu=host.cpu, os=host.os)
    return replace(machine, os="linux", cpu="aarch64", tegra=True) if tegra else machine


def from_profile(profile: MachineProfile, name: str = _HERE) -> tuple[Machine, ...]:
    """One machine for each kind of GPU in it; one without a GPU where none was found."""
    kinds: dict[tuple[str, str | None], int] = {}
    for gpu in profile.gpus:
        kinds[gpu.name, gpu.capability] = kinds.get((gpu.name, gpu.capability), 0) + 1
    base = _of_profile(profile, name)
    if not kinds:
        return (base,)
    return tuple(
        replace(
            base,
            name=f"{name} ({gpu})" if len(kinds) > 1 else name,
            gpu=gpu,
            capability=capability,
            product=_product(gpu),
            count=1,
        )
        for gpu, capability in kinds
    )


def with_environment(
    machine: Machine, python: Python, frameworks: Sequence[Framework], variables: Sequence[Variable]
) -> Machine:
    """With what a Python environment holds, where nothing else is known of the machine's own."""
    by_name = {each.name: each for each in frameworks}
    torch, jax = by_name.get("torch"), by_name.get("jax")
    return replace(
        machine,
        python=machine.python or python.version,
        free_threaded=machine.free_threaded if machine.python else python.free_threaded,
        torch=machine.torch or (torch.version if torch else None),
        torch_cuda=machine.torch_cuda or (torch.cuda if torch else None),
        jax_cuda=machine.jax_cuda or (jax.cuda if jax else None),
        loads=machine.loads or _loads(variables),
    )


def _loads(variables: Iterable[Variable]) -> tuple[str, ...]:
    return tuple(f"{each.name}={each.value}" for each in variables if each.name in packages.choosing_variables())


def _of_profile(profile: MachineProfile, name: str) -> Machine:
    system, torch, jax = profile.system, profile.framework("torch"), profile.framework("jax")
    provided = (soname for folder in profile.library_folders for soname in folder.libraries)
    machine = Machine(
        name=name,
        capability=None,
        driver=profile.driver.version,
        driver_cuda=profile.driver.cuda,
        os=_SYSTEMS.get(system.os.value),
        cpu=_CPUS.get(system.cpu.value.lower(), system.cpu.value.lower()),
        l4t=system.l4t.value if system.l4t else None,
        glibc=system.glibc.value if system.glibc else None,
        glibcxx=system.glibcxx.value if system.glibcxx else None,
        python=profile.python.version if profile.python else None,
        free_threaded=bool(profile.python and profile.python.free_threaded),
        torch=torch.version if torch else None,
        torch_cuda=torch.cuda if torch else None,
        jax_cuda=jax.cuda if jax else None,
        jit=_jit(profile),
        libraries=tuple(dict.fromkeys(provided)),
        toolkits=tuple(dict.fromkeys(each.version for each in profile.toolkits)),
        gpu_seen=profile.driver.nvml == "ok",
        loads=_loads(profile.variables),
    )
    return with_l4t(machine)


def _jit(profile: MachineProfile) -> Jit:
    for name, state in _SWITCHES:
        variable = profile.variable(name)
        if variable and variable.value not in ("", "0"):
            return state
    return "allowed"


def _product(gpu: str) -> str | None:
    try:
        return gpus.find_gpu(gpu).product
    except UnknownNameError:
        return None
