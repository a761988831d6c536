"""Slim the PyTorch, JAX and CuPy that are installed, and see that every operator gives the same bytes.

    python tests/gpu/slim_operators.py --report report.json [--cuwheel 'python -m cuwheel'] [--for this]

Needs an NVIDIA GPU and no network. The installed packages are linked into a second folder, which is slimmed and
put before the first on PYTHONPATH; nothing that is installed changes. Operators run in child processes with the
original twice (what differs there is not deterministic), then with the slimmed copy, under lazy and eager loading.
Takes up to eight minutes on 16 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = (
    *("torch", "torchgen", "functorch", "torchvision", "torchaudio", "nvidia", "bitsandbytes"),
    *("jaxlib", "jax_plugins", "jax_cuda13_plugin", "jax_cuda12_plugin", "cupy", "cupy_backends", "cupyx"),
)
FRAMEWORKS = ("torch", "jax", "cupy")
CHILD_S = 200
AT_ONCE = 5
# Run name → whether the slimmed copy is used, and how modules are loaded.
RUNS = {
    "original lazy 1": (False, "LAZY"),
    "original lazy 2": (False, "LAZY"),
    "original eager": (False, "EAGER"),
    "slimmed lazy": (True, "LAZY"),
    "slimmed eager": (True, "EAGER"),
}


def main() -> int:
    args = _arguments()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.scratch) as name:
        report = _examine(Path(name), args)
    report["seconds"] = round(time.monotonic() - began, 1)
    args.report.write_text(json.dumps(report, indent=1))
    _say(json.dumps({**report["summary"], "sizes": report["sizes"], "start": report["start"]}, indent=1))
    return 0 if report["summary"]["good"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=Path("report.json"))
    parser.add_argument("--cuwheel", type=shlex.split, default=[sys.executable, "-m", "cuwheel"])
    parser.add_argument("--for", dest="machines", default="this")
    parser.add_argument("--scratch", type=Path, help="a folder on the file system of the packages")
    parser.add_argument("--site", type=Path, default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--options", type=shlex.split, default=[], help="further options for cuwheel slim")
    parser.add_argument("--frameworks", type=lambda words: words.split(","), default=list(FRAMEWORKS))
    parser.add_argument("--lazy-only", action="store_true", help="half the runs: no eager loading")
    parser.add_argument("--starts", type=int, default=3, help="how often a process is started with each")
    return parser.parse_args()


def _examine(scratch: Path, args: argparse.Namespace) -> dict[str, Any]:
    overlay = scratch / "overlay"
    linked = _link(args.site, overlay)
    before = _sizes(overlay)
    slim = _slim(overlay, args)
    after = _sizes(overlay)
    # Times and memory first, one at a time: nothing else must run beside them. The first pair warms the disk.
    starts = _starts(scratch, overlay, args)
    chosen = [run for run in RUNS if not (args.lazy_only and run.endswith("eager"))]
    jobs = [(run, framework) for framework in args.frameworks for run in chosen]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(lambda job: _run(scratch, overlay, *job), jobs))
    results = dict(zip(jobs, done, strict=True))
    operators = [row for framework in args.frameworks for row in _compare(framework, results)]
    return {
        "schema": "cuwheel.slim-operators/1",
        "machine": _machine(),
        "slim": slim,
        "sizes": {"linked_files": linked, "before": before, "after": after},
        "start": starts,
        "runs": {f"{run}, {framework}": _short(results[run, framework]) for run, framework in jobs},
        "not_from_the_copy": _elsewhere(overlay, args.site, results),
        "operators": operators,
        "summary": _summary(operators, results),
        "undo": _undo(overlay, args),
    }


def _starts(scratch: Path, overlay: Path, args: argparse.Namespace) -> dict[str, dict[str, list[Any]]]:
    """From the start of a process to its first result, with the libraries out of the system's cache and in it."""
    found: dict[str, dict[str, list[Any]]] = {"original": {"cold": [], "warm": []}, "slimmed": {"cold": [], "warm": []}}
    for number in range(args.starts):
        for which, path in (("original", None), ("slimmed", overlay)):
            for state in ("cold", "warm") if number else ("warm",):  # the first warms what both share
                if state == "cold":
                    _evict(path or args.site)
                answer = _child("start", scratch / "start.json", path, "LAZY")
                if number:
                    found[which][state].append(answer)
    return found


def _evict(folder: Path) -> None:
    """The files of the packages are out of the system's cache afterwards, as far as it lets us."""
    for name in PACKAGES:
        for path in (folder / name).rglob("*"):
            if path.is_file():
                handle = os.open(path, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)


def _link(site: Path, overlay: Path) -> int:
    """The packages and their metadata, by hard links where the file system allows."""
    overlay.mkdir(parents=True)
    names = [each for each in PACKAGES if (site / each).is_dir()]
    stems = ("torch", "nvidia_", "jaxlib", "jax_cuda", "cupy", "bitsandbytes")
    names += [each.name for each in site.glob("*.dist-info") if each.name.lower().startswith(stems)]
    count = 0

    def copy(source: str, target: str) -> None:
        nonlocal count
        count += 1
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    for name in names:
        shutil.copytree(site / name, overlay / name, symlinks=True, copy_function=copy)
    # Their own folders of libraries alone: numpy, say, stays where it is, and loads its libraries from beside it.
    for name in [each.name for each in site.glob("*.libs") if each.name.lower().startswith(stems)]:
        shutil.copytree(site / name, overlay / name, symlinks=True, copy_function=copy)
    return count


