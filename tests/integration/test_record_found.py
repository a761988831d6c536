"""However a build finds its compiler, the call is seen; what cannot start is told to its caller and to the record."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cuwheel.building.recording import reader, recorder
from cuwheel.building.recording.shims import RecordOptions
from cuwheel.support import own_c
from cuwheel_core.errors import UnreadableError
from tests.integration.recording import WAYS, Bench, bench

STARTER = Path(__file__).with_name("src") / "start_tool.c"
LIBC = ("execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "posix_spawn", "posix_spawnp", "vfork")


@pytest.fixture
def at(tmp_path: Path) -> Bench:
    """In a folder with a blank: paths are anybody's."""
    made = bench(tmp_path / "be nch", "preload")
    made.tool("nvcc")
    return made


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("starter") / "start"
    subprocess.run(["cc", "-o", path, STARTER], check=True)
    return path


@pytest.mark.parametrize("way", LIBC)
def test_every_way_to_start_a_program(at: Bench, starter: Path, way: str) -> None:
    """By an absolute path that no variable names."""
    record = at.run([str(starter), way, str(at.tools / "nvcc"), "exit:5"])
    assert record.status == 5
    assert [(call.program, call.words, call.status) for call in record.calls] == [
        (str(at.tools / "nvcc"), ("exit:5",), 5)
    ]


@pytest.mark.parametrize("way", ["system", "popen"])
def test_by_a_shell_of_the_c_library(at: Bench, starter: Path, way: str) -> None:
    plain = bench(at.folder.parent / "plain", "preload")
    plain.tool("nvcc")
    record = plain.run([str(starter), way, str(plain.tools / "nvcc"), "exit:5"])
    assert [call.status for call in record.calls] == [5]


@pytest.mark.parametrize("how", ["call(WORDS)", "call(WORDS, env={'PATH': '/bin'})", "call(WORDS, cwd='/')"])
def test_by_python(at: Bench, how: str) -> None:
    words = [str(at.tools / "nvcc"), "exit:5"]
    record = at.run(
        ["python3", "-c", f"import subprocess, sys; sys.exit(subprocess.{how.replace('WORDS', repr(words))})"]
    )
    assert (record.status, len(record.calls)) == (5, 1)


def test_in_a_cleared_environment(at: Bench) -> None:
    record = at.sh(f"env -i KEPT=1 '{at.tools}/nvcc' args:told.json")
    (call,) = record.calls
    assert {"PATH", "HOME"} <= set(call.unset)
    assert call.changed == {"KEPT": "1"}
    text = (at.folder / "told.json").read_text()
    assert "CUWHEEL" not in text
    assert "LD_PRELOAD" not in text


def test_a_library_that_the_caller_preloads_stays(at: Bench, tmp_path: Path) -> None:
    source = tmp_path / "own.c"
    source.write_text("int own;")
    own = tmp_path / "own.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", own, source], check=True)
    record = at.sh("nvcc args:told.json", LD_PRELOAD=str(own))
    assert f'"LD_PRELOAD": "{own}"' in (at.folder / "told.json").read_text()
    assert record.calls[0].changed == {}
    assert record.environment["LD_PRELOAD"] == str(own)
    record = at.sh(f"LD_PRELOAD='{own}' sh -c 'nvcc args:told.json'")
    assert record.calls[0].changed["LD_PRELOAD"] == str(own)


@pytest.mark.parametrize("way", WAYS)
def test_by_variables(tmp_path: Path, way: str) -> None:
    """A toolkit that is not on PATH, as CUDA_HOME and CUDACXX name it, and a compiler by CC."""
    at = bench(tmp_path / "bench", way)
    toolkit = at.folder / "cuda"
    (toolkit / "include").mkdir(parents=True)
    (toolkit / "include" / "cuda.h").touch()
    shutil.copytree(at.tool("nvcc").parent, toolkit / "bin")
    (toolkit / "bin" / "nvcc.profile").write_text("TOP = $(_HERE_)/..\n")
    (toolkit / "bin" / "ptxas").write_text("#!/bin/sh\n")
    (at.tools / "nvcc").unlink()
    other = at.folder / "else where"
    other.mkdir()
    at.tool("gcc-9").rename(other / "gcc-9")
    at.environ |= {"CUDA_HOME": str(toolkit), "CUDACXX": str(toolkit / "bin" / "nvcc"), "CC": str(other / "gcc-9")}
    record = at.sh(
        '"$CUDA_HOME/bin/nvcc" args:home.json; "$CUDACXX" out:2; "$CC" out:3;'
        'test -e "$CUDA_HOME/include/cuda.h" && test -e "$CUDA_HOME/bin/ptxas" && test -e "$CUDA_HOME/bin/nvcc.profile"'
    )
    assert record.status == 0
    nvcc, gcc = str(toolkit / "bin" / "nvcc"), str(other / "gcc-9")
    assert [call.program for call in record.calls] == [nvcc, nvcc, gcc]
    assert [call.changed for call in record.calls] == [{}, {}, {}]
    assert f'"CUDA_HOME": "{toolkit}"' in (at.folder / "home.json").read_text()


