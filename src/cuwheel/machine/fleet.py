"""Machines as `--on` and `--for` name them: what is known of each, and None for what is not.

What is not known is never assumed: it becomes a condition of the verdict.
"""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, Union

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import ConfigurationError, UsageError
from cuwheel.facts import packages
from cuwheel.support import codec
from cuwheel_core.errors import CuwheelError, UnknownNameError, UnreadableError
from cuwheel_core.facts import gpus, toolkits
from cuwheel_core.facts.arch import Capability, looks_like_arch
from cuwheel_core.support import bounded, opening
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.verdicts.device import Device, Jit, System
from cuwheel_core.wheel.tags import processor_name

if TYPE_CHECKING:
    from cuwheel.machine.profile import Framework, Gpu, MachineProfile, Python, Variable


_HERE = "this machine"
_JETSON = "Jetson"
_SYSTEMS: dict[str, System] = {"Linux": "linux", "Windows": "windows"}
WITHOUT_GIL = "t"  # behind a version of Python, as its own tags have it
_JIT_VARIABLES: tuple[tuple[str, Jit], ...] = (("CUDA_FORCE_PTX_JIT", "forced"), ("CUDA_DISABLE_PTX_JIT", "disabled"))


def cpu_here() -> str:
    """This machine's processor, as wheels for Linux name it."""
    return processor_name(platform.machine())


def system_here() -> System:
    """What is built here is for it."""
    return "windows" if sys.platform == "win32" else "linux"


class Software(Struct, frozen=True, kw_only=True):
    """What somebody may say of what runs on a machine: fields of `Machine`."""

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


class Machine(Device, frozen=True, kw_only=True):
    """One kind of machine, `count` of them.

    `libraries`: the CUDA sonames that its environment provides. `python`: the interpreter's version.
    `torch_cxx11_abi`: how its torch was compiled. `toolkits`: the versions that are installed in the system.
    `loads`: what BNB_CUDA_VERSION and its like say, as NAME=VALUE. `free_threaded`: its Python has no GIL.
    """

    name: str
    glibc: str | None = None
    glibcxx: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    torch_cxx11_abi: bool | None = None
    jax_cuda: str | None = None
    libraries: tuple[str, ...] | None = None
    toolkits: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    free_threaded: bool = False
    count: int = 1

    def loads_by(self, variable: str) -> str | None:
        """The value of a variable that chooses what a package loads."""
        return next((each.partition("=")[2] for each in self.loads if each.startswith(f"{variable}=")), None)


# As callers name machines: GPU names, capabilities, files and values. A text may have several, with commas.
MachineName: TypeAlias = Union[str, Path, Machine, "MachineProfile"]
Machines: TypeAlias = MachineName | Sequence[MachineName] | None


class Refinement(Software, frozen=True, kw_only=True):
    """What the command line says of every machine; None leaves what is known as it is. `python` may be `3.13t`."""

    l4t: str | None = None
    jit: Jit | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The options of the command line that say this."""
        driver, settings = (
            self.driver or self.driver_cuda,
            ("python", "torch", "os", "cpu", "glibc", "jax_cuda", "l4t", "jit"),
        )
        options = (("--driver", driver), ("--torch-cuda", self.torch_cuda))
        known = (("--set", f"{name}={value}") for name in settings if (value := getattr(self, name)) is not None)
        return tuple(chain.from_iterable((*((name, value) for name, value in options if value), *known)))

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
            changes["cpu"] = processor_name(cpu)
        return with_l4t(replace(machine, **changes))


def with_l4t(machine: Machine) -> Machine:
    """The CUDA of a Jetson's driver and its C library by its L4T, where nothing else says them."""
    if machine.l4t is None:
        return machine
    release, jetpack = toolkits.jetson_release(machine.l4t), toolkits.jetpack_of(machine.l4t)
    return replace(
        machine,
        driver_cuda=machine.driver_cuda or (release.cuda if release else None),
        glibc=machine.glibc or (jetpack.glibc if jetpack else None),
    )


def with_platform(machine: Machine) -> Machine:
    """What it does not say of its system and processor is as it is here: somebody asks for another GPU alone."""
    return replace(machine, os=machine.os or system_here(), cpu=machine.cpu or cpu_here())


def from_gpu(text: str, name: str | None = None) -> Machine:
    """A GPU by its name, or a capability. Some say more: their processor, and of a Tegra that it runs L4T."""
    return replace(_machine_with_gpu(text), name=name or text)


