"""The import guard of a wheel: which GPUs and drivers its code runs on, decided now, so that it only compares then."""

from __future__ import annotations

import ast
import codecs
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import finding
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import gpus, toolkits
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support import bounded
from cuwheel_core.verdicts import predict
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.verdicts.judge import Judge
    from cuwheel_core.support.finding import Finding


MODULE = "_cuwheel_guard"
FILE = f"{MODULE}.py"
CALL = f"from .{MODULE} import check"
_TEMPLATE = Path(__file__).with_name("import_guard.py")
_BEGIN, _END = "# >>> data\n", "# <<< data\n"
_LAST_MINOR = 9
_ANY = 9999  # a capability that no GPU will have


class Run(Struct, frozen=True, kw_only=True):
    """Capabilities as numbers (90), all of them served by the same drivers; `driver` is the oldest, as CUDA counts."""

    first: int
    last: int
    driver: int


class Guard(Struct, frozen=True, kw_only=True):
    """The guard of one package. `wheel`: name and version for the message; `message`: what to install instead.

    `inject`: its call is put into the package's `__init__.py`, which does not know of it.
    """

    package: str
    message: str = ""
    inject: bool = False
    wheel: str
    built_for: str
    runs: tuple[Run, ...]


def guard_for(
    found: Survey, package: str, *, message: str = "", wheel: str | None = None, inject: bool = False
) -> Guard:
    """A guard made from what is in the wheel, which was surveyed with its containers.

    Only what fails for certain is refused: where a part of the code serves, the package may know what it does.
    """
    runs = tuple(_joined(_points(found)))
    distribution = found.distribution
    return Guard(
        package=package,
        message=message,
        inject=inject,
        wheel=wheel or (f"{distribution.name} {distribution.version}" if distribution else found.target),
        built_for=_words(found, runs),
        runs=runs,
    )


def guard_source(wanted: Guard) -> str:
    """The file that goes into the package."""
    head, _, rest = _TEMPLATE.read_text(encoding="utf-8").partition(_BEGIN)
    comments = [line for line in rest.partition(_END)[0].splitlines() if line.startswith("#")]
    tail = rest.partition(_END)[2]
    runs = "".join(f"    ({each.first}, {each.last}, {each.driver}),\n" for each in wanted.runs)
    data = (
        f"WHEEL = {_literal(wanted.wheel)}\n"
        f"BUILT_FOR = {_literal(wanted.built_for)}\n"
        f"INSTEAD = {_literal(wanted.message)}\n" + "".join(f"{line}\n" for line in comments) + f"RUNS = (\n{runs})\n"
    )
    return head + data + tail


