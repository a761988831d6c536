"""What `graft --compile` and `slim --compile` made of PTX, on a GPU of 9.0: the driver compiles nothing.

    python3 -m tests.gpu.compiled_ahead FOLDER OUT       FOLDER as `make` filled it, where there is a network

Each library runs as it is, by the driver's compiler, and compiled ahead of time with that compiler switched off: the
results must be the same. The variants of the truth set that hold PTX for it become a set of their own (`make_set`),
which tests/gpu/runner.py runs as it runs the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts.choice import Loader
from tests.gpu import predictions, runner
from tests.gpu.grafted import ran

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel_core.device_code.libraries import Library

# By the ptxas of the driver's own release, 13.0; PTX of 13.4 is too new for that driver, and for that ptxas.
LIBRARIES = ("ptx", "ptx-options", "ptx-debug", "ptx-specific", "ptx-raw", "ptx-lz4", "ptx-rdc")
TOO_NEW = "ptx-13.4"
_UNSUPPORTED_PTX = 222
_OFF = "CUDA_DISABLE_PTX_JIT"
_GPU = Loader(capability=Capability(9, 0))


def make(folder: Path) -> None:
    """One archive: each of the libraries has the same CUDA runtime in it."""
    import cuwheel
    from tests.fixtures import grafts
    from tests.gpu import generate

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name in (*LIBRARIES, TOO_NEW):
            base = Path(shutil.copy(grafts.library(name), place / f"{name}.so"))
            cuda = None if name == TOO_NEW else "13.0"
            cuwheel.graft(base, compile=["sm_90"], cuda=cuda, output=place / f"{name}.compiled.so")
            cuwheel.slim(base, machines=["h100"], compile=True, output=place / f"{name}.slim.so")
        generate.pack(place, folder / "libraries.tar.xz")


# The truth set: each variant of which something was compiled, as it then is. The driver's compiler is switched off
# where nothing is left for it; the number that a kernel writes tells the PTX that its machine code was made of.


def make_set(folder: Path, source: Path) -> None:
    """`source`: the truth set, with the CUDA runtimes."""
    from tests.gpu import generate

    manifest = json.loads((source / "manifest.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        old, new = Path(scratch, "old"), Path(scratch, "new")
        new.mkdir()
        runner.unpack(source / "files.tar.xz", old)
        variants = [_compiled_variant(row, old, new) for row in manifest["variants"] if row["jit"] == "allowed"]
        generate.pack(new, folder / "files.tar.xz")
    manifest["variants"] = [each for each in variants if each]
    manifest["set"] = hashlib.sha256((folder / "files.tar.xz").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
    for path in source.glob("runtimes.tar.xz"):
        shutil.copy(path, folder)


def _compiled_variant(row: dict[str, Any], old: Path, new: Path) -> dict[str, Any] | None:
    """None where nothing of it is compiled for 9.0. `old`, `new`: where the files are, and where they go."""
    import cuwheel
    from cuwheel.device_code.survey import survey
    from tests.gpu import generate

    with tempfile.TemporaryDirectory() as scratch:
        name = "pkg-1.0-py3-none-any.whl" if row["form"] == "package" else row["file"]
        base = Path(shutil.copy(old / row["file"], Path(scratch, name)))
        made = cuwheel.graft(base, compile=["9.0"], output=Path(scratch, "out"))
        if not made.written:
            return None
        out = Path(made.outputs[0])
        before, after = (survey(each, detail="entries").libraries for each in (base, out))
        file = hashlib.sha256(out.read_bytes()).hexdigest()[:16]
        shutil.copy(out, new / file)
    numbers = list(row["markers"])
    markers: list[Any] = []
    for one, other in zip(before, after, strict=True):
        count = len(predictions.containers_of(one)) if len(before) > 1 else len(numbers)
        markers += _repeated(one, other, numbers[:count])
        del numbers[:count]
    form = "fatbin" if row["form"] == "ptx" else row["form"]
    found = {**row, "file": file, "form": form, "markers": markers, "jit": "disabled"}
    found["prediction"] = generate.predict(new, found)
    if found["prediction"]["outcome"] != "native":
        found["jit"] = "allowed"
        found["prediction"] = generate.predict(new, found)
    return found


def _repeated(before: Library, after: Library, markers: predictions.Markers) -> list[list[Mapping[str, int]]]:
    """With that of its PTX for each entry that was put before it; what is linked of objects adds theirs up."""
    found = []
    objects = list(zip(predictions.choices_in(before, _GPU), markers, strict=False))[:-1]
    if any(entry.kind == "lto-ir" for entry in before.entries):  # which no driver takes: it was linked of that
        linked = sum((Counter(numbers[-1]) for _, numbers in objects), Counter())
    else:
        linked = predictions.added_up(objects)
    containers = zip(*map(predictions.containers_of, (before, after)), markers, strict=False)
    for old, new, numbers in containers:
        rest = list(zip(old, numbers, strict=True))
        told: list[Mapping[str, int]] = []
        for entry in new:
            if rest and (entry.kind, entry.arch, entry.bytes) == (rest[0][0].kind, rest[0][0].arch, rest[0][0].bytes):
                told.append(rest.pop(0)[1])
            else:
                told.append(rest[0][1] if rest else linked)
        found.append(told)
    return found


def rows(folder: Path) -> list[dict[str, object]]:
    """One a library: whether it gave what it should."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    found: list[dict[str, object]] = []
    for name in (*LIBRARIES, TOO_NEW):
        os.environ.pop(_OFF, None)
        by_driver = ran(folder / f"{name}.so")
        wanted = ran(folder / "ptx.so") if name == TOO_NEW else by_driver
        os.environ[_OFF] = "1"
        ahead, cut = ran(folder / f"{name}.compiled.so"), ran(folder / f"{name}.slim.so")
        right = ahead == cut == wanted and all(each[0] == 0 for each in ahead.values())
        if name == TOO_NEW:
            right = right and by_driver.get("first", [None])[0] == _UNSUPPORTED_PTX
        found.append({"what": name, "good": right, "seen": [by_driver, ahead, cut]})
    return found


def main(folder: str, out: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        runner.unpack(Path(folder, "libraries.tar.xz"), Path(scratch))
        found = rows(Path(scratch))
    Path(out).mkdir(parents=True, exist_ok=True)
    Path(out, "grafted.json").write_text(json.dumps(found, indent=1))
    return 0 if all(each["good"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
