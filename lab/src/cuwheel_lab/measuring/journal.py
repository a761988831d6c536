"""The journal of trials: a line before each begins and one after it has ended, on the disk before anything goes on.

So nothing is lost whatever the machine does: a trial without an end is a result too, and the boot id tells which.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from cuwheel.support import codec, confined, files, system_calls
from cuwheel_core.errors import UnreadableError
from cuwheel_lab.measuring.trials_file import FailureKind

SCHEMA = "cuwheel.trials-journal/1"
NAME = "journal.jsonl"
DONE = "done"  # a file beside the journal once nothing is left to do: the service asks for it
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BOOT_ID_FILE = "CUWHEEL_BOOT_ID_FILE"  # for tests: a machine that starts anew is played by changing this file
_LONGEST_LINE = 1 << 20

# Of what failed, how; `killed` and `interrupted` are no result, and such a trial is run again.
Outcome: TypeAlias = Literal["passed", "killed", "interrupted"] | FailureKind
PageCache: TypeAlias = Literal["dropped", "files dropped", "kept"]
NO_RESULT: tuple[Outcome, ...] = ("killed", "interrupted")


class Package(Struct, frozen=True, kw_only=True):
    """`sha256`: of the wheel, where it was a file; `record`: of its list of installed files."""

    name: str
    version: str
    sha256: str | None
    record: str | None


class Header(Struct, frozen=True, kw_only=True):
    """Written when the trials begin, and again whenever they are resumed. `mark`: in the variables of every trial.

    `conditions`: axis → value, of each. `environments`: what is installed in each, in the order of the conditions.
    `only`: axis → value, of the conditions that were to be run; empty: all.
    """

    tool: str
    file: str
    fingerprint: str
    axes: dict[str, tuple[str, ...]]
    conditions: tuple[dict[str, str], ...]
    repeats: int
    seed: int
    mark: str
    at: float
    traced: bool
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    packages: tuple[tuple[Package, ...], ...] = ()
    environments: tuple[int, ...] = ()
    only: dict[str, str] = {}
    schema: str = SCHEMA


class StartState(Struct, frozen=True, kw_only=True):
    """What was cold and what was not, each in a word and why. Every trial is a new process."""

    asked: Literal["cold", "warm", "as it is"]
    jit_cache: Literal["empty", "kept", "the user's"]
    page_cache: PageCache
    rebooted: bool = False
    module_loading: str | None = None
    note: str = ""


class Host(Struct, frozen=True, kw_only=True):
    """In bytes and degrees Celsius; None where this system does not tell. `machine`: its name, of several."""

    memory_available: int | None = None
    temperature: float | None = None
    power_mode: str | None = None
    machine: str = ""


class Start(Struct, frozen=True, kw_only=True):
    """`trial`: counted over the whole journal. `counted`: false for the run that warms up before a warm trial."""

    trial: int
    condition: int
    repeat: int
    at: float
    boot: str
    cold: StartState
    host: Host = field(default_factory=Host)
    counted: bool = True


class GpuUse(Struct, frozen=True, kw_only=True):
    """Of one GPU while a trial ran: memory in bytes before, at most and after; clocks in MHz, power in watts."""

    name: str
    memory_before: int | None = None
    memory_most: int | None = None
    memory_after: int | None = None
    use_most: int | None = None
    clock_least: int | None = None
    clock_most: int | None = None
    temperature_most: int | None = None
    power_most: float | None = None
    power_limit: float | None = None
    performance_state: int | None = None


class FailedCall(Struct, frozen=True, kw_only=True):
    """What `trace` saw fail: the call, CUDA's error, the kernel and the file that has it."""

    api: str
    code: int
    error: str
    kernel: str | None
    library: str | None
    last: tuple[str, ...] = ()


