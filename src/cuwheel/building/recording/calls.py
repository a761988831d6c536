"""What a record holds: its files, its calls as frozen values, what they come to, and which failure mattered."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from cuwheel.building.recording import words
from cuwheel.support import files
from cuwheel_core.support import bounded, opening
from cuwheel_core.support.wording import file_name

if TYPE_CHECKING:
    from cuwheel.building.recording.words import Parsed


_COLUMNS = 8  # of nvcc's timings: source , phase , inputs , output , arch , tool , metric , unit
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SOURCE_FILE = re.compile(r"\.(?:cu|c|cc|cpp|cxx|ii|gpu|ptx|cubin|obj|o)\"?$")
_ARCH = re.compile(r"\b(?:sm|compute)_\d+[a-z]?\b")

# What a program that was called is for. `nvcc` also drives the host compiler; those inner calls are its phases.
ToolKind: TypeAlias = Literal["nvcc", "compiler", "linker", "cache"]
# `started`: its end was never written: the build, or the machine, died while it ran.
CallState: TypeAlias = Literal["succeeded", "failed", "signalled", "not-started", "started"]


class ResponseFile(Struct, frozen=True, kw_only=True):
    """A file of arguments (`@file`, `--options-file`) as it was when the call began; `text` None: unreadable."""

    path: str
    text: str | None
    encoding: str = "utf-8"  # `utf-16` with its mark, as Visual Studio writes it


class InnerProgram(Struct, frozen=True, kw_only=True):
    """A program that a call ran itself, as the watcher on Windows saw it: tools, and whatever failed."""

    name: str
    program: str
    words: tuple[str, ...]
    began: float
    ended: float
    status: int


class Phase(Struct, frozen=True, kw_only=True):
    """One of nvcc's inner programs, as nvcc itself timed it."""

    name: str
    file: str
    arch: str
    seconds: float


class Call(Struct, frozen=True, kw_only=True):
    """One call of a compiler or linker.

    `number` counts from 1 in the order in which calls began. `program` is what really ran; `words` the arguments as the
    caller gave them, without the program; `ran` those that it was given, where cuwheel changed them (else empty).
    `changed` and `unset`: how its environment differed from the record's. Times are seconds since the record began.
    """

    number: int
    id: str = ""  # of its lines and files in the record
    tool: ToolKind
    name: str
    program: str
    words: tuple[str, ...]
    ran: tuple[str, ...] = ()
    cwd: str
    parent: str = ""  # the command line of the caller, if it could be seen
    changed: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    began: float
    ended: float | None
    state: CallState
    status: int | None  # the exit code; None where a signal ended it, or it never ended
    signal: int | None = None
    problem: str = ""  # why it could not start
    stdout: str = ""  # files in the record's folder, relative to it
    stderr: str = ""
    response_files: tuple[ResponseFile, ...] = ()
    phases: tuple[Phase, ...] = ()
    inner: tuple[InnerProgram, ...] = ()
    cache_hit: bool | None = None  # None where no compiler cache was asked
    memory: int | None = None  # bytes, the most that the largest of its programs had at once

    @property
    def failed(self) -> bool:
        return self.state in ("failed", "signalled", "not-started")


class Record(Struct, frozen=True, kw_only=True):
    """A whole record. `status`: of the command, negative for a signal; None where it never ended."""

    schema: Literal["cuwheel.calls/1"] = "cuwheel.calls/1"
    folder: str
    command: tuple[str, ...]
    cwd: str
    began: str  # ISO 8601, UTC
    seconds: float | None
    status: int | None
    environment: dict[str, str]
    masked: bool
    calls: tuple[Call, ...]
    system: str = ""  # where it was made: name, release and processor
    way: str = ""  # `preload`, `watch` or `path`: how calls were seen
    encoding: str = "utf-8"  # of what programs printed that is not UTF-8: a code page of Windows
    damaged: int = 0  # lines that could not be read: a crash may have cut one short


