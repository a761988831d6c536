# SPDX-License-Identifier: Apache-2.0
"""Libraries that call NVIDIA's and each other, called through ctypes.

Nothing is loaded beforehand and no variable is set: each library knows where its own are.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

_LIBRARIES = Path(__file__).with_name("lib")
_OF_LIBRARY = 1000


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """One of them: base, total, multiply, solve, softmax."""
    return ctypes.CDLL(str(_LIBRARIES / f"libsl_{name}.so"))


def parts() -> list[str]:
    """Those that this wheel was built with."""
    return sorted(each.name[len("libsl_") : -len(".so")] for each in _LIBRARIES.glob("libsl_*.so"))


def versions() -> dict[str, str]:
    """Of NVIDIA's libraries that were found; no GPU is needed to ask."""
    number, minor = ctypes.c_int(), ctypes.c_int()
    _attempt(library("base").sl_cudart_version(ctypes.byref(number)))
    found = {"cudart": f"{number.value // 1000}.{number.value % 1000 // 10}"}
    for part, name in (("multiply", "cublas"), ("solve", "cusolver")):
        if part in parts():
            _attempt(library(part)[f"sl_{name}_version"](ctypes.byref(number), ctypes.byref(minor)))
            found[name] = f"{number.value}.{minor.value}"
    if "softmax" in parts():
        told = library("softmax").sl_cudnn_version()
        found["cudnn"] = f"{told // 10000}.{told // 100 % 100}"
    return found


def total(values: Sequence[float], factor: float = 1.0) -> float:
    result = ctypes.c_float()
    count, given = len(values), _array(values)
    _attempt(library("total").sl_total(given, count, ctypes.c_float(factor), ctypes.byref(result)))
    return result.value


def multiply(
    left: Sequence[Sequence[float]], right: Sequence[Sequence[float]], factor: float = 1.0
) -> list[list[float]]:
    rows, inner, columns = len(left), len(right), len(right[0])
    result = (ctypes.c_float * (rows * columns))()
    a, b = (_array([value for row in each for value in row]) for each in (left, right))
    _attempt(library("multiply").sl_multiply(a, b, rows, inner, columns, ctypes.c_float(factor), result))
    return [list(result[row * columns : (row + 1) * columns]) for row in range(rows)]


def solve(matrix: Sequence[Sequence[float]], values: Sequence[float], factor: float = 1.0) -> list[float]:
    """Of a symmetric matrix that is positive definite."""
    result = (ctypes.c_float * len(values))()
    a = _array([value for row in matrix for value in row])
    _attempt(library("solve").sl_solve(a, _array(values), len(values), ctypes.c_float(factor), result))
    return list(result)


def softmax(values: Sequence[float], factor: float = 1.0) -> list[float]:
    result = (ctypes.c_float * len(values))()
    _attempt(library("softmax").sl_softmax(_array(values), len(values), ctypes.c_float(factor), result))
    return list(result)


def _array(values: Sequence[float]) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * len(values))(*values)


def _attempt(code: int) -> None:
    if code < 0:
        raise ValueError("the matrix is not positive definite")
    if code >= _OF_LIBRARY:
        raise RuntimeError(f"the library answered with status {code // _OF_LIBRARY}")
    if code:
        tell = library("base").sl_error
        tell.restype = ctypes.c_char_p
        raise RuntimeError(f"{tell(code).decode()} ({code})")