@cache
def _machine_with_gpu(text: str) -> Machine:
    if looks_like_arch(text):
        capability = gpus.current_capability(Capability.parse(text))
        tegra = capability in gpus.current_capabilities() and gpus.find_architecture(capability).tegra
        machine = Machine(name=text, capability=capability, product=_JETSON if tegra else None)
    else:
        gpu = gpus.find_gpu(text)
        tegra, host = gpu.tegra is not None, gpus.host_of_gpu(gpu.name)
        machine = Machine(name=text, capability=gpu.capability, gpu=gpu.name, product=gpu.product)
        if host:
            machine = replace(machine, cpu=host.cpu, os=host.os)
    return replace(machine, os="linux", cpu="aarch64", tegra=True) if tegra else machine


def from_profile(profile: MachineProfile, name: str = _HERE) -> tuple[Machine, ...]:
    """One machine for each kind of GPU in it; one without a GPU where none was found."""
    kinds = dict.fromkeys((gpu.name, gpu.capability) for gpu in profile.gpus)
    system, torch, jax = profile.system, profile.framework("torch"), profile.framework("jax")
    provided = (soname for folder in profile.library_folders for soname in folder.libraries)
    machine = Machine(
        name=name,
        capability=None,
        driver=profile.driver.version,
        driver_cuda=profile.driver.cuda,
        os=_SYSTEMS.get(system.os.value),
        cpu=processor_name(system.cpu.value),
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
    base = with_l4t(machine)
    if not kinds:
        return (base,)
    return tuple(
        replace(
            base,
            name=f"{name} ({gpu})" if len(kinds) > 1 else name,
            gpu=gpu,
            capability=capability,
            product=_product(gpu),
        )
        for gpu, capability in kinds
    )


def with_environment(
    machine: Machine, python: Python, frameworks: Sequence[Framework], variables: Sequence[Variable]
) -> Machine:
    """Adds what a Python environment holds, where nothing else is known of the machine's own."""
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


def _jit(profile: MachineProfile) -> Jit:
    for name, state in _JIT_VARIABLES:
        variable = profile.variable(name)
        if variable and variable.value not in ("", "0"):
            return state
    return "allowed"


def _product(gpu: str) -> str | None:
    try:
        return gpus.find_gpu(gpu).product
    except UnknownNameError:
        return None


# `fleet.toml`: named machines that a person wrote down. Every problem of the file at once.

_FLEET_HINT = (
    'describe a machine as: [[machine]], name = "rack 7", gpu = "h100" (or capability), driver = "580.65.06", count = 8'
)
_VERSION = lazy_pattern(r"\d+(\.\d+)*([-+].*)?", re.ASCII)
_VERSIONS = ("driver", "driver_cuda", "glibc", "glibcxx", "python", "torch", "torch_cuda", "jax_cuda")


class FleetMachine(Software, frozen=True, kw_only=True):
    """A `[[machine]]` as it is written. `l4t`: a release, or true where it is not known which."""

    name: str
    gpu: str | None = None
    capability: str | None = None
    l4t: str | bool | None = None
    jit: Jit = "allowed"
    libraries: tuple[str, ...] | None = None
    count: int = 1


_COPIED_FIELDS = tuple(
    each for each in FleetMachine.__struct_fields__ if each not in ("name", "gpu", "capability", "l4t")
)


def read_fleet_file(path: Path) -> tuple[Machine, ...]:
    """The machines of a fleet file. Raises ConfigurationError."""
    try:
        found = path.stat()
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    return _checked_machines(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _checked_machines(path: Path, _changed: int, _size: int) -> tuple[Machine, ...]:
    """Once for each state of the file: the command line looks whether it is sound before any work begins."""
    problems: list[str] = []
    rows = _fleet_rows(path, problems)
    made = [_machine(row, f"machine {row.name!r}", problems) for row in rows]
    names = Counter(row.name for row in rows)
    problems += [f"two machines are named {name!r}" for name, count in names.items() if count > 1]
    if problems:
        raise ConfigurationError(path, problems, _FLEET_HINT)
    return tuple(machine for machine in made if machine)


def _fleet_rows(path: Path, problems: list[str]) -> list[FleetMachine]:
    """Each machine on its own: one that cannot be read does not hide what is wrong with the others."""
    data = codec.read_configuration(path, _FLEET_HINT)
    problems += [f"unknown key {key!r}" for key in data if key != "machine"]
    tables = data.get("machine")
    if not isinstance(tables, list) or not tables:
        problems.append("it has no [[machine]]")
        return []
    found = (
        codec.convert_or_list_problems(each, FleetMachine, f"machine[{index}]", problems)
        for index, each in enumerate(tables)
    )
    return [row for row in found if row]


def _machine(row: FleetMachine, where: str, problems: list[str]) -> Machine | None:
    problems += [f"{where}: {each}" for each in _fleet_problems(row)]
    try:
        base = from_gpu(row.gpu or row.capability or "", row.name)
        if row.gpu and row.capability and from_gpu(row.capability).capability != base.capability:
            problems.append(f"{where}: {row.gpu!r} has capability {base.capability}, not {row.capability}")
    except UnknownNameError as error:
        if row.gpu or row.capability:
            hint = f" ({error.hint})" if error.hint else ""
            problems.append(f"{where}: {error.message}{hint}")
        return None
    written = {name: value for name in _COPIED_FIELDS if (value := getattr(row, name)) is not None}
    if row.l4t is not None:
        written |= {"tegra": bool(row.l4t), "l4t": row.l4t if isinstance(row.l4t, str) else None}
    machine = with_l4t(replace(base, **written))
    jetpack = toolkits.jetpack_of(machine.l4t) if machine.l4t else None
    if jetpack and machine.capability not in jetpack.capabilities:
        release, boards = f"L4T {machine.l4t} (JetPack {jetpack.version})", ", ".join(jetpack.capabilities)
        problems.append(f"{where}: {release} runs on boards of {boards}, not {machine.capability}")
    return Refinement(cpu=machine.cpu, python=machine.python).apply(machine)


def _fleet_problems(row: FleetMachine) -> Iterator[str]:
    if not (row.gpu or row.capability):
        yield "it has neither gpu nor capability"
    if row.count < 1:
        yield f"count is {row.count}"
    for name in _VERSIONS:
        value = getattr(row, name)
        plain = value.removesuffix(WITHOUT_GIL) if value and name == "python" else value
        if plain is not None and not _VERSION.fullmatch(plain):
            yield f"{name} = {value!r} is not a version"


# From the words behind `--on` and `--for` to machines.

THIS = "this"
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SHOWN = 100


def machines_here(profile: MachineProfile, refine: Refinement | None = None) -> tuple[Machine, ...]:
    """This machine: one for each kind of GPU in it."""
    refine = refine or Refinement()
    return tuple(refine.apply(each) for each in from_profile(profile))


def machines_asked_for(
    on: Machines,
    refine: Refinement | None = None,
    *,
    env: Path | None = None,
) -> tuple[Machine, ...]:
    """What `--on` names, with the packages of `env`; without either this machine, with the GPUs that a program sees."""
    if words := machine_words(on):
        found = machines_named(words, refine, env=env)
        if env is None:
            return found
        from cuwheel.machine import python_environment  # noqa: PLC0415 - most are asked about without one

        environment = python_environment.probe_environment(env)
        return tuple(with_environment(each, *environment) for each in found)
    from cuwheel.machine import probe  # noqa: PLC0415 - most are named by their GPU

    profile = probe.probe(env, for_builds=False)
    seen = visible_to_programs(profile)
    if profile.gpus and not seen.gpus:
        raise UsageError(f"{VISIBLE} hides every GPU of this machine", hint="--on this counts all of them")
    return machines_here(seen, refine)


def hosts_asked_for(
    on: Machines, refine: Refinement | None = None, *, env: Path | None = None
) -> tuple[tuple[Machine, ...], ...]:
    """What `--on` names, by the computer that it is in: of one whose profile was read all GPUs belong together."""
    hosts: list[tuple[Machine, ...]] = []
    for word in machine_words(on):
        found = machines_asked_for([word], refine, env=env)
        named = isinstance(word, str) and (word.lower() == THIS or word.endswith(".json") or _holds_json(word))
        hosts += [found] if named or _is_profile(word) else [(each,) for each in found]
    return tuple(dict.fromkeys(hosts)) or (machines_asked_for(on, refine, env=env),)


def machines_named(on: Machines, refine: Refinement | None = None, *, env: Path | None = None) -> tuple[Machine, ...]:
    """What `--on` names, in order: GPUs, capabilities, `this`, profiles, fleet files. All unknown names at once.

    `env`: the Python environment from which this machine is seen.
    """
    found: list[Machine] = []
    errors: list[CuwheelError] = []
    for word in machine_words(on):
        try:
            found += _machines_of_word(word, env)
        except UnknownNameError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise UsageError(
            "; ".join(each.message for each in errors), hint=" ".join(each.hint for each in errors if each.hint)
        )
    refine = refine or Refinement()
    return tuple(refine.apply(each) for each in dict.fromkeys(found))


def one_machine(on: Machines) -> tuple[MachineProfile | None, Machine | None]:
    """One machine, as people say it: its profile, a file with that or `this`, and a GPU by name or capability."""
    here, profiles, gpus = _parts_of_machine(on)
    if len(gpus) > 1 or len(profiles) > 1:
        raise UsageError("it must be one machine: a GPU, a profile, or a profile and one of its GPUs")
    if here and not profiles:
        from cuwheel.machine import probe  # noqa: PLC0415 - few ask for this one

        profiles = [probe.probe(None)]
    return next(iter(profiles), None), next(iter(gpus), None)


def whole_machine(on: Machines) -> MachineProfile | None:
    """The profile of a machine that is to be examined; None for this one. A GPU alone is no machine."""
    here, profiles, gpus = _parts_of_machine(on)
    if gpus:
        named = ", ".join(repr(each.name) for each in gpus)
        raise UsageError(
            f"{named} {'is a GPU' if len(gpus) == 1 else 'are GPUs'}, and a machine is examined whole: 'this' one, or "
            "a profile of another",
            hint="write its profile there with: cuwheel doctor --save FILE; "
            "what runs on a GPU: cuwheel check TARGET --on MACHINES",
        )
    if here + len(profiles) > 1:
        raise UsageError("one machine is examined at a time", hint="run cuwheel doctor once for each")
    return next(iter(profiles), None)


def _parts_of_machine(on: Machines) -> tuple[bool, list[MachineProfile], list[Machine]]:
    """Whether it is this machine, and the profiles and the GPUs that are named."""
    from cuwheel.machine import profile  # noqa: PLC0415 - most are named by their GPU

    here, profiles, gpus = False, [], []
    for word in machine_words(on):
        if isinstance(word, Machine):
            gpus.append(word)
        elif not isinstance(word, str):
            profiles.append(word)
        elif word.lower() == THIS:
            here = True
        elif word.endswith(".toml"):
            gpus += read_fleet_file(Path(word))
        elif word.endswith(".json") or _is_file(word):
            profiles.append(profile.load(Path(word)))
        else:
            gpus.append(from_gpu(word))
    return here, profiles, gpus


def machine_words(on: Machines) -> tuple[str | Machine | MachineProfile, ...]:
    """Machines as a caller names them, one by one: texts are split at commas, unless there is a file of that name.

    Nothing was asked for by None and by an empty list; a text that names none is a mistake.
    """
    given = [on] if isinstance(on, (str, bytes, Mapping)) or not isinstance(on, Iterable) else list(on)
    found: list[str | Machine | MachineProfile] = []
    for each in [] if on is None else given:
        if isinstance(each, Path):
            found.append(str(each))
        elif isinstance(each, str) and (words := _split(each)):
            found += words
        elif isinstance(each, Machine) or _is_profile(each):
            found.append(each)
        else:
            raise UsageError(
                "machines are GPU names, capabilities, profiles and fleet files, in one text with commas or in a list: "
                f"{repr(each)[:_SHOWN]} names none",
                hint="such as 'h100,l40', or ['h100', 'fleet.toml']",
            )
    return tuple(found)


def _split(text: str) -> list[str]:
    return [text] if _is_file(text) else [part.strip() for part in text.split(",") if part.strip()]


def _is_profile(value: object) -> TypeGuard[MachineProfile]:
    from cuwheel.machine.profile import MachineProfile  # noqa: PLC0415 - most are named by their GPU

    return isinstance(value, MachineProfile)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def _holds_json(word: str) -> bool:
    return _is_file(word) and opening.head(Path(word), 64).lstrip().startswith("{")


def _machines_of_word(word: str | Machine | MachineProfile, env: Path | None) -> Sequence[Machine]:
    if isinstance(word, Machine):
        return (word,)
    if not isinstance(word, str):
        return from_profile(word, "profile")
    if word.lower() == THIS:
        from cuwheel.machine import probe  # noqa: PLC0415 - most are named by their GPU

        return from_profile(probe.probe(env, for_builds=False))
    if word.endswith(".json") or _holds_json(word):  # whatever name `doctor --save` was given
        from cuwheel.machine import profile  # noqa: PLC0415 - most are named by their GPU

        return from_profile(profile.load(Path(word)), Path(word).stem)
    if word.endswith(".toml"):
        return read_fleet_file(Path(word))
    if capabilities := gpus.of_generation(word):
        return [from_gpu(str(each), name=f"{word} {each}") for each in capabilities]
    return (from_gpu(word),)


def visible_to_programs(profile: MachineProfile) -> MachineProfile:
    """Numbers are those of nvidia-smi. A UUID cannot be told from here: then all of them may be meant."""
    variable = profile.variable(VISIBLE)
    if variable is None or not profile.gpus:
        return profile
    seen: list[Gpu] = []
    for word in (each.strip() for each in variable.value.split(",")):
        if word.upper().startswith(("GPU-", "MIG-")):
            return profile
        number = bounded.whole(word)
        if number is None or number >= len(profile.gpus):
            break  # CUDA reads the list up to the first that is none
        seen.append(profile.gpus[number])
    return replace(profile, gpus=tuple(seen))
