"""Device code of libraries for another system or processor, handed to the driver of this machine and run: neither is
needed for that.

    python -m tests.gpu.windows_code --report report.json bitsandbytes.dll slimmed.dll …

Each registered container is loaded (`cuModuleLoadData`), as the CUDA runtime of the library would do it. Where one has
the kernel that undoes bitsandbytes' quantization by blocks, or that of examples/scikit_kernel that adds squares, it is
run, and its numbers are compared with Python's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import struct
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel.device_code import kernels
from cuwheel_core.device_code import library
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.support.buffer import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL = "_Z20kDequantizeBlockwiseIfLi512ELi64ELi8ELi0EEvPfPhS0_PT_ii"
_SQUARES = "11add_squaresEyPy"  # in a namespace without a name, which is called after the folder of the build
COUNT, BLOCK, TILE, THREADS = 1 << 16, 256, 512, 64


class Driver:
    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context = c_int(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def status(self, name: str, *words: Any) -> int:
        return int(getattr(self._cuda, name)(*words))

    def call(self, name: str, *words: Any) -> None:
        if status := self.status(name, *words):
            raise RuntimeError(f"{name} gives {status}")

    def given(self, data: bytes) -> c_void_p:
        place = c_void_p()
        self.call("cuMemAlloc_v2", byref(place), c_size_t(len(data)))
        self.call("cuMemcpyHtoD_v2", place, data, c_size_t(len(data)))
        return place

    def launch(self, function: c_void_p, blocks: int, threads: int, *words: Any) -> None:
        table = (c_void_p * len(words))(*(ctypes.addressof(each) for each in words))
        sizes = [c_uint(each) for each in (blocks, 1, 1, threads, 1, 1)]
        self.call("cuLaunchKernel", function, *sizes, c_uint(0), None, table, None)
        self.call("cuCtxSynchronize")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=Path("report.json"))
    parser.add_argument("libraries", type=Path, nargs="+")
    args = parser.parse_args()
    driver = Driver()
    return tell(args.report, {each.name: examine(driver, each) for each in args.libraries})


def tell(report: Path, found: dict[str, dict[str, Any]]) -> int:
    report.write_text(json.dumps(found, indent=1))
    sys.stdout.write(json.dumps(found) + "\n")
    good = all(not each["refused"] and each["right"] and all(each["right"]) for each in found.values())
    return 0 if found and good else 1


def examine(driver: Driver, path: Path) -> dict[str, Any]:
    buffer = FileBuffer(path)
    read = library.read_library(buffer, detail="entries")
    named = {each.container for each in read.registration.wrappers}
    report: dict[str, Any] = {"bytes": read.size, "loaded": 0, "refused": [], "right": []}
    report |= {"machine": read.machine, "archs": sorted({str(each.arch) for each in read.entries})}
    report["compressions"] = sorted({each.compression for each in read.entries})
    for index, container in enumerate(read.containers):
        if index not in named or not FATBIN_SECTIONS[container.section]:  # relocatable code is no module
            continue
        data = buffer.read(container.offset, container.size)
        module, function = c_void_p(), c_void_p()
        image = ctypes.create_string_buffer(data + bytes(64), len(data) + 64)
        status = driver.status("cuModuleLoadData", byref(module), image)
        if status:
            report["refused"].append([index, status])
            continue
        report["loaded"] += 1
        for name in kernels.of_container(path, index):
            if run := runs(name):
                driver.call("cuModuleGetFunction", byref(function), module, name.encode())
                report["right"].append(run(driver, function))
    buffer.close()
    return report


def runs(name: str) -> Callable[[Driver, c_void_p], bool] | None:
    """What runs a kernel of that name, and says whether its numbers are right."""
    if name == KERNEL:
        return dequantized
    return added if name.endswith(_SQUARES) else None


def added(driver: Driver, function: c_void_p) -> bool:
    place, count = driver.given(bytes(8)), 1000
    driver.launch(function, count // 256 + 1, 256, c_ulonglong(count), place)
    back = c_ulonglong()
    driver.call("cuMemcpyDtoH_v2", byref(back), place, c_size_t(8))
    driver.call("cuMemFree_v2", place)
    return back.value == sum(each * each for each in range(count))


def dequantized(driver: Driver, function: c_void_p) -> bool:
    source = random.Random(7)  # noqa: S311 - the same numbers each time
    code = struct.unpack("<256f", struct.pack("<256f", *(source.uniform(-1, 1) for _ in range(256))))
    scales = struct.unpack(
        f"<{COUNT // BLOCK}f", struct.pack(f"<{COUNT // BLOCK}f", *map(float, range(COUNT // BLOCK)))
    )
    packed = source.randbytes(COUNT)
    places = [
        driver.given(struct.pack("<256f", *code)),
        driver.given(packed),
        driver.given(struct.pack(f"<{len(scales)}f", *scales)),
        driver.given(bytes(4 * COUNT)),
    ]
    driver.launch(function, COUNT // TILE, THREADS, *places, c_int(BLOCK), c_int(COUNT))
    back = ctypes.create_string_buffer(4 * COUNT)
    driver.call("cuMemcpyDtoH_v2", back, places[3], c_size_t(4 * COUNT))
    for each in places:
        driver.call("cuMemFree_v2", each)
    wanted = struct.pack(f"<{COUNT}f", *(code[each] * scales[index // BLOCK] for index, each in enumerate(packed)))
    return back.raw == wanted


if __name__ == "__main__":
    sys.exit(main())
