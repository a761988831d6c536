"""A release built from its source distribution, for exactly the machines that need it: foreseen, then done."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import pipeline
from cuwheel.building.decide import decide
from cuwheel.building.request import BuildRequest
from cuwheel.delivery.install_answer import PlannedBuild
from cuwheel.diagnosis import failures
from cuwheel.errors import UnavailableError, UsageError
from cuwheel.machine import fleet
from cuwheel.network import transfer
from cuwheel.support import codec, files
from cuwheel.wheel import requirements
from cuwheel_core.facts import versions
from cuwheel_core.support import opening
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.building.settings import BuildSettings
    from cuwheel.building.values import BuildPlan
    from cuwheel.delivery.candidates import Candidate
    from cuwheel.machine.fleet import Machine

_BUILT = "installed-builds"
_KNOWN = ("driver", "driver_cuda", "os", "cpu", "glibc", "torch_cuda", "jax_cuda", "l4t", "jit")


class _Work(Struct, frozen=True, kw_only=True):
    """`cuda`, `torch`: in place of what the project's own configuration says."""

    source: Path
    fleet: Path
    python: str
    cuda: tuple[str, ...] | None = None
    torch: str | None = None

    def request(self, output: Path | None = None) -> BuildRequest:
        """Without an `output`, a dry run. One plain wheel, whatever the project publishes."""
        settings: BuildSettings = {"naming": "none", "merge": False, "variants": False}
        if self.cuda is not None:
            settings["cuda"] = self.cuda
        if self.torch:
            settings["requires"] = [f"torch=={self.torch}"]
        return BuildRequest(
            str(self.source),
            machines=[str(self.fleet)],
            python=[versions.minor(self.python)],
            settings=settings,
            output=output or self.fleet.parent / "unused",
            dry_run=output is None,
        )


def foresee_build(candidate: Candidate, machines: Sequence[Machine], python: str) -> PlannedBuild:
    """Nothing but the source is fetched. Raises a CuwheelError that says why it cannot be built."""
    with _prepared_work(candidate, machines, python) as work:
        return _foreseen_build(candidate, *_decided_build(work, machines))


def build_from_source(candidate: Candidate, machines: Sequence[Machine], python: str) -> Path:
    """The wheel; one that an earlier run made of the same parts is taken again."""
    with _prepared_work(candidate, machines, python) as given:
        work, decided = _decided_build(given, machines)
        output = files.cache_folder() / _BUILT / f"{normalised(decided.project.name)}-{candidate.version}"
        job = pipeline.build(work.request(output), dict(os.environ)).jobs[0]
        if job.answer.wheel is None:
            found = failures.failure(job)
            what = found.what if found else job.answer.reason or job.answer.outcome
            cause = f" ({found.causes[0].title})" if found and found.causes else ""
            raise UnavailableError(f"the build of {candidate.file} failed: {what}{cause}")
        return job.answer.wheel.file


@contextmanager
def _prepared_work(candidate: Candidate, machines: Sequence[Machine], python: str) -> Iterator[_Work]:
    """The source, and the machines as a fleet file: a build plans for their drivers and their torch too."""
    _must_be_like_here(machines)
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as scratch:
        source = candidate.path or Path(scratch, candidate.file)
        if candidate.path is None:
            listing = candidate.listing
            transfer.download(listing.url, source, sha256=listing.sha256, size=listing.size, label=listing.file)
        fleet = Path(scratch, "machines.toml")
        fleet.write_text("".join(map(fleet_row, machines)), encoding="utf-8")
        yield _Work(source=source, fleet=fleet, python=python)


def _must_be_like_here(machines: Sequence[Machine]) -> None:
    if not all(each.capability for each in machines):
        raise UnavailableError("the GPU to build for is not known", hint="name one: --on h100")
    here = {"os": platform.system().lower(), "cpu": fleet.cpu_here()}
    for machine in machines:
        for name, own in here.items():
            if getattr(machine, name) not in (None, own):
                raise UnavailableError(f"it cannot be built on {own} for {getattr(machine, name)}")


def fleet_row(machine: Machine) -> str:
    """A row of a fleet file, with all that a plan asks of a machine."""
    known = {name: value for name in _KNOWN if (value := getattr(machine, name)) is not None}
    row = {"name": machine.name, "capability": str(machine.capability), **known}
    lines = (f"{name} = {codec.encode(value).decode()}\n" for name, value in row.items())
    return f"[[machine]]\n{''.join(lines)}"


def _decided_build(work: _Work, machines: Sequence[Machine]) -> tuple[_Work, BuildPlan]:
    """Decides the build by the project's own CUDA versions, if one serves these machines; else by whichever does."""
    try:
        made = decide(work.request(), dict(os.environ))
    except UsageError:
        work = replace(work, cuda=())
        made = decide(work.request(), dict(os.environ))
    serving = [job.cuda for job in made.jobs]
    if not serving and made.failed and made.failed[0].problem:
        raise UnavailableError(made.failed[0].problem.what, hint=made.failed[0].problem.hint)
    work = replace(work, cuda=(max(serving, key=versions.key),), torch=_torch_for_build(made, machines))
    made = decide(work.request(), dict(os.environ))
    if made.unserved:
        reasons = "; ".join(why for each in made.unserved for why in each.why)
        raise UnavailableError(f"no single CUDA version serves all of these GPUs: {reasons}")
    return work, made


def _torch_for_build(decided: BuildPlan, machines: Sequence[Machine]) -> str | None:
    wanted = (*decided.table.requires, *decided.project.requires)
    names = {normalised(each.name) for each in map(requirements.parse, wanted) if each}
    if decided.project.backend != "torch" and "torch" not in names:
        return None
    return next((each.torch.partition("+")[0] for each in machines if each.torch), None)


def _foreseen_build(candidate: Candidate, work: _Work, decided: BuildPlan) -> PlannedBuild:
    job, project = decided.jobs[0], decided.project
    compiler, toolkit = job.toolchain.host_compiler, job.toolchain.toolkit
    packed = metadata.from_texts(opening.head(decided.tree.folder / "PKG-INFO"), "")
    return PlannedBuild(
        name=normalised(project.name),
        version=str(candidate.version),
        source=candidate.file,
        cuda=job.cuda,
        archs=tuple(map(str, (*job.plan.archs, *job.plan.ptx))),
        python=job.python,
        backend=project.backend,
        toolkit=f"{toolkit.release} ({toolkit.provider})",
        compiler=f"{compiler.kind} {compiler.version}" if compiler else "",
        torch=work.torch,
        requires=packed.requires,
    )
