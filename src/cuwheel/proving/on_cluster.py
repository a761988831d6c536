"""Wheels read and tried by the workers of a cluster.

A wheel is tried on every GPU of a fleet: a kit goes to a worker that has the GPU, and its proof comes back.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters import engine
from cuwheel.clusters.task import Done, Task
from cuwheel.device_code.contents import Survey
from cuwheel.device_code.target import downloaded_if_pinned, is_pinned, survey_target
from cuwheel.errors import UnavailableError
from cuwheel.machine import fleet
from cuwheel.network import cluster_access
from cuwheel.proving import wheels
from cuwheel.proving.proof import Proof, read_proof
from cuwheel.proving.request import FleetRequest, PackRequest
from cuwheel.support import codec, files, process
from cuwheel.support.answer import Answer
from cuwheel_core.errors import MalformedError, UnreadableError

_KIT, _PROOF = "kit.pyz", "proof.json"
_MEMORY = 2 * 10**9
_LONGEST_S = 24 * 3600.0  # its checks have limits of their own


class GpuProof(Struct, frozen=True, kw_only=True):
    """Of one kind of GPU: the `proof` and its `file`, or the `problem` for which there is none."""

    gpu: str
    worker: str = ""
    file: str = ""
    problem: str = ""
    proof: Proof | None = None

    @property
    def succeeded(self) -> bool:
        return self.proof is not None and self.proof.succeeded


class Proofs(Answer, frozen=True, kw_only=True):
    schema: Literal["cuwheel.proofs/1"] = "cuwheel.proofs/1"
    proofs: tuple[GpuProof, ...]

    @property
    def succeeded(self) -> bool:
        return bool(self.proofs) and all(each.succeeded for each in self.proofs)


def gpu_tags(on: fleet.Machines) -> tuple[str, ...]:
    """The tags of the GPUs that are named: which workers have them."""
    named = fleet.machines_named(on)
    return tuple(dict.fromkeys(f"gpu:{each.capability}" for each in named if each.capability))


def verify_on_cluster(request: FleetRequest) -> Proofs:
    """A proof for each kind of GPU."""
    wanted = gpu_tags(request.on)
    with tempfile.TemporaryDirectory() as scratch:
        shared = {each.name: getattr(request, each.name) for each in fields(PackRequest) if each.name != "to"}
        kit = wheels.pack_wheels(PackRequest(**shared, to=Path(scratch, _KIT)))
        found = cluster_access.parse_address(request.cluster)
        with engine.open_engine(found, files.cache_folder() / "cluster") as machine:
            packed = machine.add_input(Path(scratch, _KIT))
            there = {tag for facts in machine.gather() for tag in facts.tags if tag.startswith("gpu:")}
            if not wanted and not there:
                raise UnavailableError(
                    "no worker of the cluster has a GPU",
                    hint="cuwheel cluster status, and --tag of cuwheel cluster worker",
                )
            title = ", ".join(dict.fromkeys(each.name for each in kit.wheels))
            tasks = [
                Task(
                    id=f"{title} on {tag.removeprefix('gpu:')}",
                    function=f"{__name__}:prove",
                    parameters=",".join(request.pass_env),
                    inputs={_KIT: packed},
                    memory=_MEMORY,
                    tag=tag,
                    fresh=True,  # a proof of this run
                )
                for tag in wanted or sorted(there)
            ]
            done = {each.task.tag: _brought_back(each, request) for each in machine.run(tasks)}
    return Proofs(proofs=tuple(done[each.tag] for each in tasks))


def _brought_back(done: Done, request: FleetRequest) -> GpuProof:
    gpu = done.task.tag.removeprefix("gpu:")
    if done.problem or _PROOF not in done.files:
        return GpuProof(gpu=gpu, worker=done.worker, problem=done.problem or f"the kit wrote no proof: {done.text}")
    request.output.mkdir(parents=True, exist_ok=True)
    place = files.copy(done.files[_PROOF], request.output / f"proof-{gpu}.json")
    try:
        proof = read_proof(place, [wheels.find_wheel(each, request.python) for each in request.named])
    except MalformedError as error:
        return GpuProof(gpu=gpu, worker=done.worker, file=str(place), problem=error.message)
    return GpuProof(gpu=gpu, worker=done.worker, file=str(place), proof=proof)


def prove(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """On a worker: the kit as it runs anywhere. What it proves is in its file, whatever its exit status."""
    proof = work / _PROOF
    passed = ["--pass-env", task.parameters] if task.parameters else []
    told = process.run(
        [sys.executable, str(inputs[_KIT]), "--to", str(proof), *passed], timeout=_LONGEST_S, cwd=work, check=False
    )
    return told.stderr[-2000:], {_PROOF: proof} if proof.is_file() else {}


# Surveys of many wheels: files go by their hash, releases by their name.

_SURVEY_MEMORY = 10**9


class SurveyTask(Struct, frozen=True, kw_only=True):
    """A file that is sent along, or a release that the worker downloads."""

    name: str
    platform: str | None = None


def survey_on_cluster(
    targets: Sequence[str | Path], cluster: str, *, platform: str | None = None, env: Path | None = None
) -> list[Survey]:
    """Surveys the targets, in their order. What is neither a file nor a release is this machine's, and is read here."""
    found: dict[int, Survey] = {}
    tasks: dict[str, int] = {}
    made: list[Task] = []
    with engine.open_engine(cluster_access.parse_address(cluster), files.cache_folder() / "cluster") as machine:
        for number, each in enumerate(targets):
            path = Path(each)
            pinned = is_pinned(str(each)) and not path.exists()
            if not pinned and not path.is_file():
                found[number] = survey_target(each, env=env, detail="containers")
                continue
            name = f"{number + 1}: {each if pinned else path.name}"
            given = SurveyTask(name=str(each) if pinned else path.name, platform=platform)
            tasks[name] = number
            made.append(
                Task(
                    id=name,
                    function=f"{__name__}:survey",
                    parameters=codec.encode(given).decode(),
                    inputs={} if pinned else {path.name: machine.add_input(path)},
                    memory=_SURVEY_MEMORY,
                )
            )
        for done in machine.run(made):
            number = tasks[done.task.id]
            if done.problem:
                raise UnreadableError(targets[number], done.problem, hint=done.hint)
            survey = codec.decode(done.text, Survey)
            local = Path(targets[number]).is_file()
            found[number] = replace(survey, target=str(targets[number])) if local else survey
    return [found[number] for number in range(len(targets))]


def survey(task: Task, inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """On a worker."""
    given = codec.decode(task.parameters, SurveyTask)
    place = downloaded_if_pinned(inputs.get(given.name, given.name), given.platform)
    return codec.encode_any(survey_target(place, detail="containers")).decode(), {}
