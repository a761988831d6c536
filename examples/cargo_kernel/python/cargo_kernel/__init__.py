# SPDX-License-Identifier: Apache-2.0
"""A kernel inside a library that cargo made, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path


@functools.cache
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(Path(__file__).with_name("libcargo_kernel.so")))
    found.cargo_kernel_error.restype = ctypes.c_char_p
    return found


def cubes(count: int) -> int:
    """The sum of the cubes of 0 … count - 1."""
    total = ctypes.c_uint64()
    code = library().cargo_kernel_cubes(ctypes.c_uint32(count), ctypes.byref(total))
    if code:
        raise RuntimeError(f"{library().cargo_kernel_error(code).decode()} ({code})")
    return total.value
