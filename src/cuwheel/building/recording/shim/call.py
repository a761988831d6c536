"""A call of a compiler, and the record that it is written into."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from cuwheel.building.recording import words
from cuwheel.support import masking

MAX_RESPONSE = 1 << 20
MAX_RESPONSES = 64
ROOM_FOR_TIMES = 4 << 20


class Session:
    def __init__(self, folder: str) -> None:
        lines = os.fsdecode(Path(folder, "config").read_bytes()).split("\0")
        self.settings = [line.partition("=") for line in lines if line]
        base = os.fsdecode(Path(folder, "environ").read_bytes()).split("\0")
        self.base = {name: value for name, _, value in (line.partition("=") for line in base if line)}
        self.secrets = masking.secrets(self.base)
        self.folder, self.record = folder, self.every("record")[0]
        self.masked, self.phases = bool(self.every("mask")), bool(self.every("phases"))
        self.began = int(self.every("began")[0])

    def every(self, key: str) -> list[str]:
        return [value for name, _, value in self.settings if name == key]

    def masked_text(self, text: str) -> str:
        return masking.known(text, self.secrets) if self.masked else text

    def masked_words(self, given: list[str]) -> list[str]:
        return masking.words(given, self.masked_text) if self.masked else list(given)

    def now(self) -> int:
        return time.perf_counter_ns() - self.began

    def append(self, event: dict[str, Any], *, lasting: bool) -> None:
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            file = os.open(f"{self.record}/calls.jsonl", flags, 0o644)
            os.write(file, json.dumps(event).encode("ascii") + b"\n")
            if lasting:
                os.fdatasync(file)
            os.close(file)


def read_text(path: str) -> str | None:
    """A plain file's text: a pipe's would be taken from the compiler."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            return os.fsdecode(file.read(MAX_RESPONSE))
    except (OSError, ValueError):
        return None


def response_files(given: list[str], session: Session) -> list[dict[str, str | None]]:
    found: dict[str, str | None] = {}
    waiting = []
    for index, word in enumerate(given):
        name, joined, rest = word.partition("=")
        if word.startswith("@"):
            waiting.append(word[1:])
        elif name in words.OPTION_FILES:
            waiting += (rest if joined else (given[index + 1] if index + 1 < len(given) else "")).split(",")
    while waiting and len(found) < MAX_RESPONSES:
        path = waiting.pop(0)
        if path and path not in found and os.path.exists(path):  # noqa: PTH110
            found[path] = text = read_text(path)
            waiting += [word[1:] for word in words.split_text(text or "") if word.startswith("@")]
    return [
        {"path": session.masked_text(path), "text": None if text is None else session.masked_text(text)}
        for path, text in found.items()
    ]


def _can_be_written(folder: str) -> bool:
    """nvcc fails where it cannot write its times: a build may clean up the folder of its record, or fill the disk."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and disk.f_bavail * disk.f_frsize >= ROOM_FOR_TIMES


class Call:
    def __init__(self, session: Session, program: str, argv: list[str], environ: dict[str, str]) -> None:
        self.session, self.program, self.argv, self.environ = session, program, argv, environ
        self.id = f"{time.perf_counter_ns():x}-{os.getpid():x}"
        self.tool = words.tool_kind(program) or "compiler"
        self.ran: list[str] | None = None
        self.start, self.command = program, argv
        self.added: dict[str, str] = {}
        self.phases = ""

    def prepare(self) -> None:
        """The words to run: nvcc with the plan's architectures, a launcher and timing; caches with a log."""
        if self.tool == "nvcc":
            self._prepare_nvcc()
        name, record = os.path.basename(self.start), self.session.record  # noqa: PTH119
        if name == "ccache" and "CCACHE_STATSLOG" not in self.environ:
            self.added = {"CCACHE_STATSLOG": f"{record}/cache/{self.id}.txt"}
        if name == "sccache" and not {"SCCACHE_ERROR_LOG", "SCCACHE_LOG"} & self.environ.keys():
            log = f"{self.session.folder}/sccache.log"
            self.added = {"SCCACHE_ERROR_LOG": log, "SCCACHE_LOG": "sccache::server=debug"}

    def _prepare_nvcc(self) -> None:
        session, given = self.session, self.argv[1:]
        wish = words.asked_of_nvcc(given, self.environ, read_text)
        planned, launcher = session.every("arch"), session.every("launcher")
        if planned and wish.inputs and not wish.telling and not wish.single:
            self.ran = words.replace_archs(given, planned, read_text, self._kept_options)
            for name in words.NVCC_VARIABLES:
                if (changed := words.without_archs(self.environ.get(name, ""))) is not None:
                    self.environ[name] = changed
        timed = session.phases and not launcher and wish.inputs and not wish.telling and not wish.untimed
        last = []
        if timed and _can_be_written(f"{session.record}/phases") and self._knows_time():
            self.phases = f"phases/{self.id}.csv"
            last = [f"--time={session.record}/{self.phases}"]
        line = given if self.ran is None else self.ran
        if launcher and not wish.telling:
            self.start, self.command = launcher[0], [*launcher, self.program, *line]
        else:
            self.command = [self.argv[0], *line, *last]

    def _kept_options(self, index: int, text: str) -> str:
        path = Path(self.session.record, "output", f"{self.id}-{index}.options")
        path.write_bytes(os.fsencode(text))
        return str(path)

    def _knows_time(self) -> bool:
        """Asked once in a session."""
        import hashlib  # noqa: PLC0415 - seldom needed

        path = Path(self.session.folder, f"nvcc-{hashlib.sha256(os.fsencode(self.program)).hexdigest()[:16]}")
        with contextlib.suppress(OSError):
            return path.read_text(encoding="ascii") == "1"
        import subprocess  # noqa: PLC0415, TID251 - this is not part of cuwheel's own process

        try:
            asked = [self.program, "--help"]
            done = subprocess.run(asked, capture_output=True, check=False, env=self.environ, timeout=30)  # noqa: S603
            known = b"--time <" in done.stdout
        except (OSError, subprocess.SubprocessError):
            known = False
        with contextlib.suppress(OSError):
            path.write_text("1" if known else "0", encoding="ascii")
        return known

    def write_start(self, stdout: str, stderr: str) -> None:
        session = self.session
        parent = ""
        with contextlib.suppress(OSError):
            parent = (
                os.fsdecode(Path(f"/proc/{os.getppid()}/cmdline").read_bytes()[:4096]).rstrip("\0").replace("\0", " ")
            )
        changed = {name: value for name, value in self.environ.items() if session.base.get(name) != value}
        event: dict[str, Any] = {
            "event": "start",
            "id": self.id,
            "pid": os.getpid(),
            "began": session.now(),
            "tool": self.tool,
            "name": os.path.basename(self.program),  # noqa: PTH119
            "program": session.masked_text(self.program),
            "words": session.masked_words(self.argv[1:]),
            "cwd": session.masked_text(os.getcwd()),  # noqa: PTH109
            "parent": session.masked_text(parent),
            "changed": masking.variables(changed) if session.masked else changed,
            "unset": [name for name in session.base if name not in self.environ],
            "response_files": response_files(self.argv[1:], session),
            "stdout": stdout,
            "stderr": stderr,
        }
        event |= {"ran": session.masked_words(self.ran)} if self.ran is not None else {}
        event |= {"phases": self.phases} if self.phases else {}
        session.append(event, lasting=self.tool == "nvcc")