def test_a_program_that_is_not_there(at: Bench) -> None:
    """Python looks in each folder of PATH itself: one call that could not start, not one for each."""
    script = """
import subprocess
for words in (["g++", "-c", "x.cpp"], ["/opt/none/bin/nvcc", "-V"]):
    try:
        subprocess.run(words)
    except FileNotFoundError as error:
        print("as ever", error.filename)
"""
    record = at.run(["/usr/bin/python3", "-c", script], PATH=str(at.tools) + ":/nowhere/bin")
    assert at.stdout.decode().splitlines() == ["as ever g++", "as ever /opt/none/bin/nvcc"]
    assert [(call.state, call.name, call.problem) for call in record.calls] == [
        ("not-started", "g++", "No such file or directory"),
        ("not-started", "nvcc", "No such file or directory"),
    ]
    assert record.calls[1].words == ("-V",)
    assert all(call.failed for call in record.calls)


def test_a_search_that_ends_well_is_one_call(at: Bench) -> None:
    record = at.run(
        ["/usr/bin/python3", "-c", "import subprocess; subprocess.run(['nvcc', 'out:x'])"], PATH=f"/nowhere:{at.tools}"
    )
    assert [call.state for call in record.calls] == ["succeeded"]


@pytest.mark.parametrize(
    ("contents", "mode", "problem"),
    [
        (b"#!/bin/sh\n", 0o644, "Permission denied"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0\xb7\0" + b"\0" * 100, 0o755, "Exec format error"),
        (b"#!/no/such/interpreter\n", 0o755, "No such file or directory"),
    ],
    ids=["not executable", "of another machine", "without its interpreter"],
)
def test_a_program_that_cannot_run(at: Bench, starter: Path, contents: bytes, mode: int, problem: str) -> None:
    path = at.tools / "nvcc"
    path.write_bytes(contents)
    path.chmod(mode)
    for way in ("execve", "posix_spawn"):
        record = at.run([str(starter), way, str(path), "-V"])
        assert record.status == 9
        assert problem in (at.stdout + at.stderr).decode()
        assert [(call.state, call.problem) for call in record.calls] == [("not-started", problem)]


def test_text_that_only_shells_run(at: Bench, starter: Path) -> None:
    """Without a first line execvp gives it to a shell, and so do shells themselves."""
    at.tool("nvcc", "exit 6\n")
    assert at.run([str(starter), "execvp", str(at.tools / "nvcc"), "-V"]).status == 6
    record = at.sh("nvcc -V")
    assert record.status == 6
    assert not any(call.state == "not-started" for call in record.calls)


@pytest.mark.slow
def test_arguments_up_to_the_limit(at: Bench) -> None:
    """Where our own words would be too many, the call goes without us rather than fail."""
    script = """
import os, subprocess
count = os.sysconf("SC_ARG_MAX") // 1009 - 3
while True:
    try:
        print(subprocess.call(["nvcc", "exit:3", *["x" * 1000] * count]))
    except OSError as error:
        print(error.strerror)
        break
    count += 1
"""
    record = at.run(["/usr/bin/python3", "-c", script])
    *before, last = at.stdout.decode().splitlines()
    assert (set(before), last) == ({"3"}, "Argument list too long")
    assert record.calls[-1].problem == "Argument list too long"
    assert record.calls[-1].state == "not-started"


def test_a_record_inside_a_record(at: Bench, tmp_path: Path) -> None:
    """The inner one has the calls; the outer build goes on."""
    inner = tmp_path / "inner"
    record = at.sh(f"'{sys.executable}' -m cuwheel record -o '{inner}' -q -- nvcc out:inner; nvcc out:outer")
    assert [call.words for call in reader.read_record(inner).calls] == [("out:inner",)]
    assert ("out:outer",) in [call.words for call in record.calls]


def test_a_cache_with_a_blank_in_its_name(at: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LD_PRELOAD is a list with blanks between: such a library could not be named."""
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "a cache"))
    record = at.sh("nvcc exit:2")
    assert at.session
    assert " " not in at.session.environ["LD_PRELOAD"]
    assert record.calls[0].status == 2


def test_from_a_thread_with_a_small_stack(at: Bench) -> None:
    script = """
import subprocess, threading
threading.stack_size(128 * 1024)
statuses = []
thread = threading.Thread(target=lambda: statuses.append(subprocess.call(["nvcc", *["-DX"] * 50_000, "exit:4"])))
thread.start()
thread.join()
print(statuses)
"""
    record = at.run(["/usr/bin/python3", "-c", script])
    assert at.stdout == b"[4]\n", at.stderr
    assert len(record.calls[0].words) == 50_001


def test_in_the_current_folder_by_path(at: Bench) -> None:
    at.tool("gcc").rename(at.folder / "gcc")
    record = at.run(["/usr/bin/python3", "-c", "import os; os.execlp('gcc', 'gcc', 'exit:6')"], PATH=":/usr/bin")
    assert record.status == 6
    assert record.calls[0].program == str(at.folder / "gcc")


def test_nothing_of_ours_is_left(at: Bench) -> None:
    at.sh("nvcc out:x")
    assert at.session
    assert not Path(at.session.environ["CUWHEEL_RECORD"]).exists()
    assert stat.S_ISDIR(at.session.folder.stat().st_mode)


def test_without_ours_and_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on a bare machine, or a processor that nothing ships for."""
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path))
    monkeypatch.setattr(own_c, "PREBUILT", "nothing")
    with pytest.raises(UnreadableError) as refused:
        recorder.choose_recorder({"PATH": str(tmp_path)}, RecordOptions())
    assert "apt install gcc" in refused.value.hint
