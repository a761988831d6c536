"""What shares bring: an architecture more for the price of that architecture, and a build that is there already.

    ./run bench shares FOLDER [--for 8.9,9.0 --add 8.0]

FOLDER: a source such as bitsandbytes'. Without one, the smallest example. Ratios, each of two times of the same run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "scikit_kernel"
WARM_FLOOR = 20.0
ADDED_CEILING = 1.2


def built(source: Path, store: Path, machines: str, *words: str) -> float:
    """Seconds of `cuwheel build --shares yes`."""
    command = [
        sys.executable,
        "-m",
        "cuwheel",
        "build",
        str(source),
        "--for",
        machines,
        "--set",
        "plan.native=true",
        "--shares",
        "yes",
    ]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [*command, "-o", out, "--quiet", *words],
            env={**os.environ, "CUWHEEL_CACHE": str(store)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FOLDER", nargs="?", type=Path, default=EXAMPLE)
    parser.add_argument("--for", dest="machines", default="8.9,9.0")
    parser.add_argument("--add", default="8.0")
    parser.add_argument("--toolchains", type=Path, help="of a cache that has the toolkit already")
    parser.add_argument("words", nargs="*", help="further words for `cuwheel build`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cuwheel-shares-") as name:
        store, other = Path(name, "store"), Path(name, "other")
        for each in (store, other):
            each.mkdir()
            if args.toolchains:
                (each / "toolchains").symlink_to(args.toolchains.absolute())
        words = ("--cuda", "13.0", *args.words)
        built(EXAMPLE, store, "9.0", *words)  # toolkits and build requirements are there before anything is timed
        built(EXAMPLE, other, "9.0", *words)
        cold = built(args.source, store, args.machines, *words)
        warm = min(built(args.source, store, args.machines, *words) for _ in range(3))
        added = built(args.source, store, f"{args.add},{args.machines}", *words)
        alone = built(args.source, other, args.add, *words)
    print(
        f"{args.machines}: {cold:.1f} s cold, {warm:.2f} s warm: {cold / warm:.1f} times faster (floor {WARM_FLOOR:g})"
    )
    print(
        f"{args.add} added: {added:.1f} s, alone: {alone:.1f} s: {added / alone:.2f} times its own build "
        f"(at most {ADDED_CEILING:g})"
    )
    if args.source != EXAMPLE and (cold / warm < WARM_FLOOR or added / alone > ADDED_CEILING):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
