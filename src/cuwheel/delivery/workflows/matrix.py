"""The matrix of a workflow, from what `cuwheel build --dry-run --json` plans: nobody edits YAML to add a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from cuwheel.errors import MalformedError, NewerSchemaError, UsageError
from cuwheel.facts import services
from cuwheel.support import codec
from cuwheel.support.files import head

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
    """A job of the matrix. `naming`: how CUDA appears in the wheel's name, where the plan chose it.

    `image`: the container that it runs in, or nothing.
    """

    name: str
    cuda: str
    python: str
    cpu: str
    runner: str
    naming: str = ""
    image: str = ""


KEYS = tuple(each.name for each in structs.fields(Row))


def rows(plan: Path, cpus: Sequence[str], *, windows: bool = False, image: str = "") -> tuple[Row, ...]:
    """For Linux with each of these processors, then for Windows."""
    found = _read(plan)
    failed = [each for each in found.jobs if each.outcome != "planned" and each.reason]
    if failed or not found.jobs:
        why = "; ".join(f"{each.id}: {each.reason.splitlines()[0][:200]}" for each in failed)
        raise UsageError(f"this plan cannot be built: {why or 'it is empty'}", hint="cuwheel build --dry-run shows it")
    naming = "local" if any(each.rule == _NAMING for each in found.findings) else ""
    places = [(cpu, cpu, services.linux_runners()[cpu], image) for cpu in cpus]
    if windows:
        cpu, label = services.windows_runner()
        places.append(("windows", cpu, label, ""))
    made = tuple(
        Row(
            name=f"{job.id}-{place}",
            cuda=job.cuda,
            python=job.python,
            cpu=cpu,
            runner=label,
            naming=naming,
            image=filled(container, job.cuda, cpu),
        )
        for job in found.jobs
        for place, cpu, label, container in places
    )
    if len(made) > _MOST:
        raise UsageError(f"this makes {len(made)} jobs, and a matrix has at most {_MOST}", hint="--cuda, --python")
    return made


def _read(plan: Path) -> _Plan:
    try:
        found = codec.decode(head(plan, _LARGEST), _Plan)
    except msgspec.DecodeError as error:
        hint = "cuwheel build --dry-run --json > plan.json"
        raise MalformedError(plan, f"is not the plan of a build: {error}", hint) from error
    if found.schema != _SCHEMA:
        raise NewerSchemaError(plan, found.schema, _SCHEMA)
    return found


def filled(image: str, cuda: str, cpu: str) -> str:
    """The image of one job."""
    return image.replace("{cuda}", cuda.replace(".", "_")).replace("{cpu}", cpu)


def output(made: Sequence[Row]) -> str:
    """Lines for $GITHUB_OUTPUT: all jobs, and those whose kits fit the machine with a GPU: the first processor's."""
    kits = [each for each in made if each.cpu == made[0].cpu and each.runner == made[0].runner]
    named = {"matrix": made, "kits": kits}
    return "".join(f"{name}={codec.encode({'include': list(rows)}).decode()}\n" for name, rows in named.items())
