"""`python -m cuwheel_core FILE... [--on GPU...] [--json]`: what is in files, and which kernels lack code for a GPU."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from cuwheel_core import api
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support import printable
from cuwheel_core.support.structs import to_json

if TYPE_CHECKING:
    from cuwheel_core.verdicts.coverage import CoverageMatrix

_SHOWN = 20


def main(words: list[str] | None = None) -> int:
    """Returns 0, 1 where code is lacking, or the status of an error."""
    parser = argparse.ArgumentParser(prog="python -m cuwheel_core", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE", help="a library, wheel, cubin, fat binary, PTX or folder")
    parser.add_argument("--on", nargs="+", default=[], metavar="GPU", help="such as h100, 9.0 or sm_90")
    parser.add_argument("--json", action="store_true", help="one object")
    asked = parser.parse_args(words)
    try:
        if asked.on:
            found = api.coverage(asked.paths, asked.on)
            _say(found if asked.json else _matrix(found))
            failing = any("fails" in each.outcomes for each in found.libraries)
            return int(failing or any(found.lacking(each) for each in found.devices))
        contents = [api.read_package(each) for each in asked.paths]
        _say(contents if asked.json else [line for each in contents for line in _listing(each)])
    except CuwheelError as error:
        sys.stderr.write(
            printable.text(f"error: {error.message}\n") + printable.text(error.hint and f"hint: {error.hint}\n")
        )
        return error.exit_code
    return 0


def _say(found: object) -> None:
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        sys.stdout.write(printable.text("\n".join(found)) + "\n")
    else:
        sys.stdout.write(printable.text(msgspec.json.encode(found, enc_hook=to_json).decode()) + "\n")


def _matrix(found: CoverageMatrix) -> list[str]:
    lines = []
    for row in found.libraries:
        told = ", ".join(f"{device}: {outcome}" for device, outcome in zip(found.devices, row.outcomes, strict=True))
        lines.append(f"{printable.line(row.path)}  {told}")
    for device in found.devices:
        lacking = found.lacking(device)
        lines.append(f"{device}: {len(found.kernels) - len(lacking):,} of {len(found.kernels):,} kernels have code")
        lines += [f"  lacks {printable.line(each.name)} ({printable.line(each.library)})" for each in lacking[:_SHOWN]]
        if len(lacking) > _SHOWN:
            lines.append(f"  and {len(lacking) - _SHOWN:,} more")
    return [*lines, *(printable.line(each.message) for each in found.findings)]


def _listing(found: api.Contents) -> list[str]:
    return [
        *(
            f"{printable.line(library.path)}  {row.kind} {row.arch} {row.count:,} {row.bytes:,} bytes"
            for library in found.libraries
            for row in library.device_code
        ),
        *(printable.line(each.message) for each in found.findings),
    ]


if __name__ == "__main__":
    sys.exit(main())
