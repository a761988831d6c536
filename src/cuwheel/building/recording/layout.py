"""The files of a record.

record.json        the command, where and when, and whether secrets were masked
environment.json   what it was started with
calls.jsonl        a line when a call begins, and one when it has ended; the last is the command's own end
output/            what calls printed: <id>.out, <id>.err; command.txt: the end of what the command itself did
phases/            nvcc's own timing of a call: <id>.csv
cache/             what a compiler cache said of a call: <id>.txt
blame-<n>.json     what `replay --diff` found of call n
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from cuwheel.support import files, system_calls

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "cuwheel.calls/1"
HEAD = "record.json"
ENVIRONMENT = "environment.json"
CALLS = "calls.jsonl"
REPORT = "report.json"
COMMAND_OUTPUT = "output/command.txt"
COPY = "source"  # beside a record of a matrix: the copy of the project that it was made in
FOLDERS = ("output", "phases", "cache")


def blame(number: int) -> str:
    return f"blame-{number}.json"


def write(folder: Path, name: str, value: object) -> None:
    """On the disk before it has its name. Text of any bytes: what is no UTF-8 is escaped, and comes back the same."""
    files.write(folder / name, json.dumps(value, indent=1) + "\n", durable=True)


def append(folder: Path, event: dict[str, object]) -> None:
    """One write: shims append to the same file."""
    file = system_calls.open_file(folder / CALLS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(event).encode("ascii") + b"\n")
    finally:
        os.close(file)
