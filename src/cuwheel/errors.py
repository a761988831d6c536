"""Every failure cuwheel reports: one class for each kind, one exit code for each class.

An error takes the facts and composes its own message: what happened and why. `hint` is the next
thing to do, ready to copy. `cli.main` is the only place that catches them for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel_core.errors import CuwheelError, UnknownNameError, bulleted, shortened

if TYPE_CHECKING:
    from cuwheel_core.errors import Hint

EXIT_OK = 0
EXIT_NO = 1
EXIT_UNKNOWN = 15  # of `check`, `find` and `install --dry-run`: nobody can tell, which is not yes
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
_SHOWN = 5
_MOST_PROBLEMS = 100
MOST_SOUGHT = 1000  # problems of one file, after which nobody looks for more


class UsageError(CuwheelError):
    exit_code = 2
    meaning = "the command line or a configuration file is wrong"


class ConfigurationError(UsageError):
    """A file that a person wrote. All its problems at once, never one a run."""

    def __init__(self, path: str | Path, problems: Sequence[str], hint: Hint = "") -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        count = "one problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        least = "at least " if len(self.problems) == MOST_SOUGHT else ""  # where the search ended
        super().__init__(bulleted(f"{path} has {least}{count}:", self.problems, _MOST_PROBLEMS), hint)


class NotInstalledError(UnknownNameError):
    """A target that is no file and no folder, and is not installed either."""

    def __init__(self, name: str, env: str | Path) -> None:
        short = shortened(name)
        from cuwheel_core.fix import Fix  # noqa: PLC0415 - most runs end without an error

        hint = Fix.run(
            "cuwheel find", short, "--on", "h100", text=f"from your index: {short}==VERSION; which one runs on a GPU"
        )
        is_name = name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        super().__init__("file, folder or installed distribution", name, hint=hint if is_name else "")
        self.lines = (f"{short} is not installed in {env}, and there is no file or folder of that name",)


class NewerSchemaError(CuwheelError):
    exit_code = 6
    meaning = "a file was written by a newer cuwheel than this one"

    def __init__(self, path: str | Path, found: str, known: str) -> None:
        from cuwheel_core.fix import Fix  # noqa: PLC0415 - most runs end without an error

        super().__init__(
            f"{path} has schema {found}, but this cuwheel only knows {known}",
            hint=Fix.run("pip install --upgrade cuwheel", text="upgrade it", changes=("package",)),
        )


class ToolError(CuwheelError):
    exit_code = 7
    meaning = "a program that cuwheel runs is missing or failed"

    def __init__(self, command: Sequence[str], problem: str, output: str = "", hint: Hint = "") -> None:
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

    def __init__(self, url: str, problem: str, hint: Hint = "") -> None:
        super().__init__(f"{url}: {problem}", hint)


class UnavailableError(CuwheelError):
    exit_code = 11
    meaning = "no provider has the requested CUDA toolkit"


class NoHostCompilerError(CuwheelError):
    exit_code = 12
    meaning = "no host compiler was found that this nvcc accepts"


class MissingExtraError(CuwheelError):
    exit_code = 14
    meaning = "an extra of cuwheel is not installed, such as `cuwheel[build]`"

    def __init__(self, missing: Sequence[str], purpose: str, extra: str) -> None:
        from cuwheel_core.fix import Fix  # noqa: PLC0415 - most runs end without an error

        self.missing: tuple[str, ...] = tuple(missing)
        self.extra: str = extra
        names = " and ".join(filter(None, (", ".join(self.missing[:-1]), self.missing[-1])))
        verb, them = ("is", "it") if len(self.missing) == 1 else ("are", "them")
        super().__init__(
            f"{names} {verb} not installed, and {purpose} needs {them}",
            hint=Fix.run("pip install", f"cuwheel[{extra}]", changes=("package",)),
        )
