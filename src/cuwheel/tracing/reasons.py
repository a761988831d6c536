"""Why a call failed, in words, and what helps: from the code that it was about and the GPU it was for.

The code that traced programs loaded is found again in their files: which container it is, and what is in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code.contents import Survey
from cuwheel.device_code.demangle import demangled
from cuwheel.device_code.kernels import kernels as all_kernels
from cuwheel.device_code.kernels import of_container
from cuwheel.device_code.survey import survey
from cuwheel.facts import cuda_errors
from cuwheel.machine.fleet import Machine
from cuwheel.support import log
from cuwheel.tracing.events import Event, text
from cuwheel.verdicts.judge import judge
from cuwheel.wheel import slim_note
from cuwheel_core.device_code import cubin
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.wording import size
from cuwheel_core.verdicts import choice as choosing
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import SYMBOL_NOT_FOUND, Choice, Code, loadable_code, loader_of
from cuwheel_core.wheel import metadata

if TYPE_CHECKING:
    from cuwheel.device_code.kernels import CodeKernels
    from cuwheel.tracing.traced import Gpu
    from cuwheel_core.device_code.libraries import Container, Library


# The code that traced programs loaded, found again in their files: which container it is, and what is in it.

_ELF_ABI_AT, _ELF_FLAGS_AT = 8, 48


@dataclass(slots=True)
class File:
    """A file that code was loaded from. `survey` None: it is gone, or cannot be read."""

    path: str
    package: str | None
    survey: Survey | None
    by_offset: dict[int, int] = field(default_factory=dict)

    @property
    def library(self) -> Library | None:
        return self.survey.libraries[0] if self.survey and self.survey.libraries else None


class Files:
    """Each file is read once, when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, File] = {}

    def at(self, path: str) -> File:
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: str) -> File:
        owner = metadata.owner_of_file(Path(path).resolve()) or metadata.owner_of_file(Path(path))
        try:
            found = survey(path, detail="containers")
        except CuwheelError as error:
            log.debug("%s: %s", path, error.message)
            return File(path, owner.name if owner else None, None)
        result = File(path, owner.name if owner else None, found)
        if library := result.library:
            result.by_offset = {each.offset: index for index, each in enumerate(library.containers)}
        return result


class Image(Struct, frozen=True):
    """What was handed to the driver: `codes` as far as they are known, and their place if it was a file's."""

    codes: tuple[Code, ...]
    file: File | None = None
    index: int | None = None

    @property
    def container(self) -> Container | None:
        library = self.file.library if self.file else None
        return library.containers[self.index] if library and self.index is not None else None

    @property
    def archs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.arch for each in self.codes))


def image_of(event: Event, files: Files) -> Image:
    path = text(event.file or event.path)
    if not path:
        return Image(_in_memory(event))
    file = files.at(path)
    library = file.library
    index = file.by_offset.get(event.offset) if event.offset is not None else None
    if library is None or (index is None and event.offset is not None):
        return Image(_in_memory(event), file)  # such as PTX that stands in a program as its text
    rows = library.device_code
    wanted = range(len(rows)) if index is None else library.containers[index].code
    codes = tuple(code for each in wanted if (code := loadable_code(rows[each])))
    return Image(codes, file, index)


def _in_memory(event: Event) -> tuple[Code, ...]:
    """A cubin's or a text's own words about itself; what a fat binary in memory holds was not written down."""
    try:
        if event.kind == "ptx":
            target = event.target.split(",")[0].strip().removeprefix("sm_")
            return (choosing.Code(arch=Arch.parse(f"compute_{target}"), ptx_isa=event.ptx_isa.strip() or None),)
        if event.kind == "cubin":
            head = bytes.fromhex(event.head)
            flags = int.from_bytes(head[_ELF_FLAGS_AT : _ELF_FLAGS_AT + 4], "little")
            return (choosing.Code(arch=cubin.arch_by_flags(flags, head[_ELF_ABI_AT]), ptx_isa=None),)
    except (CuwheelError, ValueError, IndexError):
        pass
    return ()


def machine_with(gpu: Gpu) -> Machine:
    """The GPU that a process used, as verdicts go by it."""
    return Machine(
        name=gpu.name or gpu.capability,
        capability=gpu.capability,
        product=gpu.name or None,
        driver_cuda=gpu.cuda or None,
        os="linux",
        gpu_seen=True,
    )


def choice_of_driver(found: Image, gpu: Gpu) -> Choice | None:
    """What the driver takes of it; None where what is in it is not known."""
    on = machine_with(gpu)
    device = loader_of(on)
    if device is None or not found.codes:
        return None
    isa = drivers.ptx_isa(on, "linux")
    return choosing.choose(found.codes, choosing.Loader(capability=device.capability, ptx_isa=isa))


