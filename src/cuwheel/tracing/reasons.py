"""Why a call failed, in words, and what helps: from the code that it was about and the GPU it was for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel import log
from cuwheel.compat import drivers, matrix
from cuwheel.errors import CuwheelError
from cuwheel.facts import errors
from cuwheel.inspection.demangle import demangled
from cuwheel.inspection.kernels import of_container
from cuwheel.tracing.code import chosen, machine
from cuwheel.units import size
from cuwheel.wheel import workload_mark

if TYPE_CHECKING:
    from cuwheel.tracing.code import Image
    from cuwheel.tracing.events import Event
    from cuwheel.tracing.traced import Gpu

_BLOCKING = "run it again with CUDA_LAUNCH_BLOCKING=1, which makes the failing call the culprit's own"
_SANITIZER = "or under compute-sanitizer, which names the kernel and the line"
_NO_IMAGE, _TOO_NEW, _MEMORY, _INVALID = 209, 222, 2, 1


class Reason(Struct, frozen=True, kw_only=True):
    """`kernels`: of which one is meant, where the runtime does not say which."""

    reason: str
    fix: str = ""
    kernels: tuple[str, ...] = ()


def of(event: Event, found: Image | None, gpu: Gpu | None) -> Reason:
    row = errors.find(event.error)
    if row and row.late:
        return Reason(
            reason="a kernel that was launched before is the cause: the driver tells it to whichever call comes next",
            fix=f"{_BLOCKING}; {_SANITIZER}",
        )
    if event.error == _MEMORY and event.bytes:
        return Reason(reason=f"{size(event.bytes)} were asked for, and so much in one piece is not free")
    if event.error == _INVALID and event.grid:
        shape = f"{_times(event.grid)} blocks of {_times(event.block)} threads, {size(event.shared)} of shared memory"
        return Reason(reason=f"the launch asked for {shape}")
    if found is None or gpu is None or not (found.codes or found.container):
        return Reason(reason="")
    return Reason(reason=_code(event, found, gpu), fix=_fix(found, gpu), kernels=_possible(event, found))


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _code(event: Event, found: Image, gpu: Gpu) -> str:
    """By what the container holds; where the rules foresee another error, only what it holds is said."""
    held = f"its container has {', '.join(found.archs) or 'nothing for any GPU'}"
    choice = chosen(found, gpu)
    this = f"this GPU is {gpu.capability}" + (f" ({gpu.name})" if gpu.name else "")
    if choice and choice.error and choice.error.code == _TOO_NEW == event.error:
        isa = max((each.ptx_isa for each in found.codes if each.ptx_isa), default="?")
        known = drivers.ptx_isa(machine(gpu), "linux")
        return f"{held}, of PTX ISA {isa}; the driver (CUDA {gpu.cuda}) compiles up to {known}"
    return f"{held}; {this}"


def _fix(found: Image, gpu: Gpu) -> str:
    """What `check` advises for this file on this GPU."""
    survey = found.file.survey if found.file else None
    if survey is None:
        return ""
    if mark := next((each for each in survey.findings if each.rule == workload_mark.RULE), None):
        return mark.fix
    verdict = matrix.judge(survey, machine(gpu))
    return next((each.fix for each in verdict.findings if each.severity == "error" and each.fix), "")


def _possible(event: Event, found: Image) -> tuple[str, ...]:
    if event.name or not found.file or found.index is None:
        return ()
    try:
        names = of_container(found.file.path, found.index)
    except CuwheelError as error:
        log.debug("%s", error.message)
        return ()
    readable = demangled(names)
    return tuple(readable.get(name, name) for name in names)
