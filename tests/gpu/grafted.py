"""Grafted libraries on a GPU: they give what the combined build gives, bit for bit, and misfits the foretold error.

    PYTHONPATH=.:src python3 tests/gpu/grafted.py OUT        needs nvcc and a GPU of capability 9.0

Each library is loaded by a process of its own. Exits 1 where something is not as it should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cuwheel
from tests.fixtures.grafts import RECIPES, SOURCES

_RUN = """
import ctypes, sys, json
lib = ctypes.CDLL(sys.argv[1]); cuda = ctypes.CDLL(sys.argv[2])
def array(kind, values):
    data = (kind * len(values))(*values); at = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(at), ctypes.sizeof(data)) == 0
    assert cuda.cudaMemcpy(at, data, ctypes.sizeof(data), 1) == 0
    return at, data
def back(at, data):
    cuda.cudaMemcpy(data, at, ctypes.sizeof(data), 2); return bytes(data).hex()
found = {}
if hasattr(lib, "run_first"):
    x, y = array(ctypes.c_float, [i / 7 for i in range(32)]), array(ctypes.c_float, [i * 1.1 for i in range(32)])
    p = array(ctypes.c_int, [0])
    found["first"] = [lib.run_first(x[0], y[0], p[0], 32), back(*x), back(*p)]
    found["second"] = [lib.run_second(x[0]), back(*x)]
if hasattr(lib, "run_sum"):
    x, out = array(ctypes.c_float, [i / 3 for i in range(10000)]), array(ctypes.c_float, [0])
    found["sum"] = [lib.run_sum(x[0], out[0], 10000), back(*out)]
print(json.dumps(found))
"""
# Grafted as far as it goes, and what the combined build of the same is called.
_FITTING = (
    ("80", "both", "both"),
    ("80", "both-ptx", "both-ptx"),
    ("80-small", "both-small", "both-small"),
    ("80-rdc", "both-rdc", "both-rdc"),
    ("cub-80", "cub-both", "cub-both"),
)
# Forced, and the error that is foretold: of which function.
_FORCED: tuple[tuple[str, str, str, int | None], ...] = (
    ("80", "90", "both", None),
    ("80-rdc", "90-rdc", "both-rdc", None),
    ("80", "both-other-path", "first", 500),
    ("80-rdc", "both-rdc-other-path", "first", 500),
    ("cub-80-short-list", "cub-both", "sum", 500),
    ("cub-80-short-list", "cub-both-short-list", "sum", 98),
    ("80", "90-other-body", "both-other-body", None),
)
# Forced, and no error: the host passes a double where the kernel takes a float.
_SILENT = (("80-plain-names", "both-plain-names-other-parameters", "second", "both"),)
_ALONE = (("80", "first", 209), ("80-rdc", "first", 500))


def compiled(name: str, folder: Path) -> Path:
    """By the nvcc of the PATH, all from one folder, but for those that are to be compiled in another.

    Those with changed sources one at a time, after all others.
    """
    recipe = RECIPES[name]
    place = folder / "sources" / recipe.folder
    place.mkdir(parents=True, exist_ok=True)
    for file, source in SOURCES.items():
        text = source
        for old, new in recipe.changes.items():
            text = text.replace(old, new)
        if not (place / file).exists() or (place / file).read_text() != text:
            (place / file).write_text(text)
    out = folder / f"{name}.so"
    words = ["nvcc", "-shared", "-Xcompiler", "-fPIC", *recipe.words, *recipe.files, "-o", str(out)]
    subprocess.run(words, cwd=place, check=True)
    return out


def ran(library: Path) -> dict[str, list[object]]:
    """What its functions returned and computed; the plain C runtime beside it only moves data."""
    runtime = os.environ.get("CUDART", "libcudart.so.13")
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(library), runtime], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"failed": [done.stderr.strip().splitlines()[-1:]]}
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def main() -> int:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    rows_of = (*_FITTING, *_FORCED, *_SILENT)
    names = sorted({str(name) for row in rows_of for name in row if name in RECIPES})
    plain = [name for name in names if not RECIPES[name].changes]
    with ThreadPoolExecutor(8) as pool:
        libraries = dict(zip(plain, pool.map(lambda name: compiled(name, folder), plain), strict=True))
    libraries |= {name: compiled(name, folder) for name in names if name not in plain}
    rows = []

    def row(what: str, good: bool, *seen: object) -> None:  # noqa: FBT001 - a table of three columns
        rows.append({"what": what, "good": good, "seen": seen})
        sys.stdout.write(f"{'ok ' if good else 'BAD'} {what}: {json.dumps(seen)[:400]}\n")

    for name, function, code in _ALONE:
        found = ran(libraries[name])
        row(f"{name} alone gives {code}", found.get(function, [None])[0] == code, found)
    for base, donor, whole in _FITTING:
        out = folder / f"{base}-with-{donor}.so"
        made = cuwheel.graft(libraries[base], [libraries[donor]], output=out)
        found, wanted = ran(out) if made.written else {}, ran(libraries[whole])
        right = bool(found) and found == wanted and all(each[0] == 0 for each in found.values())
        row(f"{base} with {donor} is {whole}", right, found, wanted, made.proof and made.proof.kind)
    for base, donor, what, error in _FORCED:
        out = folder / f"{base}-forced-{donor}.so"
        refused = cuwheel.graft(libraries[base], [libraries[donor]], output=out)
        made = cuwheel.graft(libraries[base], [libraries[donor]], output=out, force=True)
        found = ran(out) if made.written else {}
        rule = refused.findings[0].rule
        if error is None:
            row(f"{base} forced with {donor} is {what}", refused.refused and found == ran(libraries[what]), rule, found)
        else:
            got = found.get(what, [None])[0]
            row(f"{base} forced with {donor} gives {error}", refused.refused and got == error, rule, found)
    for base, donor, what, whole in _SILENT:
        out = folder / f"{base}-forced-{donor}.so"
        refused = cuwheel.graft(libraries[base], [libraries[donor]], output=out)
        made = cuwheel.graft(libraries[base], [libraries[donor]], output=out, force=True)
        computed, expected = ran(out).get(what, [None]) if made.written else [None], ran(libraries[whole])[what]
        silent = refused.refused and computed[0] == 0 and computed != expected
        row(f"{base} forced with {donor} computes something else", silent, refused.findings[0].rule, computed, expected)
    (folder / "grafted.json").write_text(json.dumps(rows, indent=1))
    return 0 if all(each["good"] for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
