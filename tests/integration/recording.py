"""What the tests of recording share: compilers that do as they are told, and each way to record."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import reader, session, shims
from cuwheel.building.recording.shims import RecordOptions
from cuwheel.support import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuwheel.building.recording.calls import Call, Record

TOOL = Path(__file__).with_name("record_tool.py")
WAYS = ("preload", "path")


@dataclass
class Bench:
    """A folder with compilers on a PATH of its own, and a way to record."""

    folder: Path
    way: str
    environ: dict[str, str] = field(default_factory=dict)
    count: int = 0
    session: session.Session | None = None

    @property
    def tools(self) -> Path:
        return self.folder / "tools"

    def tool(self, name: str, text: str | None = None) -> Path:
        path = self.tools / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text or f"#!/bin/sh\nexec '{sys.executable}' -S '{TOOL}' \"$@\"\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def run(
        self,
        command: Sequence[str | bytes],
        *,
        wish: RecordOptions | None = None,
        popen: Callable[[Sequence[str | bytes], dict[str, str]], int] | None = None,
        **more: str,
    ) -> Record:
        """Record a command whose streams nobody sees, or that `popen` runs."""
        self.count += 1
        folder = self.folder / f"record-{self.count}"
        given = wish or RecordOptions()
        wish = RecordOptions(
            masked=given.masked,
            launcher=given.launcher,
            archs=given.archs,
            phases=given.phases,
            module_ids=given.module_ids,
            way=self.way,
        )
        words = [os.fsdecode(word) for word in command]
        with session.recording(folder, words, self.environ | more, self.folder, wish) as self.session:
            run = popen or self._run
            self.session.finish(run([os.fsencode(word) for word in self.session.command], self.session.environ))
        return reader.read_record(folder)

    def _run(self, command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        done = subprocess.run(command, env=environ, cwd=self.folder, capture_output=True, timeout=600, check=False)
        self.stdout, self.stderr = done.stdout, done.stderr
        return done.returncode

    def sh(self, script: str, *, wish: RecordOptions | None = None, **more: str) -> Record:
        return self.run(["/bin/sh", "-c", script], wish=wish, popen=None, **more)


def bench(folder: Path, way: str) -> Bench:
    made = Bench(folder=folder, way=way)
    made.tools.mkdir(parents=True)
    made.environ = {"PATH": f"{made.tools}:/usr/bin:/bin", "HOME": str(folder), "PWD": str(folder), "LANG": "C.UTF-8"}
    # Compiled while a compiler is on PATH: some tests have none there, and any may be the first on this machine.
    shims.native_shims(files.cache_folder(), made.environ)
    return made


def printed(record: Record, call: Call) -> tuple[str, str]:
    return reader.read_output(record, call)
