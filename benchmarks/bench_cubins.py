"""A wheel of 20,000 small cubins, as packages of precompiled kernels are: against unzip, and as its number grows.

python benchmarks/bench_cubins.py
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, ROOT, Measure, alternate, command, finish, shown

sys.path.insert(0, str(ROOT))

from tests.unit.device_code import build

if TYPE_CHECKING:
    from collections.abc import Callable

CUBINS, FEWER = 20_000, 5_000
ARCHS = (75, 80, 86, 89, 90, 100, 120)


def wheel(folder: Path, count: int) -> Path:
    path = folder / f"kernels{count}-1.0-py3-none-any.whl"
    info = f"kernels{count}-1.0.dist-info"
    codes = [build.cubin({f"kernel_{arch}": (32, 0, 0)}, sm=arch) + bytes(2000) for arch in ARCHS]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(count):
            archive.writestr(f"kernels/{index % 50}/{index}.cubin", codes[index % len(codes)])
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: kernels{count}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def check(path: Path) -> Callable[[], object]:
    """Which ends with 1: most of the cubins are for other GPUs."""
    line = f"{BIN / 'cuwheel'} check --quiet {path} --on 9.0; test $? = 1 -o $? = 0"
    return command("sh", "-c", line)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        many, few = wheel(Path(name), CUBINS), wheel(Path(name), FEWER)
        works = {
            "unzip": command("unzip", "-p", many),
            "inspect": command(BIN / "cuwheel", "inspect", "--quiet", many),
            "inspect few": command(BIN / "cuwheel", "inspect", "--quiet", few),
            "check": check(many),
            "check few": check(few),
        }
        taken = alternate(works, rounds=3)
    measures = []
    for verb, best in (("inspect", 22.7), ("check", 21.2)):
        measures.append(
            Measure(
                what=f"`cuwheel {verb}` on a wheel of 20,000 cubins / `unzip -p` of it",
                ours=shown(taken[verb]),
                theirs=shown(taken["unzip"]),
                value=taken[verb] / taken["unzip"],
                best=best,
                at_most=True,
            )
        )
        measures.append(
            Measure(
                what=f"the same for {verb}, 20,000 / 5,000 of them (4 is linear)",
                ours=shown(taken[verb]),
                theirs=shown(taken[f"{verb} few"]),
                value=taken[verb] / taken[f"{verb} few"],
                promised=5.0,
                at_most=True,
            )
        )
    return finish(measures)


if __name__ == "__main__":
    raise SystemExit(main())
