"""Proof that a toolchain works: a kernel compiled for every architecture it claims, linked, and inspected."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError
from cuwheel.facts import toolkits
from cuwheel.facts.arch import Arch
from cuwheel.support import process
from cuwheel.toolchains.toolchain import apply_settings, command_where_toolkit_is, nvcc_of, variables_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.toolchains.toolchain import Toolchain

_COMPILE_S = 900.0
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "SYSTEMROOT", "COMSPEC", "TEMP", "TMP", "PATHEXT")
_KERNEL = """\
#include <cuda.h>
#include <cuda_runtime.h>
{headers}
__global__ void NAME(float *x) {{ x[threadIdx.x] *= 2.0f; }}
int NAME(float *x, int) {{
    if (cuInit(0) != CUDA_SUCCESS) return 1;
    NAME<<<1, 32>>>(x);
    return cudaGetLastError();
}}
"""


class Check(Struct, frozen=True, kw_only=True):
    name: str
    passed: bool
    outcome: str
    evidence: str = ""


class Verification(Struct, frozen=True, kw_only=True):
    """`architectures`: those that nvcc claims and the library has; `missing`: those that it has not."""

    architectures: tuple[Arch, ...]
    missing: tuple[Arch, ...]
    checks: tuple[Check, ...]
    seconds: float

    @property
    def succeeded(self) -> bool:
        return all(each.passed for each in self.checks)

    @property
    def words(self) -> str:
        failed = [each.name for each in self.checks if not each.passed]
        if failed:
            return f"It does not work: {', '.join(failed)}"
        return f"It works: {len(self.architectures)} architectures compiled, linked and found in the result"


def verify(toolchain: Toolchain) -> Verification:
    with tempfile.TemporaryDirectory(prefix="cuwheel-verify-") as name:
        return _Bench(toolchain, Path(name)).run()


class _Bench:
    """One folder to compile in, and what was found there."""

    def __init__(self, toolchain: Toolchain, folder: Path) -> None:
        self.toolchain, self.folder = toolchain, folder
        self.environ = apply_settings(toolchain.settings, _plain_environment())
        self.seconds = 0.0
        self.claimed: tuple[Arch, ...] = ()
        self.found: tuple[Arch, ...] = ()
        self.objects: list[str] = []

    def run(self) -> Verification:
        checks: list[Check] = []
        for name, check in CHECKS:
            try:
                checks += [Check(name=name, passed=True, outcome=each) for each in check(self)]
            except CuwheelError as error:
                lines = error.message.splitlines()
                evidence = "\n".join(line.strip() for line in lines[1:][-4:])
                checks.append(Check(name=name, passed=False, outcome=lines[0], evidence=evidence))
                break  # each check stands on the one before it
        missing = tuple(each for each in self.claimed if each not in self.found)
        if missing and checks[-1].passed:
            checks.append(Check(name="inspect", passed=False, outcome=f"not in the result: {' '.join(missing)}"))
        return Verification(
            architectures=tuple(each for each in self.claimed if each in self.found),
            missing=missing,
            checks=tuple(checks),
            seconds=round(self.seconds, 2),
        )

    def nvcc(self, *arguments: str) -> str:
        command = command_where_toolkit_is(
            self.toolchain.toolkit,
            [nvcc_of(self.toolchain.toolkit), *arguments],
            folders=[self.folder],
            cwd=self.folder,
            environ=variables_inside(self.toolchain.settings),
        )
        done = process.run(command, timeout=_COMPILE_S, env=self.environ, cwd=self.folder)
        self.seconds += done.seconds
        return done.stdout


def _plain_environment() -> dict[str, str]:
    """Nothing of the caller's that changes what a compiler does."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def _ask(bench: _Bench) -> Iterator[str]:
    """nvcc does not list what has a suffix: the table does."""
    plain = [Arch.parse(word) for word in bench.nvcc("--list-gpu-code").split() if word.startswith("sm_")]
    row = toolkits.find_toolkit(bench.toolchain.toolkit.cuda)
    listed = row.archs
    bench.claimed = tuple(
        dict.fromkeys([*plain, *(each for each in listed if each.suffix and Arch(each.capability) in plain)])
    )
    yield f"{bench.toolchain.toolkit.version} claims {len(bench.claimed)} architectures"
    strange = sorted(set(plain) - set(listed)) + sorted({each for each in listed if not each.suffix} - set(plain))
    if strange:
        yield f"its list differs from the table in {' '.join(strange)}"


def _compile(bench: _Bench) -> Iterator[str]:
    headers = [row.header for row in _components(bench) if row.header and row.header != "cuda_runtime.h"]
    source = bench.folder / "kernel.cu"
    source.write_text(_KERNEL.format(headers="\n".join(f"#include <{each}>" for each in headers)), encoding="utf-8")
    for suffix, archs in _groups(bench.claimed).items():
        codes = [f"arch=compute_{each.number},code={each}" for each in archs]
        flags = [word for code in codes for word in ("-gencode", code)]
        parallel = ["--threads", str(os.cpu_count() or 1)]
        bench.nvcc(
            "-Xcompiler", "-fPIC", f"-DNAME=verify{suffix}", *parallel, *flags, "-c", "kernel.cu", "-o", f"k{suffix}.o"
        )
        bench.objects.append(f"k{suffix}.o")
    included = f" with {' '.join(headers)}" if headers else ""
    yield f"one kernel for all of them{included}"


def _groups(archs: tuple[Arch, ...]) -> dict[str, list[Arch]]:
    """By suffix: nvcc does not take sm_100 and sm_100f for one file."""
    found: dict[str, list[Arch]] = {}
    for each in archs:
        found.setdefault(each.suffix, []).append(each)
    return found


def _link(bench: _Bench) -> Iterator[str]:
    """Nothing may stay undefined: the stub of libcuda and the runtime must have it all."""
    libraries = ["cuda", *(row.library for row in _components(bench) if row.library and row.library != "cudart")]
    words = [f"-l{each}" for each in libraries]
    bench.nvcc("-shared", "-Xlinker", "--no-undefined", *bench.objects, "-o", "libkernel.so", *words)
    yield f"a shared library, with the static runtime and {' '.join(words)}"
    bench.nvcc("-shared", "-cudart", "shared", *bench.objects, "-o", "libshared.so", "-lcuda")
    yield "and one with the shared runtime"


def _inspect(bench: _Bench) -> Iterator[str]:
    (library,) = survey(bench.folder / "libkernel.so").libraries
    bench.found = tuple(dict.fromkeys(each.arch for each in library.device_code if each.kind == "cubin"))
    yield f"found in the library: {' '.join(bench.found)}"
    yield f"it needs {' '.join(library.needed)}"


def _components(bench: _Bench) -> list[Component]:
    return [toolkits.find_component(name) for name in bench.toolchain.toolkit.components]


CHECKS: tuple[tuple[str, Callable[[_Bench], Iterator[str]]], ...] = (
    ("ask", _ask),
    ("compile", _compile),
    ("link", _link),
    ("inspect", _inspect),
)
