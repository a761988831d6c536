"""All of tests/gpu on a machine with an NVIDIA GPU, in parts of at most eight minutes: `./run gpu`.

    ./run gpu --prepare     here, with a network: fills build/gpu, which travels with the checkout
    ./run gpu               there, without one; run again it goes on where it stopped

There it takes the machine's own Python, which may have PyTorch, JAX and CuPy; build/gpu brings what cuwheel needs.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import long
from tests.gpu import arm64_code, compiled_packages, runner

HERE = Path(__file__).parent
BROUGHT = long.ROOT / "build" / "gpu"
HOME = long.HOME / "gpu"
PART_S = 480.0
_SHARES = 4  # of the truth set, which takes seven minutes on 16 cores
_BITSANDBYTES = "0.50.2"
Counts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Part:
    """`words`: of Python, with {out} for where its report goes. `counts`: what a report says.

    `needs`: modules and programs. `brought`: files of build/gpu.
    """

    name: str
    words: Sequence[str]
    counts: Callable[[Path], Counts]
    needs: Sequence[str] = ()
    brought: Sequence[str] = ()


def of_truth(report: Path, folder: Path) -> Counts:
    """`folder`: the set."""
    from tests.gpu import compare

    results = compare.load_results(report)
    try:
        found = compare.compare(folder, results)
    except SystemExit as error:  # another GPU, another driver
        return {"skipped": {str(error): results["planned"]}}
    wrong = {
        f"{folder.name}: {each.run.id}": f"predicted {each.predicted}, seen {each.seen}" for each in found.differences
    }
    passed = len({run.id for run in found.runs}) - len(wrong)
    if len(results["runs"]) < results["planned"]:
        wrong[folder.name] = f"only {len(results['runs'])} of {results['planned']} runs in time"
    return {"passed": passed, "failed": wrong}


def of_trace(report: Path) -> Counts:
    found = json.loads((report / "traced.json").read_text())
    skipped = {f"trace: {why}": count for why, count in json.loads((report / "left-out.json").read_text()).items()}
    wrong = {f"trace: {name}": "; ".join(problems) for name, problems in found.items() if problems}
    return {"passed": len(found) - len(wrong), "failed": wrong, "skipped": skipped}


def of_graft(report: Path) -> Counts:
    rows = json.loads((report / "grafted.json").read_text())
    wrong = {f"graft: {row['what']}": json.dumps(row["seen"])[:200] for row in rows if not row["good"]}
    return {"passed": len(rows) - len(wrong), "failed": wrong}


def of_slim(report: Path) -> Counts:
    found = json.loads(report.read_text())
    told, undo = found["summary"], found["undo"]
    wrong = {f"slim: {name}": "other bytes" for name in told["different"]}
    wrong |= {f"slim: {name}": "a new error" for name in told["new_errors"]}
    wrong |= {f"slim: {run}": str(crash) for run, crash in told["crashes"].items()}
    wrong |= {f"slim: {run}": f"loaded the original: {paths[0]}" for run, paths in found["not_from_the_copy"].items()}
    if undo["status"] or undo["differ"]:
        wrong["slim --undo"] = str(undo)[:200]
    unsteady = {"slim: other bytes from run to run before slimming too": told["operators"] - told["deterministic"]}
    return {"passed": told["identical"], "failed": wrong, "skipped": {k: v for k, v in unsteady.items() if v}}


def of_slim_used(report: Path) -> Counts:
    found = json.loads(report.read_text())
    wrong = {} if found["workload"]["identical"] else {"slim --used: workload": str(found["workload"])[:200]}
    if found["undo"]["status"]:
        wrong["slim --used, --undo"] = str(found["undo"])[:200]
    return {"passed": 2 - len(wrong), "failed": wrong}


def of_code(report: Path) -> Counts:
    found = json.loads(report.read_text())
    wrong = {
        f"device code of {name}": str(each)[:200]
        for name, each in found.items()
        if each["refused"] or not each["right"] or not all(each["right"])
    }
    if not found:
        return {"passed": 0, "failed": {"device code": "no library was examined"}}
    return {"passed": len(found) - len(wrong), "failed": wrong}


def of_fleet(report: Path) -> Counts:
    """A proof from every kind of GPU here, of the GPU that the tag named, which agrees with what was predicted."""
    found = json.loads(report.read_text())
    by_gpu = {each["gpu"]: each for each in found["proofs"]}
    wrong = {} if found["here"] else {"fleet": "no GPU is seen here"}
    for gpu in found["here"]:
        proof = by_gpu.get(gpu, {}).get("proof")
        seen = proof and (proof["machine"]["gpus"][:1], proof["wheels"][0]["agreement"])
        if not proof or proof["machine"]["gpus"][0]["capability"] != gpu or seen[1] != "agreed":
            wrong[f"fleet: {gpu}"] = str(seen or by_gpu.get(gpu) or found.get("said"))[:300]
    return {"passed": len(found["here"]) - len(wrong), "failed": wrong}


def of_bitsandbytes(report: Path) -> Counts:
    """Its own status says whether all are the same: a report that came with another is not read."""
    runs = json.loads(report.read_text())
    return {"passed": min(len(each["results"]) for pair in runs.values() for each in pair)}


def _set() -> Path:
    """With the CUDA runtimes, where they were brought."""
    return BROUGHT / "set" if (BROUGHT / "set").is_dir() else HERE / "truth"


def _truth(number: int) -> Part:
    folder = _set()
    words = [str(HERE / "runner.py"), "--set", str(folder), "--share", f"{number}/{_SHARES}", "--out", "{out}"]
    return Part(name=f"truth-{number}", words=words, counts=functools.partial(of_truth, folder=folder))


def _slim(framework: str) -> Part:
    words = [str(HERE / "slim_operators.py"), "--frameworks", framework, "--starts", "1", "--report", "{out}"]
    return Part(name=f"slim-{framework}", words=words, counts=of_slim, needs=(framework,))


def _trace(number: int) -> Part:
    words = ["-m", "tests.gpu.traced", "{out}", f"{number}/2"]
    return Part(name=f"trace-{number}", words=words, counts=of_trace, needs=("nvcc", "gcc"))


def _compiled(name: str) -> Part:
    folder = str(BROUGHT / f"compiled-{name}")
    return Part(
        name=f"graft-compile-{name}",
        words=["-m", "tests.gpu.compiled_packages", name, folder, "{out}"],
        counts=of_graft,
        needs=compiled_packages.PACKAGES[name].needs,
        brought=(folder,),
    )


def parts() -> list[Part]:
    libraries = [str(BROUGHT / "bitsandbytes" / f"{name}.dll") for name in ("published", "slimmed")]
    wheels = [str(BROUGHT / "bitsandbytes" / f"{name}.whl") for name in ("published", "slimmed")]
    return [
        *(_truth(number) for number in range(1, _SHARES + 1)),
        *(_trace(number) for number in (1, 2)),
        Part(name="graft", words=[str(HERE / "grafted.py"), "{out}"], counts=of_graft, needs=("nvcc",)),
        Part(
            name="graft-compile",
            words=["-m", "tests.gpu.compiled_ahead", str(BROUGHT / "compiled-ahead"), "{out}"],
            counts=of_graft,
            brought=(str(BROUGHT / "compiled-ahead"),),
        ),
        Part(
            name="graft-compile-truth",
            words=[str(HERE / "runner.py"), "--set", str(BROUGHT / "compiled-set"), "--out", "{out}"],
            counts=functools.partial(of_truth, folder=BROUGHT / "compiled-set"),
            brought=(str(BROUGHT / "compiled-set"),),
        ),
        *(_compiled(name) for name in compiled_packages.PACKAGES),
        *(_slim(framework) for framework in ("torch", "jax", "cupy")),
        Part(
            name="slim-used",
            words=["-m", "tests.gpu.slim_used", "--no-tar", "--starts", "1", "--report", "{out}"],
            counts=of_slim_used,
            needs=("torch",),
        ),
        Part(
            name="windows-code",
            words=["-m", "tests.gpu.windows_code", "--report", "{out}", *libraries],
            counts=of_code,
            brought=libraries,
        ),
        *(
            Part(
                name=name,
                words=["-m", "tests.gpu.arm64_code", str(BROUGHT / name), "{out}"],
                counts=of_code,
                brought=(str(BROUGHT / name),),
            )
            for name in ("arm64-code", "arm64-bitsandbytes")
        ),
        Part(
            name="fleet",
            words=["-m", "tests.gpu.fleet", "{out}"],
            counts=of_fleet,
            needs=("distributed", "cryptography"),
        ),
        Part(
            name="bitsandbytes",
            words=[str(HERE / "bitsandbytes_results.py"), "same", "{out}", *wheels],
            counts=of_bitsandbytes,
            needs=("torch",),
            brought=wheels,
        ),
    ]


def run_part(part: Part, journal: long.Journal) -> None:
    began = time.monotonic()
    lacking = [each for each in part.needs if not (shutil.which(each) or importlib.util.find_spec(each))]
    lacking += [f"{each} (./run gpu --prepare)" for each in part.brought if not Path(each).exists()]
    if lacking:
        journal.end(part.name, began, skipped={f"{part.name}: there is no {', '.join(lacking)}": 1})
        return
    out, log = HOME / f"{part.name}.out", HOME / f"{part.name}.log"
    if out.is_dir():
        shutil.rmtree(out)
    out.unlink(missing_ok=True)
    words = [sys.executable, *(str(out) if word == "{out}" else word for word in part.words)]
    status = long.run_logged(words, log, limit=PART_S, env=environment())
    try:
        counts = part.counts(out)
    except (OSError, ValueError, KeyError) as error:
        counts = {"failed": {part.name: f"ended with status {status}, {error!r}: {log}"}}
    if status and not counts.get("failed") and not counts.get("skipped"):
        counts = {"failed": {part.name: f"ended with status {status}: {log}"}}
    journal.end(part.name, began, **counts)


def environment() -> dict[str, str]:
    """Of what the parts start: this checkout, then what was brought."""
    sources = (long.ROOT, *(long.ROOT / house / "src" for house in (".", "core", "lab")))
    paths = [*map(str, sources), *map(str, BROUGHT.glob(f"python-{_python()}"))]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])}
    if (BROUGHT / "programs").is_dir():
        found["CUWHEEL_OLD_PROGRAMS"] = str(BROUGHT / "programs")
    return found


def prepare(python: str, bitsandbytes: Path | None) -> None:
    """Each thing once; what cannot be had is said, and its part is skipped there."""
    from cuwheel.support import process
    from tests.fixtures import cache
    from tests.gpu import compiled_ahead, generate, old_runtimes

    BROUGHT.mkdir(parents=True, exist_ok=True)

    def packages(folder: Path) -> None:
        needed = [*cache.own_requirements(), "distributed", "cryptography"]  # a cluster on one machine
        cache.uv_install(folder, needed, python=python, platform="x86_64-manylinux_2_28")
        if shutil.which("strip"):  # zstandard alone brings 20 MB for debuggers
            process.run(["strip", "--strip-debug", *folder.rglob("*.so")], timeout=PART_S)

    def truth(folder: Path) -> None:
        for path in (HERE / "truth").iterdir():
            shutil.copy(path, folder)
        runtimes = folder / "runtimes"
        runtimes.mkdir()
        generate.copy_runtimes(runtimes)
        generate.pack(runtimes, folder / "runtimes.tar.xz")
        shutil.rmtree(runtimes)

    things = {f"python-{python}": packages, "set": truth, "programs": old_runtimes.make, "bitsandbytes": _bitsandbytes}
    things["compiled-ahead"] = compiled_ahead.make
    for name in compiled_packages.PACKAGES:
        things[f"compiled-{name}"] = functools.partial(compiled_packages.make, name)
    things["compiled-set"] = functools.partial(compiled_ahead.make_set, source=BROUGHT / "set")
    things["arm64-code"] = arm64_code.make
    if bitsandbytes:
        things["arm64-bitsandbytes"] = functools.partial(arm64_code.make_bitsandbytes, source=bitsandbytes)
    for name, make in things.items():
        _make(name, make)
    (BROUGHT / "commit.txt").write_text(long.commit())
    size = sum(path.stat().st_size for path in BROUGHT.rglob("*") if path.is_file())
    long.say(f"{BROUGHT}: {size / 1e6:.0f} MB. Where the GPU is: ./run gpu")


def _make(name: str, make: Callable[[Path], None]) -> None:
    """A folder of build/gpu, whole or not there at all."""
    if (BROUGHT / name).exists():
        return
    scratch = BROUGHT / f".{name}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        make(scratch)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other things are of use without
        long.say(f"not made: {name}: {error}")
        return
    scratch.rename(BROUGHT / name)


def _bitsandbytes(folder: Path) -> None:
    """What its published wheels have for CUDA 13.0, and the same slimmed: the rest would not travel for its size."""
    from cuwheel import api
    from tests.oracle import packages

    for platform, suffix in (("manylinux_2_24_x86_64", ".so"), ("win_amd64", ".dll")):
        wheel = packages.wheel(packages.Published(name="bitsandbytes", version=_BITSANDBYTES, platform=platform))
        library = f"bitsandbytes/libbitsandbytes_cuda130{suffix}"
        with zipfile.ZipFile(wheel) as whole:
            (folder / f"published{suffix}").write_bytes(whole.read(library))
        api.slim(folder / f"published{suffix}", machines=["h200"], output=folder / f"slimmed{suffix}")
        for which in ("published", "slimmed") if suffix == ".so" else ():
            made = folder / f"{which}.whl"
            with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as part:
                for name in whole.namelist():
                    if not name.endswith(".so"):
                        part.writestr(name, whole.read(name))
                part.write(folder / f"{which}{suffix}", library)
            (folder / f"{which}{suffix}").unlink()


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run gpu", description="All of tests/gpu, in parts of at most 8 minutes.")
    parser.add_argument("--prepare", action="store_true", help="fill build/gpu, for a machine without a network")
    parser.add_argument("--python", default="3.12", help="the version of the Python there (3.12)")
    parser.add_argument(
        "--bitsandbytes",
        type=Path,
        help=f"with --prepare: its source at the tag {arm64_code.VERSION}, to build for arm64",
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part that may take longer")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=[each.name for each in parts()])
    parser.add_argument("--fresh", action="store_true", help="forget what passed before")
    asked = parser.parse_args(words)
    if asked.prepare:
        prepare(asked.python, asked.bitsandbytes)
        return 0
    try:
        on = runner.describe_apart()
    except SystemExit as error:
        long.say(f"error: {error}")
        return 1
    journal = long.Journal(HOME / "gpu.jsonl", long.Contents())
    if asked.fresh:
        journal.path.unlink(missing_ok=True)
    HOME.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = [each for each in parts() if not asked.only or each.name in asked.only]
    known = (BROUGHT / "commit.txt").read_text() if (BROUGHT / "commit.txt").exists() else long.commit()
    head = f"`./run gpu`, {known}, {on['date']}, {on['gpu']}, driver {on['driver']}"
    runs = {part.name: functools.partial(run_part, part, journal) for part in chosen}
    return long.go(runs, journal, head=head, within=60 * asked.minutes, part_s=PART_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
