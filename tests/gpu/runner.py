"""Run every variant of a set on this machine's GPU: python3 runner.py --set FOLDER --out results.json

Needs nothing but Python and a driver. Each variant runs in a process of its own, so that a crash or a hang is a
result too; under lazy and under eager loading.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime as dt
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "cuwheel.truth/1"
LOADINGS = ("LAZY", "EAGER")
STEPS = ("number", "cudaMalloc", "cudaMemset", "launch", "cudaDeviceSynchronize", "cudaMemcpy")
_LIBCUDA = ("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
_SWITCHES = {"disabled": "CUDA_DISABLE_PTX_JIT", "forced": "CUDA_FORCE_PTX_JIT"}
_TIMEOUT_S = 60.0


class StepError(Exception):
    """A call of the driver gave an error; it stands in the log already."""


class Log:
    """What happened, a line at a time: what was written stays when the process dies."""

    def __init__(self, way: str, kernel: str) -> None:
        self.way, self.kernel = way, kernel

    def step(self, name: str, code: int, error: str) -> None:
        if code:
            self._line(step=name, code=code, error=error)
            raise StepError(name)

    def number(self, value: int) -> None:
        self._line(number=value)

    def start(self) -> None:
        self._line(started=True)

    def _line(self, **fact: object) -> None:
        line = json.dumps({"way": self.way, "kernel": self.kernel, **fact})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def load_cuda() -> ctypes.CDLL:
    for name in _LIBCUDA:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise SystemExit("there is no libcuda.so.1 here")


class Driver:
    """The driver's own interface, with every result kept."""

    def __init__(self, log: Log) -> None:
        self.cuda = load_cuda()
        self.log = log

    def call(self, function: str, *arguments: Any) -> None:
        code = int(getattr(self.cuda, function)(*arguments))
        self.log.step(function, code, self.name(code) if code else "")

    def name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self.cuda.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"?").decode()

    def context(self) -> None:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def launch(self, function: ctypes.c_void_p) -> None:
        memory, number = ctypes.c_uint64(), ctypes.c_int(0)
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4))
        self.call("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(memory), ctypes.c_void_p))
        self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", ctypes.byref(number), memory, ctypes.c_size_t(4))
        self.log.number(number.value)


def as_module(driver: Driver, image: ctypes.Array[ctypes.c_char], kernel: bytes) -> None:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuModuleLoadData", ctypes.byref(module), image)
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, kernel)
    driver.launch(function)


def as_library(driver: Driver, image: ctypes.Array[ctypes.c_char], kernel: bytes) -> None:
    library, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuLibraryLoadData", ctypes.byref(library), image, None, None, 0, None, None, 0)
    driver.call("cuLibraryGetKernel", ctypes.byref(function), library, kernel)
    driver.launch(function)


def run_bare(path: Path, kernels: list[str]) -> None:
    data = path.read_bytes()
    # Room behind it: nothing tells the driver where the image ends but the image.
    image = ctypes.create_string_buffer(data + bytes(64), len(data) + 64)
    for way, load in (("module", as_module), ("library", as_library)):
        log = Log(way, kernels[0])
        log.start()
        driver = Driver(log)
        try:
            driver.context()
            load(driver, image, kernels[0].encode())
        except StepError:
            continue


def run_library(path: Path, kernels: list[str], cudart: str) -> None:
    log = Log("runtime", "")
    log.start()
    if cudart:
        runtime = ctypes.CDLL(cudart, mode=ctypes.RTLD_GLOBAL)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        Log("runtime", "").step("dlopen", -1, str(error))
    names = runtime if cudart else library
    for kernel in kernels:
        _launch(library, kernel, names)


def _launch(library: ctypes.CDLL, kernel: str, names: ctypes.CDLL) -> None:
    log = Log("runtime", kernel)
    log.start()
    out = (ctypes.c_int * len(STEPS))()
    failed = getattr(library, f"run_{kernel}")(out)
    if not failed:
        log.number(out[0])
        return
    with contextlib.suppress(StepError):
        log.step(STEPS[failed], out[failed], _runtime_name(names, out[failed]))


