"""Whatever a build does with its compilers and their output: it is as without us, and recorded."""

from __future__ import annotations

import itertools
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import reader
from cuwheel.building.recording.shims import RecordOptions
from cuwheel.support import masking
from tests.integration.recording import WAYS, Bench, bench, printed

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture(params=WAYS)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    made = bench(tmp_path / "bench", request.param)
    made.tool("gcc")
    return made


def test_output_that_the_caller_throws_away_is_kept(at: Bench) -> None:
    record = at.sh("gcc out:shown err:wrong exit:3 >/dev/null 2>&1 || exit 5")
    (call,) = record.calls
    assert (record.status, call.state, call.status) == (5, "failed", 3)
    assert printed(record, call) == ("shown\n", "wrong\n")
    assert (call.tool, call.name, call.program) == ("compiler", "gcc", str(at.tools / "gcc"))
    assert call.words == ("out:shown", "err:wrong", "exit:3")
    assert call.ended is not None
    assert call.ended >= call.began


def test_output_passes_on_unchanged(at: Bench) -> None:
    record = at.sh("gcc out:one err:two out:three; gcc out:four 2>/dev/null | cat")
    assert at.stdout == b"one\nthree\nfour\n"
    assert at.stderr == b"two\n"
    first, second = record.calls
    assert printed(record, first) == ("one\nthree\n", "two\n")
    assert printed(record, second) == ("four\n", "")


def test_order_of_streams_that_go_to_one_place(at: Bench) -> None:
    words = " ".join(f"out:{number} err:{number}e" for number in range(200))
    at.sh(f"gcc {words} 2>&1")
    assert at.stdout.decode().split() == [text for number in range(200) for text in (f"{number}", f"{number}e")]


