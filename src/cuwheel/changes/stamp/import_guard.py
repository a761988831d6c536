"""Fails at import, and says why, where no GPU of this machine can run what is in the wheel.

Written by cuwheel when the wheel was built; it needs nothing but Python. Silent where there is no driver or no GPU.
CUWHEEL_GUARD=0 in the environment switches it off.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings

# >>> data
WHEEL = ""  # name and version
BUILT_FOR = ""  # compute capabilities
INSTEAD = ""  # what to install, in the package's own words
# First and last capability (9.0 is 90), and the oldest driver that will do there (13000 is of CUDA 13.0).
RUNS: tuple[tuple[int, int, int], ...] = ()
# <<< data

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NAME_SIZE = 256


def check() -> None:
    """Raise ImportError where no visible GPU can run this; warn where only some can."""
    if os.environ.get("CUWHEEL_GUARD", "").strip().lower() in ("0", "off", "no", "false"):
        return
    # NVML first: it is the quicker, and after it a process may still fork and use CUDA in its children.
    everything = _from_nvml()
    if everything and not any(map(_problem, everything)):
        return
    visible = _from_driver()  # what CUDA_VISIBLE_DEVICES leaves
    problems = [_problem(each) for each in visible]
    message = " ".join([f"{WHEEL} was built for {BUILT_FOR}.", *dict.fromkeys(filter(None, problems))])
    if visible and all(problems):
        raise ImportError(f"{message} {INSTEAD}".strip())
    if any(problems):
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _problem(gpu: tuple[str, int, int]) -> str:
    name, capability, driver = gpu
    oldest = [least for first, last, least in RUNS if first <= capability <= last]
    if not oldest:
        return f"This GPU, {name}, is {capability // 10}.{capability % 10}, for which it has no code."
    if driver < oldest[0]:
        needed = f"for this GPU, {name}, it must be of {_cuda(oldest[0])} or later: update it."
        return f"The driver is of CUDA {_cuda(driver)}; {needed}"
    return ""


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _from_nvml() -> list[tuple[str, int, int]]:
    """Every GPU of the machine; none where NVML is not there or does not know them all."""
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        _must(nvml.nvmlInit_v2())
    except (OSError, AttributeError):
        return []
    count, driver, major, minor = (ctypes.c_int() for _ in range(4))
    gpu, found = ctypes.c_void_p(), []
    try:
        _must(nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(driver)))
        _must(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        for index in range(count.value):
            _must(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)))
            _must(nvml.nvmlDeviceGetCudaComputeCapability(gpu, ctypes.byref(major), ctypes.byref(minor)))
            found.append(("", major.value * 10 + minor.value, driver.value))
    except (OSError, AttributeError):
        return []
    finally:
        nvml.nvmlShutdown()
    return found


def _from_driver() -> list[tuple[str, int, int]]:
    """The GPUs that CUDA itself sees; none where there is no driver. No context is made."""
    count, driver, device, major, minor = (ctypes.c_int() for _ in range(5))
    name, found = ctypes.create_string_buffer(_NAME_SIZE), []
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        _must(cuda.cuInit(0))
        _must(cuda.cuDriverGetVersion(ctypes.byref(driver)))
        _must(cuda.cuDeviceGetCount(ctypes.byref(count)))
        for index in range(count.value):
            _must(cuda.cuDeviceGet(ctypes.byref(device), index))
            _must(cuda.cuDeviceGetName(name, _NAME_SIZE, device))
            _must(cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device))
            _must(cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device))
            found.append((name.value.decode("utf-8", "replace"), major.value * 10 + minor.value, driver.value))
    except (OSError, AttributeError):
        return []
    return found


def _must(status: int) -> None:
    if status:
        raise OSError(status)
