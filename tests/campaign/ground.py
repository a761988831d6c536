"""The folder that a job is tried in, made anew for every try, and what its files hold before and after."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import cli
from cuwheel.errors import EXIT_BUG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.campaign.jobs import Command, Job

CACHE = ".cuwheel-cache"


class Ground:
    def __init__(self, job: Job, scratch: Path) -> None:
        self.job, self.scratch = job, scratch
        self.pristine = scratch / "pristine"
        self.pristine.mkdir()
        job.prepare(self.pristine)
        # Paths stand in some files: every try is in the folder of the same name.
        self.folder = scratch / "try"
        self.private = scratch / "try-private"
        self.renew()

    def renew(self) -> None:
        for each in (self.folder, self.private):
            shutil.rmtree(each, ignore_errors=True)
        shutil.copytree(self.pristine, self.folder, symlinks=True)
        for place in self.places().values():
            Path(place).mkdir(parents=True, exist_ok=True)

    def places(self) -> dict[str, str]:
        """HOME, cache and temporary files are the try's own."""
        names = {"HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "xdg"}
        own = {variable: str(self.private / name) for variable, name in names.items()}
        return {**own, "CUWHEEL_CACHE": str(self.folder / self.job.cache)}

    def enter(self) -> None:
        os.chdir(self.folder)
        os.environ.update(self.places())
        tempfile.tempdir = None  # it is asked for anew

    def import_everything(self, commands: Iterable[Command] = ()) -> None:
        """By a first run in this process: the children that are forked from it inherit what it imported.

        `commands`: others than the job's.
        """
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.enter()
            for command in commands or filter(None, (self.job.begin, self.job.command)):
                cli.main(list(command(self.folder)))
            os.chdir(self.scratch)

    def state(self, folder: Path, *, killed: bool = False, everything: bool = False) -> dict[str, str]:
        """What each file holds, without what belongs to a run under way and what no two runs write alike.

        `everything`: with the latter, and with who may do what.
        """
        found = {}
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if path.is_dir() or any(part.startswith(self.job.private) for part in parts):
                continue
            if killed and path.name.startswith(".") and path.suffix == ".part":
                continue  # what was being written when the process died, under a name that nobody reads
            if not everything and "/".join(parts).startswith(self.job.varies):
                continue
            target = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
            found["/".join(parts)] = f"{path.lstat().st_mode:o} {target}" if everything else target
        return found


def forked(
    ground: Ground, command: Command, messages: Path, begin: Callable[[], None], end: Callable[[], None] = lambda: None
) -> int:
    """A child that runs the command in the ground, between `begin` and `end`; both its streams go to `messages`."""
    child = os.fork()
    if child:
        return child
    status = EXIT_BUG
    try:
        out = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.close(out)
        ground.enter()
        words = list(command(ground.folder))
        begin()
        status = cli.main(words)
        end()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def last_words(messages: Path) -> str:
    text = messages.read_text(errors="replace") if messages.exists() else ""
    text = text.partition("\n{\n")[0]  # with --json an error is an object, too
    return " / ".join(line for line in text.splitlines()[-4:] if not line.startswith("{"))[-600:]


def fail(job: Job, messages: str) -> None:
    sys.exit(f"{job.name} fails when left alone:\n{messages}")
