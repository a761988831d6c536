"""Programs that fail in known ways on an H200, and what `trace` must say of each.

    python3 -m tests.gpu.traced FOLDER [1/2]

Needs nvcc, a C compiler and a GPU of capability 9.0; what uses torch, JAX, CuPy or bitsandbytes (slimmed for an A100)
is left out where they are not installed, and so are CUDA's earlier runtimes unless CUWHEEL_OLD_PROGRAMS names what
`old_runtimes.py` filled. FOLDER: for the programs, `traced.json` with what was not as expected, `left-out.json` with
how many were left out for want of what, and each report. 1/2: every second case, from the first on.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cuwheel
from cuwheel.device_code.demangle import demangled
from cuwheel.support.answer import to_json
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.wording import file_name
from tests.gpu import traced_programs as programs
from tests.gpu.traced_programs import ARCH_80, ARCH_90, PTX_75

if TYPE_CHECKING:
    from cuwheel.tracing.traced import Failure, Traced

_AT_ONCE = 4
_SCALE = "void scale<float, 64>(float*, float)"


@dataclass(frozen=True)
class Case:
    """`command`: makes what it needs in a folder. `needs`: a module or variable that must be there.

    `error` 0: all must go well. `kernel`: named, or for late errors among those launched last. `library`: the end of
    its file's name. `reason`: a part of it. `swallowed`: the program dealt with it, and ended well.
    """

    name: str
    error: int
    command: Callable[[Path], list[str]]
    needs: str = ""
    environ: tuple[tuple[str, str], ...] = ()
    cupti: bool = False
    kernel: str = ""
    library: str = ""
    archs: tuple[str, ...] = ()
    reason: str = ""
    python: str = ""
    swallowed: bool = False
    how: str = ""
    launched: str = ""
    processes: int = 1


def _script(name: str, error: int, *, needs: str = "", **expected: Any) -> Case:
    return Case(name, error, lambda folder: programs.script(name, folder), needs=needs, **expected)


def _compiled(name: str, error: int, options: tuple[str, ...], *words: str, **expected: Any) -> Case:
    return Case(name, error, lambda folder: [str(programs.program(name, folder, options)), *words], **expected)


def _failing(name: str, error: int, word: str, **expected: Any) -> Case:
    return Case(
        name, error, lambda folder: [str(programs.program(name, folder, ARCH_90, "failing.cu")), word], **expected
    )


def _linked(name: str, error: int, number: str, wanted: str = "_Z5emptyv", **expected: Any) -> Case:
    return Case(name, error, lambda folder: programs.linked(name, folder, number, wanted), **expected)


def _old(name: str, error: int, *words: str, **expected: Any) -> Case:
    """Of what `old_runtimes.py` made, with CUDA's earlier runtimes."""
    return Case(f"old-{name}", error, lambda _: [str(Path(os.environ[OLD], name)), *words], needs=OLD, **expected)


def _with_library(name: str, error: int, number: str, options: tuple[str, ...], **expected: Any) -> Case:
    """A script that is given libquick80.so or libquick90.so."""
    return Case(
        name,
        error,
        lambda folder: programs.script(name, folder, programs.library(f"quick{number}", folder, options)),
        **expected,
    )


