"""Whether this interpreter may install a wheel, by the tags in its file name."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig

_LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(.+)")
_PYTHON = re.compile(r"(cp|py|pp)(\d)(\d*)")
_CPUS = {"amd64": "x86_64", "arm64": "aarch64", "x64": "x86_64"}
_WINDOWS = {"win_amd64": "x86_64", "win_arm64": "aarch64", "win32": "x86"}
_PARTS = (5, 6)


def problem(file_name: str) -> str:
    """Why the wheel cannot be installed here; empty where it can. Any of its tags will do."""
    parts = file_name[:-4].split("-") if file_name.endswith(".whl") else []
    if len(parts) not in _PARTS:
        return f"{file_name} is not the name of a wheel"
    pythons, abis, platforms = (each.split(".") for each in parts[-3:])
    interpreter = [_python(python, abi) for python in pythons for abi in abis]
    if all(interpreter):
        return interpreter[0]
    machine = [_platform(each) for each in platforms]
    return machine[0] if all(machine) else ""


def _python(python: str, abi: str) -> str:
    here = sys.version_info[:2]
    match = _PYTHON.fullmatch(python)
    if match is None:
        return f"it is for the interpreter {python}"
    kind, major, minor = match[1], int(match[2]), int(match[3] or 0)
    words = f"it is for Python {major}" + (f".{match[3]}" if match[3] else "")
    words += f" ({abi}), and this is {here[0]}.{here[1]}" + (" without the GIL" if _free_threaded() else "")
    if kind == "pp" or (kind == "cp" and sys.implementation.name != "cpython"):
        return f"it is for another Python implementation than {sys.implementation.name}"
    if abi not in ("none", "abi3") and abi.endswith("t") != _free_threaded():
        return words
    if abi == "abi3" and _free_threaded():
        return words
    newer_too = kind == "py" or abi == "abi3"
    same = here[0] == major and (here[1] == minor or (kind == "py" and not match[3]))
    return "" if same or (newer_too and here[0] == major and here[1] >= minor) else words


def _free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _platform(name: str) -> str:
    if name == "any":
        return ""
    system, cpu, libc = platform.system().lower(), cpu_name(), glibc()
    if name in _WINDOWS and system == "windows":
        return "" if _WINDOWS[name] == cpu else f"it is for {name}, and this is {system}_{cpu}"
    match = _MANYLINUX.fullmatch(name)
    kind, _, rest = name.partition("_")
    if match:
        wanted, wanted_cpu = (int(match[1]), int(match[2])), match[3]
    elif kind in _LEGACY:
        wanted, wanted_cpu = _LEGACY[kind], rest
    elif kind == "linux":
        wanted, wanted_cpu = (0, 0), rest
    else:
        return f"it is for {name}, and this is {system}_{cpu}"
    if system != "linux" or wanted_cpu != cpu:
        return f"it is for linux_{wanted_cpu}, and this is {system}_{cpu}"
    if wanted > (0, 0) and libc < wanted:
        has = ".".join(map(str, libc)) if libc > (0, 0) else "no glibc"
        return f"it needs glibc {wanted[0]}.{wanted[1]}, but this machine has {has}"
    return ""


def cpu_name() -> str:
    name = platform.machine().lower()
    return _CPUS.get(name, name)


def glibc() -> tuple[int, int]:
    """(0, 0) where the C library is another one."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        major, minor = version.split(".")[:2]
    except (AttributeError, OSError, ValueError):
        return (0, 0)
    return (int(major), int(minor)) if name == "glibc" else (0, 0)