def call_finding(init: str, package: str, *, inject: bool) -> Finding | None:
    """`init`: the package's `__init__.py`. A guard that nobody calls guards nothing. `inject`: the call is put in."""
    if MODULE in init:
        return None
    if inject:
        return finding(
            "guard-injected", f"the guard is in {package}, and its call was put at the top of {package}/__init__.py"
        )
    return finding(
        "guard-not-called",
        f"the guard is in {package}, but {package}/__init__.py does not call it",
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
    from cuwheel.verdicts.judge import Judge  # noqa: PLC0415 - few wheels have a guard

    subject = Judge(found)
    known = sorted(each.number for each in gpus.current_capabilities())
    asked = sorted({*known, *(number + 1 for number in known if number % 10 < _LAST_MINOR)})
    for number in asked:
        beyond_it = [each for each in asked if each > number]
        end = number // 10 * 10 + _LAST_MINOR
        last = min(beyond_it[0] - 1, end) if beyond_it else end
        yield number, last, _oldest_driver(subject, Capability.from_number(number))
    beyond = (known[-1] // 10 + 1) * 10
    yield beyond, _ANY, _oldest_driver(subject, Capability.from_number(beyond))


def _oldest_driver(subject: Judge, capability: Capability) -> int | None:
    """Finds the oldest driver that serves a GPU by judging with one after the other: drivers only ever learn."""

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
    major, minor = (bounded.digits(part) for part in cuda.split(".")[:2])
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
        str(each) for each in gpus.current_capabilities() if any(run.first <= each.number <= run.last for run in listed)
    ]
    and_later = " and later" if any(run.last == _ANY for run in listed) else ""
    cudas = sorted({cuda for library in found.libraries for cuda in library.toolkits})
    made = f" (CUDA {', '.join(cudas)})" if cudas else ""
    return (
        f"GPUs of compute capability {predict.capability_ranges(served)}{and_later}{made}"
        if served
        else f"no known GPU{made}"
    )


# A call put into somebody else's package: as early in its `__init__.py` as Python allows.


class Call(NamedTuple):
    """Of a module that was put beside. `line`: one, so that it can stand behind a semicolon; nothing of it stays.

    `hint`: what to do where it cannot be put in.
    """

    module: str
    line: str
    why: str
    hint: str


GUARD = Call(
    module=MODULE,
    line=f"from .{MODULE} import check as _cuwheel_check; _cuwheel_check(); del _cuwheel_check",
    why='put here by cuwheel build: guard = "inject"',
    hint="leave guard out",
)


def package_of(packages: Collection[str], distribution: str, libraries: Iterable[str]) -> str:
    """The one of the packages at the top of a wheel that is to be guarded.

    Where there are several: the one of the wheel's own name, else the one that holds the libraries with device code.
    """
    if len(packages) == 1:
        return next(iter(packages))
    named = [each for each in packages if normalised(each) == normalised(distribution)]
    holding = {path.partition("/")[0] for path in libraries} & set(packages)
    for found in (named, sorted(holding)):
        if len(found) == 1:
            return found[0]
    raise UsageError(
        'guard = "inject": the wheel has no package to guard'
        if not packages
        else f'guard = "inject": which of {", ".join(sorted(packages))} should be guarded?',
        hint='name it: [tool.cuwheel.guard] inject = true, package = "NAME"',
    )


def with_call(source: bytes, name: str, call: Call = GUARD) -> bytes:
    """`source`: of an `__init__.py`, called `name` in messages. Unchanged where it has the call already."""
    if call.module.encode() in source:
        return source
    body = _parsed(source, name, call).body
    put = f"{call.line}  # {call.why}".encode()
    # The docstring and the imports from `__future__`: nothing may come before those.
    docstring = ast.get_docstring(ast.Module(body=body[:1], type_ignores=[]), clean=False)
    found = body[:1] if docstring is not None else []
    for each in body[len(found) :]:
        if not (isinstance(each, ast.ImportFrom) and each.module == "__future__" and each.level == 0):
            break
        found = [*found, each]
    start = len(found)
    lines = source.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    if start and _goes_on(lines, body[start - 1]):
        line, column = body[start - 1].end_lineno or 1, body[start - 1].end_col_offset or 0
        old = lines[line - 1]
        lines[line - 1] = old[:column] + b"; " + call.line.encode() + old[column:]
        return b"".join(lines)
    head = b"".join(lines[: _line_above(body, start, len(lines))])
    if not head and source.startswith(codecs.BOM_UTF8):
        return codecs.BOM_UTF8 + put + end + source.removeprefix(codecs.BOM_UTF8)
    gap = end if head and not head.endswith((b"\n", b"\r")) else b""
    return head + gap + put + end + source[len(head) :]


def _parsed(source: bytes, name: str, call: Call) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of somebody else's escapes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError(
            name,
            f"cannot be read as Python, so the call of {call.module} cannot be put into it: {error}",
            hint=call.hint,
        ) from error


def _goes_on(lines: list[bytes], last: ast.stmt) -> bool:
    """Whether something stands behind it in its own line, after a semicolon."""
    rest = lines[(last.end_lineno or 1) - 1][last.end_col_offset or 0 :]
    return rest.lstrip().startswith(b";")


def _line_above(body: list[ast.stmt], prelude: int, lines: int) -> int:
    """How many lines stay above the call. The comments at the top do: one of them may name the encoding."""
    if prelude:
        return body[prelude - 1].end_lineno or 0
    if not body:
        return lines
    decorators: list[ast.expr] = getattr(body[0], "decorator_list", [])
    return min([body[0].lineno, *(each.lineno for each in decorators)]) - 1
