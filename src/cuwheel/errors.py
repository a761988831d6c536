"""Every failure cuwheel reports: one class for each kind, one exit code for each class.

An error takes the facts and composes its own message: what happened and why. `hint` is the next
thing to do, ready to copy. `cli.main` is the only place that catches them for people.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

EXIT_OK = 0
EXIT_NO = 1
EXIT_UNKNOWN = 15  # of `check`, `find` and `install --dry-run`: nobody can tell, which is not yes
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
_SHOWN = 5
_MOST_PROBLEMS = 100
MOST_SOUGHT = 1000  # problems of one file, after which nobody looks for more
_WINDOWS_LONGEST = 259
_LONGEST_NAME = 200


def _short(name: str) -> str:
    """A name may be a whole file that was pasted."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _listed(first: str, problems: Sequence[str], most: int = 1000) -> tuple[str, ...]:
    rest = [f"  and {len(problems) - most:,} more"] if len(problems) > most else []
    return (first, *(f"  - {problem}" for problem in problems[:most]), *rest)


class CuwheelError(Exception):
    """Base of all; `meaning` is what the exit-code page says of the class.

    A message or a hint is one line, or those that it is given: a line feed in one of them is somebody's name.
    """

    exit_code: ClassVar[int]
    meaning: ClassVar[str]

    def __init__(self, message: str | Sequence[str], hint: str | Sequence[str] = "") -> None:
        self.lines: tuple[str, ...] = (message,) if isinstance(message, str) else tuple(message)
        self.hint_lines: tuple[str, ...] = ((hint,) if hint else ()) if isinstance(hint, str) else tuple(hint)
        super().__init__(self.message)

    @property
    def message(self) -> str:
        return "\n".join(self.lines)

    @property
    def hint(self) -> str:
        return "\n".join(self.hint_lines)

    def __str__(self) -> str:
        return self.message


class UsageError(CuwheelError):
    exit_code = 2
    meaning = "the command line or a configuration file is wrong"


class ConfigurationError(UsageError):
    """A file that a person wrote. All its problems at once, never one a run."""

    def __init__(self, path: str | Path, problems: Sequence[str], hint: str = "") -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        count = "one problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        least = "at least " if len(self.problems) == MOST_SOUGHT else ""  # where the search ended
        super().__init__(_listed(f"{path} has {least}{count}:", self.problems, _MOST_PROBLEMS), hint)


class UnknownNameError(CuwheelError):
    exit_code = 3
    meaning = "a GPU, CUDA version or other name is not in the tables, or means more than one thing"

    def __init__(self, kind: str, name: str, suggestions: Sequence[str] = (), hint: str | Sequence[str] = "") -> None:
        self.kind: str = kind
        self.name: str = name
        self.suggestions: tuple[str, ...] = tuple(suggestions)
        if not hint and self.suggestions:
            hint = "did you mean " + " or ".join(repr(each) for each in self.suggestions[:4]) + "?"
        super().__init__(f"no {kind} named {_short(name)!r}", hint)


class NotInstalledError(UnknownNameError):
    """A target that is no file and no folder, and is not installed either."""

    def __init__(self, name: str, env: str | Path) -> None:
        short = _short(name)
        hint = f"from your index: {short}==VERSION; which release runs on a GPU: cuwheel find {short} --on h100"
        is_name = name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        super().__init__("file, folder or installed distribution", name, hint=hint if is_name else "")
        self.lines = (f"{short} is not installed in {env}, and there is no file or folder of that name",)


class AmbiguousNameError(UnknownNameError):
    """The name fits several rows that differ in what matters."""

    def __init__(self, kind: str, name: str, candidates: Sequence[str]) -> None:
        super().__init__(kind, name, candidates, hint="say which: " + ", ".join(candidates))
        self.lines = (f"{_short(name)!r} names more than one {kind}",)


def _too_long(path: str) -> str:
    """Windows says of such a path that it is not there, unless it was told otherwise."""
    if os.name != "nt" or path.startswith("\\\\?\\") or len(full := os.path.abspath(path)) <= _WINDOWS_LONGEST:  # noqa: PTH100
        return ""
    switch = "reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled /t REG_DWORD /d 1 /f"
    return f"its path has {len(full)} characters, and Windows opens more than {_WINDOWS_LONGEST} only after: {switch}"


