"""`graft --compile` of catboost's library, cut to its PTX: against ptxas alone, and from the cache.

python benchmarks/bench_compile.py     downloads catboost's wheel (97 MB) and ptxas of CUDA 11.8 into the test cache
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import BIN, ROOT, Measure, command, finish, processor_seconds, shown

sys.path.insert(0, str(ROOT))

from tests.fixtures import cache

from cuwheel.changes.binaries import compiling
from cuwheel.changes.graft.subject import Subject
from cuwheel.toolchains import assembler
from cuwheel_core.device_code.library import read_library
from cuwheel_core.support.buffer import FileBuffer

_WHEEL = "catboost==1.2.10"
_OPTIONS = ("--python-version", "3.12", "--platform", "manylinux2014_x86_64")
_MEMBER, _ARCH = "_catboost.so", "sm_90"


def library(folder: Path) -> Path:
    """Without the machine code: what a B200 would take of it is PTX alone."""
    wheel = next(cache.made("catboost-1.2.10", lambda to: cache.pip_download(to, _WHEEL, *_OPTIONS)).glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        whole = Path(archive.extract(f"catboost/{_MEMBER}", folder))
    command(BIN / "cuwheel", "slim", whole, "--for", "b200", "-o", folder / "cut")()
    return folder / "cut" / _MEMBER


def ptx(path: Path, folder: Path) -> list[list[str | Path]]:
    """Each piece as a file, and the call of ptxas for it."""
    buffer = FileBuffer(path)
    wanted = compiling.what_to_compile(read_library(buffer, detail="entries"), compiling.aims_of([_ARCH])).wanted
    buffer.close()
    calls: list[list[str | Path]] = []
    with Subject(path, path.name) as subject:
        for number, each in enumerate(wanted):
            place = folder / f"{number}.ptx"
            place.write_bytes(subject.payload(each.ptx).rstrip(b"\0"))
            program = assembler.assembler_of(each.cuda).program
            made = place.with_suffix(".cubin")
            calls.append([program, f"-arch={each.arch}", "-m64", *each.options, place, "-o", made])
    return calls


def alone(calls: list[list[str | Path]]) -> None:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda words: command(*words)(), calls))


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CUWHEEL_CACHE"] = str(folder / "cache")
        (folder / "cache").mkdir()
        kept = cache.folder() / "store" / "toolchains"
        kept.mkdir(parents=True, exist_ok=True)
        (folder / "cache" / "toolchains").symlink_to(kept)
        cut = library(folder)
        calls = ptx(cut, folder)
        graft = command(BIN / "cuwheel", "graft", cut, "--compile", _ARCH, "-o", folder / "out", "--quiet")
        rounds = []
        for _ in range(2):  # in turns: the best of each
            shutil.rmtree(folder / "cache" / "machine-code", ignore_errors=True)
            rounds.append([processor_seconds(work) for work in (lambda: alone(calls), graft, graft)])
        ptxas, first, again = (min(each) for each in zip(*rounds, strict=True))
    return finish(
        [
            Measure(
                what=f"`graft --compile {_ARCH}` of catboost's {len(calls)} pieces / ptxas alone, processor time",
                ours=shown(first),
                theirs=shown(ptxas),
                value=first / ptxas,
                promised=1.1,
                at_most=True,
            ),
            Measure(
                what="the same again, from the cache / ptxas alone",
                ours=shown(again),
                theirs=shown(ptxas),
                value=again / ptxas,
                promised=0.05,
                at_most=True,
            ),
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
