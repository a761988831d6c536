"""A function or command under load: both sides by turns, level after level, with the GPUs watched meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from cuwheel.errors import ToolError, UsageError
from cuwheel.network import venvs
from cuwheel.support import codec, files, log, masking, process, quoting
from cuwheel.support.answer import Answer
from cuwheel.tracing import attribution, events, session
from cuwheel.version import __version__
from cuwheel_core.support.wording import a_few
from cuwheel_lab.measuring import execution, gpu_samples, rates
from cuwheel_lab.measuring.execution import MeasuredEnvironment
from cuwheel_lab.measuring.programs import caller
from cuwheel_lab.measuring.rates import Ratio

if TYPE_CHECKING:
    from cuwheel_lab.measuring.gpu_samples import Sample
    from cuwheel_lab.measuring.request import BenchRequest


# One side of a comparison: in which environment and with which settings, and the workers that run it.

T = TypeVar("T")
_SOON_S = 0.05  # until all workers have read that they are to begin


class MeasuredSide(Struct, frozen=True, kw_only=True):
    """`label`: its settings, as they were given. `variables`: over the caller's."""

    label: str
    environment: MeasuredEnvironment
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return self.environment.applied(os.environ) | self.variables


class Block(Struct, frozen=True, kw_only=True):
    """What workers answer to a request: times in seconds, `began` and `ended` of a clock that all share."""

    began: float
    ended: float
    calls: int
    errors: int
    error: str
    latencies: tuple[float, ...]


def side_with_settings(settings: Sequence[str], env: Path | None, label: str, place: Path) -> MeasuredSide:
    """`place`: where environments for wheels are made."""
    variables: dict[str, str] = {}
    install: list[str] = []
    for each in settings:
        name, equals, value = each.partition("=")
        path = Path(each)
        if path.is_dir():
            if not venvs.interpreter(path).exists():
                raise UsageError(
                    f"{each} is not a Python environment: it has no bin/python", hint="python -m venv FOLDER"
                )
            env = path
        elif path.is_file() and path.suffix == ".whl":
            install.append(str(path.absolute()))
        elif "==" in each:
            install.append(each)
        elif equals and name.isidentifier():
            variables[name] = value
        else:
            raise UsageError(
                f"{each[:100]!r} is neither a variable, an environment, a wheel nor a version",
                hint="NAME=VALUE, a folder with bin/python, a .whl file, or name==version",
            )
    base = str(env.absolute()) if env else None
    made = execution.prepare_environment(base, install, Path.cwd(), place)
    short = ", ".join(each if "=" in each else Path(each).name for each in settings)
    return MeasuredSide(label=short or label, environment=made, variables=variables)


class Workers:
    """Those of one side: as many processes as the most at once, or one with threads."""

    def __init__(self, request: BenchRequest, side: MeasuredSide, stack: contextlib.ExitStack) -> None:
        self._request, self._side, self._stack = request, side, stack
        self._conversations: list[process.Conversation] = []
        self.import_seconds = 0.0
        self._grow(1)

    def _grow(self, count: int) -> None:
        while len(self._conversations) < count:
            made = self._stack.enter_context(_worker(self._request, self._side, self._side.environ))
            self.import_seconds = max(self.import_seconds, _answer(made, self._request, _Ready).ready)
            self._conversations.append(made)

    def run(self, at_once: int, seconds: float, calls: int | None) -> Block:
        """All begin at the same moment."""
        in_processes = self._request.by == "processes"
        self._grow(at_once if in_processes else 1)
        used = self._conversations[: at_once if in_processes else 1]
        at = time.monotonic() + _SOON_S
        for number, each in enumerate(used):
            share = None if calls is None else (calls + len(used) - 1 - number) // len(used)
            asked = {"at": at, "threads": 1 if in_processes else at_once, "calls": share, "seconds": seconds}
            each.send(codec.encode(asked))
        blocks = [_answer(each, self._request, Block) for each in used]
        return Block(
            began=min(each.began for each in blocks),
            ended=max(each.ended for each in blocks),
            calls=sum(each.calls for each in blocks),
            errors=sum(each.errors for each in blocks),
            error=next((each.error for each in blocks if each.error), ""),
            latencies=tuple(value for each in blocks for value in each.latencies),
        )


