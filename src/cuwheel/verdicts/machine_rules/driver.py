"""Is there a GPU, and does its driver answer and suffice?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.support.finding import finding
from cuwheel.verdicts import machine_view as view
from cuwheel_core.facts import gpus, toolkits, versions

if TYPE_CHECKING:
    from cuwheel.machine.profile import Framework, MachineProfile
    from cuwheel_core.support.finding import Finding


def _hardware_seen(machine: MachineProfile) -> str:
    """Evidence of an NVIDIA GPU that does not need a working driver."""
    if machine.driver.kernel_version:
        return f"the kernel has the NVIDIA module {machine.driver.kernel_version} loaded"
    if machine.driver.pci_devices:
        return f"NVIDIA devices are on the PCI bus: {', '.join(machine.driver.pci_devices)}"
    return ""


def container_without_gpu_runtime(machine: MachineProfile) -> Iterator[Finding]:
    seen = _hardware_seen(machine)
    if machine.system.container and seen and not machine.gpus and not machine.driver.device_nodes:
        yield finding(
            "container-without-gpu-runtime",
            "this container was started without the GPU: the driver's libraries and devices are not in it",
            evidence=(seen, f"container: {machine.system.container.value}", "there is no /dev/nvidia0"),
            fix="docker run --gpus all …   (podman: --device nvidia.com/gpu=all)",
        )


def wsl_libcuda_missing(machine: MachineProfile) -> Iterator[Finding]:
    if not machine.system.wsl or machine.system.container:
        return
    libcuda = machine.driver.libcuda
    if machine.gpus and libcuda and not libcuda.startswith("/usr/lib/wsl/"):
        yield finding(
            "wsl-libcuda-missing",
            "libcuda comes from a Linux driver inside WSL and hides the one that Windows provides",
            evidence=(f"libcuda.so.1 is found at {libcuda}",),
            fix="remove the Linux driver packages (apt remove 'libnvidia-compute-*'), then: wsl --shutdown",
            severity="warning",
        )
    elif not machine.gpus and not libcuda:
        yield finding(
            "wsl-libcuda-missing",
            "WSL shows no GPU: Windows' NVIDIA driver or /usr/lib/wsl/lib is missing",
            evidence=("libcuda.so.1 was not found",),
            fix="install the NVIDIA driver in Windows (not in WSL), then there: wsl --update, and wsl --shutdown",
        )


def driver_not_answering(machine: MachineProfile) -> Iterator[Finding]:
    driver = machine.driver
    kernel = f"the kernel module is {driver.kernel_version or 'not loaded'}"
    if driver.nvml == "version-mismatch":
        yield finding(
            "driver-not-answering",
            "the driver's libraries and its kernel module are of different versions",
            evidence=(kernel, "NVML says that driver and library versions do not match"),
            fix="restart the machine (or: rmmod nvidia_uvm nvidia && modprobe nvidia)",
        )
    elif driver.nvml == "driver-not-loaded" and not machine.system.container:
        yield finding(
            "driver-not-answering",
            "the NVIDIA driver is installed but its kernel module is not loaded",
            evidence=(kernel,),
            fix="modprobe nvidia   (it fails? the module was not built for this kernel: reinstall the driver)",
        )
    elif driver.nvml == "timeout":
        yield finding(
            "driver-not-answering",
            "the driver hangs: NVML did not answer",
            evidence=(kernel,),
            fix="look for 'NVRM: Xid' in dmesg, then restart the machine",
        )
    elif driver.nvml == "no-permission":
        yield finding(
            "driver-not-answering",
            "this user may not use the GPU's devices",
            evidence=(f"devices: {', '.join(driver.device_nodes) or 'none visible'}",),
            fix="sudo usermod -aG video,render $USER, then log in again",
        )


def no_driver(machine: MachineProfile) -> Iterator[Finding]:
    driver = machine.driver
    if driver.pci_devices and driver.nvml == "library-missing" and not driver.kernel_version:
        install = "apt install nvidia-driver" if view.prefers_apt(machine) else "dnf install nvidia-driver"
        yield finding(
            "no-driver",
            "the NVIDIA GPU has no driver",
            evidence=(_hardware_seen(machine), "libnvidia-ml.so.1 was not found"),
            fix=f"{install}   (Ubuntu: ubuntu-drivers install), then restart",
        )


def no_gpu(machine: MachineProfile) -> Iterator[Finding]:
    if machine.gpus or _hardware_seen(machine) or machine.system.wsl:
        return
    hint = ""
    if machine.system.container:
        hint = "if the host has one, start the container with it: docker run --gpus all …"
    yield finding(
        "no-gpu",
        "no NVIDIA GPU was found: CUDA packages can be built and inspected here, not run",
        evidence=tuple(f"{step.tried}: {step.outcome}" for step in machine.trail if step.fact == "gpus"),
        fix=hint or "none needed to build; to judge another machine: cuwheel doctor --on its-profile.json",
    )


def driver_does_not_know_gpu(machine: MachineProfile) -> Iterator[Finding]:
    driver = machine.driver
    if driver.version is None or view.is_jetson(machine) or len(machine.gpus) >= len(driver.pci_devices):
        return  # what NVML shows, the driver knows
    for device in dict.fromkeys(driver.pci_devices):
        row = gpus.driver_support_by_pci(device)
        if row is None:
            continue
        capabilities = " or ".join(row.capabilities)
        if not versions.at_least(driver.version, row.first):
            when, fix = f"branch {row.first} was the first to support it", f"update the driver to {row.first} or later"
        elif row.dropped and versions.at_least(driver.version, row.dropped):
            when, fix = f"branch {row.last} was the last to support it", f"install a driver of branch {row.last}"
        else:
            continue
        yield finding(
            "driver-does-not-know-gpu",
            f"driver {driver.version} does not support the GPU {device}, of capability {capabilities}: {when}",
            evidence=(f"on the PCI bus: {', '.join(driver.pci_devices)}", f"the driver shows {len(machine.gpus)} GPUs"),
            fix=f"{fix}, then restart",
        )


def _missed_floor(machine: MachineProfile, framework: Framework) -> str | None:
    """The driver that the framework's CUDA needs, if this machine's is older."""
    version = machine.driver.version
    if not version or not framework.cuda or view.is_jetson(machine):
        return None  # a Jetson's driver is numbered otherwise and comes with L4T
    floor = toolkits.runtime_floor(framework.cuda, view.system(machine))
    return floor if floor and not versions.at_least(version, floor) else None


def driver_too_old(machine: MachineProfile) -> Iterator[Finding]:
    for framework in machine.frameworks:
        if floor := _missed_floor(machine, framework):
            what = f"{framework.name} {framework.version}"
            yield finding(
                "driver-too-old",
                f"driver {machine.driver.version} is too old for {what}, which was built for "
                f"CUDA {framework.cuda}: error 35 (insufficient driver)",
                evidence=(
                    f"its CUDA needs driver {floor} or later",
                    f"{framework.found_via} says CUDA {framework.cuda}",
                ),
                fix=f"update the driver to {floor} or later, or install a build of {framework.name} for CUDA "
                f"{machine.driver.cuda or 'the driver has'}",
            )


def driver_older_than_framework(machine: MachineProfile) -> Iterator[Finding]:
    has, version = machine.driver.cuda, machine.driver.version
    for framework in machine.frameworks:
        if not (has and version and framework.cuda and "." in framework.cuda) or _missed_floor(machine, framework):
            continue
        same_major = versions.major(framework.cuda) == versions.major(has)
        if same_major and versions.key(versions.minor(framework.cuda)) > versions.key(has):
            yield finding(
                "driver-older-than-framework",
                f"{framework.name} was built for CUDA {framework.cuda} and driver {version} is for CUDA {has}: "
                "its machine code runs, but code that must be compiled from PTX fails with error 222",
                evidence=(f"{framework.found_via} says CUDA {framework.cuda}", f"the driver says CUDA {has}"),
                fix="none if the package has machine code for this GPU; else update the driver",
            )


RULES = (
    container_without_gpu_runtime,
    wsl_libcuda_missing,
    driver_not_answering,
    no_driver,
    driver_does_not_know_gpu,
    no_gpu,
    driver_too_old,
    driver_older_than_framework,
)
