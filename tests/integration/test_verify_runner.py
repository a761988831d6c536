"""Checks that crash, hang, eat memory, flood, fork and lie: each a result, and nothing of them is left."""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cuwheel.proving import kit as kit_stage
from cuwheel.proving import runner
from cuwheel.proving.runner import checks
from tests.fixtures.small_wheel import library

ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
RUNNER = Path(runner.__file__).parent


def run(folder: Path, kind: str, text: str, **more: Any) -> dict[str, Any]:
    check = {"name": "it", "kind": kind, "text": text, "timeout": 30, **more}
    return checks.run_check(check, sys.executable, {**ENVIRON, "PYTHONPATH": str(folder)}, folder / "scratch")


def imported(folder: Path, text: str, **more: Any) -> dict[str, Any]:
    (folder / "subject.py").write_text(text)
    return run(folder, "import", "subject", **more)


def test_an_import_says_what_was_imported(tmp_path: Path) -> None:
    result = imported(tmp_path, "__version__ = '1.2'\nprint('hello')")
    assert (result["outcome"], result["problem"], result["status"], result["signal"]) == ("passed", "", 0, "")
    assert (result["file"], result["version"]) == (str(tmp_path / "subject.py"), "1.2")
    assert result["output"] == "hello\n"
    assert not list((tmp_path / "scratch").iterdir())  # no proof is left lying about


def test_an_import_that_raises(tmp_path: Path) -> None:
    result = imported(tmp_path, "raise ImportError('libfoo.so.1: cannot open shared object file')")
    assert (result["outcome"], result["status"]) == ("failed", 1)
    assert result["problem"] == "ended with status 1: ImportError: libfoo.so.1: cannot open shared object file"


def test_a_segmentation_fault_names_its_signal_and_its_line(tmp_path: Path) -> None:
    result = imported(tmp_path, "import ctypes\nctypes.string_at(0)")
    assert (result["outcome"], result["signal"], result["status"]) == ("crashed", "SIGSEGV", None)
    assert result["problem"] == "ended by SIGSEGV"
    assert 'subject.py", line 2' in result["output"]


def test_a_crash_behind_the_import_is_told_apart(tmp_path: Path) -> None:
    result = imported(tmp_path, "import atexit, os\natexit.register(os.abort)")
    assert (result["outcome"], result["problem"]) == ("crashed", "ended by SIGABRT, after the end of the import")


@pytest.mark.parametrize("ending", ["import os; os._exit(0)", "import sys; sys.exit()", "raise SystemExit"])
def test_a_status_of_0_is_no_import(tmp_path: Path, ending: str) -> None:
    result = imported(tmp_path, ending)
    assert (result["outcome"], result["status"]) == ("failed", 0)
    assert "before the import was done" in result["problem"]


def test_a_forked_child_does_not_prove_for_its_parent(tmp_path: Path) -> None:
    result = imported(tmp_path, "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    os._exit(0)")
    assert result["outcome"] == "failed"
    assert "before the import was done" in result["problem"]


def test_a_hang_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    text = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        "two = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
        f"open({str(told)!r}, 'w').write(f'{{one.pid}} {{two.pid}} {{os.getpid()}}')\n"
        "time.sleep(3600)\n"
    )
    for seconds in (1.5, 60.5):  # on a busy machine it had not begun in that time
        result = imported(tmp_path, text, timeout=seconds)
        assert (result["outcome"], result["status"]) == ("timeout", None)
        assert result["problem"] == f"did not end within {seconds} s and was stopped"
        if told.exists():
            break
    assert not [pid for pid in told.read_text().split() if _alive(int(pid))]


def test_a_process_that_outlives_the_check_is_named_and_ended(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    text = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open({str(told)!r}, 'w').write(str(os.getpid()))\n"
        "        time.sleep(3600)\n"
        "    os._exit(0)\n"
        f"while not os.path.exists({str(told)!r}): time.sleep(0.01)\n"
    )
    began = time.monotonic()
    result = imported(tmp_path, text)
    assert time.monotonic() - began < 600
    assert result["outcome"] == "failed"
    assert result["problem"].startswith("left a process running, stopped now: python")
    assert not _alive(int(told.read_text()))


def test_what_ends_by_itself_a_moment_later_is_nobodys_fault(tmp_path: Path) -> None:
    result = imported(tmp_path, "import subprocess; subprocess.Popen(['sleep', '0.3'])")
    assert (result["outcome"], result["left"]) == ("passed", [])


def test_memory_is_limited_over_all_processes(tmp_path: Path) -> None:
    text = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0: break\n"
        "kept = bytearray(os.urandom(1) * 60_000_000)\n"
        "time.sleep(20)\n"
    )
    result = imported(tmp_path, text, memory=150_000_000)
    assert result["outcome"] == "memory"
    assert result["memory"] > 150_000_000
    assert result["problem"].endswith("allowed is 0.15 GB; it was stopped")


