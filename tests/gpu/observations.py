"""What the runner saw, and where it is not what was predicted: python -m tests.gpu.observations SET results.json

That prints where a run differs from what was predicted when the set was made, on any machine with Python.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.gpu.predictions import Prediction

CRASHED, HUNG = -1, -2
_RUNS = frozenset({"native", "compatible", "jit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One kernel of one variant, loaded in one way: the number that it wrote, or the error and where it came up."""

    marker: int | None = None
    error: int | None = None
    step: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.error in (CRASHED, HUNG):
            return "crashed" if self.error == CRASHED else "hung"
        if self.error is not None:
            return f"{self.error} {self.name} at {self.step}"
        return f"ran, {self.marker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`kernels`: in the order in which they were launched."""

    id: str
    way: str
    loading: str
    kernels: dict[str, Seen]

    @property
    def outcome(self) -> str:
        """`runs`, `partial` or `fails`."""
        failed = [each for each in self.kernels.values() if each.error is not None]
        if not failed:
            return "runs"
        return "fails" if len(failed) == len(self.kernels) else "partial"

    @property
    def errors(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(each.error for each in self.kernels.values() if each.error is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`what`: outcome, error, or entry: another one was taken than was said."""

    run: Run
    what: str
    predicted: str
    seen: str


def read(results: dict[str, Any], launches: dict[str, list[str]]) -> Iterator[Run]:
    """`launches`: the kernels of each variant. What a process had not told when it died is its crash."""
    for raw in results["runs"]:
        for way in dict.fromkeys(line["way"] for line in raw["log"]):
            lines = [line for line in raw["log"] if line["way"] == way]
            kernels = {kernel: _seen(raw, lines, kernel) for kernel in launches[raw["id"]]}
            yield Run(id=raw["id"], way=way, loading=raw["loading"], kernels=kernels)


def _seen(raw: dict[str, Any], lines: list[dict[str, Any]], kernel: str) -> Seen:
    for line in lines:
        if line["kernel"] in (kernel, "") and "code" in line:
            return Seen(error=line["code"], step=line["step"], name=line["error"])
        if line["kernel"] == kernel and "number" in line:
            return Seen(marker=line["number"])
    return Seen(error=HUNG if raw["status"] == "timeout" else CRASHED, step="?", name=str(raw["status"]))


def differences(prediction: Prediction, run: Run, pieces: Mapping[str, str]) -> Iterator[Difference]:
    """Outcome and error of the whole, then the same of each kernel, and which entry ran.

    `pieces`: who writes which number.
    """
    said = "runs" if prediction.outcome in _RUNS else prediction.outcome
    if said != run.outcome:
        told = f"{prediction.outcome} {prediction.error or ''}"
        yield Difference(run=run, what="outcome", predicted=told, seen=f"{run.outcome} {_listed(run.errors)}")
    elif prediction.error is not None and prediction.error not in run.errors:
        yield Difference(run=run, what="error", predicted=str(prediction.error), seen=_listed(run.errors))
    for name, seen in run.kernels.items():
        expected = prediction.kernels.get(name)
        if expected is None:  # of a mixture only the whole is predicted
            continue
        if expected.error != seen.error:
            told = f"{name}: {expected.error or 'runs'}"
            yield Difference(run=run, what="error", predicted=told, seen=f"{name}: {seen}")
        elif expected.marker != seen.marker:
            yield Difference(
                run=run,
                what="entry",
                predicted=f"{name}: {_entry(expected.marker, pieces)}",
                seen=f"{name}: {_entry(seen.marker, pieces)}",
            )


def _entry(marker: int | None, pieces: Mapping[str, str]) -> str:
    """Whose number it is; two parts of it where objects were linked."""
    if marker is None:
        return "none"
    first, second = divmod(marker % 1_000_000, 1000)
    return " + ".join(pieces.get(str(part), str(part)) for part in (first, second) if part) or str(marker)


def _listed(errors: tuple[int, ...]) -> str:
    return ", ".join(map(str, errors))


def main(folder: str, results: str) -> None:
    manifest = json.loads((Path(folder) / "manifest.json").read_text())
    rows = {row["id"]: row for row in manifest["variants"]}
    runs = list(read(json.loads(Path(results).read_text()), {name: row["launches"] for name, row in rows.items()}))
    lines: Counter[str] = Counter()
    for run in runs:
        said = rows[run.id]["prediction"]
        kernels = {name: SimpleNamespace(**each) for name, each in said["kernels"].items()}
        predicted: Any = SimpleNamespace(**{**said, "kernels": kernels})
        told = "; ".join(f"{name} {seen}" for name, seen in run.kernels.items())
        for each in differences(predicted, run, manifest["pieces"]):
            where = f"{run.id} | {run.way} {run.loading.lower()}"
            lines[f"{where} | {each.what}: predicted {each.predicted}, seen {each.seen} | {told}"] += 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    wrong = len({line.split(" | ")[0] for line in lines})
    sys.stdout.write(f"{len(runs)} runs of {len({run.id for run in runs})} variants, {wrong} differ\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