def _worker(
    request: BenchRequest, side: MeasuredSide, environ: dict[str, str]
) -> contextlib.AbstractContextManager[process.Conversation]:
    words = ["command", *request.command]
    if request.function:
        file, name = request.function
        words = ["function", str(file.absolute()), name]
    return process.conversing([side.environment.python, caller.__file__, *words], env=environ)


class _Ready(Struct, frozen=True):
    """A worker's first word: seconds that it took to import what it calls."""

    ready: float = 0.0


def _answer(worker: process.Conversation, request: BenchRequest, type_: type[T]) -> T:
    line = worker.receive(request.timeout)
    try:
        return codec.decode(line, type_)
    except msgspec.DecodeError:
        raise ToolError(
            _named(request), "ended before it answered", worker.errors(), hint="run it by itself first"
        ) from None


def _named(request: BenchRequest) -> Sequence[str]:
    return [request.what] if isinstance(request.what, str) else request.command


class FirstCall(Struct, frozen=True, kw_only=True):
    """Of a new process with an empty JIT cache. `import_seconds`: 0 for a command, which imports nothing.

    `jit_ms`: that the driver compiled, by `trace`; None if not traced.
    """

    import_seconds: float
    seconds: float
    jit_ms: float | None = None


def first_call(request: BenchRequest, side: MeasuredSide, *, traced: bool) -> FirstCall:
    """Apart from what is measured: the next calls find all compiled."""
    with tempfile.TemporaryDirectory(prefix="cuwheel-first-") as name:
        cache, place = Path(name, "cache"), Path(name, "trace")
        cache.mkdir()
        place.mkdir()
        environ = side.environ | {"CUDA_CACHE_PATH": str(cache)}
        environ = session.environ_for(place, environ) if traced else environ
        with _worker(request, side, environ) as worker:
            imported = _answer(worker, request, _Ready).ready
            worker.send(codec.encode({"at": time.monotonic(), "threads": 1, "calls": 1, "seconds": request.timeout}))
            block = _answer(worker, request, Block)
        if block.errors:
            raise ToolError(_named(request), f"fails at the first call: {block.error}", hint="run it by itself first")
        loads = attribution.attributed(events.read_events(place), succeeded=True).loads if traced else ()
        jit = sum(each.jit_ms or 0.0 for each in loads if each.how == "jit")
        imported = imported if request.function else 0.0
        return FirstCall(import_seconds=imported, seconds=block.latencies[0], jit_ms=jit if traced else None)


SCHEMA = "cuwheel.bench/1"
_MOST_BYTES = 64 << 20
_SAMPLE_S = 0.2
_MOST_POINTS = 300
_WARM_UP = 3  # calls before each level that are not counted
_NOISE = 0.05  # the share by which two runs may differ for no reason


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


class Difference(Struct, frozen=True, kw_only=True):
    """Throughput of this side over the other's, at one level. `differs`: by more than chance does."""

    concurrency: int
    ratio: Ratio
    differs: bool


class Change(Struct, frozen=True, kw_only=True):
    """Throughput over that of the earlier run. `worse`: by more than chance and `noise` together."""

    concurrency: int
    ratio: Ratio
    worse: bool


