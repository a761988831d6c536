"""The shim in Python, for machines without a C compiler: slower (30 ms a call), and otherwise the same."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from cuwheel import files, system_calls

_ROOT = Path(__file__).parents[2]
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from cuwheel.recording.shim import program; "
    "program.main(sys.argv[2], sys.argv[3:])"
)


def launcher(home: Path) -> Path:
    """A script that links under any compiler's name may lead to. It finds this Python and this cuwheel by itself."""
    words = (sys.executable, "-S", "-E", "-s", "-c", _PROGRAM, str(_ROOT))
    text = f'#!/bin/sh\nexec {shlex.join(words)} "$0" "$@"\n'
    target = home / "record" / f"python-{files.sha256_of(text.encode())[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(target) as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            system_calls.set_mode(file.fileno(), 0o755)
    return target