class UnreadableError(CuwheelError):
    exit_code = 4
    meaning = "a file or folder is missing, or cannot be read or written"

    def __init__(self, path: str | Path, reason: str, hint: str = "") -> None:
        self.path: str = str(path)
        self.problem: str = reason
        super().__init__(f"{path}: {reason}", "; ".join(filter(None, (hint, _too_long(self.path)))))

    @classmethod
    def from_os(cls, error: OSError, path: str | Path | None = None, hint: str = "") -> UnreadableError:
        return cls(path or error.filename or "?", error.strerror or str(error), hint)


class MalformedError(CuwheelError):
    exit_code = 5
    meaning = "a file is not what it should be: damaged, cut short, or of another kind"

    def __init__(self, path: str | Path, problem: str | Sequence[str], hint: str = "") -> None:
        first, *more = (problem,) if isinstance(problem, str) else problem
        self.path: str = str(path)
        self.problem: str = "\n".join((first, *more))
        super().__init__((f"{path}: {first}", *more), hint)


class NewerSchemaError(CuwheelError):
    exit_code = 6
    meaning = "a file was written by a newer cuwheel than this one"

    def __init__(self, path: str | Path, found: str, known: str) -> None:
        super().__init__(
            f"{path} has schema {found}, but this cuwheel only knows {known}",
            hint="upgrade it: pip install --upgrade cuwheel",
        )


class ToolError(CuwheelError):
    exit_code = 7
    meaning = "a program that cuwheel runs is missing or failed"

    def __init__(self, command: Sequence[str], problem: str, output: str = "", hint: str = "") -> None:
        self.command: tuple[str, ...] = tuple(command)
        self.output: str = output
        tail = (f"  | {line}" for line in output.strip().splitlines()[-20:])
        super().__init__((f"{command[0]} {problem}", *tail), hint)


class NotStartedError(ToolError):
    """As shells say it: `record`, `record replay` and `trace` end as the command that they run."""

    exit_code = 127
    meaning = "the command that was to be run could not be started"


class ToolTimeoutError(CuwheelError):
    exit_code = 8
    meaning = "a program that cuwheel runs did not answer in time and was stopped"

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        super().__init__(f"{command[0]} did not answer within {seconds:g} s and was stopped")


class NetworkError(CuwheelError):
    exit_code = 9
    meaning = "a download failed, or delivered the wrong file"

    def __init__(self, url: str, problem: str, hint: str = "") -> None:
        super().__init__(f"{url}: {problem}", hint)


class FactsError(CuwheelError):
    exit_code = 10
    meaning = "cuwheel's own tables contradict themselves (a bug, or files that were edited)"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(_listed("the tables of facts are inconsistent:", self.problems), hint="reinstall cuwheel")


class UnavailableError(CuwheelError):
    exit_code = 11
    meaning = "no provider has the requested CUDA toolkit"


class NoHostCompilerError(CuwheelError):
    exit_code = 12
    meaning = "no host compiler was found that this nvcc accepts"


class UnsafeWheelError(CuwheelError):
    exit_code = 13
    meaning = "a wheel may do harm: names that leave its folder, overlapping members, a zip bomb"

    def __init__(self, path: str | Path, problems: Sequence[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(
            _listed(f"{path} is not safe to read or to install:", self.problems, _SHOWN),
            hint="do not install this wheel; download it again from its publisher",
        )


class MissingExtraError(CuwheelError):
    exit_code = 14
    meaning = "an extra of cuwheel is not installed, such as `cuwheel[build]`"

    def __init__(self, missing: Sequence[str], purpose: str, extra: str) -> None:
        self.missing: tuple[str, ...] = tuple(missing)
        self.extra: str = extra
        names = " and ".join(filter(None, (", ".join(self.missing[:-1]), self.missing[-1])))
        verb, them = ("is", "it") if len(self.missing) == 1 else ("are", "them")
        super().__init__(
            f"{names} {verb} not installed, and {purpose} needs {them}", hint=f'pip install "cuwheel[{extra}]"'
        )
