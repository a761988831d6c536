"""Runs many commands, each in a copy of this process with little memory and time, and prints how each ended.

Started by test_hostile_commands.py, once for all of its tests, with JSON on the lines of standard input. The first are
commands that are run here, after all modules were imported, so that no copy has to import them and read tables; each
of the others has `commands` and the variables for them, `environ`, and is answered by one line.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO

import cuwheel
from cuwheel.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY = 2 << 30
CPU_S = 60  # of the processor's time: other work on the machine does not count
WALL_S = 600  # whatever waits for something that never comes


def run(words: list[str], environ: dict[str, str]) -> dict[str, Any]:
    """Its status, what it wrote to stderr, how much time, memory and output it took."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.environ.update(environ)
            tempfile.tempdir = None
            _limited(words, out, err)
        _, status, usage = os.wait4(child, 0)
        written = os.fstat(out.fileno()).st_size + os.fstat(err.fileno()).st_size
        err.seek(0)
        message = err.read(3000).decode(errors="replace")
    return {
        "status": os.waitstatus_to_exitcode(status),
        "message": message,
        "seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "memory": usage.ru_maxrss << 10,
        "written": written,
    }


def _limited(words: list[str], out: BinaryIO, err: BinaryIO) -> None:
    _redirect(out.fileno(), err.fileno())
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    signal.alarm(WALL_S)
    status = 99
    try:
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _redirect(out: int, err: int, given: int | None = None) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY) if given is None else given
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)


def warm(commands: Iterable[list[str]]) -> None:
    for module in pkgutil.walk_packages(cuwheel.__path__, "cuwheel."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kept = os.dup(1), os.dup(2), os.dup(0)
    silence = os.open(os.devnull, os.O_WRONLY)
    _redirect(silence, silence)
    for words in commands:
        main(words)
        sys.stdout.flush()
    _redirect(*kept)


if __name__ == "__main__":
    warm(json.loads(sys.stdin.readline()))
    gc.freeze()  # nothing of it is garbage, and copies that look for some copy its pages
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps([run(words, asked["environ"]) for words in asked["commands"]]) + "\n")
        sys.stdout.flush()
