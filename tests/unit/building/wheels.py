"""Wheels for the gate, made up or from the committed binaries, and records of calls that never ran."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel.building import gate
from cuwheel.building.recording.calls import Call, Record
from cuwheel.building.tables import GateTable
from cuwheel.building.values import GateRequest, GateResult
from cuwheel.device_code.survey import survey
from cuwheel_core.facts.arch import Arch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel_core.support.finding import Finding

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
TAG = "py3-none-linux_x86_64"


def wheel(folder: Path, files: dict[str, bytes | str], *, tag: str = TAG) -> Path:
    """Files by their paths; a text is the name of a committed binary."""
    path = folder / f"demo-1.0-{tag}.whl"
    info = "demo-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, (BIN / data).read_bytes() if isinstance(data, str) else data)
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        made.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        made.writestr(f"{info}/RECORD", "")
    return path


def judge(path: Path, plan: str, *, cuda: str = "13.0", **changes: Any) -> GateResult:
    """`plan`: architectures and PTX in one list. Changes are of `Wanted`, or of its table."""
    own = {
        name: changes.pop(name) for name in ("places", "toolkit_root", "record", "machines", "cpu") if name in changes
    }
    words = plan.split()
    wanted = GateRequest(
        archs=tuple(Arch.parse(word) for word in words if word.startswith("sm_")),
        ptx=tuple(Arch.parse(word) for word in words if word.startswith("compute_")),
        cuda=cuda,
        table=GateTable(**changes),
        **own,
    )
    return gate.examine(survey(path, detail="containers"), wanted)


def found(result: GateResult, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = [each for each in result.findings if each.rule == rule]
    return finding


def rules(result: GateResult, severity: str = "error") -> set[str]:
    return {each.rule for each in result.findings if each.severity == severity}


def call(number: int, words: str | Sequence[str], *, program: str = "/kit/bin/nvcc", **changes: Any) -> Call:
    values: dict[str, Any] = {
        "number": number,
        "tool": "nvcc" if program.endswith("nvcc") else "compiler",
        "name": Path(program).name,
        "program": program,
        "words": tuple(words.split() if isinstance(words, str) else words),
        "cwd": "/job/src",
        "began": float(number),
        "ended": number + 0.5,
        "state": "succeeded",
        "status": 0,
    }
    return Call(**values | changes)


def record(*calls: Call, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "folder": "/job/record",
        "command": ("build",),
        "cwd": "/job/src",
        "began": "2026-01-01T00:00:00Z",
        "seconds": 10.0,
        "status": 0,
        "environment": {},
        "masked": True,
        "calls": calls,
    }
    return Record(**values | changes)
