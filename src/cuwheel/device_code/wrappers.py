"""Registration data: the wrappers handed to the CUDA runtime, what each names, and module ids."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Protocol

from cuwheel.device_code import limits
from cuwheel.device_code.image import MODULE_ID_SECTIONS, WRAPPER_SECTIONS
from cuwheel.device_code.libraries import Registration, Wrapper
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.fatbin import RawContainer
    from cuwheel.device_code.image import Section
    from cuwheel.support.buffer import Buffer

MAGIC = 0x466243B1
WRAPPER = struct.Struct("<IIQQ")
_POINTER_AT = 8
_STEP = 8  # wrappers hold pointers, and are aligned for them
_CONTENT = re.compile(rb"[^\0]")
VERSION_LINKED = 2
_MOST_WRAPPERS = 1 << 20
_MODULE_IDS_LIMIT = 1 << 22


class Pointers(Protocol):
    """How a file's pointers are found: relocations in ELF, addresses in place in PE."""

    def target(self, slot: int, value: int) -> int | None:
        """The file offset that the pointer at file offset `slot`, now holding `value`, will point at."""


def read(
    buffer: Buffer, sections: Sequence[Section], containers: Sequence[RawContainer], pointers: Pointers
) -> tuple[Registration, tuple[Finding, ...]]:
    """What the CUDA runtime is handed at start-up: which wrapper names which container."""
    places = {container.offset: index for index, container in enumerate(containers)}
    found: list[Wrapper] = []
    named: set[int] = set()
    findings: list[Finding] = []
    arrays: set[int] = set()
    for section in sections:
        if section.name not in WRAPPER_SECTIONS:
            continue
        for slot, version, container, array in _wrappers(buffer, section):
            if version is None:
                findings.append(_damaged(section.name, slot))
                break
            at = pointers.target(slot + _POINTER_AT, container)
            index = places.get(at) if at is not None else None
            found.append(Wrapper(version=version, container=index))
            named.update(() if index is None else (index,))
            if version == VERSION_LINKED and array:
                named.update(_prelinked(buffer, pointers.target(slot + 16, array), pointers, places, arrays))
    registration = Registration(
        wrappers=tuple(found),
        module_ids=tuple(_module_ids(buffer, sections)),
        containers=len(containers),
        unnamed=tuple(index for index in range(len(containers)) if index not in named) if found else (),
    )
    return registration, tuple(findings)


def _wrappers(buffer: Buffer, section: Section) -> Iterator[tuple[int, int | None, int, int]]:
    """Zeros between and behind them are padding: incremental linking rounds each up to 32 bytes."""
    size = min(section.size, _MOST_WRAPPERS * WRAPPER.size)
    if size < section.size:
        limits.met(f"{_MOST_WRAPPERS:,} wrappers in {section.name}", "what the rest register is not known")
    data = buffer.read(section.offset, size)
    at = 0
    while (found := _CONTENT.search(data, at)) and (at := found.start() // _STEP * _STEP) + WRAPPER.size <= size:
        magic, version, container, array = WRAPPER.unpack_from(data, at)
        if magic != MAGIC:
            yield section.offset + at, None, 0, 0
            return
        yield section.offset + at, version, container, array
        at += WRAPPER.size


def _prelinked(
    buffer: Buffer, at: int | None, pointers: Pointers, places: dict[int, int], seen: set[int]
) -> Iterator[int]:
    """Containers in the array that a device-linked wrapper names, where that array is in the file at all.

    Wrappers may share an array: each of its places is looked at once.
    """
    if at is None:
        return
    for place in range(at, buffer.size - 7, 8):
        if place in seen:
            return
        seen.add(place)
        (pointer,) = struct.unpack("<Q", buffer.read(place, 8))
        target = pointers.target(place, pointer)
        if target not in places:
            return
        yield places[target]


def _module_ids(buffer: Buffer, sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        if section.name in MODULE_ID_SECTIONS:
            if section.size > _MODULE_IDS_LIMIT:
                limits.met(f"{_MODULE_IDS_LIMIT:,} bytes of {section.name}", "the rest of the module ids were not read")
            for text in buffer.read(section.offset, min(section.size, _MODULE_IDS_LIMIT)).split(b"\0"):
                if text:
                    yield text.decode("utf-8", "replace")


def _damaged(section: str, slot: int) -> Finding:
    return Finding(
        rule="registration-damaged",
        severity="error",
        message=f"the registration data in {section} is damaged, so what it names is not known",
        evidence=(f"no wrapper at offset {slot:#x}",),
        fix="build or download the file again",
    )
