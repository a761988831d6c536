"""How fast the driver compiles PTX, for `[compiling]` of architectures.toml: real PTX, nothing kept, one row a file.

cuobjdump -xptx all libfoo.so
python3 -m tests.gpu.jit_rates *.ptx
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path


def main(paths: list[str]) -> int:
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
    ):
        if status:
            sys.stderr.write(f"no GPU: error {status}\n")
            return 1
    for path in paths:
        data = Path(path).read_bytes()
        began = time.perf_counter()
        status = cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(data))
        took = time.perf_counter() - began
        rate = len(data) / took / 1e6
        sys.stdout.write(f"{len(data):>10,} bytes {took:8.3f} s {rate:6.2f} MB/s  error {status}  {path}\n")
        if status == 0:
            cuda.cuModuleUnload(module)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
