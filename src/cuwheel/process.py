"""The only place that starts programs."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from cuwheel import log
from cuwheel.errors import ToolError, ToolTimeoutError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# A program's output is untrusted: what it prints beyond this is dropped, not kept in memory.
MAX_OUTPUT = 16 * 1024 * 1024
_LAST_WAIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    command: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float


def run(
    command: Sequence[str | Path],
    *,
    timeout: float,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Completed:
    """Run to the end, without a standard input. On time-out everything it started is ended too."""
    words = [str(word) for word in command]
    log.debug("running %s", shlex.join(words))
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(_scratch()) for _ in range(2))
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(words, f"could not be started: {error.strerror}") from error
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ToolTimeoutError(words, timeout) from None
        finally:
            _end_group(child)
        completed = Completed(
            command=tuple(words),
            status=status,
            stdout=_text(out),
            stderr=_text(err),
            seconds=time.monotonic() - began,
        )
    if check and status != 0:
        raise ToolError(words, f"failed with status {status}", completed.stdout + completed.stderr)
    return completed


def _scratch() -> IO[bytes]:
    # Files, not pipes: a grandchild that keeps a pipe open would make us wait for it.
    import tempfile  # noqa: PLC0415 - not needed to import this module

    return tempfile.TemporaryFile()


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(MAX_OUTPUT).decode(errors="replace")


def _end_group(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        # A process stuck in the kernel (a hung GPU driver) cannot be killed: leave it rather than hang too.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WAIT_S)