class End(Struct, frozen=True, kw_only=True):
    """`status`: negative for a signal. `ignored`: how it failed, where that kind does not count."""

    trial: int
    outcome: Outcome
    at: float
    seconds: float = 0.0
    status: int | None = None
    memory: int = 0
    message: str = ""
    output: str = ""
    ignored: FailureKind | None = None
    gpus: tuple[GpuUse, ...] = ()
    failed_call: FailedCall | None = None


class Reboot(Struct, frozen=True, kw_only=True):
    """The machine was asked to start anew before a trial of this condition."""

    condition: int
    repeat: int
    boot: str


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exactly one of these is there."""

    header: Header | None = None
    start: Start | None = None
    end: End | None = None
    reboot: Reboot | None = None


def boot_id() -> str:
    """Another one each time the machine starts; empty where the system has none."""
    try:
        return Path(os.environ.get(_BOOT_ID_FILE) or _BOOT_ID).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def outcome_without_end(start: Start, boot: str) -> Outcome:
    """What became of a trial that began and never ended: the machine went down, or it was killed with cuwheel."""
    return "machine" if start.boot != boot else "killed"


class Writer:
    """Appends lines, each on the disk before the call returns."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def add(self, line: Line) -> None:
        files.append_lines(self._handle, codec.encode_any(line) + b"\n")


@contextlib.contextmanager
def open_journal(folder: Path) -> Iterator[Writer]:
    """Opens it for one process at a time: the lock is on the file itself, and goes with its holder."""
    path = folder / NAME
    with files.errors_of(path, "choose another folder with -o"):
        folder.mkdir(parents=True, exist_ok=True)
        handle = confined.open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        if not system_calls.lock(handle):
            raise UnreadableError(
                folder, "another cuwheel process is running these trials", hint="wait until it has ended, or choose -o"
            )
        files.sync_folder(folder)
        yield Writer(handle)
    finally:
        os.close(handle)


def is_running(folder: Path) -> bool:
    """Whether somebody holds the journal at this moment."""
    try:
        handle = confined.open_plain(folder / NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        return not system_calls.lock(handle)
    finally:
        os.close(handle)


def read_lines(folder: Path) -> Iterator[Line]:
    """One after the other, whatever their number. One that a crash cut short was never acted upon: passed over."""
    path = folder / NAME
    try:
        handle = confined.open_plain(path, os.O_RDONLY)
    except OSError as error:
        hint = "cuwheel lab trials run TRIALS.toml makes one"
        raise UnreadableError.from_os(error, path, hint=hint) from error
    with os.fdopen(handle, "rb") as file:
        while piece := file.readline(_LONGEST_LINE):
            with contextlib.suppress(msgspec.DecodeError):
                # Before it is read as ours: a newer cuwheel may have other fields.
                if piece.startswith(b'{"header"'):
                    codec.refuse_newer(codec.decode(piece)["header"], SCHEMA, path)
                yield codec.decode(piece, Line)


class State(Struct, frozen=True, kw_only=True):
    """How far a campaign has come. `results`: condition and repeat → how it ended, of what counts.

    `unfinished`: began, and has no end. `last`: of the trials, by number.
    """

    header: Header | None
    results: dict[tuple[int, int], Outcome]
    unfinished: Start | None
    last: int
    used_boots: frozenset[str]


def read_state(folder: Path) -> State:
    """The state by the journal alone, which a crash may have cut short."""
    header: Header | None = None
    began: dict[int, Start] = {}
    results: dict[tuple[int, int], Outcome] = {}
    boots: set[str] = set()
    last = 0
    for line in read_lines(folder):
        header = line.header or header
        if line.start:
            began = {line.start.trial: line.start}  # one at a time: of those before nothing more is to come
            last = max(last, line.start.trial)
            boots.add(line.start.boot)
        elif line.end and (start := began.pop(line.end.trial, None)) and line.end.outcome not in NO_RESULT:
            results |= {(start.condition, start.repeat): line.end.outcome} if start.counted else {}
    return State(
        header=header,
        results=results,
        unfinished=next(iter(began.values()), None),
        last=last,
        used_boots=frozenset(boots),
    )
