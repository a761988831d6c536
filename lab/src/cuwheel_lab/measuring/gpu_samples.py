"""The state of the GPUs over time, from a program beside the measurement."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from cuwheel.machine.gpu import nvml_command
from cuwheel.support import codec, process
from cuwheel_lab.measuring.journal import GpuUse
from cuwheel_lab.measuring.programs import gpu_sampler

T = TypeVar("T")
_FIRST_WORD_S = 10.0
_LOOK_S = 0.02


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU at one moment; what it does not tell is None."""

    memory: int | None = None
    use: int | None = None
    clock: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    performance_state: int | None = None


class Sample(Struct, frozen=True, kw_only=True):
    """`at`: seconds since 1970."""

    at: float
    gpus: tuple[Gpu, ...]


class _First(Struct, frozen=True, kw_only=True):
    state: str
    driver: str | None = None
    gpus: tuple[str, ...] = ()


class Sampler:
    """`names`: of the GPUs; empty where there is none to ask."""

    def __init__(self, path: Path | None, first: _First | None) -> None:
        self._path = path
        self.names = first.gpus if first else ()
        self.driver = first.driver if first else None

    def between(self, began: float, ended: float) -> tuple[Sample, ...]:
        """Those of a time, with the last one before it and the first one after it where they are known."""
        if self._path is None or not self.names:
            return ()
        every = [each for line in self._path.read_bytes().splitlines() if (each := codec.understood(line, Sample))]
        before = [each for each in every if each.at < began][-1:]
        return (*before, *(each for each in every if began <= each.at <= ended))


@contextlib.contextmanager
def sampling(every: float) -> Iterator[Sampler]:
    """While the block runs. Where there is no GPU nothing runs beside it."""
    command = nvml_command(gpu_sampler.__file__, str(every))
    with tempfile.TemporaryDirectory(prefix="cuwheel-gpus-") as name:
        path = Path(name, "samples.jsonl")
        with process.background_process(command, output=path):
            first = _first(path)
            yield Sampler(path, first)


def _first(path: Path) -> _First | None:
    """The first line, as soon as it is there."""
    until = time.monotonic() + _FIRST_WORD_S
    while time.monotonic() < until:
        line, end, _ = path.read_bytes().partition(b"\n")
        if end:
            return codec.understood(line, _First)
        time.sleep(_LOOK_S)
    return None


def use_of_gpus(names: Sequence[str], samples: Sequence[Sample]) -> tuple[GpuUse, ...]:
    """What each GPU was put to in a time."""
    return tuple(
        _used(name, [each.gpus[index] for each in samples if index < len(each.gpus)])
        for index, name in enumerate(names)
    )


def _used(name: str, states: Sequence[Gpu]) -> GpuUse:
    memory = _known(each.memory for each in states)
    clocks = _known(each.clock for each in states)
    limits = _known(each.power_limit for each in states)
    levels = _known(each.performance_state for each in states)
    return GpuUse(
        name=name,
        memory_before=memory[0] if memory else None,
        memory_most=max(memory, default=None),
        memory_after=memory[-1] if memory else None,
        use_most=max(_known(each.use for each in states), default=None),
        clock_least=min(clocks, default=None),
        clock_most=max(clocks, default=None),
        temperature_most=max(_known(each.temperature for each in states), default=None),
        power_most=max(_known(each.power for each in states), default=None),
        power_limit=limits[-1] if limits else None,
        performance_state=levels[-1] if levels else None,
    )


def _known(values: Iterable[T | None]) -> list[T]:
    return [each for each in values if each is not None]
