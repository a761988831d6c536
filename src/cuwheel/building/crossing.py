"""Building for another processor: what CMake, setuptools and Python itself are told, so that they make wheels for it.

Programs of the build run on this machine, Python among them. Its headers serve both processors: of Debian's for x86-64
and arm64 all are the same but for four lines of pyconfig.h, which no extension module depends on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.tables import BACKENDS, Table
from cuwheel.errors import UsageError
from cuwheel.facts.tables import tables
from cuwheel.support import log
from cuwheel.toolchains.toolchain import Toolchain, nvcc_of
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.wheel.tags import platform_of

if TYPE_CHECKING:
    from cuwheel.building.values import DecidedJob
    from cuwheel.machine.fleet import Machine

LEAST_CMAKE = "3.21"  # the first that reads the variable CMAKE_TOOLCHAIN_FILE
_FOLDER = "cross"
_CMAKE = "toolchain.cmake"
_MODULE = "_sysconfigdata_cuwheel"


def refuse_backend(backend: str, cpu: str) -> None:
    """What could not be built for another processor, before anything is downloaded."""
    if reason := BACKENDS[backend].tied:
        raise UsageError(
            f"a project of the kind {backend} is not built for {cpu} here: {reason}", hint=f"build it on {cpu}"
        )


def glibc_wanted(table: Table, machines: Iterable[Machine]) -> str | None:
    """The newest glibc that the result may need: by the gate, the policy of the repair, and the machines it is for."""
    asked = [table.gate.glibc, *(each.glibc for each in machines)]
    if table.repair.policy:
        asked.append(platform_of(f"{table.repair.policy}_any").glibc)
    return min((each for each in asked if each), key=versions.key, default=None)


def tell_glibc(toolchain: Toolchain, asked: str | None) -> None:
    """Before an hour of compiling: older ones than there are compilers for are decided by what the result needs."""
    compiler = toolchain.host_compiler
    if asked and compiler and compiler.glibc and versions.key(compiler.glibc) > versions.key(asked):
        log.info(
            "glibc %s is asked for, and the oldest to link with here is %s: the gate looks at what the result needs",
            asked,
            compiler.glibc,
        )


def l4t_wanted(cuda: str, machines: Iterable[Machine]) -> bool | None:
    """Whether the build is for Jetson or for servers, where CUDA for arm64 is two; None where that does not matter."""
    if toolkits.one_arm64(toolkits.find_toolkit(cuda)):
        return None
    names: dict[bool, list[str]] = {}
    for each in machines:
        names.setdefault(each.runs_l4t, []).append(each.name)
    if len(names) > 1:
        jetsons, servers = (", ".join(names[each]) for each in (True, False))
        since = toolkits.one_arm64_since()
        raise UsageError(
            f"CUDA {cuda} for arm64 is two distributions, and one build serves either Jetson (L4T: {jetsons}) or "
            f"servers ({servers})",
            hint=f"build once for each, or for both with CUDA {versions.major(since)} (an Orin shares it from "
            f"{toolkits.last_joined()} on)",
        )
    return next(iter(names), None)


def variables(toolchain: Toolchain, folder: Path) -> Iterator[tuple[str, str]]:
    """For CMake of any caller, and for Python's own modules that say what a build is for."""
    target = toolchain.toolkit.target
    if not target:
        return
    place = folder / _FOLDER
    yield "CMAKE_TOOLCHAIN_FILE", str(place / _CMAKE)
    yield "_PYTHON_HOST_PLATFORM", f"linux-{target}"
    yield "_PYTHON_SYSCONFIGDATA_NAME", _MODULE
    yield "PYTHONPATH", str(place)
    # Headers of Debian's Python look for those of the processor that is compiled for.
    yield from ((name, str(place / "include")) for name in ("C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"))


