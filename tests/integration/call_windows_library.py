"""In Python for Windows: calls functions of a library that work without a GPU, and prints what they give as JSON."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_longlong, c_size_t, c_ubyte, c_uint32, c_uint64, c_void_p
from typing import Any

WINDOWS: Any = ctypes  # which has more there


def xgboost(library: Any) -> list[Any]:
    """Its version, and a small model trained on the processor."""
    numbers = [c_int() for _ in range(3)]
    library.XGBoostVersion(*map(byref, numbers))
    rows = (c_float * 40)(*(each * 37 % 11 for each in range(40)))
    labels = (c_float * 10)(*(each % 3 for each in range(10)))
    data, model, count, found = c_void_p(), c_void_p(), c_uint64(), POINTER(c_float)()
    done = [library.XGDMatrixCreateFromMat(rows, c_uint64(10), c_uint64(4), c_float(-1), byref(data))]
    done.append(library.XGDMatrixSetFloatInfo(data, b"label", labels, c_uint64(10)))
    done.append(library.XGBoosterCreate(byref(data), c_uint64(1), byref(model)))
    done.append(library.XGBoosterSetParam(model, b"nthread", b"1"))
    done += [library.XGBoosterUpdateOneIter(model, each, data) for each in range(5)]
    done.append(library.XGBoosterPredict(model, data, 0, 0, 0, byref(count), byref(found)))
    return [each.value for each in numbers] + done + found[: count.value]


def curand(library: Any) -> list[Any]:
    """Random numbers by the generator that needs no GPU."""
    generator, values = c_void_p(), (c_float * 1000)()
    library.curandGenerateUniform.argtypes = c_void_p, c_void_p, c_size_t
    done = [library.curandCreateGeneratorHost(byref(generator), 100)]
    return [*done, library.curandGenerateUniform(generator, values, c_size_t(1000)), sum(values)]


def bitsandbytes(library: Any) -> list[Any]:
    """Numbers quantized by blocks and back, on the processor."""
    code = (c_float * 256)(*((each - 127) / 128 for each in range(256)))
    values = (c_float * 1024)(*(each * 37 % 211 - 100 for each in range(1024)))
    scales, packed, back = (c_float * 4)(), (c_ubyte * 1024)(), (c_float * 1024)()
    size, count = c_longlong(256), c_longlong(1024)
    library.cquantize_blockwise_cpu_fp32(code, values, scales, packed, size, count)
    library.cdequantize_blockwise_cpu_fp32(code, packed, scales, back, size, count)
    return [*scales, sum(packed), *back[:8]]


def onnxruntime(library: Any) -> list[Any]:
    """Its host asked for CUDA, which loads the provider beside it: alone that has no host to turn to."""
    library.OrtGetApiBase.restype = POINTER(c_void_p)
    get_api = ctypes.CFUNCTYPE(POINTER(c_void_p), c_uint32)(library.OrtGetApiBase()[0])
    functions = get_api(17)
    error_of = ctypes.CFUNCTYPE(c_char_p, c_void_p)(functions[2])
    create_environment = ctypes.CFUNCTYPE(c_void_p, c_int, c_char_p, c_void_p)(functions[3])
    create_options = ctypes.CFUNCTYPE(c_void_p, c_void_p)(functions[10])
    environment, options = c_void_p(), c_void_p()
    problems = [create_environment(3, b"tried", byref(environment)), create_options(byref(options))]
    append = library.OrtSessionOptionsAppendExecutionProvider_CUDA
    append.restype = c_void_p
    problems.append(append(options, 0))
    WINDOWS.windll.kernel32.GetModuleHandleA.restype = c_void_p
    loaded = WINDOWS.windll.kernel32.GetModuleHandleA(b"onnxruntime_providers_cuda.dll")
    return [bool(loaded), *(error_of(each).decode() if each else "" for each in problems)]


CALLS = {
    "OrtGetApiBase": onnxruntime,
    "XGBoostVersion": xgboost,
    "curandCreateGeneratorHost": curand,
    "cquantize_blockwise_cpu_fp32": bitsandbytes,
}


if __name__ == "__main__":
    loaded = WINDOWS.WinDLL(sys.argv[1], winmode=8)  # what it needs is beside it
    sys.stdout.write(json.dumps([call(loaded) for name, call in CALLS.items() if hasattr(loaded, name)]))
    sys.stdout.flush()
    os._exit(0)  # what libraries do at the end of a process is not what is tried
