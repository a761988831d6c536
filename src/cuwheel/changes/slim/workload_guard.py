"""Says, when something fails, that this environment was cut to a workload: libraries' own messages do not.

Written by `cuwheel slim --used`, together with a .pth file that calls it; `cuwheel slim --undo` removes both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # what is imported at every start is kept short
    from types import TracebackType
    from typing import Any, TypeAlias

    Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]

# >>> data
COMMANDS = ""
WAY_BACK = "undo: cuwheel slim --undo"
# <<< data
# What CUDA and its libraries say where code is missing.
SIGNS = (
    "no kernel image",
    "device kernel image is invalid",
    "named symbol not found",
    "invalid device function",
    "nable to find an engine",
    "CUDNN_STATUS_",
    "CUBLAS_STATUS_",
    "CUSOLVER_STATUS_",
    "CUSPARSE_STATUS_",
    "CUFFT_",
    "CURAND_STATUS_",
    "NCCL error",
    "cudaErrorNoKernelImageForDevice",
    "cudaErrorInvalidDeviceFunction",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "CUDA_ERROR_NOT_FOUND",
    "CUDA_ERROR_INVALID_IMAGE",
)
_LONGEST = 20000
_TOOLS = (4, 3)  # ids that no debugger, profiler or coverage has


def words() -> str:
    return (
        f"cuwheel: this environment was cut to a workload ({COMMANDS}); what just failed may be outside of it.\n"
        "cuwheel: trace again with this included (cuwheel trace -o more.json -- COMMAND) and slim anew, "
        f"or {WAY_BACK}"
    )


def concerns(error: BaseException) -> bool:
    """Whether an error may come from code that was cut, nobody has said so yet, and the environment is still cut."""
    if not isinstance(error, RuntimeError) or words() in getattr(error, "__notes__", ()):
        return False
    text = str(error)[:_LONGEST]
    return any(sign in text for sign in SIGNS) and _still_cut()


def _still_cut() -> bool:
    notes = Path(__file__).parent.glob("*.dist-info/cuwheel-slim.json")
    return any(b'"workload": [' in note.read_bytes() for note in notes)


def _raised(_code: object, _offset: int, error: BaseException) -> None:
    """At the moment when it is raised, so that whoever shows it (pytest, a notebook, a log) shows this too."""
    try:
        if concerns(error):
            error.add_note(words())  # type: ignore[attr-defined,unused-ignore]
    except Exception:  # noqa: BLE001, S110 - nothing here may disturb a program
        pass


def _at_the_end(before: Hook) -> Hook:
    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        try:
            if concerns(error):
                sys.stderr.write(f"{words()}\n")
        except Exception:  # noqa: BLE001, S110
            pass

    return excepthook


def watch() -> None:
    """Watches for errors by the interpreter's own events where it has them (3.12), else when one ends the program."""
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in _TOOLS if monitoring else ():
        try:
            monitoring.use_tool_id(tool, "cuwheel")
        except ValueError:
            continue
        monitoring.register_callback(tool, monitoring.events.RAISE, _raised)
        monitoring.set_events(tool, monitoring.events.RAISE)
        return
    sys.excepthook = _at_the_end(sys.excepthook)
