"""The code that traced programs loaded, found again in their files: which container it is, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code import cubin
from cuwheel.device_code.libraries import Survey
from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError
from cuwheel.facts.arch import Arch
from cuwheel.machine.fleet import Machine
from cuwheel.support import log
from cuwheel.tracing.events import text
from cuwheel.verdicts import choice, drivers
from cuwheel.verdicts import choice as choosing
from cuwheel.verdicts.choice import Code
from cuwheel.wheel import metadata

if TYPE_CHECKING:
    from cuwheel.device_code.libraries import Container, Library
    from cuwheel.tracing.events import Event
    from cuwheel.tracing.traced import Gpu
    from cuwheel.verdicts.choice import Choice

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


def image(event: Event, files: Files) -> Image:
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
    codes = tuple(code for each in wanted if (code := choice.loadable_code(rows[each])))
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


def machine(gpu: Gpu) -> Machine:
    """The GPU that a process used, as verdicts go by it."""
    return Machine(
        name=gpu.name or gpu.capability,
        capability=gpu.capability,
        product=gpu.name or None,
        driver_cuda=gpu.cuda or None,
        os="linux",
        gpu_seen=True,
    )


def chosen(found: Image, gpu: Gpu) -> Choice | None:
    """What the driver takes of it; None where what is in it is not known."""
    on = machine(gpu)
    device = choice.device_of_machine(on)
    if device is None or not found.codes:
        return None
    isa = drivers.ptx_isa(on, "linux")
    return choosing.choose(found.codes, choosing.Device(capability=device.capability, ptx_isa=isa))
