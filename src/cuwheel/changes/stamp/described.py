"""The description of a wheel that was just built, from what it was built with and what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.device_code.description import BuildRecord, Description, File, PlannedFor, Reach, Tools
from cuwheel.facts import architectures
from cuwheel.facts.arch import Capability
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts import matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.libraries import Survey
    from cuwheel.toolchains.toolchain import Toolchain
    from cuwheel.verdicts.planning.plan import Job


def describe(
    found: Survey,
    job: Job,
    toolchain: Toolchain,
    *,
    sources: str,
    python: str | None = None,
    requires: Sequence[str] = (),
    build: BuildRecord | None = None,
) -> Description:
    """`found`: the wheel, with its containers. `sources`: SHA-256 of the tree that was built."""
    return Description(
        cuda=job.cuda,
        archs=job.archs,
        ptx=job.ptx,
        coverage=reach(found),
        plan=tuple(
            PlannedFor(machine=each.machine, capability=each.capability, how=each.how, by=each.by)
            for each in job.coverage
        ),
        toolchain=_tools(toolchain),
        sources=sources,
        python=python,
        requires=tuple(requires),
        build=build,
    )


def reach(found: Survey) -> Reach:
    """Which GPUs the whole wheel serves, all that is loaded together counted."""
    known = architectures.current_capabilities()
    devices = [*known, Capability(known[-1].major + 1, 0)]
    verdicts = matrix.judge_all(found, [Machine(name=each, capability=each) for each in devices])
    *how, future = [(device, verdict.outcome) for device, verdict in zip(devices, verdicts, strict=True)]
    return Reach(
        native=tuple(device for device, outcome in how if outcome in ("native", "compatible")),
        jit=tuple(device for device, outcome in how if outcome == "jit"),
        partial=tuple(device for device, outcome in how if outcome == "partial"),
        future=future[1] == "jit",
    )


def _tools(toolchain: Toolchain) -> Tools:
    toolkit, compiler = toolchain.toolkit, toolchain.host_compiler
    return Tools(
        provider=toolkit.provider,
        release=toolkit.release,
        nvcc=toolkit.version,
        platform=toolkit.platform,
        host_compiler=f"{compiler.kind} {compiler.version}" if compiler else None,
        archives=tuple(
            sorted((File(file=each.file, sha256=each.sha256) for each in toolkit.archives), key=lambda each: each.file)
        ),
    )
