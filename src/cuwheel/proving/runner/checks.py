"""One check: run apart, and judged.

A check is a mapping, as JSON has it: `name`; `kind` (`import`, `command`, `python`); `text` (the module, the words of
the command, the snippet); `expect` and `forbid` (texts); `status`; `number` and `tolerance`; `gpu` and `capabilities`;
`timeout` in seconds; `memory` in bytes; `environment`; `program` (that must be on PATH). All but the first three may be
left out.
"""

from __future__ import annotations

import math
import os
import secrets
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from . import boot, child, gpus, loaded
from .capture import Capture

KINDS = ("import", "command", "python")
TIMEOUT_S = 120.0
MEMORY = 8 * 10**9
_OURS = ("kind", "outcome", "signal")
_STATUS_OF_SIGNAL = 128  # what a shell adds to the number of the signal that its command died of
# A program of Windows that crashes ends with the number of its exception, from this one on.
_WORST_OF_WINDOWS = 0xC0000000
_ENDS_OF_WINDOWS = {
    0xC0000005: "an access violation",
    0xC000001D: "an illegal instruction",
    0xC0000094: "a division by zero",
    0xC00000FD: "a stack overflow",
    0xC0000135: "a DLL that was not found",
    0xC0000139: "a function that its DLL does not have",
    0xC000013A: "Ctrl-C",
    0xC0000142: "a DLL that could not start",
    0xC0000374: "a damaged heap",
    0xC0000409: "abort()",
}
# What programs say when the kernel refuses them memory.
_REFUSED = ("MemoryError", "std::bad_alloc", "Cannot allocate memory")


def run(
    check: Mapping[str, Any],
    python: str,
    environ: Mapping[str, str],
    folder: str | os.PathLike[str],
    *,
    capabilities: Optional[Sequence[str]] = None,
    cut: bool = False,
    hide: Callable[[str], str] = str,
    tracer: Optional[str] = None,
) -> dict[str, Any]:
    """Run a check with an environment's interpreter in a scratch folder; never raises for what the check does.

    `capabilities`: of the GPUs there, if the caller knows; else they are asked for when a check needs one.
    `cut`: off the network. `hide`: makes secrets unreadable in all that is kept of what it printed. `tracer`: the
    library that sees what its programs load on a GPU.
    """
    seen = Path(folder).absolute() / ".loaded" if tracer and capabilities else None
    if tracer and seen:
        environ = {**environ, **loaded.variables(tracer, seen, environ)}
    result = _run(check, python, environ, folder, capabilities, cut=cut)
    result["loaded"] = loaded.read(seen, environ.get("VIRTUAL_ENV", "")) if seen else []
    return {key: hide(value) if isinstance(value, str) and key not in _OURS else value for key, value in result.items()}


def _run(
    check: Mapping[str, Any],
    python: str,
    environ: Mapping[str, str],
    folder: str | os.PathLike[str],
    capabilities: Optional[Sequence[str]],
    *,
    cut: bool,
) -> dict[str, Any]:
    if check.get("kind") not in KINDS:
        return _result(check, "failed", problem=f"unknown kind of check: {check.get('kind')!r}")
    why = _skipped(check, python, environ, capabilities, cut=cut)
    if why:
        return _result(check, "skipped", problem=why)
    place = Path(folder).absolute()
    place.mkdir(parents=True, exist_ok=True)
    environ = {**environ, **{str(key): str(value) for key, value in (check.get("environment") or {}).items()}}
    proof, word = place / f".proof-{secrets.token_hex(4)}", secrets.token_hex(16)
    try:
        words = _words(check, python, proof, word)
    except ValueError as error:
        return _result(check, "failed", problem=f"the command cannot be split into words: {error}")
    capture = Capture([*check.get("expect", ()), *check.get("forbid", ())])
    limits = child.Limits(
        seconds=float(check.get("timeout") or TIMEOUT_S),
        memory=int(check.get("memory") or MEMORY),
        guarded=not (check.get("gpu") or capabilities),
        cut=cut,
    )
    end = child.run(words, environ, str(place), limits, capture, word)
    proof_of_end = boot.proved(proof, word)
    proof.unlink(missing_ok=True)
    outcome, problem = _judge(check, end, proof_of_end, capture, limits)
    return _result(check, outcome, problem=problem, end=end, capture=capture, report=proof_of_end)


def _words(check: Mapping[str, Any], python: str, proof: Path, word: str) -> list[str]:
    text = str(check.get("text", ""))
    if check["kind"] != "command":
        return boot.words(python, check["kind"], text, proof, word)
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""  # C:\\a is no C:a
    words = list(lexer)
    if not words:
        raise ValueError("it is empty")
    return [python, *words[1:]] if words[0] in ("python", "python3") else words


def _skipped(
    check: Mapping[str, Any],
    python: str,
    environ: Mapping[str, str],
    capabilities: Optional[Sequence[str]],
    *,
    cut: bool,
) -> str:
    program = str(check.get("program") or "")
    if program and shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
        return f"needs {program}, which is not on PATH here"
    wanted = [str(each) for each in check.get("capabilities") or ()]
    if not (check.get("gpu") or wanted):
        return ""
    there = gpus.seen(python, environ, cut=cut) if capabilities is None else capabilities
    if not there:
        return "needs a GPU, but this machine has none"
    if wanted and not set(wanted) & set(there):
        return (
            f"needs a GPU of capability {' or '.join(wanted)}, but this machine has {', '.join(dict.fromkeys(there))}"
        )
    return ""


