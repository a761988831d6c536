"""GPUs and the driver: NVML first, then what the kernel shows in /proc and /sys."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.errors import ToolTimeoutError
from cuwheel.machine import nvml
from cuwheel.machine.compilers import program_folders
from cuwheel.machine.profile import Driver, Gpu
from cuwheel.machine.system import library_folders
from cuwheel.support import codec
from cuwheel_core.errors import CuwheelError, UnknownNameError
from cuwheel_core.facts import gpus, toolkits
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support import bounded

if TYPE_CHECKING:
    from cuwheel.machine.world import World

_NVML_TIMEOUT_S = 5.0
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASSES = (
    "0x0300",
    "0x0302",
)  # VGA and 3D controllers; the same vendor makes audio and USB functions
_KERNEL_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)")
_LIBCUDA_NAME = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)", re.ASCII)  # of a Jetson and under WSL it is 1.1
_MODEL = re.compile(r"^Model:\s*(.+)$", re.MULTILINE)
_NVCUDA, _SMI = "nvcuda.dll", "nvidia-smi"  # of Windows
_SMI_FIELDS = "name,compute_cap,memory.total,driver_version"
_CAPABILITY = re.compile(r"\d+\.\d+", re.ASCII)
_LIBCUDA_FOLDERS = (
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib/aarch64-linux-gnu/tegra",
    # From L4T 39 on, for Orin and for Thor: the other's is there, too, and finds no GPU.
    "/opt/nvidia/l4t-gpu-libs/nvgpu",
    "/opt/nvidia/l4t-gpu-libs/openrm",
)


def probe_gpus(world: World) -> tuple[tuple[Gpu, ...], Driver]:
    answer = _ask_nvml(world)
    if world.platform == "win32":
        return _of_windows(world, answer)
    kernel = _KERNEL_VERSION.search(world.text("/proc/driver/nvidia/version") or "")
    libcuda = _libcuda(world)
    # Where the driver does not know the only GPU, its module is not loaded, and its library alone tells its version.
    version = answer.get("driver") or (kernel[1] if kernel else None) or _version_of(libcuda, world)
    driver = Driver(
        nvml=answer["state"],
        found_via="NVML" if answer["state"] == "ok" else "/proc and /sys",
        version=version,
        kernel_version=kernel[1] if kernel else None,
        cuda=answer.get("cuda") or _cuda_by_table(version, world),
        libcuda=libcuda,
        device_nodes=tuple(world.shown(node) for node in world.glob("/dev", "nvidia[0-9]*")),
        pci_devices=_pci_devices(world),
    )
    found = [_from_nvml(row) for row in answer.get("gpus", [])] or _from_proc(world) or _from_device_tree(world)
    return tuple(found), driver


def _of_windows(world: World, answer: dict[str, Any]) -> tuple[tuple[Gpu, ...], Driver]:
    """There is no /proc: where NVML does not answer, nvidia-smi may, which the driver brings into the same folder."""
    found = [_from_nvml(row) for row in answer.get("gpus", [])]
    version = answer.get("driver")
    if answer["state"] != "ok":
        found, version = _from_smi(world)
    library = next((each for each in library_folders(world) if world.exists(f"{each}\\{_NVCUDA}")), None)
    driver = Driver(
        nvml=answer["state"],
        found_via="NVML" if answer["state"] == "ok" else _SMI,
        version=version,
        cuda=answer.get("cuda") or _cuda_by_table(version, world),
        libcuda=f"{library}\\{_NVCUDA}" if library else None,
    )
    return tuple(found), driver


def _from_smi(world: World) -> tuple[list[Gpu], str | None]:
    places = [*library_folders(world), *(f"{each}\\NVIDIA Corporation\\NVSMI" for each in program_folders(world))]
    program = next((path for each in places if (path := world.path(each) / f"{_SMI}.exe").is_file()), None)
    if program is None:
        world.note("gpus", _SMI, f"not in {', '.join(places)}")
        return [], None
    printed = world.output([program, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"], "gpus") or ""
    rows = [[each.strip() for each in line.split(",")] for line in printed.splitlines()]
    rows = [row for row in rows if len(row) == len(_SMI_FIELDS.split(","))]
    found = [
        Gpu(
            name=name,
            capability=Capability.parse(capability)
            if _CAPABILITY.fullmatch(capability)
            else _capability_by_table(name),
            memory=bounded.digits(memory) << 20 if memory.isdecimal() else None,
            found_via=_SMI,
        )
        for name, capability, memory, _ in rows
    ]
    world.note("gpus", world.shown(program), f"{len(found)} GPUs")
    return found, rows[0][-1] if rows else None


def nvml_command(script: str, *words: str) -> list[str]:
    """A script of ours that asks NVML, whose folder is its first word.

    A large environment's start-up hooks take longer than NVML does: the child starts without any.
    """
    library = importlib.util.find_spec("pynvml")
    folder = Path(library.origin).parent if library and library.origin else ""
    return [sys.executable, "-I", "-S", script, str(folder), *words]


def _ask_nvml(world: World) -> dict[str, Any]:
    command = nvml_command(nvml.__file__)
    try:
        completed = world.run(command, timeout=_NVML_TIMEOUT_S, check=True)
        answer: dict[str, Any] = codec.decode(completed.stdout)
    except ToolTimeoutError as error:
        answer = {"state": "timeout", "detail": error.message}
    except (CuwheelError, msgspec.DecodeError) as error:
        answer = {"state": "error", "detail": str(error)}
    world.note("gpus", "NVML", str(answer.get("detail", f"{len(answer.get('gpus', []))} GPUs")))
    return answer


def _from_nvml(row: list[Any]) -> Gpu:
    return Gpu(name=row[0], capability=Capability.parse(row[1]) if row[1] else None, memory=row[2], found_via="NVML")


def _from_proc(world: World) -> list[Gpu]:
    where = "/proc/driver/nvidia/gpus"
    found = []
    for folder in world.glob(where, "*"):
        if model := _MODEL.search(world.text(world.shown(folder / "information")) or ""):
            name = model[1].strip()
            found.append(Gpu(name=name, capability=_capability_by_table(name), found_via=where))
    world.note("gpus", where, f"{len(found)} GPUs")
    return found


def _from_device_tree(world: World) -> list[Gpu]:
    """A Jetson names its chip; older ones have no NVML."""
    where = "/proc/device-tree/compatible"
    for compatible in (world.text(where) or "").splitlines():
        for row in gpus.gpus_of_tegra(compatible):
            name = world.text("/proc/device-tree/model") or row.name
            return [Gpu(name=name, capability=row.capability, found_via=where)]
    world.note("gpus", where, "no Tegra chip")
    return []


def _capability_by_table(name: str) -> Capability | None:
    try:
        return gpus.find_gpu(name).capability
    except UnknownNameError:
        return None


def _cuda_by_table(version: str | None, world: World) -> str | None:
    if version is None:
        return None
    row = toolkits.driver_cuda(version, "windows" if world.platform == "win32" else "linux")
    return row.version if row else None


def _libcuda(world: World) -> str | None:
    for folder in (*world.entries("LD_LIBRARY_PATH"), *library_folders(world), *_LIBCUDA_FOLDERS):
        path = world.path(folder) / "libcuda.so.1"
        if world.exists(world.shown(path)):
            return world.shown(path)
    world.note("libcuda", "LD_LIBRARY_PATH and the system's folders", "libcuda.so.1 not found")
    return None


def _version_of(libcuda: str | None, world: World) -> str | None:
    """`libcuda.so.1` is a link to `libcuda.so.535.104.05`."""
    try:
        name = world.path(libcuda).resolve().name if libcuda else ""
    except (OSError, RuntimeError):
        return None
    match = _LIBCUDA_NAME.fullmatch(name)
    return match[1] if match else None


def _pci_devices(world: World) -> tuple[str, ...]:
    found = []
    for folder in world.glob("/sys/bus/pci/devices", "*"):
        vendor, kind, device = (world.text(world.shown(folder / name)) for name in ("vendor", "class", "device"))
        if vendor == _NVIDIA_VENDOR and (kind or "").startswith(_DISPLAY_CLASSES):
            found.append(f"10de:{(device or '').removeprefix('0x')}")
    world.note("gpus", "/sys/bus/pci/devices", f"{len(found)} NVIDIA display devices")
    return tuple(found)


@cache
def gpus_of_this_process() -> dict[str, str]:
    """The capabilities of the GPUs that programs here see, by the word that CUDA_VISIBLE_DEVICES has for each.

    Of a worker of dask-cuda the first alone: it has all of them in another order than its neighbours.
    """
    from cuwheel.machine.world import World  # noqa: PLC0415 - which is made of probes

    found = {str(number): str(each.capability or "") for number, each in enumerate(probe_gpus(World.here())[0])}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = list(found) if visible is None else [each.strip() for each in visible.split(",")]
    if len(set(found.values())) == 1:  # then it does not matter which of them a UUID means
        found |= dict.fromkeys(
            (each for each in words if each.startswith(("GPU-", "MIG-"))), next(iter(found.values()))
        )
    seen = [each for each in words if found.get(each)]
    return {each: found[each] for each in (seen[:1] if "dask_cuda" in sys.modules else seen)}