class Bench(Answer, frozen=True, kw_only=True):
    """`levels`: so many at once, of this side. `against`: the other side, and `differences` between them.

    `earlier`: level by level against a run that was kept. `line`: to quote. `moments`: of the GPUs, over time.
    """

    schema: Literal["cuwheel.bench/1"] = "cuwheel.bench/1"
    what: str
    by: Literal["threads", "processes"]
    label: str
    levels: tuple[Level, ...]
    import_seconds: float
    first_call: FirstCall
    against: Measured | None = None
    differences: tuple[Difference, ...] = ()
    earlier: tuple[Change, ...] = ()
    earlier_file: str | None = None
    noise: float
    gpus: tuple[str, ...]
    driver: str | None
    moments: tuple[Moment, ...]
    seconds: float
    tool: str
    line: str

    @property
    def succeeded(self) -> bool:
        sides = (*self.levels, *(self.against.levels if self.against else ()))
        return not any(each.errors for each in sides) and not any(each.worse for each in self.earlier)


def read_earlier(path: Path) -> Bench:
    """An earlier run, as `--json` wrote it."""
    data = files.read_limited(path, _MOST_BYTES, "a run of bench")
    hint = "cuwheel lab bench … --json > earlier.json"
    return codec.parse(data, Bench, path, "what bench wrote", schema=SCHEMA, hint=hint)


# The blocks of one side at one level, each with when it began and ended.
_Collected: TypeAlias = "list[tuple[Block, float, float]]"


