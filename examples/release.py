"""A maintainer's release: build the wheels, refuse what is too big or does not run, publish the rest.

python examples/release.py SOURCE --for h100 --for l40 --cuda 13.0 --most 100 --to index
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import cuwheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEGABYTE = 10**6


def build(source: Path, machines: Sequence[str], cuda: Sequence[str], output: Path) -> list[Path]:
    """The wheels; the log of a job that failed says why, and cuwheel has read it."""
    made = cuwheel.build(source, machines=machines, cuda=cuda, output=output, settings={"naming": "local"})
    for job in made.jobs:
        if job.failure:
            print(f"{job.id}: {', '.join(cause.title for cause in job.failure.causes) or job.log}", file=sys.stderr)
    if not made.succeeded:
        sys.exit("the build failed")
    return [job.wheel.file for job in made.jobs if job.wheel]


def problems(wheel: Path, machines: Sequence[str], most: float) -> Iterator[str]:
    """Why it must not be published."""
    size = wheel.stat().st_size / MEGABYTE
    if size > most:
        yield f"{size:.1f} MB, and {most:g} are allowed"
    kept = {row.arch for library in cuwheel.inspect(wheel).libraries for row in library.device_code}
    for verdict in cuwheel.check(wheel, on=machines).verdicts:
        if verdict.outcome != "native":
            yield f"{verdict.outcome} on {verdict.machine}; it has code for {', '.join(sorted(map(str, kept)))}"


def main() -> int:
    parser = argparse.ArgumentParser(description="build, gate on size and architectures, publish")
    parser.add_argument("source", type=Path)
    parser.add_argument("--for", dest="machines", action="append", required=True, metavar="GPU")
    parser.add_argument("--cuda", action="append", required=True, metavar="VERSION")
    parser.add_argument("--most", type=float, default=100.0, metavar="MB", help="what a wheel may weigh (100)")
    parser.add_argument("--dist", type=Path, default=Path("dist"), help="a folder for the wheels")
    parser.add_argument("--to", type=Path, required=True, help="the folder of the index")
    args = parser.parse_args()
    try:
        wheels = build(args.source, args.machines, args.cuda, args.dist)
        refused = {wheel: list(problems(wheel, args.machines, args.most)) for wheel in wheels}
        for wheel, why in refused.items():
            print(f"{wheel.name}: {'; '.join(why) or 'good'}")
        if any(refused.values()):
            return 1
        cuwheel.publish(wheels, to=args.to)
        sound = cuwheel.publish_check(args.to)
    except cuwheel.CuwheelError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(f"{len(sound.wheels)} in {sound.place}, channels {', '.join(sound.channels)}")
    return 0 if sound.succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
