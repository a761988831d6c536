"""A function or command under load: both sides by turns, level after level, with the GPUs watched meanwhile."""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.proving.measuring import bench_side, execution, gpu_samples, samples
from cuwheel.proving.measuring.bench_side import FirstCall, Workers
from cuwheel.support import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.proving.measuring.bench_side import Block, Side
    from cuwheel.proving.measuring.gpu_samples import Sample
    from cuwheel.proving.request import BenchRequest

_SAMPLE_S = 0.2
_MOST_POINTS = 300


class Level(Struct, frozen=True, kw_only=True):
    """So many at once. `throughput`: calls a second that succeeded; latencies in seconds, of which an earlier cuwheel
    kept only the quantiles. `deviation`: the standard one, of single calls. `blocks`: the throughput of each part that
    it was run in. `gpu_memory`: at most, in bytes; `gpu_use`: on average, in percent.
    """

    concurrency: int
    calls: int
    errors: int
    error: str
    throughput: float
    p50: float
    p95: float
    p99: float
    blocks: tuple[float, ...]
    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    gpu_memory: int | None = None
    gpu_use: float | None = None


class Moment(Struct, frozen=True, kw_only=True):
    """The GPUs together at one time, in seconds since the beginning."""

    at: float
    memory: int | None
    use: float | None
    temperature: int | None = None
    power: float | None = None


class Measured(Struct, frozen=True, kw_only=True):
    """One side."""

    label: str
    levels: tuple[Level, ...]
    import_seconds: float
    first_call: FirstCall


class Bench(Struct, frozen=True, kw_only=True):
    """`other`: what it was compared with. `moments`: of the GPUs, over all levels."""

    measured: Measured
    other: Measured | None
    gpus: tuple[str, ...]
    driver: str | None
    moments: tuple[Moment, ...]
    seconds: float


class _Collected:
    """The blocks of one side at one level, and when they were run."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.times: list[tuple[float, float]] = []


def run(request: BenchRequest) -> Bench:
    """Both sides are started before the first is measured, and take turns: what changes meanwhile concerns both."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cuwheel-bench-")))
        sampler = stack.enter_context(gpu_samples.sampling(_SAMPLE_S))
        began = time.time()
        sides = [bench_side.of(request.settings, request.env, "this", place)]
        sides += [bench_side.of(request.against, request.env, "other", place)] if request.against else []
        traced = bool(sampler.names) and execution.can_trace(sides[0].environ)
        first = [bench_side.first_call(request, side, traced=traced) for side in sides]
        workers = [Workers(request, side, stack) for side in sides]
        found = _levels(request, workers)
        ended = time.time()
        every = sampler.between(began, ended)
    measured = [
        _measured(side, [level[index] for level in found], request.at_once, first[index], workers[index], every)
        for index, side in enumerate(sides)
    ]
    return Bench(
        measured=measured[0],
        other=measured[1] if len(measured) > 1 else None,
        gpus=sampler.names,
        driver=sampler.driver,
        moments=_moments(every, began),
        seconds=round(ended - began, 3),
    )


def _levels(request: BenchRequest, workers: Sequence[Workers]) -> list[list[_Collected]]:
    """Block by block, the sides in turns whose order is drawn anew: drift hits both alike."""
    dice = random.Random(len(workers))  # noqa: S311 - an order, no secret
    found: list[list[_Collected]] = []
    with log.progress("measuring", len(request.at_once) * request.blocks * len(workers)) as progress:
        for at_once in request.at_once:
            collected = [_Collected() for _ in workers]
            found.append(collected)
            for each in workers:
                if request.warm_up:
                    each.run(at_once, request.timeout, request.warm_up * at_once)
            for _ in range(request.blocks):
                turns = list(range(len(workers)))
                dice.shuffle(turns)
                for index in turns:
                    progress.show(f"{at_once} at once")
                    _one_block(request, workers[index], at_once, collected[index])
                    progress.advance()
    return found


def _one_block(request: BenchRequest, workers: Workers, at_once: int, collected: _Collected) -> None:
    calls = None if request.calls is None else max(at_once, -(-request.calls // request.blocks))
    began = time.time()
    collected.blocks.append(workers.run(at_once, request.seconds / request.blocks, calls))
    collected.times.append((began, time.time()))


def _measured(
    side: Side,
    collected: Sequence[_Collected],
    at_once: Sequence[int],
    first: FirstCall,
    workers: Workers,
    every: Sequence[Sample],
) -> Measured:
    return Measured(
        label=side.label,
        levels=tuple(_level(number, each, every) for number, each in zip(at_once, collected, strict=True)),
        import_seconds=round(workers.import_seconds, 4),
        first_call=first,
    )


def _level(at_once: int, collected: _Collected, every: Sequence[Sample]) -> Level:
    blocks = collected.blocks
    latencies = sorted(value for block in blocks for value in block.latencies)
    rates = [(block.calls - block.errors) / max(block.ended - block.began, 1e-9) for block in blocks]
    seconds = sum(block.ended - block.began for block in blocks)
    succeeded = sum(block.calls - block.errors for block in blocks)
    during = [each for each in every if any(began <= each.at <= ended for began, ended in collected.times)]
    memory = [sum(gpu.memory or 0 for gpu in each.gpus) for each in during]
    use = [gpu.use for each in during for gpu in each.gpus if gpu.use is not None]
    return Level(
        concurrency=at_once,
        calls=sum(block.calls for block in blocks),
        errors=sum(block.errors for block in blocks),
        error=next((block.error for block in blocks if block.error), ""),
        throughput=succeeded / max(seconds, 1e-9),
        p50=samples.quantile(latencies, 0.5),
        p95=samples.quantile(latencies, 0.95),
        p99=samples.quantile(latencies, 0.99),
        blocks=tuple(rates),
        mean=statistics.fmean(latencies),
        deviation=statistics.stdev(latencies) if len(latencies) > 1 else None,
        least=latencies[0],
        gpu_memory=max(memory, default=None),
        gpu_use=sum(use) / len(use) if use else None,
    )


def _moments(every: Sequence[Sample], began: float) -> tuple[Moment, ...]:
    step = max(1, -(-len(every) // _MOST_POINTS))
    return tuple(_moment(each, began) for each in every[::step])


def _moment(sample: Sample, began: float) -> Moment:
    memory = [gpu.memory for gpu in sample.gpus if gpu.memory is not None]
    use = [gpu.use for gpu in sample.gpus if gpu.use is not None]
    power = [gpu.power for gpu in sample.gpus if gpu.power is not None]
    return Moment(
        at=round(sample.at - began, 3),
        memory=sum(memory) if memory else None,
        use=sum(use) / len(use) if use else None,
        temperature=max((gpu.temperature for gpu in sample.gpus if gpu.temperature is not None), default=None),
        power=sum(power) if power else None,
    )
