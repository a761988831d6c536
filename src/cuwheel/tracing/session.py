"""A command run as it is, with the library that sees what its programs load."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import files, process
from cuwheel.errors import UnreadableError, UsageError
from cuwheel.tracing import preload_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VARIABLE = "CUWHEEL_TRACE"


@contextlib.contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """Where the processes write: for this user alone, as their names of files may be nobody else's business."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="cuwheel-trace-") as name:
            yield Path(name)
        return
    with files.errors_of(keep, "choose a writable folder with --keep"):
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UsageError(f"{keep} is not empty, and traces are never overwritten", hint="choose another folder")
    yield keep.absolute()


def environ_for(place: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What makes programs load the library. A command that clears its environment is traced no further."""
    library = preload_library.path(environ)
    before = environ.get("LD_PRELOAD")
    return {**environ, VARIABLE: str(place), "LD_PRELOAD": f"{library}:{before}" if before else str(library)}


def run(
    command: Sequence[str], place: Path, *, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> int:
    """Its status, negative for a signal."""
    if not place.is_dir():
        raise UnreadableError(place, "is not a folder")
    variables = environ_for(place, dict(os.environ if environ is None else environ))
    return process.attend(command, env=variables, cwd=(cwd or Path.cwd()).absolute())