def _sizes(folder: Path) -> dict[str, int]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    files = [path for path in files if ".cuwheel" not in path.parts]
    libraries = [path for path in files if ".so" in path.name]
    return {
        "all_bytes": sum(path.stat().st_size for path in files),
        "library_bytes": sum(path.stat().st_size for path in libraries),
    }


def _slim(overlay: Path, args: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    command = [*args.cuwheel, "slim", str(overlay), "--for", args.machines, "--json", *args.options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    if done.returncode:
        raise SystemExit(f"slim ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["seconds"] = round(time.monotonic() - began, 2)
    return answer


def _undo(overlay: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The originals are links to what is installed: after undoing they must be again."""
    done = subprocess.run([*args.cuwheel, "slim", "--undo", str(overlay)], capture_output=True, text=True, check=False)
    pairs = [(path, args.site / path.relative_to(overlay)) for path in overlay.rglob("*") if path.is_file()]
    wrong = [str(path) for path, there in pairs if not there.exists() or path.stat().st_size != there.stat().st_size]
    return {"status": done.returncode, "error": done.stderr[-500:], "files": len(pairs), "differ": wrong[:20]}


def _run(scratch: Path, overlay: Path, run: str, framework: str) -> dict[str, Any]:
    slimmed, loading = RUNS[run]
    place = scratch / f"{run}-{framework}.json".replace(" ", "-")
    return _child(framework, place, overlay if slimmed else None, loading)


def _child(what: str, place: Path, overlay: Path | None, loading: str) -> dict[str, Any]:
    """A process of its own; one that crashes or hangs is a result too."""
    env = {
        **os.environ,
        "CUDA_MODULE_LOADING": loading,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_FLAGS": "--xla_gpu_autotune_level=0",
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
        "TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp(dir=place.parent),
        "CUDA_CACHE_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(overlay) if overlay else "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(HERE / "operators.py"), what, str(place)]
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=CHILD_S)
    except subprocess.TimeoutExpired:
        return {"crash": f"no answer within {CHILD_S} s", "operators": {}, "loaded": []}
    if done.returncode or not place.exists():
        return {"crash": f"status {done.returncode}: {done.stderr[-600:]}", "operators": {}, "loaded": []}
    answer: dict[str, Any] = json.loads(place.read_text())
    return {**answer, "crash": None, "wall_s": round(time.monotonic() - began, 2)}


def _compare(framework: str, results: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(
        name for (_, which), result in results.items() if which == framework for name in result["operators"]
    )
    return [
        _row(
            framework,
            name,
            {run: results[run, framework]["operators"].get(name) for run in RUNS if (run, framework) in results},
        )
        for name in names
    ]


def _row(framework: str, name: str, by_run: dict[str, Any]) -> dict[str, Any]:
    first, second, eager = (by_run.get(run) or {} for run in list(RUNS)[:3])
    known = {*first.get("hashes", ()), *second.get("hashes", ())}
    row: dict[str, Any] = {
        "framework": framework,
        "operator": name,
        "deterministic": len(known) == 1,
        "error_before": first.get("error") or second.get("error"),
    }
    for loading, before in (("lazy", first), ("eager", eager)):
        if f"slimmed {loading}" not in by_run:
            continue
        after = by_run[f"slimmed {loading}"] or {}
        row[f"{loading}_identical"] = (
            bool(known) and set(after.get("hashes", ())) <= known and bool(after.get("hashes"))
        )
        row[f"{loading}_error"] = after.get("error")
        row[f"{loading}_new_error"] = bool(after.get("error")) and not before.get("error") and not row["error_before"]
    return row


def _summary(operators: list[dict[str, Any]], results: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    deterministic = [row for row in operators if row["deterministic"]]
    different = [row for row in deterministic if not (row["lazy_identical"] and row.get("eager_identical", True))]
    new = [row for row in operators if row["lazy_new_error"] or row.get("eager_new_error")]
    crashes = {
        f"{run}, {framework}": result["crash"] for (run, framework), result in results.items() if result["crash"]
    }
    return {
        "good": bool(deterministic) and not different and not new and not any("slimmed" in run for run in crashes),
        "operators": len(operators),
        "deterministic": len(deterministic),
        "identical": len(deterministic) - len(different),
        "different": [f"{row['framework']} {row['operator']}" for row in different],
        "new_errors": [
            f"{row['framework']} {row['operator']}: {row['lazy_error'] or row.get('eager_error')}" for row in new
        ],
        "errors_before_too": [f"{row['framework']} {row['operator']}" for row in operators if row["error_before"]],
        "crashes": crashes,
    }


def _elsewhere(overlay: Path, site: Path, results: dict[tuple[str, str], dict[str, Any]]) -> dict[str, list[str]]:
    """Libraries that a slimmed run loaded from the original after all: those prove nothing."""
    found = {}
    for (run, framework), result in results.items():
        stray = [
            path
            for path in result["loaded"]
            if path.startswith(str(site)) and (overlay / Path(path).relative_to(site)).exists()
        ]
        if "slimmed" in run and stray:
            found[f"{run}, {framework}"] = stray
    return found


def _short(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result.get(key) for key in ("crash", "wall_s", "seconds")}


def _machine() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return "nvidia-smi is not here"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
