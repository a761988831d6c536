"""Every failure that reading may end in: one class for each kind, and the exit status of a program that ends so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from cuwheel_core.fix import Fix

    Hint: TypeAlias = str | Fix | Sequence[str | Fix]

_WINDOWS_LONGEST = 259
_LONGEST_NAME = 200


def shortened(name: str) -> str:
    """A name may be a whole file that was pasted."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def bulleted(first: str, problems: Sequence[str], most: int = 1000) -> tuple[str, ...]:
    rest = [f"  and {len(problems) - most:,} more"] if len(problems) > most else []
    return (first, *(f"  - {problem}" for problem in problems[:most]), *rest)


class CuwheelError(Exception):
    """Base of all; `meaning` is what the exit-code page says of the class.

    A message is one line, or those that it is given: a line feed in one of them is somebody's name. A hint is what to
    do next: lines as well, or fixes, whose commands stand apart from their words.
    """

    exit_code: ClassVar[int]
    meaning: ClassVar[str]

    def __init__(self, message: str | Sequence[str], hint: Hint = "") -> None:
        self.lines: tuple[str, ...] = (message,) if isinstance(message, str) else tuple(message)
        if isinstance(hint, Sequence) and not isinstance(hint, str):
            self.hint_parts: tuple[str | Fix, ...] = tuple(hint)
        else:
            self.hint_parts = (hint,) if hint else ()
        super().__init__(self.message)

    @property
    def message(self) -> str:
        return "\n".join(self.lines)

    @property
    def hint(self) -> str:
        return "\n".join(each if isinstance(each, str) else each.words for each in self.hint_parts)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The hint as values: lines are the text of one fix."""
        from cuwheel_core.fix import Fix  # noqa: PLC0415 - most runs end without an error

        text = "\n".join(each for each in self.hint_parts if isinstance(each, str))
        return (*((Fix(text=text),) if text else ()), *(each for each in self.hint_parts if isinstance(each, Fix)))

    @property
    def fix(self) -> Fix | None:
        """The first of them."""
        return next(iter(self.fixes), None)

    def __str__(self) -> str:
        return self.message


class UnknownNameError(CuwheelError):
    exit_code = 3
    meaning = "a GPU, CUDA version or other name is not in the tables, or means more than one thing"

    def __init__(self, kind: str, name: str, suggestions: Sequence[str] = (), hint: Hint = "") -> None:
        self.kind: str = kind
        self.name: str = name
        self.suggestions: tuple[str, ...] = tuple(suggestions)
        if not hint and self.suggestions:
            hint = "did you mean " + " or ".join(repr(each) for each in self.suggestions[:4]) + "?"
        super().__init__(f"no {kind} named {shortened(name)!r}", hint)


class AmbiguousNameError(UnknownNameError):
    """The name fits several rows that differ in what matters."""

    def __init__(self, kind: str, name: str, candidates: Sequence[str]) -> None:
        super().__init__(kind, name, candidates, hint="say which: " + ", ".join(candidates))
        self.lines = (f"{shortened(name)!r} names more than one {kind}",)


def _too_long(path: str) -> str:
    """Windows says of such a path that it is not there, unless it was told otherwise."""
    if os.name != "nt" or path.startswith("\\\\?\\") or len(full := os.path.abspath(path)) <= _WINDOWS_LONGEST:  # noqa: PTH100
        return ""
    switch = "reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled /t REG_DWORD /d 1 /f"
    return f"its path has {len(full)} characters, and Windows opens more than {_WINDOWS_LONGEST} only after: {switch}"


class UnreadableError(CuwheelError):
    exit_code = 4
    meaning = "a file or folder is missing, or cannot be read or written"

    def __init__(self, path: str | Path, reason: str, hint: Hint = "") -> None:
        self.path: str = str(path)
        self.problem: str = reason
        super().__init__(f"{path}: {reason}", hint)
        if too_long := _too_long(self.path):
            self.hint_parts += (too_long,)

    @classmethod
    def from_os(cls, error: OSError, path: str | Path | None = None, hint: Hint = "") -> UnreadableError:
        return cls(path or error.filename or "?", error.strerror or str(error), hint)


class MalformedError(CuwheelError):
    exit_code = 5
    meaning = "a file is not what it should be: damaged, cut short, or of another kind"

    def __init__(self, path: str | Path, problem: str | Sequence[str], hint: Hint = "") -> None:
        first, *more = (problem,) if isinstance(problem, str) else problem
        self.path: str = str(path)
        self.problem: str = "\n".join((first, *more))
        super().__init__((f"{path}: {first}", *more), hint)


class FactsError(CuwheelError):
    exit_code = 10
    meaning = "cuwheel's own tables contradict themselves (a bug, or files that were edited)"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(bulleted("the tables of facts are inconsistent:", self.problems), hint="reinstall cuwheel")


class UnsafeWheelError(CuwheelError):
    exit_code = 13
    meaning = "a wheel may do harm: names that leave its folder, overlapping members, a zip bomb"

    def __init__(self, path: str | Path, problems: Sequence[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(
            bulleted(f"{path} is not safe to read or to install:", self.problems, 5),
            hint="do not install this wheel; download it again from its publisher",
        )