def _judge(
    check: Mapping[str, Any], end: child.End, report: Optional[dict[str, Any]], capture: Capture, limits: child.Limits
) -> tuple[str, str]:
    """What became of it, and the words for that: the gravest thing first."""
    if end.error:
        return "failed", f"could not be started: {end.error}"
    if end.stopped == "timeout":
        return "timeout", f"did not end within {limits.seconds:g} s and was stopped"
    if end.stopped == "memory":
        return "memory", f"took {_gigabytes(end.memory)}, allowed is {_gigabytes(limits.memory)}; it was stopped"
    if end.stopped == "processes":
        return "failed", "started more and more processes and was stopped"
    status = end.status
    wanted = int(check.get("status") or 0)
    if status is not None and status >= _WORST_OF_WINDOWS:
        return "crashed", f"ended by {_ENDS_OF_WINDOWS.get(status, 'an exception')} (0x{status:08X})"
    if status is None or status < 0:
        return "crashed", _signal_words(-(status or 0), check, finished=report is not None)
    if status != wanted:
        return _other_status(check, status, capture, limits)
    return _answer(check, end, report, capture)


def _other_status(check: Mapping[str, Any], status: int, capture: Capture, limits: child.Limits) -> tuple[str, str]:
    text = capture.whole.text()
    if limits.guarded and text.rstrip().rpartition("\n")[2].startswith(_REFUSED):
        return "memory", f"asked for more memory than its limit of {_gigabytes(limits.memory)}"
    name = signal_name(status - _STATUS_OF_SIGNAL)
    if check["kind"] == "command" and name:
        return "crashed", f"ended with status {status}, which is how a shell reports {name}"
    expected = f" and not {check['status']}" if check.get("status") else ""
    return "failed", f"ended with status {status}{expected}{_last_line(text)}"


def _answer(
    check: Mapping[str, Any], end: child.End, report: Optional[dict[str, Any]], capture: Capture
) -> tuple[str, str]:
    """It ended as it should: whether it did and printed what it should."""
    if check["kind"] != "command" and report is None and not check.get("status"):
        what = "the import was" if check["kind"] == "import" else "the snippet was"
        return "failed", f"ended with status 0 before {what} done: something in it ended the process"
    found = capture.found()
    problems = [f"did not print {text!r}" for text in check.get("expect", ()) if text not in found]
    problems += [f"printed {text!r}" for text in check.get("forbid", ()) if text in found]
    problems += number_problem(check, capture)
    if end.leftovers:
        many = "a process" if len(end.leftovers) == 1 else f"{len(end.leftovers)} processes"
        problems.append(f"left {many} running, stopped now: {', '.join(end.leftovers[:4])}")
    return ("failed", "; ".join(problems)) if problems else ("passed", "")


def number_problem(check: Mapping[str, Any], capture: Capture) -> list[str]:
    wanted = check.get("number")
    if wanted is None:
        return []
    number = capture.last_number()
    tolerance = float(check.get("tolerance") or 0.0)
    if number is None:
        return [f"printed no number, expected {wanted:g}"]
    if number == wanted or (math.isfinite(number) and abs(number - wanted) <= tolerance):
        return []
    return [f"printed {number:g}, expected {wanted:g}" + (f" within {tolerance:g}" if tolerance else "")]


def _signal_words(number: int, check: Mapping[str, Any], *, finished: bool) -> str:
    words = f"ended by {signal_name(number) or f'signal {number}'}"
    if finished:
        words += ", after the end of " + ("the import" if check["kind"] == "import" else "the snippet")
    if number == signal.SIGKILL:
        words += "; cuwheel did not send it: often the kernel does, when memory runs out"
    return words


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _last_line(text: str) -> str:
    """Python's own last line says what was raised."""
    last = text.rstrip().rpartition("\n")[2].strip()
    return f": {last[:300]}" if last else ""


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2g} GB" if count >= 10**8 else f"{count / 1e6:.2g} MB"


def _result(
    check: Mapping[str, Any],
    outcome: str,
    *,
    problem: str = "",
    end: Optional[child.End] = None,
    capture: Optional[Capture] = None,
    report: Optional[Mapping[str, Any]] = None,
) -> dict[str, Any]:
    status = end.status if end else None
    return {
        "name": str(check.get("name", "")),
        "kind": str(check.get("kind", "")),
        "outcome": outcome,
        "problem": problem,
        "seconds": round(end.seconds, 3) if end else 0.0,
        "status": status if status is None or status >= 0 else None,
        "signal": signal_name(-status) if status is not None and status < 0 else "",
        "memory": end.memory if end else 0,
        "output": capture.whole.text() if capture else "",
        "output_bytes": capture.whole.total if capture else 0,
        "left": list(end.leftovers) if end else [],
        "file": str((report or {}).get("file", "")),
        "version": str((report or {}).get("version", "")),
    }
