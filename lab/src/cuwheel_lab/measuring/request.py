"""What is asked of `cuwheel lab bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cuwheel.errors import UsageError
from cuwheel.support.request_fields import must_be_positive, normalise

MOST_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """A function of a file (`work.py:call`), or a command, called under several at once.

    `settings`, `against`: of the side that is measured, and of the one it is compared with: `NAME=VALUE`, the folder of
    an environment, a wheel or a requirement. `at_once`: how many, one level after the other. `calls`, `seconds`: at
    most, of each level and side. `blocks`: parts that a level is run in, both sides by turns. `earlier`: the JSON of an
    earlier run.
    """

    what: str | Sequence[str] = field(kw_only=False)
    settings: Sequence[str] = ()
    against: Sequence[str] = ()
    env: Path | None = None
    at_once: Sequence[int] = (1, 2, 4)
    by: Literal["threads", "processes"] = "threads"
    calls: int | None = None
    seconds: float = 5.0
    blocks: int = 5
    timeout: float = 600.0
    earlier: Path | None = None

    def __post_init__(self) -> None:
        normalise(self)
        must_be_positive(calls=self.calls, seconds=self.seconds, blocks=self.blocks, timeout=self.timeout)
        if not self.what:
            raise UsageError("nothing to measure was given", hint="cuwheel lab bench work.py:call, or -- COMMAND")
        if not self.at_once or not all(1 <= each <= MOST_AT_ONCE for each in self.at_once):
            raise UsageError(f"at_once must be numbers from 1 to {MOST_AT_ONCE}", hint="--at-once 1,2,4")
        if isinstance(self.what, str):
            self.function  # noqa: B018 - refuses what is none

    @property
    def function(self) -> tuple[Path, str] | None:
        """The file and the name; None for a command."""
        if not isinstance(self.what, str):
            return None
        file, colon, name = self.what.rpartition(":")
        if not colon or not name.isidentifier():
            raise UsageError(
                f"{self.what[:100]!r} must be FILE:NAME", hint="cuwheel lab bench work.py:call, or -- COMMAND"
            )
        return Path(file), name

    @property
    def command(self) -> tuple[str, ...]:
        return () if isinstance(self.what, str) else tuple(self.what)
