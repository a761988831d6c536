"""What options take, and what is wrong with a value in a sentence: argparse types, one for each kind of value."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_DRIVER = re.compile(r"[1-9]\d{2,3}(\.\d{1,3}){0,2}", re.ASCII)
_SHORT = re.compile(r"\d{1,2}(\.\d{1,3})*", re.ASCII)  # of CUDA, Python, glibc: drivers have three digits
_CUDA_TAG = re.compile(r"cu(\d{2})(\d?)", re.ASCII)
_CUDA = re.compile(r"(?:cuda[ _-]*)?v?([1-9]\d?)(?:\.(\d{1,2})(?:\.\d{1,4})*)?", re.ASCII)
_TORCH = re.compile(r"[1-9]\d?(\.\d{1,3}){1,3}([A-Za-z0-9.+_-]{0,60})", re.ASCII)
_PYTHON = re.compile(r"(?:cp)?3\.?(\d{1,2})(\.\d{1,2})?", re.ASCII)
_GLIBC = re.compile(r"2(\.\d{1,3}){1,2}", re.ASCII)
_L4T = re.compile(r"R?(\d{2}(?:\.\d{1,2}){0,2})", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*", re.ASCII)
_CPUS = {"x86_64": "x86_64", "amd64": "x86_64", "x64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_SHOWN = 60


def _wrong(text: str, what: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return argparse.ArgumentTypeError(f"{shown!r} is no {what}")


def guarded(type_: Callable[[str], Any] | None, *, without: object = None) -> Callable[[str], Any]:
    """Any kind of value: never empty, and nothing that ends a name in the system's own functions.

    `without`: what stands for an option that was given without a value, which argparse passes here too.
    """

    def parse(text: str) -> object:
        if not text.strip() and text != without:
            raise argparse.ArgumentTypeError("it must not be empty")
        if "\0" in text:
            raise argparse.ArgumentTypeError("it must not hold a NUL character")
        return type_(text) if type_ else text

    return parse


def driver(text: str) -> str:
    cleaned = text.strip()
    if _DRIVER.fullmatch(cleaned):
        return cleaned
    if _SHORT.fullmatch(cleaned):
        raise argparse.ArgumentTypeError(f"{cleaned!r} looks like a CUDA version: give it as --driver-cuda {cleaned}")
    raise _wrong(text, "driver version, such as 570.86.10")


def cuda(text: str) -> str:
    """`12.8`, `12.8.1`, `cu128`, `CUDA 12.8`: as `12.8`; a major alone stays one."""
    cleaned = text.strip().lower()
    match = _CUDA_TAG.fullmatch(cleaned) or _CUDA.fullmatch(cleaned)
    if match:
        return f"{int(match[1])}.{int(match[2])}" if match[2] else str(int(match[1]))
    if _DRIVER.fullmatch(cleaned):
        raise argparse.ArgumentTypeError(f"{cleaned!r} looks like the version of a driver: give it as --driver")
    raise _wrong(text, "CUDA version, such as 12.8 or cu128")


def cuda_minor(text: str) -> str:
    found = cuda(text)
    if "." not in found:
        raise argparse.ArgumentTypeError(
            f"{text.strip()!r} is a major version alone: say which minor, such as {found}.8"
        )
    return found


def torch(text: str) -> str:
    cleaned = text.strip()
    if not _TORCH.fullmatch(cleaned) or not cleaned[-1].isalnum():
        raise _wrong(text, "version of torch, such as 2.7.1")
    return cleaned


def python(text: str) -> str:
    """`3.11`, `3.11.9`, `311`, `cp311`."""
    match = _PYTHON.fullmatch(text.strip().lower())
    if not match:
        raise _wrong(text, "version of Python, such as 3.11")
    return f"3.{int(match[1])}{match[2] or ''}"


def glibc(text: str) -> str:
    cleaned = text.strip()
    if not _GLIBC.fullmatch(cleaned):
        raise _wrong(text, "version of glibc, such as 2.35")
    return cleaned


def cpu(text: str) -> str:
    found = _CPUS.get(text.strip().lower())
    if found is None:
        raise _wrong(text, "processor: x86_64 or aarch64")
    return found


def l4t(text: str) -> str:
    match = _L4T.fullmatch(text.strip().upper())
    if not match:
        raise _wrong(text, "release of L4T, such as 36.4")
    return match[1]


def platform(text: str) -> str:
    """A tag as in a wheel's name: a `-` would begin another part."""
    cleaned = text.strip()
    if not _TAG.fullmatch(cleaned) or not any(each.isalpha() for each in cleaned):
        raise _wrong(text, "platform tag, such as manylinux_2_28_x86_64 or win_amd64")
    return cleaned
