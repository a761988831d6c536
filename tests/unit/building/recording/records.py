"""Records made by hand, as the recorder would write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cuwheel.building.recording import reader
from cuwheel.building.recording.calls import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cuwheel.building.recording.calls import Record

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}


def call(words: Sequence[str], *, status: int | None = 0, err: str = "", out: str = "", **more: Any) -> dict[str, Any]:
    """`status` None: it never ended."""
    return {
        "tool": "nvcc", "name": "nvcc", "program": "/opt/cuda/bin/nvcc", "words": list(words), "cwd": "/nowhere",
        "changed": {}, "unset": [], "response_files": [], "_status": status, "_err": err, "_out": out, **more,
    }  # fmt: skip


def record(
    folder: Path,
    *calls: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    status: int = 0,
    masked: bool = True,
    cwd: Path | None = None,
) -> Record:
    (folder / "output").mkdir(parents=True)
    head = {
        "schema": SCHEMA, "command": ["make"], "cwd": str(cwd or folder.parent),
        "began": "2026-01-02T03:04:05+00:00", "masked": masked,
    }  # fmt: skip
    (folder / "record.json").write_text(json.dumps(head))
    (folder / "environment.json").write_text(json.dumps(ENVIRON if environ is None else dict(environ)))
    lines = []
    for number, each in enumerate(calls, 1):
        event = {key: value for key, value in each.items() if not key.startswith("_")}
        for stream in ("out", "err"):
            (folder / "output" / f"{number}.{stream}").write_text(each[f"_{stream}"])
        event |= {"event": "start", "id": str(number), "began": number * 10**9}
        event |= {"stdout": f"output/{number}.out", "stderr": f"output/{number}.err"}
        lines.append(event)
        if each["_status"] is not None:
            ended = number * 10**9 + 5 * 10**8
            lines.append({"event": "end", "id": str(number), "ended": ended, "status": each["_status"]})
    lines.append({"event": "finish", "ended": 10**11, "status": status})
    (folder / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return reader.read_record(folder)