def test_memory_beyond_the_guard_is_refused(tmp_path: Path) -> None:
    result = imported(tmp_path, "kept = bytearray(1 << 40)", memory=1_000_000_000)
    assert result["outcome"] == "memory"
    assert result["problem"] == "asked for more memory than its limit of 1 GB"
    # A GPU's address space is far larger than its memory: such checks are only watched.
    roomy = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
    check = {"name": "it", "kind": "python", "text": roomy, "gpu": True, "number": float(resource.RLIM_INFINITY)}
    result = checks.run_check(check, sys.executable, ENVIRON, tmp_path, capabilities=["9.0"])
    assert (result["outcome"], result["output"]) == ("passed", f"{resource.RLIM_INFINITY}\n")


def test_megabytes_of_output_are_cut_and_yet_searched(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = (
        "import sys\nprint('the beginning')\n"
        "for at in range(60): sys.stdout.write('x' * 1_000_000 + ('needle' if at == 30 else ''))\n"
        "print('the end')"
    )
    result = imported(tmp_path, text, expect=["needle", "the end"], forbid=["hay"])
    assert (result["outcome"], result["problem"]) == ("passed", "")
    assert result["output_bytes"] > 60_000_000
    assert len(result["output"]) < 40_000
    assert result["output"].startswith("the beginning")
    assert result["output"].endswith("the end\n")
    assert "bytes left out" in result["output"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # kB


def test_printing_without_end_is_a_hang(tmp_path: Path) -> None:
    result = imported(tmp_path, "while True: print('y' * 100_000)", timeout=1)
    assert result["outcome"] == "timeout"
    assert len(result["output"]) < 40_000


def test_garbage_is_made_fit_to_show_and_to_keep(tmp_path: Path) -> None:
    text = "import os; os.write(1, bytes(range(256)) + b'\\x1b[2J\\x1b]0;title\\x07 end\\n')"
    result = imported(tmp_path, text)
    assert result["outcome"] == "passed"
    assert json.loads(json.dumps(result)) == result
    assert not set(result["output"]) & {chr(code) for code in (*range(9), *range(11, 32), 127, 0x9B)}


def test_expected_and_forbidden_texts(tmp_path: Path) -> None:
    result = run(
        tmp_path, "python", "import sys; print('good'); print('bad', file=sys.stderr)", expect=["best"], forbid=["bad"]
    )
    assert (result["outcome"], result["problem"]) == ("failed", "did not print 'best'; printed 'bad'")


@pytest.mark.parametrize(
    ("printed", "outcome", "problem"),
    [
        ("step 1: 0.5009", "passed", ""),
        ("0.5 then 0.502", "failed", "printed 0.502, expected 0.5 within 0.001"),
        ("nan", "failed", "printed nan, expected 0.5 within 0.001"),
        ("none", "failed", "printed no number, expected 0.5"),
    ],
)
def test_the_last_number(tmp_path: Path, printed: str, outcome: str, problem: str) -> None:
    snippet = f"import sys; print({printed!r}); print('of stderr: 7', file=sys.stderr)"
    result = run(tmp_path, "python", snippet, number=0.5, tolerance=0.001)
    assert (result["outcome"], result["problem"]) == (outcome, problem)


def test_a_snippet_may_end_itself_but_nothing_that_it_imports_may(tmp_path: Path) -> None:
    (tmp_path / "quitter.py").write_text("import sys; sys.exit(0)")
    assert run(tmp_path, "python", "import sys; sys.exit(0)")["outcome"] == "passed"
    assert "before the snippet was done" in run(tmp_path, "python", "import quitter")["problem"]
    assert run(tmp_path, "python", "raise SystemExit(3)", status=3)["outcome"] == "passed"


def test_commands(tmp_path: Path) -> None:
    # `python` is that of the environment, wherever PATH leads.
    result = run(tmp_path, "command", "python -c 'import sys; print(sys.executable)'", expect=[sys.executable])
    assert result["outcome"] == "passed"
    assert run(tmp_path, "command", "sh -c 'exit 3'", status=3)["outcome"] == "passed"
    assert run(tmp_path, "command", "sh -c 'exit 3'")["problem"] == "ended with status 3"
    crashed = run(tmp_path, "command", "sh -c 'kill -SEGV $$'")
    assert (crashed["outcome"], crashed["signal"]) == ("crashed", "SIGSEGV")
    behind = run(tmp_path, "command", "sh -c '(exec 2>/dev/null; sh -c \"kill -BUS \\$\\$\"); exit $?'")
    assert (behind["outcome"], behind["problem"]) == (
        "crashed",
        "ended with status 135, which is how a shell reports SIGBUS",
    )
    missing = run(tmp_path, "command", "./no-such-program --version")
    assert (missing["outcome"], missing["problem"]) == ("failed", "could not be started: No such file or directory")
    assert "cannot be split" in run(tmp_path, "command", "echo 'open")["problem"]
    assert run(tmp_path, "command", "cat")["outcome"] == "passed"  # there is no standard input to wait for


def test_a_kill_from_elsewhere_is_no_fault_of_ours(tmp_path: Path) -> None:
    result = run(tmp_path, "python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert result["outcome"] == "crashed"
    assert "often the kernel does, when memory runs out" in result["problem"]


def test_checks_for_a_gpu_are_skipped_elsewhere(tmp_path: Path) -> None:
    check = {"name": "it", "kind": "python", "text": "print(1)", "gpu": True, "capabilities": ["9.0", "10.0"]}
    told = {}
    for there in ((), ("8.9",), ("8.9", "9.0")):
        result = checks.run_check(check, sys.executable, ENVIRON, tmp_path, capabilities=there)
        told[there] = (result["outcome"], result["problem"])
    assert told[()] == ("skipped", "needs a GPU, but this machine has none")
    assert told["8.9",] == ("skipped", "needs a GPU of capability 9.0 or 10.0, but this machine has 8.9")
    assert told["8.9", "9.0"] == ("passed", "")


def test_no_driver_is_no_gpu(tmp_path: Path) -> None:
    environ = {**ENVIRON, "CUDA_VISIBLE_DEVICES": ""}
    result = checks.run_check(
        {"name": "", "kind": "python", "text": "", "gpu": True}, sys.executable, environ, tmp_path
    )
    assert result["outcome"] == "skipped"


DRIVER = """
extern "C" int cuInit(int) { BODY; return 0; }
extern "C" int cuDriverGetVersion(int *number) { *number = 13000; return 0; }
extern "C" int cuDeviceGetName(char *, int, int) { return 0; }
extern "C" int cuDeviceGetCount(int *count) { *count = 2; return 0; }
extern "C" int cuDeviceGet(int *device, int index) { *device = index; return 0; }
extern "C" int cuDeviceGetAttribute(int *value, int what, int device)
{ *value = what == 75 ? 8 + device : 9; return 0; }
"""


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        ("", ("8.9", "9.9")),
        ("return 100", ()),
        ("__builtin_trap()", ()),
        ("extern int pause(void); for (;;) pause()", ()),
    ],
)
def test_the_driver_is_asked_for_gpus(
    tmp_path: Path, body: str, seen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that crashes or hangs when it is asked has none."""
    library(tmp_path, "libcuda.so.1", DRIVER.replace("BODY", body))
    monkeypatch.setattr(checks, "_LIMITS", checks._LIMITS._replace(seconds=2.0))
    environ = {**ENVIRON, "LD_LIBRARY_PATH": str(tmp_path)}
    assert checks.visible_capabilities(sys.executable, environ) == seen
    check = {"name": "it", "kind": "python", "text": "", "capabilities": ["9.9"]}
    if seen:
        assert checks.run_check(check, sys.executable, environ, tmp_path)["outcome"] == "passed"


def test_what_cannot_be_run_is_a_result_too(tmp_path: Path) -> None:
    assert "unknown kind of check: 'shell'" in run(tmp_path, "shell", "true")["problem"]
    assert "could not be started" in run(tmp_path, "command", "a\0b")["problem"]
    check = {"name": "it", "kind": "import", "text": "os"}
    assert checks.run_check(check, "/nowhere/python", ENVIRON, tmp_path)["outcome"] == "failed"


def test_no_core_file_is_written(tmp_path: Path) -> None:
    result = run(tmp_path, "python", "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")
    assert result["output"] == "(0, 0)\n"


def test_it_travels_alone(tmp_path: Path) -> None:
    """In a zip file, under another name, without cuwheel: as the kit carries it."""
    kit = tmp_path / "kit.pyz"
    with zipfile.ZipFile(kit, "w") as archive:
        for name, content in kit_stage._sources().items():
            archive.writestr(name.replace("kit/runner/", "carried/runner/").replace("kit/", "carried/"), content)
        archive.writestr("carried/__init__.py", "")
        check = "{'name': 'n', 'kind': 'import', 'text': 'json'}"
        call = f"checks.run_check({check}, sys.executable, dict(os.environ), 'scratch')"
        archive.writestr(
            "__main__.py", f"import json, os, sys\nfrom carried.runner import checks\nprint(json.dumps({call}))"
        )
    done = subprocess.run([sys.executable, "-I", "-S", kit], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout)["outcome"] == "passed"


@pytest.mark.parametrize("path", sorted(RUNNER.glob("*.py")), ids=lambda path: path.name)
def test_python_3_9_takes_it(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    lazy = any(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in tree.body)
    assert lazy or len(tree.body) == 1  # else `X | Y` in an annotation would be evaluated
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(name.name.split(".")[0] in sys.stdlib_module_names for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
