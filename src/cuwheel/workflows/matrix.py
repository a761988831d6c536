"""The matrix of a workflow, from what `cuwheel build --dry-run --json` plans: nobody edits YAML to add a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from cuwheel import codec
from cuwheel.errors import MalformedError, NewerSchemaError, UsageError
from cuwheel.facts import ci
from cuwheel.files import head

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SCHEMA = "cuwheel.build/1"
_NAMING = "naming-chosen"  # the finding of a plan for several CUDA versions, which one job alone does not see
_LARGEST = 32 << 20
_MOST = 256  # jobs of one matrix, at GitHub


class _Job(Struct, frozen=True):
    id: str
    cuda: str
    python: str
    outcome: str
    reason: str = ""


class _Finding(Struct, frozen=True):
    rule: str


class _Plan(Struct, frozen=True):
    schema: str
    jobs: tuple[_Job, ...]
    findings: tuple[_Finding, ...] = ()


class Row(Struct, frozen=True, kw_only=True):
    """A job of the matrix. `naming`: how CUDA appears in the wheel's name, where the plan chose it."""

    name: str
    cuda: str
    python: str
    cpu: str
    runner: str
    naming: str = ""


KEYS = tuple(each.name for each in structs.fields(Row))


def rows(plan: Path, cpus: Sequence[str]) -> tuple[Row, ...]:
    data = head(plan, _LARGEST)
    try:
        found = codec.decode(data, _Plan)
    except msgspec.DecodeError as error:
        hint = "cuwheel build --dry-run --json > plan.json"
        raise MalformedError(plan, f"is not the plan of a build: {error}", hint) from error
    if found.schema != _SCHEMA:
        raise NewerSchemaError(plan, found.schema, _SCHEMA)
    failed = [each for each in found.jobs if each.outcome != "planned" and each.reason]
    if failed or not found.jobs:
        why = "; ".join(f"{each.id}: {each.reason.splitlines()[0][:200]}" for each in failed)
        raise UsageError(f"this plan cannot be built: {why or 'it is empty'}", hint="cuwheel build --dry-run shows it")
    naming = "local" if any(each.rule == _NAMING for each in found.findings) else ""
    made = tuple(
        Row(name=f"{job.id}-{cpu}", cuda=job.cuda, python=job.python, cpu=cpu, runner=ci.runners()[cpu], naming=naming)
        for job in found.jobs
        for cpu in cpus
    )
    if len(made) > _MOST:
        raise UsageError(f"this makes {len(made)} jobs, and a matrix has at most {_MOST}", hint="--cuda, --python")
    return made


def output(made: Sequence[Row]) -> str:
    """A line for $GITHUB_OUTPUT."""
    return f"matrix={codec.encode({'include': list(made)}).decode()}\n"
