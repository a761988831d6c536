"""Compare what a GPU did with what cuwheel predicts: python tests/gpu/compare.py --set FOLDER --results FILE

Prints every disagreement, exits 1 if there is one. With --write it writes docs/why/truth.md and keeps the set and the
results in tests/gpu/truth, where a test holds later rules to them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu import observations, predictions
from tests.gpu.observations import Difference, Run
from tests.gpu.predictions import Kernel, Prediction
from tests.gpu.runner import unpack

HERE = Path(__file__).parent
KEPT = HERE / "truth"
PAGE = HERE.parents[1] / "docs" / "why" / "truth.md"
_METHOD = """\
## How it was done

`tests/gpu/generate.py` compiles small kernels with nvcc 12.4 and 13.0 to 13.4. Each kernel writes a number of its
own. The variants are made from them: fat binaries assembled entry by entry, nvcc's libraries with other containers
put in, libraries and programs as nvcc builds and links them, wheels with several libraries. `tests/gpu/runner.py`
loads each in a process of its own: bare fat binaries through `cuModuleLoadData` (module) and `cuLibraryLoadData`
(library), the others through the CUDA runtime, with lazy and with eager loading. It launches every kernel and reads
the number back. `tests/gpu/compare.py` wrote this page. A library or wheel is `partial` if only some of its kernels
ran.

`sm_90@13.0` is an entry for sm_90 that CUDA 13.0 compiled; `#2` is the second of several equal ones, `*` has debug
information, `!lz4` is compressed with LZ4, `^9.4` has that ISA in its header. Brackets enclose a container.

    python tests/gpu/generate.py --out SET [--from tests/gpu/truth]     # makes only what that set lacks
    python3 SET/runner.py --set SET --out results.json     # on the machine with the GPU
    python tests/gpu/compare.py --set SET --results results.json --write
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`before`: disagreements of the predictions that were made before the run."""

    manifest: dict[str, Any]
    results: dict[str, Any]
    runs: tuple[Run, ...]
    predicted: dict[str, Prediction]
    differences: tuple[Difference, ...]
    before: tuple[Difference, ...]


def compare(folder: Path, results: dict[str, Any]) -> Comparison:
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest["set"] != results["set"]:
        raise SystemExit("these are the results of another set")
    if (results["capability"], results["driver_cuda"]) != ("9.0", manifest["driver_cuda"]):
        raise SystemExit(f"the set is for capability 9.0 and a driver of CUDA {manifest['driver_cuda']}")
    runs = tuple(observations.read(results, {row["id"]: row["launches"] for row in manifest["variants"]}))
    driver = manifest["driver"] if results["driver"] == "?" else results["driver"]
    predicted = _predict(folder, manifest, driver)
    earlier = {row["id"]: _decoded(row["prediction"]) for row in manifest["variants"]}
    return Comparison(
        manifest=manifest,
        results=results,
        runs=runs,
        predicted=predicted,
        differences=_differences(predicted, runs, manifest["pieces"]),
        before=_differences(earlier, runs, manifest["pieces"]),
    )


def load_results(path: Path) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    results: dict[str, Any] = json.loads(text)
    return results


def _differences(
    predicted: dict[str, Prediction], runs: tuple[Run, ...], pieces: dict[str, str]
) -> tuple[Difference, ...]:
    return tuple(found for run in runs for found in observations.differences(predicted[run.id], run, pieces))


def _predict(folder: Path, manifest: dict[str, Any], driver: str) -> dict[str, Prediction]:
    """With the rules as they are now, from the files that ran."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(folder / "files.tar.xz", Path(scratch))
        found = {}
        for row in manifest["variants"]:
            on = predictions.machine(driver, manifest["driver_cuda"], row["jit"])
            found[row["id"]] = predictions.of(Path(scratch) / row["file"], on, row["markers"], row["kernels"])
        return found


def _decoded(row: dict[str, Any]) -> Prediction:
    kernels = {name: Kernel(**kernel) for name, kernel in row["kernels"].items()}
    return Prediction(outcome=row["outcome"], error=row["error"], kernels=kernels)


