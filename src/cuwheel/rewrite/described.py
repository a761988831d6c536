"""The description of a wheel that was just built, from what it was built with and what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.compat import matrix
from cuwheel.facts import architectures
from cuwheel.facts.arch import Capability
from cuwheel.inspection.description import Description, File, PlannedFor, Reach, Tools
from cuwheel.machine.fleet import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.inspection.values import Survey
    from cuwheel.plan.values import Job
    from cuwheel.toolchain.values import Toolchain


def describe(
    found: Survey,
    job: Job,
    toolchain: Toolchain,
    *,
    sources: str,
    python: str | None = None,
    requires: Sequence[str] = (),
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
    )


def reach(found: Survey) -> Reach:
    """Which GPUs the whole wheel serves, all that is loaded together counted."""
    known = architectures.current_capabilities()
    how = {each: _outcome(found, each) for each in known}
    beyond = Capability(known[-1].major + 1, 0)
    return Reach(
        native=tuple(str(each) for each in known if how[each] in ("native", "compatible")),
        jit=tuple(str(each) for each in known if how[each] == "jit"),
        partial=tuple(str(each) for each in known if how[each] == "partial"),
        future=_outcome(found, beyond) == "jit",
    )


def _outcome(found: Survey, capability: Capability) -> str:
    return matrix.judge(found, Machine(name=str(capability), capability=str(capability))).outcome


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
