"""The child process that asks NVML: a hung driver then hangs this, and not the tool.

Run as a file, with the folder of pynvml; prints one JSON object:
 {"state": …, "driver": …, "cuda": …, "gpus": [[name, capability, memory], …]}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

_STATES = {
    "NVMLError_LibraryNotFound": "library-missing",
    "NVMLError_DriverNotLoaded": "driver-not-loaded",
    "NVMLError_LibRmVersionMismatch": "version-mismatch",
    "NVMLError_NoPermission": "no-permission",
}


def ask() -> dict[str, Any]:
    try:
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        return {"state": "error", "detail": f"nvidia-ml-py: {error}"}
    try:
        pynvml.nvmlInit()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return {
            "state": "ok",
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "gpus": [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())],
        }
    except pynvml.NVMLError as error:
        return {"state": _STATES.get(type(error).__name__, "error"), "detail": str(error)}


def _gpu(pynvml: Any, index: int) -> list[Any]:  # noqa: ANN401 - the module has no types
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # unified memory (GB10, Jetson) has no figure of its own
        memory = None
    return [str(pynvml.nvmlDeviceGetName(handle)), f"{major}.{minor}", memory]


if __name__ == "__main__":
    sys.path.append(sys.argv[1])  # where pynvml is
    json.dump(ask(), sys.stdout)