def page(found: Comparison) -> str:
    reader = "For whoever asks how often predictions hold on hardware."
    lines = ["# Predictions against hardware", "", reader, "", *_head(found), "", *_by_axis(found), ""]
    lines += [*_by_prediction(found), "", *_disagreements(found), "", _METHOD]
    return "\n".join(lines)


def _head(found: Comparison) -> list[str]:
    results = found.results
    variants = len({run.id for run in found.runs})
    wrong = len({difference.run.id for difference in found.differences})
    earlier = len({difference.run.id for difference in found.before})
    on = f"{results['gpu']} (capability {results['capability']}), driver {results['driver']}"
    lines = [
        f"{results['date']}, {on} (CUDA {results['driver_cuda']}), set `{results['set'][:12]}`.",
        "",
        f"**{variants} variants, {len(found.runs)} runs; {wrong} variants differ from the prediction.** Compared are",
        "the outcome, the error code and, where the variant shows it, the entry that the driver chose.",
    ]
    if earlier != wrong:
        lines.append(f"{earlier} predictions made before the run were wrong: the rules have changed since.")
    return lines


def _by_axis(found: Comparison) -> list[str]:
    axes = {row["id"]: row["axis"] for row in found.manifest["variants"]}
    wrong = Counter(axes[name] for name in {difference.run.id for difference in found.differences})
    variants = Counter(axes[name] for name in {run.id for run in found.runs})
    runs = Counter(axes[run.id] for run in found.runs)
    rows = [f"| {axis} | {variants[axis]} | {runs[axis]} | {wrong[axis]} |" for axis in dict.fromkeys(axes.values())]
    total = f"| **all** | {variants.total()} | {runs.total()} | {wrong.total()} |"
    return ["| axis | variants | runs | disagree |", "| --- | --- | --- | --- |", *rows, total]


def _by_prediction(found: Comparison) -> list[str]:
    seen = Counter(
        (found.predicted[run.id].outcome, found.predicted[run.id].error, run.outcome, run.errors, run.way)
        for run in found.runs
    )
    rows = [
        f"| {outcome} {error or ''} | {happened} {', '.join(map(str, errors))} | {way} | {count} |"
        for (outcome, error, happened, errors, way), count in sorted(seen.items(), key=str)
    ]
    return ["| predicted | seen | loaded as | runs |", "| --- | --- | --- | --- |", *rows]


def _disagreements(found: Comparison) -> list[str]:
    if not found.differences:
        return ["## Disagreements", "", "None."]
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for each in found.differences:
        key = (each.run.id, each.what, each.predicted, each.seen)
        alike.setdefault(key, []).append(f"{each.run.way} {each.run.loading.lower()}")
    rows = [
        f"| {name} | {what} | {predicted} | {seen} | {', '.join(ways)} |"
        for (name, what, predicted, seen), ways in alike.items()
    ]
    return [
        "## Disagreements",
        "",
        "| variant | about | predicted | seen | where |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]


def keep(folder: Path, results: dict[str, Any]) -> None:
    KEPT.mkdir(exist_ok=True)
    for name in ("manifest.json", "files.tar.xz"):
        shutil.copyfile(folder / name, KEPT / name)
    for run in results["runs"]:
        del run["seconds"], run["stderr"]
    packed = gzip.compress(json.dumps(results, separators=(",", ":")).encode(), mtime=0)
    (KEPT / "results.json.gz").write_bytes(packed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", type=Path, required=True, help="the folder that generate.py made")
    parser.add_argument("--results", type=Path, required=True, help="what runner.py wrote")
    parser.add_argument("--write", action="store_true", help="write docs/why/truth.md, keep set and results")
    args = parser.parse_args()
    results = load_results(args.results)
    found = compare(args.set, results)
    text = page(found)
    sys.stdout.write(text)
    if args.write:
        PAGE.write_text(text)
        keep(args.set, results)
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())
