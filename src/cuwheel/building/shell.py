"""The commands of one job: with its variables, into its log, within its time, inside its container where it has one."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING

from cuwheel.errors import ToolError
from cuwheel.support import files, masking, process
from cuwheel.toolchains import commands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cuwheel.toolchains.toolchain import Installed

_TAIL = 64 * 1024
_QUICK_S = 300.0


class Shell:
    def __init__(
        self,
        *,
        toolkit: Installed,
        folder: Path,
        log: Path,
        environ: Mapping[str, str],
        deadline: float,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.toolkit, self.folder, self.log, self.environ = toolkit, folder, log, dict(environ)
        self._deadline, self._on_line = deadline, on_line

    @property
    def remaining_s(self) -> float:
        """Seconds that the job may still take."""
        return max(self._deadline - time.monotonic(), 0.1)

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        extra: Mapping[str, str] | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        """`folders`: what it must see beside the job's own."""
        self.write(f"$ {shlex.join(masking.words(words))}")
        command, environ = self._where_it_runs(words, cwd, {**self.environ, **(extra or {})}, folders)
        start = self.log.stat().st_size
        status = process.follow(
            command,
            output=self.log,
            timeout=self.remaining_s,
            on_line=self._on_line,
            env=environ,
            cwd=cwd or self.folder,
        )
        if status:
            ended = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
            raise ToolError(words, ended, files.tail(self.log, _TAIL, start))

    def answer(self, words: Sequence[str]) -> str:
        """The output of a short command; not logged."""
        command, environ = self._where_it_runs(words, None, self.environ, ())
        return process.run(command, timeout=min(self.remaining_s, _QUICK_S), env=environ, cwd=self.folder).stdout

    def _where_it_runs(
        self, words: Sequence[str], cwd: Path | None, environ: Mapping[str, str], folders: Sequence[Path]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        if not self.toolkit.prefix:
            return words, environ
        seen = (self.folder, *folders)
        place = cwd or self.folder
        return commands.command(self.toolkit, words, folders=seen, cwd=place, environ=environ), os.environ

    def write(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(masking.known(text.rstrip("\n"), self.environ) + "\n")