def measure(request: BenchRequest) -> Bench:
    """Both sides are started before the first is measured, and take turns: what changes meanwhile concerns both."""
    earlier = read_earlier(request.earlier) if request.earlier else None
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cuwheel-bench-")))
        sampler = stack.enter_context(gpu_samples.sampling(_SAMPLE_S))
        began = time.time()
        sides = [side_with_settings(request.settings, request.env, "this", place)]
        sides += [side_with_settings(request.against, request.env, "other", place)] if request.against else []
        traced = bool(sampler.names) and execution.can_trace(sides[0].environ)
        first = [first_call(request, side, traced=traced) for side in sides]
        workers = [Workers(request, side, stack) for side in sides]
        found = _levels(request, workers)
        ended = time.time()
        every = sampler.between(began, ended)
    measured = [
        Measured(
            label=side.label,
            levels=tuple(
                _level(number, level[index], every) for number, level in zip(request.at_once, found, strict=True)
            ),
            import_seconds=round(workers[index].import_seconds, 4),
            first_call=first[index],
        )
        for index, side in enumerate(sides)
    ]
    this, other = measured[0], measured[1] if len(measured) > 1 else None
    differences = tuple(_differences(this, other)) if other else ()
    step = max(1, -(-len(every) // _MOST_POINTS))
    return Bench(
        what=request.what if isinstance(request.what, str) else quoting.here(masking.words(request.command)),
        by=request.by,
        label=this.label,
        levels=this.levels,
        import_seconds=this.import_seconds,
        first_call=this.first_call,
        against=other,
        differences=differences,
        earlier=tuple(_changes(this.levels, earlier.levels, _NOISE)) if earlier else (),
        earlier_file=str(request.earlier) if request.earlier else None,
        noise=_NOISE,
        gpus=sampler.names,
        driver=sampler.driver,
        moments=tuple(_moment(each, began) for each in every[::step]),
        seconds=round(ended - began, 3),
        tool=f"cuwheel {__version__}",
        line=_line(this, other, differences, sampler.names),
    )


def _levels(request: BenchRequest, workers: Sequence[Workers]) -> list[list[_Collected]]:
    """Block by block, the sides in turns whose order is drawn anew: drift hits both alike."""
    dice = random.Random(len(workers))  # noqa: S311 - an order, no secret
    found: list[list[_Collected]] = []
    with log.progress("measuring", len(request.at_once) * request.blocks * len(workers)) as progress:
        for at_once in request.at_once:
            calls = None if request.calls is None else max(at_once, -(-request.calls // request.blocks))
            collected: list[_Collected] = [[] for _ in workers]
            found.append(collected)
            for each in workers:
                each.run(at_once, request.timeout, _WARM_UP * at_once)
            for _ in range(request.blocks):
                turns = list(range(len(workers)))
                dice.shuffle(turns)
                for index in turns:
                    progress.show(f"{at_once} at once")
                    began = time.time()
                    block = workers[index].run(at_once, request.seconds / request.blocks, calls)
                    collected[index].append((block, began, time.time()))
                    progress.advance()
    return found


def _level(at_once: int, collected: _Collected, every: Sequence[Sample]) -> Level:
    blocks = [block for block, _, _ in collected]
    latencies = sorted(value for block in blocks for value in block.latencies)
    speeds = [(block.calls - block.errors) / max(block.ended - block.began, 1e-9) for block in blocks]
    seconds = sum(block.ended - block.began for block in blocks)
    succeeded = sum(block.calls - block.errors for block in blocks)
    during = [each for each in every if any(began <= each.at <= ended for _, began, ended in collected)]
    memory = [sum(gpu.memory or 0 for gpu in each.gpus) for each in during]
    use = [gpu.use for each in during for gpu in each.gpus if gpu.use is not None]
    return Level(
        concurrency=at_once,
        calls=sum(block.calls for block in blocks),
        errors=sum(block.errors for block in blocks),
        error=next((block.error for block in blocks if block.error), ""),
        throughput=succeeded / max(seconds, 1e-9),
        p50=rates.quantile(latencies, 0.5),
        p95=rates.quantile(latencies, 0.95),
        p99=rates.quantile(latencies, 0.99),
        blocks=tuple(speeds),
        mean=statistics.fmean(latencies),
        deviation=statistics.stdev(latencies) if len(latencies) > 1 else None,
        least=latencies[0],
        gpu_memory=max(memory, default=None),
        gpu_use=sum(use) / len(use) if use else None,
    )


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


def _differences(measured: Measured, other: Measured) -> Iterator[Difference]:
    for one, two in zip(measured.levels, other.levels, strict=True):
        if ratio := rates.paired_ratio(one.blocks, two.blocks):
            yield Difference(concurrency=one.concurrency, ratio=ratio, differs=not ratio.low <= 1 <= ratio.high)


def _changes(now: Sequence[Level], before: Sequence[Level], noise: float) -> Iterator[Change]:
    known = {each.concurrency: each for each in before}
    for each in now:
        if each.concurrency in known and (ratio := rates.welch_ratio(each.blocks, known[each.concurrency].blocks)):
            worse = ratio.high < 1 and ratio.value < 1 - noise
            yield Change(concurrency=each.concurrency, ratio=ratio, worse=worse)


def _line(measured: Measured, other: Measured | None, differences: Sequence[Difference], gpus: Sequence[str]) -> str:
    """A line to quote, at the level with the highest throughput."""
    best = max(measured.levels, key=lambda each: each.throughput)
    where = f"; {a_few(gpus)}" if gpus else ""
    at = f"{best.concurrency} at once"
    figures = (
        f"{rate_in_words(best.throughput)}, median {time_in_words(best.p50)}, 99 % within {time_in_words(best.p99)}"
    )
    found = next((each for each in differences if each.concurrency == best.concurrency), None)
    if other is None or found is None:
        return f"{figures} at {at}{where}"
    ratio = found.ratio
    theirs = next(each for each in other.levels if each.concurrency == best.concurrency)
    beside = f"{rate_in_words(best.throughput)} against {rate_in_words(theirs.throughput)}"
    if not found.differs:
        return f"{measured.label} and {other.label} do not differ by more than chance at {at}: {beside}{where}"
    between = f"{ratio.low:.3g} to {ratio.high:.3g}"
    return (
        f"{measured.label} does {ratio.value:.3g} times the calls of {other.label} at {at} "
        f"(95 %: {between}): {beside}, median {time_in_words(best.p50)} against {time_in_words(theirs.p50)}{where}"
    )


def rate_in_words(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"  # noqa: PLR2004 - three digits


def time_in_words(value: float) -> str:
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"  # noqa: PLR2004
