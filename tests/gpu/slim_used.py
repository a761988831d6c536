"""Cut the PyTorch that is installed to one workload: its results, what falls outside, sizes and starts.

    python -m tests.gpu.slim_used --report report.json [--cuwheel 'python -m cuwheel']

Needs an NVIDIA GPU. The packages are linked into a second folder, as by slim_operators.py, which is then cut to what
`workload.py` loads: a small transformer and 67 operators. 18 operators that it does not have run with the original and
with the copy, and with `--all` so do those of slim_operators.py: each is the same, fails, or silently gives other bits.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.gpu import slim_operators as shared

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=Path("report.json"))
    parser.add_argument("--cuwheel", type=shlex.split, default=[sys.executable, "-m", "cuwheel"])
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--site", type=Path, default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="also all operators of slim_operators.py")
    parser.add_argument("--no-tar", action="store_true", help="do not measure what an image's layer would hold")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.scratch) as name:
        report = _examine(Path(name), args)
    report["seconds"] = round(time.monotonic() - began, 1)
    args.report.write_text(json.dumps(report, indent=1))
    shown = {key: value for key, value in report.items() if key not in ("slim", "operators", "verbs", "schema")}
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    return 0 if report["workload"]["identical"] and report["undo"]["status"] == 0 else 1


def _examine(scratch: Path, args: argparse.Namespace) -> dict[str, Any]:
    overlay = scratch / "overlay"
    shared._link(args.site, overlay)
    before = shared._sizes(overlay)
    tars = {} if args.no_tar else {"original": _tar(overlay)}
    hashes = [_workload(scratch, None) for _ in range(2)]
    kept_out = [_workload(scratch, None, "held-out") for _ in range(2)]
    trace = args.report.with_name("trace.json")
    command = [*args.cuwheel, "trace", "-o", str(trace), "--", sys.executable, str(HERE / "workload.py")]
    # As the workload runs otherwise: settings of cuBLAS decide which kernels it takes.
    env = {**_environ(None), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    traced = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=200)
    slim = _slim(overlay, trace, args)
    cut = _workload(scratch, overlay)
    cut_out = _workload(scratch, overlay, "held-out")
    if tars:
        tars["cut to the workload"] = _tar(overlay)
    starts = shared._starts(scratch, overlay, args)
    operators, after = _all_operators(scratch, overlay) if args.all else ([], {})
    return {
        "schema": "cuwheel.slim-used/1",
        "machine": shared._machine(),
        "trace": {"status": traced.returncode, "told": traced.stderr[-3000:]},
        "slim": slim,
        "workload": {"before": hashes[0].get("hash"), "after": cut.get("hash"), **_fates(hashes, cut)},
        "held_out": _fates(kept_out, cut_out),
        "sizes": {"before": before, "after": shared._sizes(overlay), "libraries": _libraries(slim)},
        "tar": tars,
        "start": starts,
        "operators": operators,
        "summary": _summary(operators, after),
        "guard": _guard(overlay),
        "verbs": _verbs(overlay, args),
        "undo": shared._undo(overlay, args),
    }


def _tar(folder: Path) -> dict[str, int]:
    """Of the packages, as an image's layer holds them: the tar, and what ZSTD (level 3) makes of it."""
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        return {}
    packed = zstandard.ZstdCompressor(level=3, threads=-1).compressobj()
    plain = stored = 0
    command = ["tar", "c", "--exclude=.cuwheel", "-C", str(folder), "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        for piece in iter(lambda: child.stdout.read(1 << 22) if child.stdout else b"", b""):
            plain += len(piece)
            stored += len(packed.compress(piece))
    return {"tar": plain, "zstd": stored + len(packed.flush())}


def _fates(before: list[dict[str, Any]], after: dict[str, Any]) -> dict[str, Any]:
    """`identical`: the transformer, where there is one, and each operator that gives the same bytes twice."""
    rows = {}
    for name, first in before[0].get("operators", {}).items():
        found = after.get("operators", {}).get(name, {"error": after.get("error", "did not run")})
        if "hash" not in first or before[1].get("operators", {}).get(name) != first:
            fate = f"not comparable {first.get('error', '')}".strip()
        elif "error" in found:
            fate = f"fails: {found['error']}"
        else:
            fate = "same" if found == first else "other bits"
        rows[name] = fate
    same = all(each.get("hash") == after.get("hash") for each in before)
    others = {name: fate for name, fate in rows.items() if fate != "same"}
    return {
        "identical": same and bool(rows) and not any(not fate.startswith("not") for fate in others.values()),
        "operators": len(rows),
        "same": sum(fate == "same" for fate in rows.values()),
        "others": others,
        "problem": [each["error"] for each in (*before, after) if "error" in each],
    }


def _all_operators(scratch: Path, overlay: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    original = [shared._child("torch", scratch / f"original-{n}.json", None, "LAZY") for n in range(2)]
    after = shared._child("torch", scratch / "cut.json", overlay, "LAZY")
    return _compared(original, after), after


def _libraries(slim: dict[str, Any]) -> dict[str, float]:
    """Of torch and NVIDIA's packages, those with device code."""
    rows = [row for row in slim.get("files", ()) if row["path"].split("/")[0] in ("torch", "nvidia")]
    rows = [row for row in rows if not row["path"].endswith(".a")]
    before, after = (sum(row[f"bytes_{when}"] for row in rows) for when in ("before", "after"))
    return {"count": len(rows), "before": before, "after": after, "share": after / before if before else 1.0}


def _slim(overlay: Path, trace: Path, args: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    command = [*args.cuwheel, "slim", str(overlay), "--used", str(trace), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"slim ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}") from None
    return {**answer, "status": done.returncode, "slim_seconds": round(time.monotonic() - began, 1)}


def _environ(overlay: Path | None) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(overlay) if overlay else "",
        "CUDA_MODULE_LOADING": "LAZY",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _workload(scratch: Path, overlay: Path | None, *which: str) -> dict[str, Any]:
    place = scratch / "workload.json"
    place.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "workload.py"), str(place), *which]
    done = subprocess.run(command, env=_environ(overlay), capture_output=True, text=True, check=False, timeout=120)
    if done.returncode or not place.exists():
        return {"error": done.stderr[-800:]}
    answer: dict[str, Any] = json.loads(place.read_text())
    return answer


def _compared(original: list[dict[str, Any]], after: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, first in original[0]["operators"].items():
        second = original[1]["operators"].get(name, {})
        known = {*first.get("hashes", ()), *second.get("hashes", ())}
        found = after["operators"].get(name, {})
        if len(known) != 1 or first.get("error"):
            fate = "not comparable"
        elif not found:
            fate = "not prepared"  # its inputs could not be made: what comes before it in its group failed
        elif found.get("error"):
            fate = "fails"
        else:
            fate = "same" if set(found.get("hashes", ())) == known else "other bits"
        rows.append({"operator": name, "fate": fate, "error": found.get("error")})
    return rows


def _summary(rows: list[dict[str, Any]], after: dict[str, Any]) -> dict[str, Any]:
    fates = ("same", "fails", "other bits", "not prepared", "not comparable")
    return {
        **{fate: sum(row["fate"] == fate for row in rows) for fate in fates},
        "silently other": [row["operator"] for row in rows if row["fate"] == "other bits"],
        "clearly told": sum("no kernel image" in (row["error"] or "") for row in rows if row["fate"] == "fails"),
        "crash": after.get("crash"),
    }


def _guard(overlay: Path) -> list[str]:
    """What an operator outside the workload says, in an environment whose .pth files are read."""
    script = (
        f"import site; site.addsitedir({str(overlay)!r})\nimport torch\n"
        "a = torch.randn(64, 64, device='cuda')\n"
        "for work in (lambda: torch.linalg.svd(a), lambda: torch.fft.fft2(a), lambda: torch.linalg.eigh(a + a.T)):\n"
        "    try: work(); print('ok')\n"
        "    except RuntimeError as error:\n"
        "        words = str(error)[:120].replace(chr(10), ' ')\n"
        "        print(type(error).__name__, words, '| notes:', getattr(error, '__notes__', None))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=_environ(overlay), capture_output=True, text=True, check=False, timeout=120)
    return [*done.stdout.splitlines(), done.stderr[-500:]]


def _verbs(overlay: Path, args: argparse.Namespace) -> dict[str, str]:
    """What the verbs say of the copy."""
    library = str(overlay / "torch" / "lib" / "libtorch_cuda.so")
    found = {}
    for words in (["check", library, "--on", "this"], ["inspect", library]):
        done = subprocess.run([*args.cuwheel, *words], capture_output=True, text=True, check=False, timeout=120)
        found[words[0]] = f"status {done.returncode}: " + done.stdout[-1500:] + done.stderr[-300:]
    return found


if __name__ == "__main__":
    sys.exit(main())
