"""The import guard of a wheel: which GPUs and drivers its code runs on, decided now, so that it only compares then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes.stamp import guard_call
from cuwheel.facts import architectures, toolkits
from cuwheel.facts.arch import Capability
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import Finding
from cuwheel.verdicts import matrix, predict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.device_code.libraries import Survey

FILE = f"{guard_call.MODULE}.py"
CALL = f"from .{guard_call.MODULE} import check"
_TEMPLATE = Path(__file__).with_name("import_guard.py")
_BEGIN, _END = "# >>> data\n", "# <<< data\n"
_LAST_MINOR = 9
_ANY = 9999  # a capability that no GPU will have


class Run(Struct, frozen=True, kw_only=True):
    """Capabilities as numbers (90), all of them served by the same drivers; `driver` is the oldest, as CUDA counts."""

    first: int
    last: int
    driver: int


class Wish(Struct, frozen=True, kw_only=True):
    """The guard of one package. `wheel`: name and version for the message; `message`: what to install instead.

    `inject`: its call is put into the package's `__init__.py`, which does not know of it.
    """

    package: str
    message: str = ""
    inject: bool = False
    wheel: str
    built_for: str
    runs: tuple[Run, ...]


def of(found: Survey, package: str, *, message: str = "", wheel: str | None = None, inject: bool = False) -> Wish:
    """From what is in the wheel. Needs its containers.

    Only what fails for certain is refused: where a part of the code serves, the package may know what it does.
    """
    runs = tuple(_joined(_points(found)))
    distribution = found.distribution
    return Wish(
        package=package,
        message=message,
        inject=inject,
        wheel=wheel or (f"{distribution.name} {distribution.version}" if distribution else found.target),
        built_for=_words(found, runs),
        runs=runs,
    )


def source(wish: Wish) -> str:
    """The file that goes into the package."""
    head, _, rest = _TEMPLATE.read_text(encoding="utf-8").partition(_BEGIN)
    comments = [line for line in rest.partition(_END)[0].splitlines() if line.startswith("#")]
    tail = rest.partition(_END)[2]
    runs = "".join(f"    ({each.first}, {each.last}, {each.driver}),\n" for each in wish.runs)
    data = (
        f"WHEEL = {_literal(wish.wheel)}\n"
        f"BUILT_FOR = {_literal(wish.built_for)}\n"
        f"INSTEAD = {_literal(wish.message)}\n" + "".join(f"{line}\n" for line in comments) + f"RUNS = (\n{runs})\n"
    )
    return head + data + tail


def call_finding(init: str, package: str, *, inject: bool) -> Finding | None:
    """`init`: the package's `__init__.py`. A guard that nobody calls guards nothing. `inject`: the call is put in."""
    if guard_call.MODULE in init:
        return None
    if inject:
        return Finding(
            rule="guard-injected",
            severity="note",
            message=f"the guard is in {package}, and its call was put at the top of {package}/__init__.py",
            fix="CUWHEEL_GUARD=0 switches it off at import",
        )
    return Finding(
        rule="guard-not-called",
        severity="warning",
        message=f"the guard is in {package}, but {package}/__init__.py does not call it",
        fix=f"add at its top: {CALL}; check()   (or let cuwheel do it: [tool.cuwheel.guard] inject = true)",
    )


def _literal(text: str) -> str:
    """A Python literal in double quotes, one line, plain ASCII."""
    import json  # noqa: PLC0415 - JSON's strings are Python's, surrogate pairs apart

    return json.dumps(text) if text.isascii() else ascii(text)


def _points(found: Survey) -> Iterator[tuple[int, int, int | None]]:
    """First and last number, and the oldest driver that will do; None where none will.

    Every known capability, and what may come between them: a later minor of the same major runs what is compiled for
    an earlier one, unless it is compiled for that alone.
    """
    subject = matrix.Judge(found)
    known = sorted(each.number for each in architectures.current_capabilities())
    asked = sorted({*known, *(number + 1 for number in known if number % 10 < _LAST_MINOR)})
    for number in asked:
        beyond_it = [each for each in asked if each > number]
        end = number // 10 * 10 + _LAST_MINOR
        last = min(beyond_it[0] - 1, end) if beyond_it else end
        yield number, last, _oldest_driver(subject, Capability.from_number(number))
    beyond = (known[-1] // 10 + 1) * 10
    yield beyond, _ANY, _oldest_driver(subject, Capability.from_number(beyond))


def _oldest_driver(subject: matrix.Judge, capability: Capability) -> int | None:
    """By judging the wheel with the driver of one toolkit after the other: drivers only ever learn."""

    def fails(cuda: str | None) -> bool:
        # The guard asks the driver for the GPU: it only gets as far with one that knows it.
        machine = Machine(name=str(capability), capability=capability, driver_cuda=cuda, gpu_seen=True)
        return subject.on(machine).outcome == "fails"

    if fails(None):
        return None
    rows = [row.version for row in toolkits.all_releases()]
    low, high = 0, len(rows)  # the first that does not fail, if any does not
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fails(rows[middle]) else (low, middle)
    return 0 if low in (0, len(rows)) else _number(rows[low])


def _number(cuda: str) -> int:
    major, minor = (int(part) for part in cuda.split(".")[:2])
    return major * 1000 + minor * 10


def _joined(points: Iterable[tuple[int, int, int | None]]) -> Iterator[Run]:
    run: Run | None = None
    for first, last, driver in points:
        if run and driver == run.driver and first == run.last + 1:
            run = Run(first=run.first, last=last, driver=driver)
            continue
        if run:
            yield run
        run = None if driver is None else Run(first=first, last=last, driver=driver)
    if run:
        yield run


def _words(found: Survey, runs: Iterable[Run]) -> str:
    """`GPUs of compute capability 8.9, 9.0 (CUDA 13.0)`."""
    listed = tuple(runs)
    served = [
        str(each)
        for each in architectures.current_capabilities()
        if any(run.first <= each.number <= run.last for run in listed)
    ]
    and_later = " and later" if any(run.last == _ANY for run in listed) else ""
    cudas = sorted({cuda for library in found.libraries for cuda in library.toolkits})
    made = f" (CUDA {', '.join(cudas)})" if cudas else ""
    return (
        f"GPUs of compute capability {predict.capability_ranges(served)}{and_later}{made}"
        if served
        else f"no known GPU{made}"
    )
