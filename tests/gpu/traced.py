"""Programs that fail in known ways on an H200, and what `trace` must say of each: python3 -m tests.gpu.traced FOLDER

Needs nvcc, a C compiler and a GPU of capability 9.0; what uses torch, JAX or CuPy is left out where they are not
installed, and said so. FOLDER: for the programs, and `traced.json` with what was seen.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cuwheel
from cuwheel import process
from cuwheel.inspection.demangle import demangled

if TYPE_CHECKING:
    from cuwheel.report.trace import Traced

SOURCES = Path(__file__).parent / "src"
_SCALE = "void scale<float, 64>(float*, float)"
_PYTHON = {
    "memory": "import torch\ntry: torch.empty(1 << 45, device='cuda')\nexcept Exception: raise SystemExit(3)\n",
    "assert": "import torch\na = torch.arange(9, device='cuda')\n"
    "print(torch.gather(a, 0, torch.full((5,), 10**7, device='cuda')).sum().item())\n",
    "graph": "import torch\na = torch.ones(64, device='cuda')\n"
    "s = torch.cuda.Stream()\nwith torch.cuda.stream(s): b = a * 2\ntorch.cuda.synchronize()\n"
    "g = torch.cuda.CUDAGraph()\n"
    "with torch.cuda.graph(g): c = (a * 3).sum()\ng.replay()\ntorch.cuda.synchronize()\n",
    "threads": "import threading, torch\ndef work(): torch.ones(99, device='cuda').cumsum(0).sum().item()\n"
    "t = [threading.Thread(target=work) for _ in range(16)]\n[x.start() for x in t]\n[x.join() for x in t]\n",
    "spawn": "import multiprocessing as m\ndef work(n):\n    import torch\n"
    "    return float(torch.ones(9, device='cuda').sum())\n"
    "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(2) as p: print(p.map(work, [1, 2]))\n",
    "nvrtc": "import torch\nsource = 'template <typename T> T mine(T x) { return x * x + 1; }'\n"
    "f = torch.cuda.jiterator._create_jit_fn(source)\n"
    "print(f(torch.ones(4, device='cuda')).sum().item())\n",
    "jax": "import jax.numpy as jnp\nx = jnp.ones((256, 256))\nprint((x @ x).sum())\n",
    "cupy": "import cupy\nk = cupy.RawKernel('extern \"C\" __global__ void mine(float* x) { x[0] = 1; }', 'mine')\n"
    "x = cupy.ones(8, dtype='f4')\nk((1,), (8,), (x,))\nk((1,), (5000,), (x,))\n",
}


@dataclass(frozen=True)
class Case:
    """`compiled`: nvcc's words for the program. `needs`: a module that must be there. `error` 0: all must go well.

    `kernel`: named, or for late errors among those launched last. `library`: the end of its file's name.
    """

    name: str
    error: int
    compiled: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    needs: str = ""
    kernel: str = ""
    library: str = ""
    archs: tuple[str, ...] = ()
    how: str = ""
    launched: str = ""
    processes: int = 1


_ARCH_80 = ("-gencode", "arch=compute_80,code=sm_80")
_ARCH_90 = ("-gencode", "arch=compute_90,code=sm_90")
_PTX_75 = ("-gencode", "arch=compute_75,code=compute_75")
CASES = (
    Case("native", 0, _ARCH_90, how="native", launched=_SCALE, library="native"),
    Case("ptx", 0, _PTX_75, how="jit", launched=_SCALE, library="ptx"),
    Case("other-gpu", 209, _ARCH_80, kernel=_SCALE, library="other-gpu", archs=("sm_80",)),
    Case("other-gpu-shared", 209, (*_ARCH_80, "-cudart", "shared"), kernel=_SCALE, archs=("sm_80",)),
    Case("no-jit", 223, _PTX_75, kernel=_SCALE, archs=("compute_75",)),
    Case("wild", 700, _ARCH_90, ("wild",), kernel="wild(int*)"),
    Case("shape", 1, _ARCH_90, ("shape",), kernel=_SCALE),
    Case("memory", 2, _ARCH_90, ("memory",)),
    Case("linked", 0, launched="empty()", library="code90.cubin"),
    Case("linked-other-gpu", 209, library="code80.cubin", archs=("sm_80",)),
    Case("linked-no-kernel", 500, kernel="absent", library="code90.cubin"),
    Case("torch-memory", 2, needs="torch"),
    Case("torch-assert", 710, needs="torch", kernel="gather"),
    Case("torch-graph", 0, needs="torch", how="native", library="libtorch_cuda.so"),
    Case("torch-threads", 0, needs="torch", how="native", library="libtorch_cuda.so"),
    Case("torch-spawn", 0, needs="torch", how="native", library="libtorch_cuda.so", processes=2),
    Case("torch-nvrtc", 0, needs="torch", launched="mine"),
    Case("jax-jax", 0, needs="jax", how="native"),
    Case("cupy-cupy", 1, needs="cupy", kernel="mine"),
)


def prepared(case: Case, folder: Path) -> list[str]:
    """The command of a case; compiles what it needs."""
    if case.needs:
        script = folder / f"{case.name}.py"
        script.write_text(_PYTHON[case.name.partition("-")[2]])
        return [sys.executable, str(script)]
    program = folder / case.name
    if case.compiled:
        process.run(["nvcc", *case.compiled, "-o", program, SOURCES / "traced.cu"], timeout=300)
        return [str(program), *case.words]
    process.run(["gcc", "-o", program, SOURCES / "linked.c", "-l:libcuda.so.1"], timeout=60)
    number = "80" if case.name == "linked-other-gpu" else "90"
    (folder / "empty.cu").write_text("__global__ void empty() {}\n")
    code = folder / f"code{number}.cubin"
    process.run(["nvcc", "-cubin", f"-arch=sm_{number}", "-o", code, folder / "empty.cu"], timeout=300)
    return [str(program), str(code), "absent" if case.name == "linked-no-kernel" else "_Z5emptyv"]


def problems(case: Case, seen: Traced) -> list[str]:
    """What `trace` said otherwise than it must."""
    found = []
    if len(seen.processes) < case.processes:
        found.append(f"{len(seen.processes)} processes")
    if not case.error:
        loads = [each for each in seen.loads if (each.library or "").endswith(case.library)]
        found += [f"failed: {each.api} {each.error.code}" for each in seen.failures if not each.swallowed]
        if case.how and not any(each.how == case.how and each.launched for each in loads):
            found.append(f"nothing was launched by {case.how}")
        if case.launched and not any(case.launched in name for each in loads for name in _readable(each.launched)):
            found.append(f"{case.launched} was not launched")
        return found
    matching = [each for each in seen.failures if each.error.code == case.error]
    if not matching:
        return [f"no failure with {case.error}: {[each.error.code for each in seen.failures]}"]
    failure = matching[0]
    names = " ".join((failure.demangled or failure.kernel or "", *failure.last[:4], *failure.kernels))
    if case.kernel not in names:
        found.append(f"the kernel is {names!r}")
    if not (failure.library or "").endswith(case.library):
        found.append(f"the library is {failure.library!r}")
    if case.archs and failure.archs != case.archs:
        found.append(f"its architectures are {failure.archs}")
    return found


def _readable(names: tuple[str, ...]) -> list[str]:
    found = demangled(names)
    return [found.get(each, each) for each in names]


def run(folder: Path) -> dict[str, list[str]]:
    """Of each case the problems; those that could not be run are left out, with a word."""
    results: dict[str, list[str]] = {}
    for case in CASES:
        if case.needs and importlib.util.find_spec(case.needs) is None:
            sys.stderr.write(f"left out: {case.name}, for want of {case.needs}\n")
            continue
        more = {"CUDA_DISABLE_PTX_JIT": "1", "CUDA_CACHE_DISABLE": "1"} if case.name == "no-jit" else {}
        command = prepared(case, folder)
        seen = cuwheel.trace(command, environ={**os.environ, **more})
        results[case.name] = problems(case, seen)
        sys.stderr.write(f"{case.name}: {'; '.join(results[case.name]) or 'as expected'}\n")
    return results


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    results = run(folder)
    (folder / "traced.json").write_text(json.dumps(results, indent=1) + "\n")
    raise SystemExit(any(results.values()))


if __name__ == "__main__":
    main()