_BLOCKING = "run it again with CUDA_LAUNCH_BLOCKING=1, which makes the failing call the culprit's own"
_SANITIZER = "run it under compute-sanitizer, which names the kernel and the line"
_SPAWN = (
    "start such processes by spawn (Python: multiprocessing.set_start_method('spawn')), or use CUDA after the fork only"
)
_RAISE = "allow it before the launch: cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)"
_INVALID, _MEMORY, _INITIALIZATION, _NO_DEVICE, _NO_SUCH_DEVICE = 1, 2, 3, 100, 101
_INVALID_PTX, _TOO_NEW, _COOPERATIVE = 218, 222, 720
_SHAPE = (_INVALID, 9, 701, _COOPERATIVE)
_LOG_SHOWN = 200


class Reason(Struct, frozen=True, kw_only=True):
    """`kernels`: of which one is meant, where the runtime does not say which."""

    reason: str
    fix: str = ""
    kernels: tuple[str, ...] = ()


def reason_for(event: Event, process: Event, found: Image | None, gpu: Gpu | None) -> Reason:
    """`process`: the first event of its process."""
    row = cuda_errors.find_error(event.error)
    if row and row.late:
        if is_blamed(event, process):
            return Reason(
                reason="launches wait for their kernels (CUDA_LAUNCH_BLOCKING=1), so it is this one", fix=_SANITIZER
            )
        return Reason(
            reason="a kernel that was launched before is the cause: the driver tells it to whichever call comes next",
            fix=f"{_BLOCKING}; or {_SANITIZER}",
        )
    if event.error == _INITIALIZATION and process.forked:
        return Reason(
            reason="its parent had used CUDA before the fork: the driver works in no child of that", fix=_SPAWN
        )
    if event.error in (_NO_DEVICE, _NO_SUCH_DEVICE) and process.visible is not None:
        value = text(process.visible)
        if not value or value.startswith("-1"):
            return Reason(
                reason=f"CUDA_VISIBLE_DEVICES is {value!r}, which hides every GPU", fix="unset CUDA_VISIBLE_DEVICES"
            )
        return Reason(
            reason=f"CUDA_VISIBLE_DEVICES is {value!r}: programs see those GPUs only, counted from 0",
            fix="nvidia-smi -L lists the GPUs that there are",
        )
    if event.error == _MEMORY and event.bytes:
        return Reason(reason=f"{size(event.bytes)} were asked for, and so much in one piece is not free")
    if event.error in _SHAPE and event.grid:
        return _shape(event)
    if event.error in _SHAPE and event.bytes and event.kernel:
        return Reason(reason=f"{size(event.bytes)} of shared memory for each block are more than this GPU can give")
    if event.error == _INVALID_PTX:
        log = next((line.strip() for line in text(event.log).splitlines() if line.strip()), "")
        code = found.codes[0] if found and found.codes else None
        what = f"PTX ISA {code.ptx_isa or '?'} for {code.arch}" if code else "the PTX"
        return Reason(
            reason=f"the driver's compiler refuses it ({what})" + (f": {log[:_LOG_SHOWN]}" if log else ""),
            fix="ptxas FILE.ptx shows all that is wrong with it",
        )
    if found is None or gpu is None or not (found.codes or found.container):
        words = text("; ".join(event.driver_log))
        return Reason(reason=f"the driver's log says: {words[:_LOG_SHOWN]}" if words else "")
    if event.error == SYMBOL_NOT_FOUND.code and (why := _without_a_name(event, found, gpu)):
        return why
    return Reason(reason=_code(event, found, gpu), fix=_fix(found, gpu), kernels=_possible(event, found))


def _without_a_name(event: Event, found: Image, gpu: Gpu) -> Reason | None:
    """Why the driver knows no symbol of that name although code that fits was loaded; None where none fits."""
    survey = found.file.survey if found.file else None
    choice = choice_of_driver(found, gpu)
    if survey is None or found.file is None or choice is None or choice.entry is None:
        return None
    verdict = judge(survey, machine_with(gpu))
    if foreign := next((each for each in verdict.findings if each.rule == "sbsa-on-l4t"), None):
        return Reason(reason=foreign.message, fix=foreign.fix)
    if choice.how == "none":
        return None
    arch = found.codes[choice.entry].arch
    container = found.container
    lacks = next((each for each in container.absent if each.entry == choice.entry), None) if container else None
    names = (event.name,) if event.name else lacks.names if lacks else ()
    called = _both_names(names)
    what = " or ".join(called) or "the symbol"
    holders = _holders(found.file.path, event.name) if event.name else []
    if not event.name or event.name in (lacks.names if lacks else ()):
        objects = sorted({each.arch for each in holders if not each.linked})
        if lacks and objects:
            why = (
                f"the device link for {arch} left it out: the object that has it was compiled for {', '.join(objects)}"
            )
            return Reason(
                reason=f"{what}: {why}",
                fix=f"compile that object for {arch} too and link again, or link from the PTX that it has",
                kernels=called,
            )
        if lacks:
            fix = f"compile it for {arch} too, without `__CUDA_ARCH__` around it"
            return Reason(
                reason=f"{what}: the code for {arch}, which this GPU takes, lacks it", fix=fix, kernels=called
            )
    elsewhere = [each for each in holders if each.container != found.index and each.linked]
    if elsewhere:
        places = ", ".join(dict.fromkeys(f"container {each.container} ({each.arch})" for each in elsewhere[:3]))
        return Reason(
            reason=f"{what} is not in container {found.index}, which was asked for it, but in {places}",
            fix="ask the module that holds it: two libraries, or two copies of one, share a kernel's name",
            kernels=called,
        )
    if event.name and not holders and (others := _like(found.file.path, event.name)):
        return Reason(
            reason=f"{what} is not in the file; under another name it has {' or '.join(_both_names(others))}",
            fix="launch it by the name that the device code has: host and device were compiled from different sources",
            kernels=called,
        )
    return None


