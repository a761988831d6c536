"""The folder that a job is tried in, made anew for every try, and what its files hold before and after."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.campaign.jobs import Job

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
        return {**own, "CUWHEEL_CACHE": str(self.folder / CACHE)}

    def enter(self) -> None:
        os.chdir(self.folder)
        os.environ.update(self.places())
        tempfile.tempdir = None  # it is asked for anew

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


def fail(job: Job, messages: str) -> None:
    sys.exit(f"{job.name} fails when left alone:\n{messages}")