OLD = "CUWHEEL_OLD_PROGRAMS"
_OTHER_GPU = "its container has sm_80; this GPU is 9.0"
_LATE = "launched before"
TORCH_CASES = (
    _script("torch-memory", 2, needs="torch"),
    _script("torch-assert", 710, needs="torch", kernel="gather", reason=_LATE),
    _script("torch-graph", 0, needs="torch", how="native", library="libtorch_cuda.so"),
    _script("torch-graph-assert", 710, needs="torch", kernel="a CUDA graph of void at::native", reason=_LATE),
    _script("torch-threads", 0, needs="torch", how="native", library="libtorch_cuda.so"),
    _script("torch-spawn", 0, needs="torch", how="native", library="libtorch_cuda.so", processes=2),
    _script("torch-nvrtc", 0, needs="torch", launched="mine"),
    _script("torch-compile-assert", 710, needs="triton", kernel="triton_", reason=_LATE),
    _with_library(
        "torch-extension",
        209,
        "80",
        ARCH_80,
        needs="torch",
        kernel="quick(float*)",
        library="libquick80.so",
        archs=("sm_80",),
        reason=_OTHER_GPU,
        python="in halve",
    ),
    _script("jax-jax", 0, needs="jax", how="native"),
    _script("jax-memory", 2, needs="jax", environ=(("XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),), reason="1.1 TB"),
    _script("cupy-cupy", 1, needs="cupy", kernel="mine", reason="1024 threads a block"),
    _script(
        "cupy-nvrtc-other-gpu", 209, needs="cupy", archs=("sm_80",), reason="the code is for sm_80; this GPU is 9.0"
    ),
    _script(
        "bitsandbytes-other-gpu",
        500,
        needs="bitsandbytes",
        library="libbitsandbytes_cuda130.so",
        kernel="kQuantizeBlockwise",
    ),
)
CASES = (
    _compiled("native", 0, ARCH_90, how="native", launched=_SCALE, library="native"),
    _compiled("ptx", 0, PTX_75, how="jit", launched=_SCALE, library="ptx"),
    _compiled("other-gpu", 209, ARCH_80, kernel=_SCALE, library="other-gpu", archs=("sm_80",), reason=_OTHER_GPU),
    _compiled("other-gpu-shared", 209, (*ARCH_80, "-cudart", "shared"), kernel=_SCALE, archs=("sm_80",)),
    # Without the cache: the driver would take what it compiled before.
    _compiled(
        "no-jit",
        223,
        PTX_75,
        kernel=_SCALE,
        archs=("compute_75",),
        environ=(("CUDA_DISABLE_PTX_JIT", "1"), ("CUDA_CACHE_DISABLE", "1")),
    ),
    _compiled("wild", 700, ARCH_90, "wild", kernel="wild(int*) in wild", reason=_LATE),
    _compiled("shape", 1, ARCH_90, "shape", kernel=_SCALE, reason="this kernel can have 1024 threads a block"),
    _compiled("memory", 2, ARCH_90, "memory"),
    _compiled("no-gpu", 100, ARCH_90, environ=(("CUDA_VISIBLE_DEVICES", ""),), reason="hides every GPU"),
    _failing("cooperative", 720, "cooperative", kernel="meet(int*)", reason="at once"),
    _failing("shared-memory", 1, "shared", kernel="wide(float*)", reason="this kernel may have"),
    _failing("attribute", 1, "attribute", kernel="wide(float*)", reason="410 kB of shared memory"),
    _failing("registers", 701, "registers", kernel="heavy(", reason="142 registers each"),
    _failing("pool", 2, "pool", reason="268 MB were asked for"),
    _failing("capture", 900, "capture"),
    _failing("graph-late", 700, "graph", kernel="a CUDA graph of chase(int**) in graph-late", reason=_LATE),
    _failing("late-at-free", 700, "free", kernel="late(int*) in late-at-free", reason=_LATE),
    _failing(
        "blocking",
        700,
        "blocking",
        kernel="late(int*)",
        library="blocking",
        environ=(("CUDA_LAUNCH_BLOCKING", "1"),),
        reason="it is this one",
    ),
    _failing("fork", 3, "fork", reason="before the fork", processes=2),
    _failing("unregistered", 400, "unregistered"),
    Case(
        "thread-opens-linked",
        500,
        lambda folder: programs.opened(
            folder, programs.library("linked80", folder, ("-rdc=true", *ARCH_80), "linked_a.cu", "linked_b.cu")
        ),
        kernel="follow(int*)",
        library="liblinked80.so",
        archs=("sm_80",),
    ),
    Case(
        "half-linked",
        300,
        lambda folder: programs.opened(folder, programs.half_linked(folder)),
        kernel="follow(int*)",
        library="libhalf.so",
        archs=("sm_80",),
        reason=_OTHER_GPU,
    ),
    Case(
        "falls-back",
        209,
        lambda folder: programs.opened(folder, programs.library("quick80", folder, ARCH_80), "falls-back"),
        kernel="quick(float*)",
        library="libquick80.so",
        archs=("sm_80",),
        reason=_OTHER_GPU,
        swallowed=True,
    ),
    _with_library(
        "spawn-pool",
        209,
        "80",
        ARCH_80,
        kernel="quick(float*)",
        library="libquick80.so",
        archs=("sm_80",),
        reason=_OTHER_GPU,
        python="in work",
    ),
    _with_library("python-misaligned", 716, "90", ARCH_90, kernel="crooked(char*) in libquick90.so", python="in call"),
    _script("driver-broken-ptx", 218, reason="the driver's compiler refuses it"),
    _script("driver-newer-ptx", 222, reason="of PTX ISA 99.0; the driver"),
    _linked("linked", 0, "90", launched="empty()", library="code90.cubin"),
    _linked("linked-other-gpu", 209, "80", library="code80.cubin", archs=("sm_80",)),
    _linked("linked-no-kernel", 500, "90", "absent", kernel="absent", library="code90.cubin"),
    _old("static-12.4", 209, kernel=_SCALE, library="static-12.4", archs=("sm_80",), reason=_OTHER_GPU),
    _old("shared-12.1", 209, kernel=_SCALE, library="shared-12.1", archs=("sm_80",), reason=_OTHER_GPU),
    _old("failing-12.4", 98, "unregistered", cupti=True),
    _old(  # loads in private
        "shared-11.8",
        209,
        library="shared-11.8",
        archs=("sm_80",),
        reason="the code is for sm_80; this GPU is 9.0",
    ),
    Case(
        "old-12.4-misaligned",
        716,
        lambda folder: programs.script("old-12.4-misaligned", folder, Path(os.environ[OLD], "libcrooked-12.4.so")),
        needs=OLD,
        kernel="crooked(char*) in libcrooked-12.4.so",
        python="in call",
    ),
    *TORCH_CASES,
)


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
    return found + _told_otherwise(case, matching[0])


def _told_otherwise(case: Case, failure: Failure) -> list[str]:
    found = []
    places = [file_name(each or "?") for each in failure.last_libraries]
    last = [f"{name} in {place}" for name, place in zip(failure.last[:4], places, strict=False)]
    names = " ".join((failure.demangled or failure.kernel or "", *last, *failure.kernels))
    if case.kernel not in names:
        found.append(f"the kernel is {names!r}")
    if " in " not in case.kernel and not (failure.library or "").endswith(case.library):
        found.append(f"the library is {failure.library!r}")
    if case.archs and failure.archs != case.archs:
        found.append(f"its architectures are {failure.archs}")
    if case.reason not in failure.reason:
        found.append(f"the reason is {failure.reason!r}")
    if case.python and not any(case.python in each for each in failure.python):
        found.append(f"the Python stack is {failure.python}")
    if failure.swallowed != case.swallowed:
        found.append("dealt with" if failure.swallowed else "not dealt with")
    return found


def _readable(names: tuple[str, ...]) -> list[str]:
    found = demangled(names)
    return [found.get(each, each) for each in names]


def _there(case: Case) -> bool:
    return not case.needs or case.needs in os.environ or importlib.util.find_spec(case.needs) is not None


def _tried(case: Case, folder: Path) -> list[str]:
    place = folder / case.name
    place.mkdir()
    try:
        command = case.command(place)
        seen = cuwheel.trace(command, environ={**os.environ, **dict(case.environ)}, cupti=case.cupti)
    except CuwheelError as error:
        return [error.message]
    (folder / f"{case.name}.json").write_text(to_json(seen))
    return problems(case, seen)


def run(folder: Path, share: str = "1/1") -> dict[str, list[str]]:
    """Of each case the problems; those that could not be run are left out, with a word."""
    number, shares = map(int, share.split("/"))
    left_out: dict[str, int] = {}
    for case in CASES[number - 1 :: shares]:
        if not _there(case):
            sys.stderr.write(f"left out: {case.name}, for want of {case.needs}\n")
            left_out[f"there is no {case.needs}"] = left_out.get(f"there is no {case.needs}", 0) + 1
    (folder / "left-out.json").write_text(json.dumps(left_out))
    cases = [case for case in CASES[number - 1 :: shares] if _there(case)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = dict(
            zip((case.name for case in cases), pool.map(lambda case: _tried(case, folder), cases), strict=True)
        )
    for name, found in results.items():
        sys.stderr.write(f"{name}: {'; '.join(found) or 'as expected'}\n")
    return results


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    results = run(folder, *sys.argv[2:])
    (folder / "traced.json").write_text(json.dumps(results, indent=1) + "\n")
    raise SystemExit(any(results.values()))


if __name__ == "__main__":
    main()
