"""Operators of PyTorch, JAX and CuPy, each a function of nothing whose result is hashed.

Runs in a child of slim_operators.py, under a Python that has them and perhaps nothing else of ours.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Operators: TypeAlias = Iterator[tuple[str, Any]]  # a name, and a function of nothing

REPEATS = 3
_N = 512
_OF_CUPY = tuple(f"lib{each}." for each in ("cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "nvrtc"))


def run(framework: str) -> dict[str, Any]:
    """Every operator of a framework, `REPEATS` times: its hashes, or its error."""
    began = time.monotonic()
    operators, to_bytes, release = FRAMEWORKS[framework]()
    found: dict[str, Any] = {}
    for name, work in operators:
        start = time.monotonic()
        try:
            hashes = sorted({hashlib.sha256(to_bytes(work())).hexdigest()[:16] for _ in range(REPEATS)})
            found[name] = {"hashes": hashes, "error": None}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            found[name] = {"hashes": [], "error": f"{type(error).__name__}: {error}"[:300]}
        found[name]["seconds"] = round(time.monotonic() - start, 3)
    release()
    return {"operators": found, "seconds": round(time.monotonic() - began, 2), "loaded": loaded()}


def start() -> dict[str, Any]:
    """What it costs to get PyTorch going: time, memory, memory of the GPU."""
    began = time.monotonic()
    born = time.clock_gettime(time.CLOCK_BOOTTIME) - _started()
    torch: Any = importlib.import_module("torch")
    imported = time.monotonic()
    free, _ = torch.cuda.mem_get_info()
    total = torch.cuda.get_device_properties(0).total_memory
    context = time.monotonic()
    one = torch.ones(64, 64, device="cuda")
    (one @ one).sum().item()
    return {
        "import_s": round(imported - began, 3),
        "context_s": round(context - imported, 3),
        "first_matmul_s": round(time.monotonic() - context, 3),
        "since_process_start_s": round(born + time.monotonic() - began, 3),
        "resident_bytes": _resident(),
        "gpu_bytes_context": total - free,
        "gpu_bytes_after_matmul": total - torch.cuda.mem_get_info()[0],
    }


def _started() -> float:
    """When this process began, in seconds since the machine did."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def loaded() -> list[str]:
    """The shared libraries that are mapped, to know where they came from."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if ".so" in line and len(line.split(maxsplit=5)) > 5})


def _torch() -> tuple[Operators, Callable[[Any], bytes], Callable[[], None]]:
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(7)
    torch.backends.cudnn.benchmark = False

    def to_bytes(value: Any) -> bytes:
        if isinstance(value, (tuple, list)):
            return b"".join(map(to_bytes, value))
        plain = (value if value.layout == torch.strided else value.to_dense()).detach().resolve_conj()
        plain = (torch.view_as_real(plain) if plain.is_complex() else plain).contiguous().reshape(-1)
        return bytes(plain.cpu().view(torch.uint8).numpy().tobytes())

    parts = importlib.import_module("torch_operators").PARTS  # beside this file
    return itertools.chain.from_iterable(_safely(each, torch) for each in parts), to_bytes, torch.cuda.synchronize


def _safely(part: Callable[[Any], Operators], framework: Any) -> Operators:
    """What cannot even be prepared is an operator that fails, and no reason to stop."""
    try:
        yield from part(framework)
    except Exception as error:  # noqa: BLE001
        problem = error

        def fails() -> None:
            raise problem

        yield f"preparing {part.__name__}", fails


def _jax() -> tuple[Operators, Callable[[Any], bytes], Callable[[], None]]:
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    numpy: Any = importlib.import_module("numpy")
    if jax.devices()[0].platform != "gpu":
        raise RuntimeError("jax sees no GPU")
    a = jnp.asarray(numpy.random.default_rng(3).standard_normal((_N, _N)), dtype="float32")

    def to_bytes(value: Any) -> bytes:
        return b"".join(numpy.asarray(each).tobytes() for each in jax.tree_util.tree_leaves(value))

    def operators() -> Operators:
        for name in ("float32", "float16", "bfloat16"):
            b = a.astype(name)
            yield f"matmul {name}", lambda b=b: b @ b
        yield "fft", lambda: jnp.fft.fft(a)
        yield "fft2", lambda: jnp.fft.fft2(a)
        yield "sort", lambda: jnp.sort(a, axis=None)
        yield "cumsum", lambda: jnp.cumsum(a)
        yield "svd", lambda: jnp.linalg.svd(a[:64, :64])[1]
        yield "qr", lambda: jnp.linalg.qr(a[:64, :64])
        yield "cholesky", lambda: jnp.linalg.cholesky(a @ a.T + 600 * jnp.eye(_N))
        yield "eigh", lambda: jnp.linalg.eigh(a[:64, :64] + a[:64, :64].T)[0]
        yield "solve", lambda: jnp.linalg.solve(a, a[0])
        yield "random", lambda: jax.random.normal(jax.random.key(1), (1000,))
        yield (
            "conv",
            lambda: jax.lax.conv(
                a.reshape(1, 8, 32, 1024)[..., :32], a.reshape(-1)[:576].reshape(8, 8, 3, 3), (1, 1), "SAME"
            ),
        )
        yield "gradient", lambda: jax.grad(lambda x: jnp.tanh(x @ x).sum())(a)
        yield "attention", lambda: jax.nn.dot_product_attention(*(a.reshape(1, 64, 8, 512)[..., :64],) * 3)

    return operators(), to_bytes, lambda: None


def _cupy() -> tuple[Operators, Callable[[Any], bytes], Callable[[], None]]:
    # cupy finds NVIDIA's libraries in the interpreter's own folder, whatever stands first on its path, but takes what
    # is loaded already.
    for folder in importlib.import_module("nvidia").__path__[:1]:
        for path in sorted(Path(folder).glob("*/lib/lib*.so.*")):
            if path.name.startswith(_OF_CUPY):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    cupy: Any = importlib.import_module("cupy")
    sparse: Any = importlib.import_module("cupyx.scipy.sparse")
    numpy: Any = importlib.import_module("numpy")
    a = cupy.asarray(numpy.random.default_rng(3).standard_normal((_N, _N)))

    def to_bytes(value: Any) -> bytes:
        parts = value if isinstance(value, tuple) else (value,)
        return b"".join(cupy.asnumpy(each).tobytes() for each in parts)

    def operators() -> Operators:
        for name in ("float16", "float32", "float64", "complex64"):
            b = a.astype(name)
            yield f"matmul {name}", lambda b=b: b @ b
        yield "fft", lambda: cupy.fft.fft2(a)
        yield "sort", lambda: cupy.sort(a, axis=None)
        yield "cumsum", lambda: cupy.cumsum(a)
        yield "svd", lambda: cupy.linalg.svd(a[:64, :64])[1]
        yield "qr", lambda: tuple(cupy.linalg.qr(a[:64, :64]))
        yield "solve", lambda: cupy.linalg.solve(a, a[0])
        yield "eigh", lambda: cupy.linalg.eigh(a[:64, :64] + a[:64, :64].T)[0]
        for kind in ("XORWOW", "MRG32k3a", "Philox4x3210"):
            bits = getattr(cupy.random, kind)
            yield f"random {kind}", lambda bits=bits: cupy.random.Generator(bits(5)).standard_normal(1000)
        yield "curand", lambda: cupy.random.RandomState(5).standard_normal(1000)
        yield "sparse", lambda: sparse.csr_matrix(a * (a > 1)) @ a[0]
        yield "sum", a.sum

    return operators(), to_bytes, cupy.cuda.Device().synchronize


FRAMEWORKS: dict[str, Any] = {"torch": _torch, "jax": _jax, "cupy": _cupy}


if __name__ == "__main__":
    what, place = sys.argv[1:3]
    importlib.import_module("torch_operators")
    sys.path.pop(0)  # this folder: no module of ours must stand in for one of theirs
    answer = start() if what == "start" else run(what)
    Path(place).write_text(json.dumps(answer))
    os._exit(0)  # what libraries do at exit is not the question, and may hang
