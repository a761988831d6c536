"""Which checks a wheel is put to: its own imports, those known of its package, those of a configuration."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UsageError
from cuwheel.facts.tables import tables
from cuwheel.proving import modules
from cuwheel.proving.outcomes import Check
from cuwheel.support import wording
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.tables import CheckTable, VerifyTable
    from cuwheel.device_code.libraries import Survey
    from cuwheel.facts.rows.checks import KnownCheck
    from cuwheel.proving.outcomes import Kind

TIMEOUT_S = 120.0
MEMORY = 8 * 10**9


def of(
    table: VerifyTable, survey: Survey, *, known: bool = True, timeout: float | None = None, cuda: str | None = None
) -> tuple[Check, ...]:
    """In the order that they are run. `timeout` in place of every other. `cuda`: that was asked for."""
    imports = table.imports
    if imports is None:
        with WheelFile(Path(survey.target)) as wheel:
            imports = modules.top_level(wheel)
    found = [importing(name) for name in imports]
    if known and survey.distribution:
        found += [_known(row, survey, cuda) for row in _rows(survey.distribution.name)]
    found += [_configured(check, number) for number, check in enumerate(table.check, start=1)]
    return tuple(_timed(each, timeout) for each in found)


def chosen(checks: Sequence[Check], patterns: Sequence[str]) -> tuple[Check, ...]:
    """Those whose names fit; every pattern must mean one."""
    if not patterns:
        return tuple(checks)
    strangers = [each for each in patterns if not any(fnmatchcase(check.name, each) for check in checks)]
    if strangers:
        names = ", ".join(repr(check.name) for check in checks)
        raise UsageError(f"unknown check {' and '.join(map(repr, strangers))}", hint=f"choose from {names}")
    return tuple(check for check in checks if any(fnmatchcase(check.name, each) for each in patterns))


def importing(name: str) -> Check:
    return Check(name=f"import {name}", kind="import", text=name, origin="wheel", timeout=TIMEOUT_S, memory=MEMORY)


def _rows(name: str) -> list[KnownCheck]:
    wanted = normalised(name)
    return [row for row in tables().checks.check if any(fnmatchcase(wanted, each) for each in row.packages)]


def _known(row: KnownCheck, survey: Survey, cuda: str | None) -> Check:
    """A wheel for CUDA alone has nothing that could be tried on the processor."""
    alone = bool(row.cpu_library) and not any(fnmatchcase(each.path, row.cpu_library) for each in survey.libraries)
    expect = row.expect
    if cuda and row.expect_cuda:
        major, *minor = cuda.split(".")
        release = f"{major}.{minor[0]}," if minor else f"{major}."
        expect = tuple(each.replace("{cuda}", release) for each in row.expect_cuda)
    return Check(
        name=row.name,
        kind="command" if row.command is not None else "python",
        text=row.command if row.command is not None else row.python or "",
        origin="known",
        expect=expect,
        forbid=row.forbid,
        number=row.number,
        tolerance=row.tolerance,
        gpu=row.gpu or alone,
        program=row.program,
        timeout=row.timeout or TIMEOUT_S,
        memory=MEMORY,
    )


def _configured(check: CheckTable, number: int) -> Check:
    choices: tuple[tuple[Kind, str | None], ...] = (
        ("import", check.import_),
        ("command", check.command),
        ("python", check.python),
    )
    kind, text = next((kind, text) for kind, text in choices if text is not None)
    first = text.strip().partition("\n")[0]
    return Check(
        name=check.name or (f"import {text}" if kind == "import" else first[:60]) or f"check {number}",
        kind=kind,
        text=text,
        origin="configuration",
        expect=check.expect,
        forbid=check.forbid,
        status=check.status,
        number=check.number,
        tolerance=check.tolerance,
        gpu=check.gpu or bool(check.capabilities),
        capabilities=check.capabilities,
        timeout=check.timeout,
        memory=wording.read_size(check.memory) or MEMORY,
        environment=check.environment,
    )


def _timed(check: Check, timeout: float | None) -> Check:
    return replace(check, timeout=timeout) if timeout else check
