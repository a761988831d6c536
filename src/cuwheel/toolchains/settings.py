"""The variables by which build systems find a toolkit and its host compiler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.facts import toolkits
from cuwheel.support import quoting
from cuwheel.toolchains.toolchain import Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cuwheel.toolchains.toolchain import HostCompiler, Installed, Toolchain

_ROOTS = ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT")
_COMPILERS = ("NVCC_CCBIN", "CUDAHOSTCXX")


def settings(toolkit: Installed, compiler: HostCompiler | None) -> tuple[Setting, ...]:
    return tuple(_settings(toolkit, compiler))


def _settings(toolkit: Installed, compiler: HostCompiler | None) -> Iterator[Setting]:
    yield from (Setting(name=name, value=toolkit.root) for name in _ROOTS)
    windows = toolkit.platform.startswith("windows")
    yield Setting(name="CUDACXX", value=nvcc(toolkit))
    if windows:
        folders = [f"{toolkit.root}\\bin", f"{toolkit.root}\\bin\\x86_64"]  # the second holds the libraries of wheels
        yield Setting(name="PATH", value=";".join(folders), how="prepend")
    else:
        yield Setting(name="PATH", value=f"{toolkit.root}/bin", how="prepend")
    if compiler:
        yield from (Setting(name=name, value=compiler.path) for name in _COMPILERS)
        if not toolkits.reads_ccbin(toolkit.cuda):
            yield from (
                Setting(name=name, value=value)
                for name, value in toolkits.ccbin_variable(toolkit.cuda, compiler.path).items()
            )
    if stubs := _stubs(toolkit):
        yield Setting(name="LIBRARY_PATH", value=stubs, how="prepend")


def nvcc(toolkit: Installed) -> str:
    """The program."""
    windows = toolkit.platform.startswith("windows")
    return f"{toolkit.root}\\bin\\nvcc.exe" if windows else f"{toolkit.root}/bin/nvcc"


def _stubs(toolkit: Installed) -> str | None:
    """The folder with a libcuda.so to link with. What is in an image cannot be looked at, and has one."""
    if toolkit.prefix and not toolkit.archives:
        return f"{toolkit.root}/lib64/stubs"
    places = (Path(toolkit.root, "lib64", "stubs"), Path(toolkit.root, "lib", "stubs"), Path(toolkit.folder, "stubs"))
    return next((str(place) for place in places if (place / "libcuda.so").exists()), None)


def must_be_outside(made: Toolchain) -> None:
    """A shell's variables do not lead into a container."""
    if made.prefix:
        hint = "run inside: " + " ".join(made.prefix)
        raise UsageError(f"this CUDA {made.toolkit.cuda} is in a container", hint=hint)


def lines(chosen: Iterable[Setting]) -> tuple[str, ...]:
    """For the shell that cuwheel was started from to eval."""
    shell = quoting.shell_here()
    return tuple(
        quoting.set_variables({each.name: each.value}, shell, prepend=(each.name,) if each.how == "prepend" else ())
        for each in chosen
    )


def applied(chosen: Iterable[Setting], environ: Mapping[str, str]) -> dict[str, str]:
    """An environment with these settings in it."""
    result = dict(environ)
    for each in chosen:
        before = result.get(each.name) if each.how == "prepend" else None
        result[each.name] = f"{each.value}{os.pathsep}{before}" if before else each.value
    return result


def inside(chosen: Iterable[Setting]) -> dict[str, str]:
    """For a container, whose own PATH is kept: the compilers are named in full."""
    return {each.name: each.value for each in chosen if each.name != "PATH"}