def run_program(path: Path, kernels: list[str], cudart: str) -> None:
    """It launches its kernels itself, and tells of each: its name, the step that failed, the result, the number."""
    Log("runtime", "").start()
    path.chmod(0o700)
    env = {**os.environ, "LD_LIBRARY_PATH": f"{Path(cudart).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    done = subprocess.run([str(path)], env=env, stdout=subprocess.PIPE, check=False)
    for line in done.stdout.decode(errors="replace").splitlines():
        kernel, step, code, number = line.split()
        if kernel not in kernels:
            continue
        log = Log("runtime", kernel)
        log.start()
        if step == "0":
            log.number(int(number))
            continue
        try:
            log.step(STEPS[int(step)], int(code), "?")
        except StepError:
            continue


def run_package(path: Path, kernels: list[str], cudart: str) -> None:
    """The libraries of a wheel, in one process."""
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(scratch)  # noqa: S202 - of our own making
        runtime = ctypes.CDLL(cudart, mode=ctypes.RTLD_GLOBAL)
        Log("runtime", "").start()
        opened = [ctypes.CDLL(str(each)) for each in sorted(Path(scratch).rglob("*.so"))]
        for kernel in kernels:
            _launch(next(each for each in opened if hasattr(each, f"run_{kernel}")), kernel, runtime)


def _runtime_name(runtime: ctypes.CDLL, code: int) -> str:
    try:
        function = runtime.cudaGetErrorName
    except AttributeError:  # a static runtime is hidden
        return "?"
    function.restype = ctypes.c_char_p
    return (function(code) or b"?").decode()


def child(folder: Path, variant: dict[str, Any]) -> None:
    path = folder / variant["file"]
    through_runtime = {"library": run_library, "program": run_program, "package": run_package}
    if run := through_runtime.get(variant["form"]):
        run(path, variant["launches"], _cudart(folder, variant["cudart"]))
    else:
        run_bare(path, variant["launches"])


def _cudart(folder: Path, name: str) -> str:
    """The set's own runtime, or the system's where the set came without."""
    path = folder / name
    return name and (str(path) if path.exists() else path.name)


def run_one(folder: Path, variant: dict[str, Any], loading: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    env |= {"CUDA_MODULE_LOADING": loading, "CUDA_CACHE_DISABLE": "1"}
    if switch := _SWITCHES.get(variant["jit"]):
        env[switch] = "1"
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--child", json.dumps(variant)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([*command, "--set", str(folder)], env=env, stdout=out, stderr=err)
        try:
            status: int | str = process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = "timeout"
        out.seek(0)
        lines = list(_whole_lines(out.read().decode(errors="replace")))
        err.seek(0)
        said = err.read().decode(errors="replace")[-500:]
    return {
        "id": variant["id"],
        "loading": loading,
        "status": status,
        "log": lines,
        "stderr": said,
        "seconds": round(time.monotonic() - began, 3),
    }


def _whole_lines(text: str) -> Iterator[dict[str, Any]]:
    """What a process told before it died may end in the middle of a line."""
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def describe() -> dict[str, Any]:
    """The GPU and the driver, from the driver."""
    cuda = load_cuda()
    if code := cuda.cuInit(0):
        raise SystemExit(f"cuInit gives {code}: there is no GPU to run on")
    device, number, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, 128, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(number), 75, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    capability = f"{number.value}.{minor.value}"
    cuda.cuDriverGetVersion(ctypes.byref(number))
    return {
        "gpu": name.value.decode(),
        "capability": capability,
        "driver_cuda": f"{number.value // 1000}.{number.value % 1000 // 10}",
        "driver": _driver_version(),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
    }


def _driver_version() -> str:
    """As the kernel's half says it: libcuda knows only the CUDA version."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
        except OSError:
            text = ""
    found = re.search(r"\d{3}\.\d+(\.\d+)?", text)
    return found[0] if found else "?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", type=Path, required=True, help="the folder that generate.py made")
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which no variant is started")
    parser.add_argument("--only", default="", help="variants whose id or axis holds this")
    parser.add_argument("--share", default="1/1", help="the first of four: 1/4")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.set, json.loads(args.child))
        return
    with tempfile.TemporaryDirectory() as scratch:
        run_all(args, Path(scratch))


def unpack(path: Path, folder: Path, only: str | None = None) -> None:
    """With the standard library's filter where it has one: Debian's Python 3.11.2 has none."""
    with tarfile.open(path) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extract(only, folder) if only else archive.extractall(folder)  # noqa: S202 - made by these tests


def run_all(args: argparse.Namespace, folder: Path) -> None:
    manifest = json.loads((args.set / "manifest.json").read_text())
    for path in sorted(args.set.glob("*.tar.xz")):
        unpack(path, folder)
    chosen = [each for each in manifest["variants"] if args.only in each["id"] or args.only in each["axis"]]
    number, shares = map(int, args.share.split("/"))
    chosen = chosen[number - 1 :: shares]
    keys = ("id", "form", "file", "launches", "cudart", "jit")
    told = [{key: each[key] for key in keys} for each in chosen]
    began = time.monotonic()
    results: dict[str, Any] = {"schema": SCHEMA, "set": manifest["set"], **describe_apart()}

    def work(job: tuple[dict[str, Any], str]) -> dict[str, Any] | None:
        if time.monotonic() - began > args.budget:
            return None
        return run_one(folder, *job)

    # All of them under lazy loading first: if time runs out, every variant has run once.
    jobs = [(variant, loading) for loading in LOADINGS for variant in told]
    runs: list[dict[str, Any]] = []
    results |= {"planned": len(jobs), "runs": runs}
    with ThreadPoolExecutor(args.jobs) as pool:
        for done in pool.map(work, jobs):
            if done is not None:
                runs.append(done)
            if done is not None and len(runs) % 100 == 0:
                sys.stderr.write(f"{len(runs)} of {len(jobs)} runs, {time.monotonic() - began:.0f} s\n")
                _save(args.out, results)  # what is on disk stays if this is killed
    results["seconds"] = round(time.monotonic() - began, 1)
    _save(args.out, results)
    crashed = sum(run["status"] != 0 for run in runs)
    sys.stderr.write(f"{len(runs)} of {len(jobs)} runs, {crashed} crashed or hung: {args.out}\n")


def _save(path: Path, results: dict[str, Any]) -> None:
    path.write_text(json.dumps(results, separators=(",", ":")) + "\n")


def describe_apart() -> dict[str, Any]:
    """In a child, for the parent must not hold the GPU."""
    code = "import json, runner; print(json.dumps(runner.describe()))"
    here = str(Path(__file__).resolve().parent)
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=here)
    if done.returncode:
        raise SystemExit(done.stderr or "the GPU could not be described")
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


if __name__ == "__main__":
    main()