@pytest.mark.parametrize("closing", ["1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_closed_descriptors(at: Bench, closing: str) -> None:
    record = at.sh(f"gcc out:shown err:wrong exit:0 {closing}")
    (call,) = record.calls
    assert call.status == 0
    out, err = printed(record, call)
    assert "shown" in out
    assert "wrong" in err


def test_much_output_without_a_deadlock(at: Bench) -> None:
    record = at.sh("gcc bytes:3000000 err:end | wc -c")
    assert at.stdout.split() == [b"3000000"]
    assert len(printed(record, record.calls[0])[0]) == 3000000


def test_a_reader_that_leaves(at: Bench) -> None:
    """`gcc … | head -1`: the compiler is to feel that nobody listens."""
    record = at.sh("gcc bytes:50000000 exit:0 2>/dev/null | head -c 10 >/dev/null")
    assert record.calls[0].status != 0 or record.calls[0].signal == signal.SIGPIPE


def test_a_program_left_behind_keeps_nobody_waiting(at: Bench) -> None:
    began = time.monotonic()
    record = at.run(["/bin/sh", "-c", "gcc out:done hold:200 >out.txt"])
    assert time.monotonic() - began < 180
    assert printed(record, record.calls[0])[0] == "done\n"
    assert (at.folder / "out.txt").read_text() == "done\n"


def test_signal_that_ends_the_tool_ends_the_shim(at: Bench) -> None:
    record = at.sh("gcc out:before signal:11; echo $?")
    assert at.stdout.split()[-1] == b"139"
    (call,) = record.calls
    assert (call.state, call.signal, call.status) == ("signalled", 11, None)


def test_a_signal_is_passed_on(at: Bench) -> None:
    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, cwd=at.folder) as child:
            assert child.stdout
            assert child.stdout.readline() == b"ready\n"
            child.terminate()
            assert child.stdout.readline() == b"caught 15\n"
            return child.wait(600)

    record = at.run(["gcc", "catch:15", "out:ready", "sleep:3600"], popen=run)
    assert record.status == 3
    assert record.calls[0].status == 3


def test_killing_the_shim_kills_the_tool(at: Bench) -> None:
    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        with subprocess.Popen(command, env=environ, cwd=at.folder) as child:
            while not (at.folder / "told.json").exists():
                time.sleep(0.02)
            child.kill()
            return child.wait(600)

    record = at.run(["gcc", "args:told.json", "sleep:3600"], popen=run)
    pid = json.loads((at.folder / "told.json").read_text())["pid"]
    deadline = time.monotonic() + 600
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
    assert record.calls[0].state == "started"
    assert record.calls[0].ended is None


def test_descriptors_input_and_folder_are_inherited(at: Bench) -> None:
    (at.folder / "sub dir").mkdir()
    at.sh('cd "sub dir"; echo given | gcc stdin: fd:7:seven args:told.json 7>seven.txt')
    assert at.stdout == b"given\n"
    assert (at.folder / "sub dir" / "seven.txt").read_text() == "seven"
    assert json.loads((at.folder / "sub dir" / "told.json").read_text())["cwd"] == str(at.folder / "sub dir")


def test_the_tool_sees_the_caller_s_environment(at: Bench) -> None:
    script = "FRESH=1 KIND=b gcc args:told.json; unset HOME; gcc out:x"
    record = at.sh(script, KEPT="same", KIND="a", CUDA_HOME="/nowhere")
    seen = json.loads((at.folder / "told.json").read_text())["environ"]
    for name in ("OLDPWD", "_", "SHLVL"):
        seen.pop(name, None)
    assert seen == at.environ | {"KEPT": "same", "CUDA_HOME": "/nowhere", "FRESH": "1", "KIND": "b"}
    first, second = record.calls
    assert {name: first.changed.get(name) for name in ("FRESH", "KIND", "KEPT", "PATH")} == {
        "FRESH": "1",
        "KIND": "b",
        "KEPT": None,
        "PATH": None,
    }
    assert first.unset == ()
    assert second.unset == ("HOME",)
    assert record.environment["KEPT"] == "same"


def test_secrets_are_not_written(at: Bench) -> None:
    at.environ |= {"PIP_INDEX_URL": "https://me:hunter2@host/simple", "HF_TOKEN": "hunter2"}
    record = at.sh(
        "MY_TOKEN=abcdefgh gcc out:https://me:hunter2@host/x -DAPI_KEY=s3cr3t -DPASS=s3cr3t exit:1 >/dev/null"
    )
    text = b"".join(path.read_bytes() for path in Path(record.folder).rglob("*") if path.is_file())
    for secret in (b"hunter2", b"s3cr3t", b"abcdefgh"):
        assert secret not in text
    assert record.calls[0].changed["MY_TOKEN"] == masking.MASK
    assert printed(record, record.calls[0])[0] == "https://***@host/x\n"


def test_no_file_of_a_record_holds_a_secret_of_any_kind(at: Bench) -> None:
    jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
    chance = "q7Rk2ZpX9vLm4TbW8sYc1NdF6hJg3KtV"
    at.environ |= {"CI_JOB_JWT": "jwt-hunter2", "GH_PAT": "pat-hunter2", "SESSION_ID": "id-hunter2", "PLAIN": chance}
    at.environ |= {"SLACK_WEBHOOK_URL": "https://hook.example/hunter2", "OTHER": "glpat-hunter2hunter2hunter2"}
    printed = f"jwt-hunter2 pat-hunter2 id-hunter2 {jwt} {chance} password:\\ hunter2 AKIAHUNTER2HUNTER2XY"
    record = at.sh(
        "for each in " + printed + '; do gcc "out:$each" "err:$each" >/dev/null; done; '
        "gcc out:https://host/x?X-Amz-Signature=hunter2 https://host/x?sig=hunter2; sh -c 'gcc curl -u me:hunter2'"
    )
    for path in Path(record.folder).rglob("*"):
        text = path.read_bytes() if path.is_file() else b""
        assert not [each for each in (b"hunter2", b"HUNTER2", jwt.encode(), chance.encode()) if each in text], path


def test_secrets_of_variables_are_hidden_wherever_they_were_printed(at: Bench) -> None:
    at.environ |= {"HF_TOKEN": "plain-word-99"}
    record = at.sh("gcc out:it-was-plain-word-99 plain-word-99 >/dev/null; : plain-word-99")
    assert printed(record, record.calls[0])[0] == "it-was-***\n"
    for path in Path(record.folder).rglob("*"):
        assert path.is_dir() or b"plain-word-99" not in path.read_bytes(), path


def test_names_of_secrets_are_those_of_masking(at: Bench) -> None:
    """The shims decide by themselves, before anything is written."""
    parts = (
        "TOKEN",
        "TOKENS",
        "PASS",
        "PASSE",
        "KEY",
        "API",
        "APIKEY",
        "SESSION",
        "AUTH",
        "SOCK",
        "PWD",
        "DSN",
        "FILE",
        "JWT",
        "PAT",
        "WEBHOOK",
    )
    names = {"_".join(each) for count in (1, 2, 3) for each in itertools.product(parts, repeat=count)}
    names |= {"OLDPWD", "SSH_AUTH_SOCK", "XDG_SESSION_KEY", "token", "MyApiKeyX", "SESSION_KEYS_A", "PASSWORDSS"}
    names -= at.environ.keys()
    script = f"import os, subprocess; subprocess.run(['gcc'], env=os.environ | dict.fromkeys({sorted(names)!r}, 'v'))"
    record = at.run([sys.executable, "-S", "-c", script])
    lines = (Path(record.folder) / "calls.jsonl").read_text().splitlines()
    told = json.loads(lines[0])["changed"]
    assert {name for name in names if told[name] == masking.MASK} == {name for name in names if masking.is_secret(name)}


def test_secrets_behind_an_option(at: Bench) -> None:
    given = ["--api-key", "hunter2", "--key-size", "16", "--PASSWORD", "hunter2", "-x"]
    record = at.run(["sh", "-c", 'gcc "$@"', "sh", *given, "--token", "hunter2"])
    (call,) = record.calls
    assert list(call.words) == ["--api-key", "***", "--key-size", "16", "--PASSWORD", "***", "-x", "--token", "***"]
    assert "hunter2" not in (Path(record.folder) / "record.json").read_text()
    assert "hunter2" not in (Path(record.folder) / "calls.jsonl").read_text()


def test_secrets_are_kept_where_that_is_wished(at: Bench) -> None:
    secret = {"HF_TOKEN": "hunter2"}
    record = at.sh("gcc out:https://me:hunter2@host", wish=RecordOptions(masked=False), **secret)
    assert record.environment.items() >= secret.items()
    assert "hunter2" in printed(record, record.calls[0])[0]
    assert not record.masked


def test_arguments_of_any_bytes(at: Bench) -> None:
    odd = [b"out:\xff\xfe\x80", "out:ü€𝄞".encode(), b"out:a\nb", b'out:"quoted" \\ back', b"", b"out:\x01\x7f"]
    script = '"$@"'
    record = at.run([b"/bin/sh", b"-c", script.encode(), b"sh", b"gcc", *odd])
    assert [os.fsencode(word) for word in record.calls[0].words] == odd
    assert at.stdout == b"".join(word[4:] + b"\n" for word in odd if word)
    assert record.damaged == 0


def test_a_hundred_thousand_arguments(at: Bench) -> None:
    script = "import subprocess, sys; sys.exit(subprocess.call(['gcc', *['-DX'] * 100_000, 'exit:4']))"
    record = at.run(["python3", "-c", script])
    (call,) = record.calls
    assert (record.status, len(call.words)) == (4, 100_001)


def test_calls_at_the_same_time(at: Bench) -> None:
    record = at.sh("for i in $(seq 16); do gcc out:$i & done; wait")
    assert sorted(int(printed(record, call)[0]) for call in record.calls) == list(range(1, 17))
    assert [call.number for call in record.calls] == list(range(1, 17))
    assert record.damaged == 0
    assert [call.began for call in record.calls] == sorted(call.began for call in record.calls)


def test_what_a_compiler_calls_is_its_own_business(at: Bench) -> None:
    at.tool("nvcc")
    record = at.sh("nvcc run:gcc; gcc out:direct")
    assert [call.name for call in record.calls] == ["nvcc", "gcc"]
    assert printed(record, record.calls[0])[0] == "inner\n"


def test_response_files_are_kept(at: Bench) -> None:
    (at.folder / "inner.rsp").write_text("-DINNER")
    (at.folder / "words.rsp").write_text("-DX 'a b' @inner.rsp")
    (at.folder / "other.opt").write_text("-DY")
    record = at.sh("gcc @words.rsp @missing.rsp --options-file other.opt; rm *.rsp")
    texts = {each.path: each.text for each in record.calls[0].response_files}
    assert texts == {"words.rsp": "-DX 'a b' @inner.rsp", "inner.rsp": "-DINNER", "other.opt": "-DY"}


def _is_running(at: Bench, label: str) -> bool:
    """And nothing else; the time that it took so far is told too."""
    assert at.session
    running = at.session.progress().running
    return [each for each, _ in running] == [label] and 0 <= running[0][1] < 20


def test_a_build_that_is_killed_leaves_what_it_did(at: Bench) -> None:
    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        with subprocess.Popen(command, env=environ, cwd=at.folder, start_new_session=True) as child:
            assert at.session
            deadline = time.monotonic() + 600
            while not _is_running(at, "gcc late.c") and time.monotonic() < deadline:
                time.sleep(0.02)
            outputs = at.session.folder / "output"
            while not any(path.stat().st_size for path in outputs.glob("*.out")) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert at.session.progress().calls_ended == 1
            os.killpg(child.pid, signal.SIGKILL)
            return child.wait(600)

    record = at.run(["/bin/sh", "-c", "gcc exit:0; gcc out:begun sleep:3600 late.c >/dev/null"], popen=run)
    first, second = record.calls
    assert (record.status, first.state, second.state) == (-9, "succeeded", "started")
    assert printed(record, second)[0] == "begun\n"


def test_a_compiler_that_is_the_command_itself(at: Bench) -> None:
    assert at.run(["gcc", "out:x", "exit:2"]).calls[0].status == 2
    assert at.run([str(at.tools / "gcc"), "exit:3"]).calls[0].status == 3


def test_a_terminal_stays_a_terminal(at: Bench) -> None:
    """Compilers colour by what they write to."""
    heard = bytearray()

    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        master, slave = pty.openpty()
        child = subprocess.Popen(command, env=environ, cwd=at.folder, stdout=slave, stderr=slave)
        os.close(slave)

        def listen() -> None:
            try:
                while piece := os.read(master, 4096):
                    heard.extend(piece)
            except OSError:
                pass

        listener = threading.Thread(target=listen)
        listener.start()
        status = child.wait(600)
        listener.join(600)
        os.close(master)
        return status

    record = at.run(["gcc", "tty:", "out:text", "err:more"], popen=run)
    assert bytes(heard) == b"out err\r\ntext\r\nmore\r\n"
    assert printed(record, record.calls[0])[0] == "out err\ntext\nmore\n"


def test_without_a_session_shims_step_aside(at: Bench) -> None:
    """Build folders remember the compilers that they found."""
    if at.way == "preload":
        pytest.skip("nothing of ours is found")
    at.sh("command -v gcc")
    shim = at.stdout.decode().strip()
    assert shim != str(at.tools / "gcc")
    done = subprocess.run([shim, "out:direct", "exit:6"], env=at.environ, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (6, b"direct\n")


def test_what_is_not_there_is_not_found(at: Bench) -> None:
    record = at.sh("command -v nvcc || echo none")
    assert at.stdout == b"none\n"
    assert record.calls == ()


def test_versions_and_machines_in_names(at: Bench) -> None:
    for name in ("g++-12", "x86_64-linux-gnu-gcc-12", "ccdecode", "my-gcc-wrapper"):
        at.tool(name)
    record = at.sh("g++-12 out:1; x86_64-linux-gnu-gcc-12 out:2; ccdecode out:3; my-gcc-wrapper out:4")
    assert [call.name for call in record.calls] == ["g++-12", "x86_64-linux-gnu-gcc-12"]


def test_compiler_caches(at: Bench) -> None:
    at.tool("ccache")
    record = at.sh("ccache gcc out:x; ccache -s; ccache rustc out:y")
    assert [(call.tool, call.words[0]) for call in record.calls] == [("cache", "gcc")]


def test_a_launcher_runs_nvcc(at: Bench) -> None:
    at.tool("nvcc")
    at.tool("sccache")
    record = at.sh("nvcc -c x.cu args:told.json; nvcc --version", wish=RecordOptions(launcher=("sccache",)))
    told = json.loads((at.folder / "told.json").read_text())["argv"]
    assert told[1:] == [str(at.tools / "nvcc"), "-c", "x.cu", "args:told.json"]
    assert [(call.tool, call.words[0]) for call in record.calls] == [("nvcc", "-c"), ("nvcc", "--version")]


def test_the_record_outlives_a_full_disk(at: Bench) -> None:
    """Where nothing can be written the build goes on, unrecorded."""

    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        assert at.session
        folder = at.session.folder
        folder.rename(folder.with_name("gone"))
        done = subprocess.run(command, env=environ, cwd=at.folder, capture_output=True, check=False)
        folder.with_name("gone").rename(folder)
        assert done.stdout == b"shown\n"
        return done.returncode

    record = at.run(["gcc", "out:shown", "exit:4"], popen=run)
    assert record.status == 4
    assert record.calls == ()


def test_a_record_is_never_written_over(at: Bench) -> None:
    from cuwheel.errors import UsageError

    at.sh("gcc out:x")
    at.count = 0
    with pytest.raises(UsageError, match="not empty"):
        at.sh("gcc out:x")
    assert len(reader.read_record(at.folder / "record-1").calls) == 1
