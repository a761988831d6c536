"""What the tests of recording on Windows share: our two programs and tools of C made by MinGW, and Wine to run them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import calls, reader, recorder, shims
from cuwheel.building.recording.calls import Record
from cuwheel.building.recording.shims import RecordOptions, ShimOrders
from cuwheel.support import files
from tests.fixtures import cache
from tests.wine import windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.recording.calls import Call
    from cuwheel.building.recording.shims import WindowsPrograms

_PATIENCE_S = 600.0
SOURCES = Path(__file__).parent / "src"


needs_wine = pytest.mark.skipif(bool(windows.missing()), reason=windows.missing())


def programs() -> WindowsPrograms:
    """Of these sources, made once."""

    def make(folder: Path) -> None:
        shims.make_windows_programs(folder)

    place = cache.made(f"windows-record-{shims.windows_digest()[:12]}", make)
    found = shims.shipped_windows_programs(place)
    assert found
    return found


def tool(name: str) -> Path:
    """One of the C programs of the tests."""
    source = SOURCES / f"windows_{name}.c"

    def make(folder: Path) -> None:
        words = [
            shims.MINGW,
            "-O1",
            "-s",
            *(["-municode"] if name == "tool" else []),
            str(source),
            "-o",
            str(folder / f"{name}.exe"),
        ]
        subprocess.run(words, check=True)

    digest = files.sha256_of(source.read_bytes())[:12]
    return cache.made(f"windows-{name}-{digest}", make) / f"{name}.exe"


@dataclass
class Ended:
    status: int
    out: str
    err: str
    record: Record

    @property
    def call(self) -> Call:
        assert len(self.record.calls) == 1, self.record.calls
        return self.record.calls[0]

    def printed(self, number: int = 1) -> tuple[str, str]:
        return reader.read_output(self.record, self.record.calls[number - 1])


@dataclass
class Bench:
    """A folder with an nvcc.exe in a toolkit, and a way to record. Names have blanks and letters of other languages."""

    folder: Path
    way: str
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.toolkit = self.folder / "Program Files" / "CUDA ü 日本" / "v13.0"
        self.work = self.folder / "my work é"
        for name in ("bin", "include", "nvvm"):
            (self.toolkit / name).mkdir(parents=True)
        self.work.mkdir()
        (self.toolkit / "bin" / "nvcc.profile").write_text("TOP = $(_HERE_)/..\n")
        shutil.copyfile(tool("tool"), self.nvcc)
        shutil.copyfile(tool("starter"), self.starter)

    @property
    def nvcc(self) -> Path:
        return self.toolkit / "bin" / "nvcc.exe"

    @property
    def starter(self) -> Path:
        return self.folder / "starter.exe"

    def called(self) -> str:
        """How a build names nvcc: its path where it is watched, by PATH where it is replaced."""
        return windows.named(self.nvcc) if self.way == "watch" else "nvcc.exe"

    def start(
        self, *words: str, wish: RecordOptions | None = None, given: str = "", **variables: str
    ) -> tuple[subprocess.Popen[bytes], Path]:
        wish = wish or RecordOptions()
        number = len(list(self.folder.glob("record-*")))
        record, own = self.folder / f"record-{number}", self.folder / f"session-{number}"
        for name in ("", *calls.RECORD_FOLDERS):
            (record / name).mkdir(parents=True)
        own.mkdir()
        path = f"{windows.named(self.toolkit / 'bin')};C:\\windows\\system32;C:\\windows"
        base = {"PATH": path, "SYSTEMROOT": "C:\\windows", "TEMP": "C:\\windows\\temp", "WINEDEBUG": "-all"}
        base |= {"WINEPREFIX": str(windows.prefix()), "CUDA_PATH": windows.named(self.toolkit), **variables}
        led = dict(base)
        if self.way == "path":
            shadow = recorder.windows_shadow_environ(
                self.folder / "cache", programs().nvcc, {"PATH": str(self.toolkit / "bin")}
            )
            led["PATH"] = f"{windows.named(Path(shadow['PATH'].split(';')[0]))};{path}"
            self.see_toolkit_as_windows(Path(shadow["PATH"].split(";")[0]).parent)
        changed = {name: value for name, value in led.items() if base[name] != value}
        orders = ShimOrders(
            record=Path(windows.named(record)),
            began=0,
            options=wish,
            library=None,
            watch=self.way == "watch",
            environ=base,
            redirected=changed,
        )
        shims.write_orders(own, orders)
        calls.write_json(record, calls.ENVIRONMENT_FILE, base)
        head = {"schema": calls.SCHEMA, "command": list(words), "cwd": windows.named(self.work), "began": ""}
        calls.write_json(record, calls.HEAD_FILE, head | {"masked": wish.masked, "system": "Windows 10 AMD64"})
        (record / calls.CALLS_FILE).touch()
        self.environ = {**os.environ, **led, shims.RECORD_VARIABLE: windows.named(own), "WINEPATH": led["PATH"]}
        self.environ["PATH"] = os.environ["PATH"]
        command = ["wine", str(programs().watch), "--cuwheel-keep", *words]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            cwd=self.work,
        )
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(given.encode())
        child.stdin.close()
        child.stdin = None
        return child, record

    def see_toolkit_as_windows(self, shadow: Path) -> None:
        """The shadow was made by Linux's Python, which names the toolkit otherwise."""
        (shadow / ".cuwheel-toolkit").write_text(windows.named(self.toolkit), encoding="utf-8")

    def run(self, *words: str, wish: RecordOptions | None = None, given: str = "", **variables: str) -> Ended:
        child, record = self.start(*words, wish=wish, given=given, **variables)
        try:
            out, err = child.communicate(timeout=_PATIENCE_S)
        finally:
            child.kill()
        return Ended(child.returncode, out.decode(), err.decode(), reader.read_record(record))

    def started(self, how: str, *words: str, wish: RecordOptions | None = None, **variables: str) -> Ended:
        """nvcc started in this way by another program."""
        return self.run(windows.named(self.starter), how, self.called(), *words, wish=wish, **variables)


def wait_until(true: Sequence[Path], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if all(path.exists() for path in true):
            return True
        time.sleep(0.05)
    return False
