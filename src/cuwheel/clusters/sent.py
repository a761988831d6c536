"""cuwheel for workers that have none. This file travels as text, and imports nothing of cuwheel at its top."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import subprocess  # noqa: TID251 - the house's own is what is missing there
import sys
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin


class Install(WorkerPlugin):
    """Wheels and what they require, in a folder of the worker's own: the environment stays as it is."""

    idempotent = False
    name = "cuwheel's wheel"

    def __init__(self, wheels: dict[str, bytes], text: str) -> None:
        self.wheels, self.text = wheels, text

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        known = {"text": self.text, "words": (self.wheels, self.text)}
        return eval, ("exec(text, globals()) or Install(*words)", known)

    async def setup(self, worker: Any) -> None:  # noqa: ANN401
        place = Path(worker.local_directory, "cuwheel")
        await asyncio.to_thread(self._install, place)
        sys.path.append(str(place))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
        importlib.invalidate_caches()
        await worker.plugin_add(importlib.import_module("cuwheel.clusters.remote").OnWorker())

    def _install(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, content in self.wheels.items():
            (place / name).write_bytes(content)
        pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
        python = [] if pip[0] == sys.executable else ["--python", sys.executable]
        words = [
            *pip,
            "install",
            *python,
            "--quiet",
            "--target",
            str(place),
            *(str(place / name) for name in self.wheels),
        ]
        # There, where nobody else writes: Python runs modules of the current folder in place of its own.
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=place)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"{' '.join(words[:4])} failed: {done.stderr.strip()[-2000:]}")