def parse_phases(text: str) -> Iterator[Phase]:
    """The table that nvcc's `--time` writes. Rows are counted from both ends: names of files may hold commas."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < _COLUMNS or cells[-1] not in _UNITS:
            continue
        count = bounded.real(cells[-2])
        if count is not None and count >= 0:
            yield Phase(name=cells[1], file=cells[0], arch=cells[-4], seconds=count * _UNITS[cells[-1]])


def phases_inside(inner: Iterable[InnerProgram]) -> tuple[Phase, ...]:
    """The programs that the watcher saw nvcc run, as its own table has them."""
    return tuple(
        Phase(
            name=each.name.removesuffix(".exe"),
            file=next((word for word in reversed(each.words) if _SOURCE_FILE.search(word)), ""),
            arch=next((match[0] for word in each.words if (match := _ARCH.search(word))), ""),
            seconds=max(each.ended - each.began, 0.0),
        )
        for each in inner
    )


# The files of a record.
#
# record.json        the command, where and when, and whether secrets were masked
# environment.json   what it was started with
# calls.jsonl        a line when a call begins, and one when it has ended; the last is the command's own end
# output/            what calls printed: <id>.out, <id>.err; command.txt: the end of what the command itself did
# phases/            nvcc's own timing of a call: <id>.csv
# cache/             what a compiler cache said of a call: <id>.txt
# blame-<n>.json     what `replay --diff` found of call n

SCHEMA = "cuwheel.calls/1"
HEAD_FILE = "record.json"
ENVIRONMENT_FILE = "environment.json"
CALLS_FILE = "calls.jsonl"
REPORT_FILE = "report.json"
COMMAND_OUTPUT_FILE = "output/command.txt"
COPIED_SOURCE = "source"  # beside a record of a matrix: the copy of the project that it was made in
RECORD_FOLDERS = ("output", "phases", "cache")


def blame_file(number: int) -> str:
    return f"blame-{number}.json"


def write_json(folder: Path, name: str, value: object) -> None:
    """On the disk before it has its name. Text of any bytes: what is no UTF-8 is escaped, and comes back the same."""
    files.write(folder / name, json.dumps(value, indent=1) + "\n", durable=True)


def append_event(folder: Path, event: dict[str, object]) -> None:
    """One write: shims append to the same file."""
    file = opening.open_file(folder / CALLS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(event).encode("ascii") + b"\n")
    finally:
        os.close(file)


# What a record comes to: how many calls, and where the time went.

_LONGEST = 20
_MOST_FILES = 10_000


class FileTime(Struct, frozen=True, kw_only=True):
    """One source file, over all calls that compiled it; calls with several files count for the first."""

    file: str
    seconds: float
    calls: int
    archs: tuple[str, ...]


class Share(Struct, frozen=True, kw_only=True):
    """An inner program of nvcc, or an architecture: all its runs together."""

    name: str
    seconds: float
    runs: int


class CallSummary(Struct, frozen=True, kw_only=True):
    """A call in a line."""

    number: int
    tool: ToolKind
    what: str
    seconds: float | None
    state: CallState
    archs: tuple[str, ...]
    memory: int | None
    cache_hit: bool | None


class Summary(Struct, frozen=True, kw_only=True):
    """`busy`: the seconds of all calls together; `seconds`: of the whole command, None where it never ended."""

    calls: int
    nvcc: int
    failed: int
    unfinished: int
    seconds: float | None
    busy: float
    hits: int | None  # of a compiler cache; None where none was asked, or told
    misses: int | None
    files: tuple[FileTime, ...]
    phases: tuple[Share, ...]
    archs: tuple[Share, ...]
    longest: tuple[CallSummary, ...]


def summarize(record: Record) -> Summary:
    calls = record.calls
    parsed = {call.number: parse_call(call) for call in calls}
    asked = [call.cache_hit for call in calls if call.cache_hit is not None]
    phases = [phase for call in calls for phase in call.phases]
    lasting = sorted((call for call in calls if call.ended is not None), key=duration, reverse=True)
    seconds: defaultdict[str, float] = defaultdict(float)
    count: defaultdict[str, int] = defaultdict(int)
    archs: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for call in calls:
        found = parsed[call.number]
        if found.compiles and found.inputs:
            file = words.readable(found.inputs[0])
            seconds[file] += duration(call)
            count[file] += 1
            archs[file] |= dict.fromkeys(map(words.readable, found.archs))
    times = [
        FileTime(file=file, seconds=seconds[file], calls=count[file], archs=tuple(archs[file])) for file in seconds
    ]
    return Summary(
        calls=len(calls),
        nvcc=sum(call.tool == "nvcc" for call in calls),
        failed=sum(call.failed for call in calls),
        unfinished=sum(call.state == "started" for call in calls),
        seconds=record.seconds,
        busy=sum(map(duration, calls)),
        hits=asked.count(True) if asked else None,
        misses=asked.count(False) if asked else None,
        files=tuple(sorted(times, key=lambda each: -each.seconds))[:_MOST_FILES],
        phases=_shares((phase.name, phase.seconds) for phase in phases),
        archs=_shares((phase.arch, phase.seconds) for phase in phases if phase.arch),
        longest=tuple(summarize_call(call, parsed[call.number]) for call in lasting[:_LONGEST]),
    )


def parse_call(call: Call) -> Parsed:
    """Parses a call with its response files; of a compiler cache, the call of the compiler that it was asked to run."""
    given = call.ran or call.words
    tool: str = call.tool
    if tool == "cache":
        given, tool = given[1:], (words.tool_kind(given[0]) if given else None) or "compiler"
    return words.parse_words(
        given,
        {each.path: each.text for each in call.response_files},
        tool=tool,
        windows=words.is_windows_program(call.name),
    )


def duration(call: Call) -> float:
    return max(call.ended - call.began, 0.0) if call.ended is not None else 0.0


def summarize_call(call: Call, parsed: Parsed) -> CallSummary:
    what = f"{call.name} {file_name(parsed.inputs[0])}" if parsed.inputs else " ".join((call.name, *call.words[:2]))
    return CallSummary(
        number=call.number,
        tool=call.tool,
        what=words.readable(what),
        seconds=None if call.ended is None else duration(call),
        state=call.state,
        archs=tuple(map(words.readable, parsed.archs)),
        memory=call.memory,
        cache_hit=call.cache_hit,
    )


def _shares(timed: Iterable[tuple[str, float]]) -> tuple[Share, ...]:
    seconds: defaultdict[str, float] = defaultdict(float)
    runs: defaultdict[str, int] = defaultdict(int)
    for name, each in timed:
        seconds[name] += each
        runs[name] += 1
    shares = (Share(name=name, seconds=seconds[name], runs=runs[name]) for name in seconds)
    return tuple(sorted(shares, key=lambda share: -share.seconds))


# Which failed call was the build's undoing. Configure steps fail on purpose: that is how they find out.


# Folders and files of trial compilations: CMake's, Meson's, autoconf's, the cc crate's, setuptools' and PyTorch's.
_TRIAL = re.compile(
    r"(?:^|/)(?:CMakeTmp|CMakeScratch|CompilerId[A-Z]\w*|meson-private|_cmake_try\w*)(?:/|$)"
    r"|(?:^|/)(?:conftest\w*|cmTC_\w+|testCCompiler|testCXXCompiler|testCUDACompiler|CMake\w*CompilerId|flag_check"
    r"|sanitycheck\w*|has_flag\w*|_configtest|detect_cuda_\w+|tmp[a-z0-9_]{8})\.\w+$|^__cmake_determine_cuda$"
)
# Of those, the ones without which nothing can be built: a compiler that does not work at all.
_VITAL = re.compile(r"(?:^|/)(?:test(?:C|CXX|CUDA)Compiler|CMake\w*Compiler(?:Id|ABI)|sanitycheck\w*)\.")
_NO_FILE = frozenset(("-", "/dev/null", "NUL"))


def first_failure(record: Record) -> Call | None:
    """The first call that failed and mattered; None where none did.

    A trial counts where nothing else failed and yet the build did, if without it nothing can be built: "the CUDA
    compiler is not able to compile a simple test program". Any other answers a question of the build system.
    """
    failed = sorted((call for call in record.calls if call.failed), key=_end_of)
    done = {_product(call) for call in record.calls if call.state == "succeeded"} - {None}
    for call in failed:
        if not is_trial(call) and not (_product(call) in done and _succeeded_afterwards(record, call)):
            return call
    if record.status and failed:
        last = failed[-1]
        # A build that tried something else afterwards, which worked, did not end because of this one.
        went_on = any(call.state == "succeeded" and call.began > _end_of(last) for call in record.calls)
        return last if not went_on and _is_vital(record, last) else None
    return None


def last_failure(record: Record) -> Call | None:
    """The call with which everything ended, if it failed and was no trial.

    A build system that gives up in words of its own, right after it, most likely speaks of this call, whose output it
    may have thrown away (CMake's `execute_process(… ERROR_QUIET)`). One that went on to other calls does not.
    """
    ended = max(record.calls, key=_end_of, default=None)
    return ended if ended and ended.failed and not is_trial(ended) else None


def is_trial(call: Call) -> bool:
    """Whether it was made to find something out, and its failure is an answer."""
    parsed = parse_call(call)
    if not set(parsed.inputs) - _NO_FILE:
        # Without a file to work on it asks for versions, folders, or whether an option is known.
        return not (parsed.compiles or parsed.output) or not _NO_FILE.isdisjoint(call.words)
    return any(_TRIAL.search(_slashes(place)) for place in (call.cwd, parsed.output, *parsed.inputs))


def _is_vital(record: Record, last: Call) -> bool:
    """A test of the compiler itself; or nothing that was tried ever worked."""
    same = [call for call in record.calls if call.failed and call.tool == last.tool]
    if any(_VITAL.search(_slashes(each)) for call in same for each in parse_call(call).inputs):
        return True
    tried = [call for call in record.calls if parse_call(call).inputs]
    return bool(tried) and not any(call.state == "succeeded" for call in tried)


def _slashes(path: str) -> str:
    return path.replace("\\", "/")


def _end_of(call: Call) -> float:
    return call.began if call.ended is None else call.ended


def _product(call: Call) -> tuple[str, str] | None:
    output = parse_call(call).output
    return (call.cwd, output) if output else None


def _succeeded_afterwards(record: Record, failed: Call) -> bool:
    """Tried again, and it worked."""
    product = _product(failed)
    return any(
        call.state == "succeeded" and call.began >= failed.began and _product(call) == product for call in record.calls
    )


def source_of(call: Call) -> str:
    """The first file that a call compiles; nothing for one that only links, or tries something out."""
    parsed = parse_call(call)
    return parsed.inputs[0] if parsed.compiles and parsed.inputs and not is_trial(call) else ""


_FIRST, _LAST = 0x8000_0000, 0xFFFF_FFFF  # of Windows' own


# Microsoft, [MS-ERREF] 2.3.1 "NTSTATUS Values".
_CRASHES = {
    0x8000_0003: "a breakpoint",
    0xC000_0005: "an access violation",
    0xC000_0017: "no memory",
    0xC000_001D: "an illegal instruction",
    0xC000_0026: "an invalid exception",
    0xC000_007B: "a DLL of another processor, or a damaged one",
    0xC000_0094: "a division by zero",
    0xC000_00FD: "a stack overflow",
    0xC000_012D: "no memory: the paging file is too small",
    0xC000_0135: "a DLL was not found",
    0xC000_0138: "a DLL lacks a function by its number",
    0xC000_0139: "a DLL lacks a function",
    0xC000_013A: "Ctrl-C",
    0xC000_0142: "a DLL could not be initialised",
    0xC000_0374: "a damaged heap",
    0xC000_0409: "it aborted, or found its stack damaged",
    0xC000_041D: "an exception in a callback",
}


def crash_name(status: int) -> str:
    """What a status of Windows' own means; empty for any other."""
    return _CRASHES.get(status, "")


def status_words(status: int | None) -> str:
    """`1`, or `0xC0000135 (a DLL was not found)`."""
    if status is None or not _FIRST <= status <= _LAST:
        return str(status)
    known = crash_name(status)
    return f"0x{status:08X} ({known})" if known else f"0x{status:08X}"


def shell_status(status: int) -> int:
    """The status as a shell has it: 128+n where signal n ended it; Windows' own 32 bits in the range of a C integer."""
    if status < 0:
        return 128 - status
    return status - (1 << 32) if _FIRST <= status <= _LAST else status
