"""Asks NVML for the state of all GPUs again and again: a hung driver then hangs this, and not the tool.

Run as a file with the folder of pynvml and the seconds between two looks; prints a JSON object a line. The first says
whether there is anything to ask: {"state": "ok", "driver": …, "gpus": [names]}; each other one is
{"at": seconds since 1970, "gpus": [{"memory": bytes, "use": percent, "clock": MHz, …}]}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

_LARGEST_FILE = 8 << 20


def say(value: dict[str, Any]) -> None:
    """What is printed is read by its end: days of it would fill a disk."""
    if os.fstat(1).st_size > _LARGEST_FILE:
        os.ftruncate(1, 0)
    os.write(1, json.dumps(value).encode() + b"\n")


def sample(nvml: Any, handle: Any) -> dict[str, Any]:  # noqa: ANN401 - the module has no types
    """Asks one GPU; what it does not tell is left out: a Jetson, or a GPU that is shared, tells little."""
    asked: dict[str, Any] = {
        "memory": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
        "use": lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "clock": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "temperature": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "performance_state": lambda: int(nvml.nvmlDeviceGetPerformanceState(handle)),
    }
    found: dict[str, Any] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except nvml.NVMLError:
            continue
    return found


def main(folder: str, every: float) -> None:
    sys.path.append(folder)
    try:
        import pynvml as nvml  # noqa: PLC0415 - from the folder given

        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        names = [str(nvml.nvmlDeviceGetName(each)) for each in handles]
        say({"state": "ok", "driver": str(nvml.nvmlSystemGetDriverVersion()), "gpus": names})
    except Exception as error:  # noqa: BLE001 - whatever it is, there is nothing to sample
        say({"state": f"{type(error).__name__}: {error}", "gpus": []})
        return
    asker = os.getppid()
    while os.getppid() == asker:
        say({"at": time.time(), "gpus": [sample(nvml, each) for each in handles]})
        time.sleep(every)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