def _holders(path: str, name: str) -> list[CodeKernels]:
    try:
        code = all_kernels(path, name).code
    except CuwheelError as error:
        log.debug("%s", error.message)
        return []
    return [each for each in code if any(kernel.name == name for kernel in each.kernels)]


def _like(path: str, name: str) -> tuple[str, ...]:
    """Kernels of the same function name: other parameters, or another file's."""
    plain = demangled([name]).get(name, name).partition("(")[0].rpartition(" ")[2].rpartition("::")[2].partition("<")[0]
    try:
        code = all_kernels(path, plain).code if plain else ()
    except CuwheelError as error:
        log.debug("%s", error.message)
        return ()
    return tuple(dict.fromkeys(kernel.name for each in code for kernel in each.kernels))[:3]


def _both_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as in the source, and as the device code has them."""
    readable = demangled(names)
    return tuple(f"{readable[name]} [{name}]" if readable.get(name, name) != name else name for name in names)


def is_blamed(event: Event, process: Event) -> bool:
    """An error of a kernel that ran comes with its own launch only if launches wait for their kernels."""
    return bool(process.blocking and event.grid)


def _shape(event: Event) -> Reason:
    """What the launch asked for, and which of it is more than this kernel can have."""
    shape = f"{_times(event.grid)} blocks of {_times(event.block)} threads, {size(event.shared)} of shared memory"
    asked = f"the launch asked for {shape}"
    if event.max_threads and math.prod(event.block) > event.max_threads:
        each = f" ({event.registers} registers each)" if event.registers else ""
        return Reason(
            reason=f"{asked}; this kernel can have {event.max_threads} threads a block{each}",
            fix="launch smaller blocks, or compile it with __launch_bounds__ or -maxrregcount for such large ones",
        )
    if event.max_shared is not None and event.shared > event.max_shared:
        return Reason(reason=f"{asked}; this kernel may have {size(event.max_shared)} of it so far", fix=_RAISE)
    if event.error == _COOPERATIVE and event.resident:
        return Reason(
            reason=f"{asked}; of such blocks the GPU runs {event.resident:,} at once, and those of a cooperative "
            "launch must all run at once",
            fix="launch no more blocks than cudaOccupancyMaxActiveBlocksPerMultiprocessor allows",
        )
    return Reason(reason=asked)


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _code(event: Event, found: Image, gpu: Gpu) -> str:
    """Says what code the container holds, and the GPU; where PTX is too new, also up to which the driver compiles."""
    held = ("its container has" if found.index is not None else "the code is for") + " "
    held += ", ".join(found.archs) or "nothing for any GPU"
    choice = choice_of_driver(found, gpu)
    this = f"this GPU is {gpu.capability}" + (f" ({gpu.name})" if gpu.name else "")
    if choice and choice.error and choice.error.code == _TOO_NEW == event.error:
        isa = max((each.ptx_isa for each in found.codes if each.ptx_isa), default="?")
        known = drivers.ptx_isa(machine_with(gpu), "linux")
        return f"{held}, of PTX ISA {isa}; the driver (CUDA {gpu.cuda}) compiles up to {known}"
    return f"{held}; {this}"


def _fix(found: Image, gpu: Gpu) -> str:
    """What `check` advises for this file on this GPU."""
    survey = found.file.survey if found.file else None
    if survey is None:
        return ""
    if mark := next((each for each in survey.findings if each.rule == slim_note.CUT_RULE), None):
        return mark.fix
    verdict = judge(survey, machine_with(gpu))
    return next((each.fix for each in verdict.findings if each.severity == "error" and each.fix), "")


def _possible(event: Event, found: Image) -> tuple[str, ...]:
    if event.name or not found.file or found.index is None:
        return ()
    try:
        names = of_container(found.file.path, found.index)
    except CuwheelError as error:
        log.debug("%s", error.message)
        return ()
    return _both_names(names)