def write_files(job: DecidedJob, interpreter: Path, headers: Path) -> None:
    """What the variables lead to. `headers`: Python's, on this machine."""
    toolchain = job.toolchain
    target = toolchain.toolkit.target
    if not target or not toolchain.host_compiler:
        return
    row = next(each for each in tables().toolchains.cross if each.target == target)
    place = job.folder / _FOLDER
    own = f"{row.on}-linux-gnu"
    include = place / "include" / row.triplet / headers.name
    include.mkdir(parents=True, exist_ok=True)
    if (native := headers.parent / own / headers.name / "pyconfig.h").is_file():
        (include / "pyconfig.h").write_bytes(native.read_bytes())
    compiler = {name: job.environ[name] for name in ("CC", "CXX", "AR", "RANLIB", "STRIP")}
    # CMake asks no interpreter how modules end while it compiles for another processor, but such a program.
    asked = place / f"{row.triplet}-{headers.name}-config"
    words = {"python": shlex.quote(str(interpreter)), "headers": shlex.quote(str(headers)), "triplet": row.triplet}
    asked.write_text(_PYTHON_CONFIG.format(**words), encoding="utf-8")
    asked.chmod(0o755)
    lines = _TOOLCHAIN_FILE.format(
        target=target,
        triplet=row.triplet,
        nvcc=nvcc_of(toolchain.toolkit),
        root=toolchain.root,
        headers=headers,
        asked=asked,
        **compiler,
    )
    (place / _CMAKE).write_text(lines, encoding="utf-8")
    module = _SYSCONFIG.format(own=own, triplet=row.triplet, **compiler)
    (place / f"{_MODULE}.py").write_text(module, encoding="utf-8")
    # Where PYTHONPATH does not count, which is how some start Python, the environment itself leads there.
    site = next((interpreter.parent.parent / "lib").glob("python*/site-packages"))
    (site / f"{_MODULE}.pth").write_text(f"{place}\n", encoding="utf-8")


_TOOLCHAIN_FILE = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {target})
set(CMAKE_C_COMPILER "{CC}")
set(CMAKE_CXX_COMPILER "{CXX}")
set(CMAKE_AR "{AR}" CACHE FILEPATH "")
set(CMAKE_RANLIB "{RANLIB}" CACHE FILEPATH "")
set(CMAKE_STRIP "{STRIP}" CACHE FILEPATH "")
set(CMAKE_CUDA_COMPILER "{nvcc}")
set(CMAKE_CUDA_HOST_COMPILER "{CXX}")
set(CMAKE_LIBRARY_ARCHITECTURE {triplet})
set(CUDAToolkit_ROOT "{root}")
# Programs of this machine, and no libraries of it.
list(APPEND CMAKE_FIND_ROOT_PATH "{root}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
foreach(python IN ITEMS PYTHON Python Python3)
  set(${{python}}_INCLUDE_DIR "{headers}" CACHE PATH "" FORCE)
  set(_${{python}}_CONFIG "{asked}")  # found too late by itself: how modules end is asked with the interpreter
endforeach()
"""

_PYTHON_CONFIG = """\
#!/bin/sh
case "${{1#--}}" in
extension-suffix) exec {python} -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))' ;;
abiflags) exec {python} -c 'import sys; print(sys.abiflags)' ;;
includes) echo -I{headers} ;;
configdir) echo /usr/lib/{triplet} ;;
help) ;;
*) exit 1 ;;
esac
"""

# Python's own account of how it was built, for the other processor: its names, its compilers, none of its own flags.
_SYSCONFIG = """\
import importlib
import sys

_own = getattr(sys.implementation, "_multiarch", "")
_flags = getattr(sys, "abiflags", "")
_vars = importlib.import_module(f"_sysconfigdata_{{_flags}}_{{sys.platform}}_{{_own}}").build_time_vars
_foreign = ("-m", "-fcf-protection", "-specs=")


def _told(name, value):
    if not isinstance(value, str):
        return value
    if name in ("EXT_SUFFIX", "SOABI", "MULTIARCH", "HOST_GNU_TYPE"):
        return value.replace("{own}", "{triplet}").replace("x86_64-pc-linux-gnu", "{triplet}")
    if "FLAGS" in name or name in ("OPT", "CCSHARED"):
        return " ".join(each for each in value.split() if not each.startswith(_foreign))
    return value


build_time_vars = {{name: _told(name, value) for name, value in _vars.items()}}
build_time_vars |= {{
    "CC": "{CC}",
    "CXX": "{CXX}",
    "AR": "{AR}",
    "LDSHARED": "{CC} -shared",
    "LDCXXSHARED": "{CXX} -shared",
    "BLDSHARED": "{CC} -shared",
    "LINKCC": "{CC}",
}}
"""
