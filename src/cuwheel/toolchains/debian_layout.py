"""From where Debian puts a toolkit's files to where everybody else looks for them."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# What Debian's nvcc expects under /usr, told to look beside itself instead.
_PROFILE = """\
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH += $(TOP)/lib:
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
"""
_PROGRAMS = ("__nvcc_device_query", "bin2c", "crt", "cudafe++", "fatbinary", "nvlink", "nvprune", "ptxas")
_TOOLS = ("cuobjdump", "nvdisasm", "cu++filt")
# Of the static archives these belong to any toolkit; those of the libraries are most of three gigabytes.
_STATIC = re.compile(r"lib(cudart_static|cudadevrt|culibos)\.a")
_SHARED = re.compile(r"lib(cudart|nvvm|nvrtc|nvToolsExt|nvJitLink)[\w.-]*\.so[.\d]*")


def arrange(unpacked: Path, root: Path) -> None:
    """Move what one package brought into the toolkit."""
    for step in STEPS:
        step(unpacked, root)


def _programs(unpacked: Path, root: Path) -> None:
    private = unpacked / "usr" / "lib" / "nvidia-cuda-toolkit"
    for name in (*_PROGRAMS, *_TOOLS):
        _move(unpacked / "usr" / "bin" / name, root / "bin" / name)
        _move(private / "bin" / name, root / "bin" / name)
    _move(private / "bin" / "nvcc", root / "bin" / "nvcc")  # that in usr/bin is a script which calls it
    _move(private / "bin" / "cicc", root / "nvvm" / "bin" / "cicc")
    _move(private / "libdevice", root / "nvvm" / "libdevice")
    if (root / "bin" / "nvcc").exists():
        (root / "bin" / "nvcc.profile").write_text(_PROFILE, encoding="utf-8")


def _headers(unpacked: Path, root: Path) -> None:
    """Debian's C++ libraries are packages of their own: some below /usr/include, some below a folder there."""
    include = unpacked / "usr" / "include"
    if include.is_dir():
        shutil.copytree(include, root / "include", dirs_exist_ok=True, symlinks=True)


def _libraries(unpacked: Path, root: Path) -> None:
    for folder in (unpacked / "usr" / "lib").glob("*-linux-gnu"):
        for path in folder.iterdir():
            if _STATIC.fullmatch(path.name) or _SHARED.fullmatch(path.name):
                _move(path, root / "lib" / path.name)
        _move(folder / "stubs" / "libcuda.so", root / "lib" / "stubs" / "libcuda.so")


def _licences(unpacked: Path, root: Path) -> None:
    for path in (unpacked / "usr" / "share" / "doc").glob("*/copyright"):
        _move(path, root / "licenses" / path.parent.name / "copyright")


def _move(source: Path, target: Path) -> None:
    if source.exists() or source.is_symlink():
        if target.exists() or target.is_symlink():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)


STEPS: tuple[Callable[[Path, Path], None], ...] = (_programs, _headers, _libraries, _licences)
