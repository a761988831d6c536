"""A machine in a folder: files where a real one has them, and programs that print what real ones print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel.errors import ToolError, ToolTimeoutError
from cuwheel.machine.world import World
from cuwheel.support.process import Completed

if TYPE_CHECKING:
    from collections.abc import Sequence

NVCC_VERSION = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Cuda compilation tools, release {minor}, V{full}
"""


class FakeMachine:
    def __init__(self, root: Path, *, platform: str = "linux", cpu: str = "x86_64", glibc: str | None = "2.36") -> None:
        self.root = root
        self.environ: dict[str, str] = {"PATH": "C:\\Windows\\System32" if platform == "win32" else "/usr/bin"}
        self.outputs: dict[str, str] = {}
        self.nvml: dict[str, Any] | str = {"state": "library-missing", "detail": "NVML Shared Library Not Found"}
        self._platform, self._cpu, self._glibc = platform, cpu, glibc

    def file(self, path: str, text: str | bytes = "") -> Path:
        target = self.world.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        return target

    def program(self, path: str, output: str) -> None:
        self.file(path).chmod(0o755)
        self.outputs[path] = output

    def link(self, path: str, to: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(self.root / to.lstrip("/"))

    def toolkit(self, root: str, full: str) -> None:
        minor = ".".join(full.split(".")[:2])
        name = "\\bin\\nvcc.exe" if self._platform == "win32" else "/bin/nvcc"
        self.program(f"{root}{name}", NVCC_VERSION.format(minor=minor, full=full))
        self.file(f"{root}/bin/nvcc.profile")

    @property
    def world(self) -> World:
        return World(
            environ=self.environ,
            cwd=self.root / "project",
            root=self.root,
            platform=self._platform,
            cpu=self._cpu,
            libc_version=self._glibc if self._platform == "linux" else None,
            system_version="Windows 11 (10.0.26100)" if self._platform == "win32" else None,
            run=self._run,
        )

    def _run(self, command: Sequence[str | Path], *, timeout: float, check: bool, **_options: Any) -> Completed:
        assert check
        if any(str(word).endswith("nvml.py") for word in command):
            if self.nvml == "hangs":
                raise ToolTimeoutError(["python"], timeout)
            output = self.nvml if isinstance(self.nvml, str) else json.dumps(self.nvml)
        else:
            path = self.world.shown(Path(command[0]))
            if path not in self.outputs:
                raise ToolError([path], "failed with status 1")
            output = self.outputs[path]
        return Completed(command=tuple(map(str, command)), status=0, stdout=output, stderr="", seconds=0.0)
