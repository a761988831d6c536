"""Pieces of device code for a driver to load, each with its predicted answer: proof without a kernel call.

A container is handed to the driver as the CUDA runtime would hand it. What it answers depends on the architectures in
it alone, so that of thousands of containers with the same list a few are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code import limits
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.facts import architectures, toolkits, versions
from cuwheel.verdicts.choice import Code, Device, choose, loadable_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import Container, DeviceCode, Library, Survey
    from cuwheel.facts.arch import Capability
    from cuwheel.facts.rows.toolkits import Release

_ALIKE = 4  # of containers of a library with the same list
_MOST = 256
_LARGEST = 1 << 26


class Answer(Struct, frozen=True, kw_only=True):
    """From the driver of this CUDA on: the error that it gives, 0 for none."""

    driver: str
    code: int


class Answers(Struct, frozen=True, kw_only=True):
    capability: str
    steps: tuple[Answer, ...]


class Probe(Struct, frozen=True, kw_only=True):
    """Bytes of a file of the wheel. `holds`: the architectures; `answers`: an index into the lists of answers."""

    path: str
    offset: int
    size: int
    holds: str
    answers: int


class Probes(Struct, frozen=True, kw_only=True):
    lists: tuple[tuple[Answers, ...], ...] = ()
    probes: tuple[Probe, ...] = ()


def of(found: Survey) -> Probes:
    """Needs the containers of the libraries."""
    lists: dict[tuple[tuple[Code, ...], str], int] = {}
    chosen: list[Probe] = []
    for library in found.libraries:
        if library.format not in ("elf", "pe") or library.type == "relocatable":
            continue
        for container, codes in _few(library):
            key = (codes, _floor(library))
            index = lists.setdefault(key, len(lists))
            holds = ", ".join(str(code.arch) for code in codes)
            chosen.append(
                Probe(path=library.path, offset=container.offset, size=container.size, holds=holds, answers=index)
            )
    answers = tuple(tuple(_answers(codes, floor)) for codes, floor in lists)
    return Probes(
        lists=answers,
        probes=tuple(limits.first(chosen, _MOST, "containers are tried with the driver", "the rest are not tried")),
    )


def _few(library: Library) -> Iterator[tuple[Container, tuple[Code, ...]]]:
    """Registered containers that a driver loads as they are, the smallest of each list."""
    named = {each.container for each in library.registration.wrappers}
    alike: dict[tuple[int, ...], list[Container]] = {}
    for index, container in enumerate(library.containers):
        fitting = FATBIN_SECTIONS.get(container.section, False) and container.size <= _LARGEST
        if container.code and index in named and fitting:
            alike.setdefault(container.code, []).append(container)
    for code, containers in alike.items():
        codes = _codes([library.device_code[index] for index in code])
        if codes:
            yield from ((each, codes) for each in sorted(containers, key=lambda each: each.size)[:_ALIKE])


def _codes(rows: Sequence[DeviceCode]) -> tuple[Code, ...]:
    """Empty where it holds something whose answer cannot be predicted."""
    found = [loadable_code(row) if row.linked else None for row in rows]
    return () if None in found else tuple(each for each in found if each)


def _floor(library: Library) -> str:
    """The CUDA below which nothing is predicted: a driver of an earlier major, or one that cannot unpack it."""
    runs = [toolkits.oldest_running(each) for each in library.toolkits]
    # Told for Linux alone; as a CUDA version it is that of any system.
    zstd = toolkits.zstd_floor("linux") if any(row.compression == "zstd" for row in library.device_code) else None
    came_with = toolkits.driver_cuda(zstd) if zstd else None
    return max([*runs, *([came_with.version] if came_with else [])], key=versions.key, default="0")


def _answers(codes: Sequence[Code], floor: str) -> Iterator[Answers]:
    rows = [row for row in toolkits.all_releases() if versions.at_least(row.version, floor)]
    for capability in architectures.current_capabilities():
        steps: list[Answer] = []
        for row in rows:
            code = _code(codes, capability, row)
            if not steps or steps[-1].code != code:
                steps.append(Answer(driver=row.version, code=code))
        yield Answers(capability=str(capability), steps=tuple(steps))


def _code(codes: Sequence[Code], capability: Capability, row: Release) -> int:
    choice = choose(codes, Device(capability=capability, ptx_isa=row.ptx_isa))
    return choice.error.code if choice.error else 0
