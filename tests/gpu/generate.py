"""Make the set: python tests/gpu/generate.py --out FOLDER [--from tests/gpu/truth]

It holds manifest.json (every variant, and what cuwheel predicts of it), files.tar.xz, NVIDIA's runtimes and runner.py.
Needs Debian or Ubuntu on x86-64 with g++; fetches six toolkits (about 1.5 GB) into the test cache. With --from, what
that set holds already is taken from there, file and prediction, and only the rest is made: then one toolkit will do.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu import assemble, compilers, predictions, variants
from tests.gpu.runner import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.gpu.codes import Code, Piece
    from tests.gpu.variants import Variant

HERE = Path(__file__).parent
SCHEMA = "cuwheel.truth-set/1"
# The machine that the set is predicted for.
DRIVER, DRIVER_CUDA = "580.65.06", "13.0"
_SHARED_RUNTIMES = ("12.4", "13.0", "13.1", "13.4")


class Numbers:
    """A number for every piece, so that what ran tells which it was."""

    def __init__(self, wanted: Sequence[Variant]) -> None:
        pieces = {code.piece for variant in wanted for container in variant.containers for code in container}
        self._of = {piece: number for number, piece in enumerate(sorted(pieces), 1)}

    def __getitem__(self, piece: Piece) -> int:
        return self._of[piece]

    def compile(self) -> None:
        """All of them, several at a time: what is made later finds them in the cache."""
        for version in sorted({piece.toolkit for piece in self._of}):
            compilers.toolkit(version)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(lambda pair: compilers.piece(*pair), self._of.items()):
                pass

    def words(self) -> dict[str, str]:
        """Who writes which number."""
        return {str(number): f"{piece.part} {piece}" for piece, number in self._of.items()}


def entry(code: Code, numbers: Numbers) -> assemble.Entry:
    made = compilers.piece(code.piece, numbers[code.piece])
    if code.packing:
        made = made.packed(code.packing)
    return made.with_isa(code.isa) if code.isa else made


def contents(variant: Variant, numbers: Numbers) -> bytes:
    """The file."""
    if variant.build and variant.form == "ptx":
        return compilers.ptx(variant.build, variant.toolkit)
    if variant.build:
        return compilers.library(variant.build, variant.toolkit)
    if variant.package:
        return _wheel(variant)
    filled = [[entry(code, numbers) for code in container] for container in variant.containers]
    if variant.form == "fatbin":
        return assemble.container(filled[0])
    if variant.form == "cubin":
        return filled[0][0].packed("none").payload
    template = compilers.template(variant.shape, variant.toolkit)
    return assemble.transplant(template.data, list(zip(template.sites, filled, strict=True)))


def _wheel(variant: Variant) -> bytes:
    """The libraries of a package, and the Python that opens them all or none."""
    files = {
        f"pkg/lib{index}.so": compilers.library(each, variant.toolkit) for index, each in enumerate(variant.package)
    }
    opens = "".join(f"ctypes.CDLL(__path__[0] + '/{name.partition('/')[2]}')\n" for name in files)
    files["pkg/__init__.py"] = f"import ctypes\n{opens}".encode() if variant.imported else b""
    files["pkg-1.0.dist-info/METADATA"] = b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n"
    files["pkg-1.0.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
    files["pkg-1.0.dist-info/RECORD"] = b""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # of a date that is always the same
    return out.getvalue()


def markers(variant: Variant, numbers: Numbers) -> list[list[dict[str, int]]]:
    """The numbers that the entries of each container write, by kernel."""
    if variant.package:
        return [row for build in variant.package for row in compilers.built_markers(build)]
    if variant.build is None:
        return [
            [compilers.markers(code.piece, numbers[code.piece]) for code in container]
            for container in variant.containers
        ]
    return [] if variant.build.units else compilers.built_markers(variant.build)


def describe(variant: Variant, name: str, data: bytes, numbers: Numbers) -> dict[str, Any]:
    static = variant.build is not None and variant.build.cudart == "static"
    shared = variant.form in ("library", "program", "package") and not static
    return {
        "id": name,
        "axis": variant.axis,
        "form": variant.form,
        "file": hashlib.sha256(data).hexdigest()[:16],
        "kernels": list(variant.kernels),
        "launches": list(reversed(variant.kernels) if variant.reverse else variant.kernels),
        "cudart": _runtime(variant.toolkit) if shared else "",
        "jit": variant.jit,
        "markers": markers(variant, numbers),
    }


def _runtime(toolkit: str) -> str:
    """Where the set keeps the shared runtime of a toolkit."""
    return f"cudart-{toolkit}/{compilers.cudart(toolkit).name}"


def predict(folder: Path, variant: dict[str, Any]) -> dict[str, Any]:
    on = predictions.machine(DRIVER, DRIVER_CUDA, variant["jit"])
    said = predictions.of(folder / variant["file"], on, variant["markers"], variant["kernels"])
    found: dict[str, Any] = to_builtins(said)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder to fill")
    parser.add_argument("--from", dest="kept", type=Path, help="a set to take from what it has")
    args = parser.parse_args()
    out: Path = args.out
    kept = json.loads((args.kept / "manifest.json").read_text()) if args.kept else {"variants": [], "pieces": {}}
    there = {row["id"]: row for row in kept["variants"]}
    wanted = [each for each in variants.everything() if variants.name(each) not in there]
    if there and any(each.containers for each in wanted):
        raise SystemExit("pieces are numbered over the whole set: make it without --from")
    numbers = Numbers(wanted)
    out.mkdir(parents=True, exist_ok=True)
    numbers.compile()
    mixed = [(variant, *pair) for variant in wanted if variant.build for pair in enumerate(variant.build.units)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda row: compilers.unit_object(row[2], row[1], row[0].toolkit), mixed):
            pass
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if args.kept:
            unpack(args.kept / "files.tar.xz", folder)
        rows = [*there.values(), *_make(wanted, numbers, folder)]
        pack(folder, out / "files.tar.xz")
    with tempfile.TemporaryDirectory() as scratch:
        copy_runtimes(Path(scratch))
        pack(Path(scratch), out / "runtimes.tar.xz")
    digest = hashlib.sha256((out / "files.tar.xz").read_bytes()).hexdigest()
    manifest = {
        "schema": SCHEMA,
        "set": digest,
        "driver": DRIVER,
        "driver_cuda": DRIVER_CUDA,
        "pieces": kept["pieces"] or numbers.words(),
        "variants": rows,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
    shutil.copyfile(HERE / "runner.py", out / "runner.py")
    size = sum(path.stat().st_size for path in out.iterdir())
    sys.stderr.write(f"{len(rows)} variants, {len({row['file'] for row in rows})} files, {size:,} bytes: {out}\n")


def _make(wanted: Sequence[Variant], numbers: Numbers, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for count, variant in enumerate(wanted):
        name = variants.name(variant)
        data = contents(variant, numbers)
        row = describe(variant, name, data, numbers)
        (folder / row["file"]).write_bytes(data)
        row["prediction"] = predict(folder, row)
        rows.append(row)
        if count % 50 == 0:
            sys.stderr.write(f"{count} of {len(wanted)}: {name}\n")
    return rows


def copy_runtimes(folder: Path) -> None:
    """NVIDIA's libraries, apart from what is ours: a machine without a toolkit needs them, and nobody else."""
    for version in _SHARED_RUNTIMES:
        target = folder / _runtime(version)
        target.parent.mkdir()
        shutil.copyfile(compilers.cudart(version), target)


def pack(folder: Path, out: Path) -> None:
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.add(path, path.relative_to(folder), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
