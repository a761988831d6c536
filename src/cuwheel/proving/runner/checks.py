"""One check: the variables that it sees, run apart in a process of its own, and judged.

A check is a mapping, as JSON has it: `name`; `kind` (`import`, `command`, `python`); `text` (the module, the words of
the command, the snippet); `expect` and `forbid` (texts); `status`; `number` and `tolerance`; `gpu` and `capabilities`;
`timeout` in seconds; `memory` in bytes; `environment`; `program` (that must be on PATH). All but the first three may be
left out.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import secrets
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Optional

from . import child
from .output import Capture

# What would lead a check out of its environment, or change what Python does in it: -O takes its asserts away.
_LED_ASTRAY = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONOPTIMIZE",
    "PYTHONINSPECT",
    "__PYVENV_LAUNCHER__",
)
# Settings for text, time, processors and GPUs: every check needs them, and none is private.
LET_THROUGH = (
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "NO_COLOR", "CUWHEEL_CHECK"),
    *("LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "CUDNN_*", "CUBLAS_*", "CUPY_*", "BNB_*"),
    *("JAX_*", "XLA_*", "TF_*", "TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*"),
    *("OMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "BLIS_*"),
)
_SYSTEM = importlib.import_module(f"{__name__.partition('.')[0]}.support.system_calls")  # of cuwheel, or of the kit
_NOBODY = "cuwheel"  # some packages ask for the user's name and fail without one


def without_python_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _LED_ASTRAY}


def confined_variables(
    environ: Mapping[str, str],
    folder: Path,
    scratch: Path,
    *,
    passed: Iterable[str] = (),
    is_secret: Callable[[str], bool] = lambda _: False,
) -> dict[str, str]:
    """`folder`: of the environment. `scratch`: where its home and its temporary files are. `passed`: more names.

    LD_LIBRARY_PATH is kept: the driver may lie there. `is_secret`: names that go through only if they are asked for.
    """
    home, temporary = scratch / "home", scratch / "tmp"
    for each in (home, temporary):
        each.mkdir(parents=True, exist_ok=True)
    wanted = set(passed)
    through = (*LET_THROUGH, *_SYSTEM.NEEDED_VARIABLES)
    let = {
        name: value
        for name, value in without_python_variables(environ).items()
        if name in wanted or (any(fnmatchcase(name, each) for each in through) and not is_secret(name))
    }
    # An empty entry of PATH would mean the current folder.
    path = [str(folder / ("Scripts" if os.name == "nt" else "bin")), *filter(None, [environ.get("PATH", os.defpath)])]
    own = {
        **_SYSTEM.home_variables(home, temporary),
        **dict.fromkeys(("USER", "USERNAME") if os.name == "nt" else ("USER",), _NOBODY),
        "LOGNAME": _NOBODY,
        "PATH": os.pathsep.join(path),
        "VIRTUAL_ENV": str(folder),
        "PYTHONNOUSERSITE": "1",
    }
    return {**own, **let}


# A question to Python is a few lines, run apart: a driver may hang or crash.

_LIMITS = child.Limits(seconds=120.0, memory=8 << 30, guarded=False)
_ANSWER = "cuwheel "  # before it: other things print, too
ASK_DRIVER = """\
import ctypes, json, os
cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
status = cuda.cuInit(0)
number, gpus = ctypes.c_int(), []
found = {"status": status, "cuda": None, "gpus": gpus}
if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
    found["cuda"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
if status == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    for index in range(number.value):
        device, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
        memory, capability = ctypes.c_size_t(0), []
        if cuda.cuDeviceGet(ctypes.byref(device), index):
            continue
        cuda.cuDeviceGetName(name, 256, device)
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            capability.append(str(value.value))
        if hasattr(cuda, "cuDeviceTotalMem_v2"):
            cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        gpus.append({"name": name.value.decode("utf-8", "replace"), "capability": ".".join(capability),
                     "memory": memory.value})
print("cuwheel " + json.dumps(found))
"""


def ask(question: str, python: str, environ: Mapping[str, str], *, cut: bool = False) -> dict[str, Any]:
    """The answer of a few lines of Python; nothing where they do not come to their end."""
    for line in reversed(printed([python, "-c", question], environ, cut=cut).splitlines()):
        if line.startswith(_ANSWER):
            try:
                answer = json.loads(line[len(_ANSWER) :])
            except ValueError:
                return {}
            return answer if isinstance(answer, dict) else {}
    return {}


def printed(words: Sequence[str], environ: Mapping[str, str], *, cut: bool = False) -> str:
    capture = Capture(())
    with tempfile.TemporaryDirectory() as folder:
        end = child.run_command(words, environ, folder, _LIMITS._replace(cut=cut), capture, secrets.token_hex(16))
    return capture.whole.text() if end.status == 0 else ""


def visible_capabilities(python: str, environ: Mapping[str, str], *, cut: bool = False) -> tuple[str, ...]:
    """The capabilities of the GPUs that a program started now would see, such as `9.0`; none without a driver."""
    gpus = ask(ASK_DRIVER, python, environ, cut=cut).get("gpus")
    rows = [each for each in gpus if isinstance(each, dict)] if isinstance(gpus, list) else []
    found = (str(each.get("capability")) for each in rows)
    return tuple(each for each in found if re.fullmatch(r"\d+\.\d+", each))


# The Python that a check runs in its own process. It proves that it came to its end: a status of 0 alone does not. The
# proof is a word in a file, written by the process that was started and by no fork of it.
_COMMON = """\
import json, os, sys
_proof, _word, _what = sys.argv[1:4]
sys.argv[1:] = []
_pid = os.getpid()
def _done(**fields):
    if os.getpid() == _pid:
        with open(_proof + ".part", "w") as file:
            json.dump(dict(fields, word=_word), file)
        os.replace(_proof + ".part", _proof)
"""

_IMPORT = """\
import importlib
_module = importlib.import_module(_what)
sys.stdout.flush()
_done(file=str(getattr(_module, "__file__", None) or ""), version=str(getattr(_module, "__version__", "") or ""))
"""

# A SystemExit that the snippet itself raises is its end; one from inside something that it imports is not.
_SNIPPET = """\
try:
    exec(compile(_what, "<check>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
except SystemExit as _exit:
    _last = _exit.__traceback__
    while _last.tb_next:
        _last = _last.tb_next
    if _last.tb_frame.f_code.co_filename == "<check>":
        sys.stdout.flush()
        _done()
    raise
sys.stdout.flush()
_done()
"""

_PROGRAMS = {"import": _COMMON + _IMPORT, "python": _COMMON + _SNIPPET}
_MOST_PROOF = 1 << 16


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


def run_check(
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
    if tracer and capabilities:
        from . import loaded  # noqa: PLC0415 - few have a GPU

        seen = Path(folder).absolute() / ".loaded"
        environ = {**environ, **loaded.tracing_variables(tracer, seen, environ)}
        result = _run(check, python, environ, folder, capabilities, cut=cut)
        result["loaded"] = loaded.read_loaded(seen, environ.get("VIRTUAL_ENV", ""))
    else:
        result = {**_run(check, python, environ, folder, capabilities, cut=cut), "loaded": []}
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
    end = child.run_command(words, environ, str(place), limits, capture, word)
    proof_of_end = _proof_of_end(proof, word)
    proof.unlink(missing_ok=True)
    outcome, problem = _judge(check, end, proof_of_end, capture, limits)
    return _result(check, outcome, problem=problem, end=end, capture=capture, report=proof_of_end)


def _words(check: Mapping[str, Any], python: str, proof: Path, word: str) -> list[str]:
    text = str(check.get("text", ""))
    if check["kind"] != "command":
        # `-X faulthandler`: a crash then names the line of Python that it happened in.
        return [python, "-X", "faulthandler", "-u", "-c", _PROGRAMS[check["kind"]], str(proof), word, text]
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""  # C:\\a is no C:a
    words = list(lexer)
    if not words:
        raise ValueError("it is empty")
    return [python, *words[1:]] if words[0] in ("python", "python3") else words


def _proof_of_end(proof: Path, word: str) -> Optional[dict[str, Any]]:
    """What the process of the check wrote at its end, or None if it did not get there."""
    try:
        with proof.open("rb") as file:
            content = json.loads(file.read(_MOST_PROOF))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("word") == word else None


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
    visible = visible_capabilities(python, environ, cut=cut) if capabilities is None else capabilities
    if not visible:
        return "needs a GPU, but this machine has none"
    if wanted and not set(wanted) & set(visible):
        return (
            f"needs a GPU of capability {' or '.join(wanted)}, but this machine has {', '.join(dict.fromkeys(visible))}"
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
        number = -(status or 0)
        words = f"ended by {signal_name(number) or f'signal {number}'}"
        if report is not None:
            words += ", after the end of " + ("the import" if check["kind"] == "import" else "the snippet")
        if number == signal.SIGKILL:
            words += "; cuwheel did not send it: often the kernel does, when memory runs out"
        return "crashed", words
    if status != wanted:
        text = capture.whole.text()
        if limits.guarded and text.rstrip().rpartition("\n")[2].startswith(_REFUSED):
            return "memory", f"asked for more memory than its limit of {_gigabytes(limits.memory)}"
        name = signal_name(status - _STATUS_OF_SIGNAL)
        if check["kind"] == "command" and name:
            return "crashed", f"ended with status {status}, which is how a shell reports {name}"
        expected = f" and not {check['status']}" if check.get("status") else ""
        return "failed", f"ended with status {status}{expected}{_last_line(text)}"
    return _answer(check, end, report, capture)


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
