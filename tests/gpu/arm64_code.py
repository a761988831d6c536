"""Device code of arm64 wheels that were made on x86-64, on a GPU of 9.0 beside any processor.

    python -m tests.gpu.arm64_code FOLDER OUT       FOLDER as `make` or `make_bitsandbytes` filled it, with a network

The code for 9.0 of each library is loaded and run as tests/gpu/windows_code.py does it, with the driver's compiler
switched off. One was built with that architecture, another got it by `graft --add`, the published one had it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from tests import long
from tests.gpu import runner, windows_code

_BASE, _MORE = "8.0", "9.0"
VERSION = "0.50.1"  # of bitsandbytes: a tag of its sources, and a release
_PLATFORM = "manylinux_2_24_aarch64"


def make(folder: Path) -> None:
    """Of an example, and of the published bitsandbytes."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        source = shutil.copytree(long.ROOT / "examples" / "scikit_kernel", place / "scikit_kernel")
        _make(source, place, folder, cuda="13.2", base=None)
        _kept(_published(), folder / "bitsandbytes-published.so")
        _pack(folder)


def make_bitsandbytes(folder: Path, source: Path) -> None:
    """Built from its source of that release, and grafted into the published wheel without what it had for 9.0."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        # 13.2.0 is what the published library was compiled with.
        _make(source, place, folder, cuda="13.2.0", base=_published())
        _pack(folder)


def _make(source: Path, place: Path, folder: Path, *, cuda: str, base: Path | None) -> None:
    """`base`: a finished wheel; else one is built of the same source."""
    import cuwheel

    def build(machines: list[str]) -> Path:
        out = place / "-".join(machines)
        settings: cuwheel.BuildSettings = {"plan": {"native": True}, "cpu": "aarch64"}
        (job,) = cuwheel.build(source, machines=machines, cuda=[cuda], settings=settings, output=out).jobs
        if not job.wheel:
            raise RuntimeError(f"{source}: {job.failure}")
        return Path(job.wheel.path)

    _kept(build([_BASE, _MORE]), folder / f"{source.name}-built.so")
    if base:
        cuwheel.slim(base, machines=["a100"], output=place / "slim")
        (base,) = (place / "slim").glob("*.whl")
    base = base or build([_BASE])
    made = cuwheel.graft(base, add=["sm_90"], source=source, cuda="13.2", output=place / "more")
    if not made.written:
        raise RuntimeError(f"{source}: {made.findings[0].message}")
    _kept(Path(made.outputs[0]), folder / f"{source.name}-grafted.so")


def _published() -> Path:
    from tests.oracle import packages

    return packages.wheel(packages.Published(name="bitsandbytes", version=VERSION, platform=_PLATFORM))


def _kept(wheel: Path, library: Path) -> None:
    """Its newest library, without what is for other GPUs: the rest would not travel for its size."""
    import cuwheel

    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as opened:
        names = sorted(each for each in opened.namelist() if each.endswith(".so") and "_cpu" not in each)
        found = Path(opened.extract(names[-1], scratch))
        cuwheel.slim(found, machines=["h100"], output=library)


def _pack(folder: Path) -> None:
    """One archive: the libraries of a name have most of their bytes in common."""
    from tests.gpu import generate

    with tempfile.TemporaryDirectory() as scratch:
        generate.pack(folder, Path(scratch, "libraries.tar.xz"))
        for path in folder.glob("*.so"):
            path.unlink()
        shutil.move(Path(scratch, "libraries.tar.xz"), folder)


def main(folder: str, out: str) -> int:
    os.environ["CUDA_DISABLE_PTX_JIT"] = "1"
    driver = windows_code.Driver()
    with tempfile.TemporaryDirectory() as scratch:
        runner.unpack(Path(folder, "libraries.tar.xz"), Path(scratch))
        libraries = sorted(Path(scratch).glob("*.so"))
        return windows_code.tell(Path(out), {each.name: windows_code.examine(driver, each) for each in libraries})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
