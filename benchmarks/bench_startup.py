"""`cuwheel --version` against a bare interpreter: starting fast is a feature."""

from __future__ import annotations

import sys

from harness import BIN, Measure, alternate, command, finish, shown

ROUNDS = 60


def main() -> int:
    works = {
        "cuwheel": command(BIN / "cuwheel", "--version"),
        "bare": command(BIN / "python", "-c", "pass"),
        "help": command(BIN / "cuwheel", "--help"),
    }
    taken = alternate(works, ROUNDS)
    ratio = taken["cuwheel"] / taken["bare"]
    helped = taken["help"] / taken["bare"]
    print(f"`cuwheel --help` takes {shown(taken['help'])}, {helped:.1f} × (no floor)\n", file=sys.stderr)
    measure = Measure(
        what="`cuwheel --version` / `python -c pass`",
        ours=shown(taken["cuwheel"]),
        theirs=shown(taken["bare"]),
        value=ratio,
        best=2.0,
        at_most=True,
    )
    return finish([measure])


if __name__ == "__main__":
    sys.exit(main())
