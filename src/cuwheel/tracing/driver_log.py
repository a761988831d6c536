"""What the driver writes into its own log while calls fail, and failures that nothing else tells of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.facts import toolkits
from cuwheel.tracing.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


PRIVATE = "a load inside the CUDA runtime"  # in place of a function: CUDA 11's calls none that has a name
_POINTER = "to get more information"  # a line that only says where else to look


@dataclass(slots=True)
class DriverLog:
    """Lines wait for the call that they are about, which is known when it returns: by thread."""

    _waiting: dict[int, list[Event]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self._waiting.setdefault(event.thread, []).append(event)

    def claimed_by(self, failure: Event) -> Event:
        """A call that failed, with the lines about it."""
        lines = [each for each in self._waiting.get(failure.thread, ()) if each.seen]
        return replace(failure, driver_log=_telling(lines))

    def unclaimed(self, thread: int | None = None) -> Iterator[Event]:
        """Failures of code that was loaded without a call that can be seen, of one thread or all of them."""
        for each in [thread] if thread is not None else list(self._waiting):
            lines = [line for line in self._waiting.pop(each, ()) if not line.seen]
            known = ((line, toolkits.logged_error(_words(line))) for line in lines)
            found = next(((line, row) for line, row in known if row), None)
            if found:
                line, row = found
                yield replace(
                    line, event="failure", api=PRIVATE, error=row.code, path=line.caller, driver_log=_telling(lines)
                )


def _telling(lines: Iterable[Event]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_words(each) for each in lines if _POINTER not in each.log))


def _words(event: Event) -> str:
    """Without the time, thread and level that may stand before them."""
    return event.log.rpartition("][E] ")[2].strip()
