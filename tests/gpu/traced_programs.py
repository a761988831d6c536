"""What the cases of traced.py run: scripts, and programs and libraries that are compiled for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.support import process

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).parent / "src"
ARCH_80 = ("-gencode", "arch=compute_80,code=sm_80")
ARCH_90 = ("-gencode", "arch=compute_90,code=sm_90")
PTX_75 = ("-gencode", "arch=compute_75,code=compute_75")
_LIBRARY = ("-shared", "-Xcompiler", "-fPIC")
_PTX = ".version {isa}\\n.target sm_90\\n.address_size 64\\n.visible .entry mine()\\n{{ {body} }}\\n"


def _driver(isa: str, body: str) -> str:
    """PTX handed to the driver, with a buffer for what its compiler says."""
    return (
        "import ctypes\nd = ctypes.PyDLL('libcuda.so.1')\nd.cuInit(0)\nc = ctypes.c_void_p()\n"
        "d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\nd.cuCtxSetCurrent(c)\n"
        "log, m = ctypes.create_string_buffer(4096), ctypes.c_void_p()\n"
        "options = (ctypes.c_int * 2)(5, 6)\nvalues = (ctypes.c_void_p * 2)(ctypes.addressof(log), 4096)\n"
        f"ptx = b'{_PTX.format(isa=isa, body=body)}'\n"
        "raise SystemExit(d.cuModuleLoadDataEx(ctypes.byref(m), ptx, 2, options, values) % 256)\n"
    )


SCRIPTS = {
    "torch-memory": "import torch\ntry: torch.empty(1 << 45, device='cuda')\nexcept Exception: raise SystemExit(3)\n",
    "torch-assert": "import torch\na = torch.arange(9, device='cuda')\n"
    "print(torch.gather(a, 0, torch.full((5,), 10**7, device='cuda')).sum().item())\n",
    "torch-graph": "import torch\na = torch.ones(64, device='cuda')\n"
    "s = torch.cuda.Stream()\nwith torch.cuda.stream(s): b = a * 2\ntorch.cuda.synchronize()\n"
    "g = torch.cuda.CUDAGraph()\n"
    "with torch.cuda.graph(g): c = (a * 3).sum()\ng.replay()\ntorch.cuda.synchronize()\n",
    "torch-graph-assert": "import torch\na = torch.arange(9, device='cuda')\n"
    "i = torch.zeros(5, dtype=torch.long, device='cuda')\n"
    "torch.gather(a, 0, i)\ntorch.cuda.synchronize()\ng = torch.cuda.CUDAGraph()\n"
    "with torch.cuda.graph(g): c = torch.gather(a, 0, i)\ng.replay()\ntorch.cuda.synchronize()\n"
    "for _ in range(50): a.add_(0)\ni.fill_(10**7)\ng.replay()\nprint(c.sum().item())\n",
    "torch-threads": "import threading, torch\ndef work(): torch.ones(99, device='cuda').cumsum(0).sum().item()\n"
    "t = [threading.Thread(target=work) for _ in range(16)]\n[x.start() for x in t]\n[x.join() for x in t]\n",
    "torch-spawn": "import multiprocessing as m\ndef work(n):\n    import torch\n"
    "    return float(torch.ones(9, device='cuda').sum())\n"
    "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(2) as p: print(p.map(work, [1, 2]))\n",
    "torch-nvrtc": "import torch\nsource = 'template <typename T> T mine(T x) { return x * x + 1; }'\n"
    "f = torch.cuda.jiterator._create_jit_fn(source)\n"
    "print(f(torch.ones(4, device='cuda')).sum().item())\n",
    "torch-compile-assert": "import torch\n@torch.compile\ndef pick(a, i): return a[i] * 2\n"
    "a = torch.ones(9, device='cuda')\npick(a, torch.zeros(4, dtype=torch.long, device='cuda'))\n"
    "print(pick(a, torch.full((4,), 10**7, device='cuda')).sum().item())\n",
    "torch-extension": "import ctypes, sys, torch\nx = torch.ones(32, device='cuda')\n"
    "def halve(): return ctypes.PyDLL(sys.argv[1]).work(ctypes.c_void_p(x.data_ptr()))\n"
    "if halve(): raise RuntimeError('halve failed')\n",
    "jax-jax": "import jax.numpy as jnp\nx = jnp.ones((256, 256))\nprint((x @ x).sum())\n",
    "jax-memory": "import jax.numpy as jnp\nprint(jnp.zeros((1 << 40,), dtype='int8').sum())\n",
    "cupy-cupy": "import cupy\n"
    "k = cupy.RawKernel('extern \"C\" __global__ void mine(float* x) { x[0] = 1; }', 'mine')\n"
    "x = cupy.ones(8, dtype='f4')\nk((1,), (8,), (x,))\nk((1,), (5000,), (x,))\n",
    "cupy-nvrtc-other-gpu": "import cupy\nfrom cupy.cuda import function, nvrtc\ncupy.ones(3)\n"
    "p = nvrtc.createProgram('extern \"C\" __global__ void mine(float* x) { x[0] = 1; }', 'mine.cu', (), ())\n"
    "nvrtc.compileProgram(p, ['--gpu-architecture=sm_80'])\n"
    "function.Module().load(nvrtc.getCUBIN(p))\n",
    "bitsandbytes-other-gpu": "import torch, bitsandbytes.functional as f\n"
    "print(f.dequantize_blockwise(*f.quantize_blockwise(torch.ones(4096, device='cuda'))).sum().item())\n",
    "spawn-pool": "import ctypes, multiprocessing as m, sys\ndef work(name): return ctypes.PyDLL(name).work(None)\n"
    "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(work, sys.argv[1:]))\n",
    "python-misaligned": "import ctypes, sys\nlibrary = ctypes.PyDLL(sys.argv[1])\n"
    "def call(): return library.misaligned()\n"
    "raise SystemExit(call() % 256)\n",
    "driver-broken-ptx": _driver("8.0", "absent.instruction;"),
    "driver-newer-ptx": _driver("99.0", "ret;"),
}
SCRIPTS["old-12.4-misaligned"] = SCRIPTS["python-misaligned"]


def script(name: str, folder: Path, *words: str | Path) -> list[str]:
    place = folder / f"{name}.py"
    place.write_text(SCRIPTS[name])
    return [sys.executable, str(place), *map(str, words)]


def program(name: str, folder: Path, options: Sequence[str], source: str = "traced.cu") -> Path:
    made = folder / name
    process.run(["nvcc", *options, "-o", made, SOURCES / source], timeout=300)
    return made


def library(name: str, folder: Path, options: Sequence[str], *sources: str) -> Path:
    made = folder / f"lib{name}.so"
    if not made.exists():
        places = [SOURCES / each for each in sources or ("library.cu",)]
        process.run(["nvcc", *_LIBRARY, *options, "-o", made, *places], timeout=300)
    return made


def half_linked(folder: Path) -> Path:
    """A library of two objects: for a newer GPU there is PTX of the kernel, and nothing of what it calls."""
    for name, code in (("linked_a", "[sm_80,compute_80]"), ("linked_b", "sm_80")):
        options = ["-dc", "-Xcompiler", "-fPIC", "-gencode", f"arch=compute_80,code={code}"]
        process.run(["nvcc", *options, "-o", folder / f"{name}.o", SOURCES / f"{name}.cu"], timeout=300)
    made = folder / "libhalf.so"
    objects = (folder / "linked_a.o", folder / "linked_b.o")
    process.run(["nvcc", *_LIBRARY, *ARCH_80, "-o", made, *objects], timeout=300)
    return made


def opened(folder: Path, place: Path, *words: str) -> list[str]:
    """A program that opens a library in a thread, and calls its `work`."""
    made = folder / "opens"
    if not made.exists():
        process.run(["g++", "-o", made, SOURCES / "opens.cpp", "-ldl", "-lpthread"], timeout=60)
    return [str(made), str(place), "work", *words]


def linked(name: str, folder: Path, number: str, kernel: str) -> list[str]:
    """Through the driver's own interface, with a cubin for this architecture."""
    made = folder / name
    process.run(["gcc", "-o", made, SOURCES / "linked.c", "-l:libcuda.so.1"], timeout=60)
    (folder / "empty.cu").write_text("__global__ void empty() {}\n")
    code = folder / f"code{number}.cubin"
    process.run(["nvcc", "-cubin", f"-arch=sm_{number}", "-o", code, folder / "empty.cu"], timeout=300)
    return [str(made), str(code), kernel]
