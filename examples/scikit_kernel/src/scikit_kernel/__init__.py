# SPDX-License-Identifier: Apache-2.0
"""Two kernels in a library beside this file, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
from collections.abc import Sequence


@functools.cache
def library() -> ctypes.CDLL:
    """Loads without a GPU and without a driver: CUDA's runtime is linked in, and looks for the driver when called."""
    # Not simply beside this file: of an editable install that is the source, and the library is in the environment.
    found = ctypes.CDLL(str(importlib.resources.files(__name__) / "libscikit_kernel.so"))
    found.scikit_kernel_error.restype = ctypes.c_char_p
    return found


def _attempt(code: int) -> None:
    if code:
        raise RuntimeError(f"{library().scikit_kernel_error(code).decode()} ({code})")


def squares(count: int) -> int:
    """The sum of the squares of 0 … count - 1."""
    total = ctypes.c_ulonglong()
    _attempt(library().scikit_kernel_squares(ctypes.c_ulonglong(count), ctypes.byref(total)))
    return total.value


def smooth(values: Sequence[float]) -> list[float]:
    """Each value with the mean of itself and its two neighbours, the ends meeting."""
    kind = ctypes.c_float * len(values)
    result = kind()
    _attempt(library().scikit_kernel_smooth(kind(*values), result, len(values)))
    return list(result)


def compiled_for() -> int:
    """The architecture of the machine code that this GPU took: 90, or that of the PTX it was made from."""
    architecture = ctypes.c_int()
    _attempt(library().scikit_kernel_compiled_for(ctypes.byref(architecture)))
    return architecture.value
