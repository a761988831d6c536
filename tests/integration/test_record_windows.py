"""Recording on Windows, seen under Wine: each way that a build can give its compiler streams, words and an end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cuwheel.building.recording import calls, reader, shims
from cuwheel.building.recording.shims import RecordOptions
from tests.integration.windows_bench import Bench, needs_wine, programs, wait_until
from tests.wine import windows

pytestmark = [pytest.mark.integration, pytest.mark.wine, needs_wine]
slow = pytest.mark.slow  # a second or two each, and there are many


@pytest.fixture(params=["watch", "path"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, request.param)


@slow
@pytest.mark.parametrize(
    "how", ["inherit", "null", "invalid", "detached", "window", "nul", "pipes", "merged", "twice", "crt"]
)
def test_output_is_kept_whatever_streams_the_caller_gave(bench: Bench, how: str) -> None:
    ended = bench.started(how, "out:hello", "err:there_ü", "exit:5")
    call = ended.call
    assert (call.state, call.status, call.tool, call.name) == ("failed", 5, "nvcc", "nvcc.exe")
    out, err = ended.printed()
    assert (out + err).replace("\r", "").split("\n") == ["hello", "there_ü", ""]
    assert ended.status == 5
    if how in ("pipes", "merged", "twice", "crt"):
        assert "hello" in ended.out
        assert "there_ü" in ended.out
    elif how == "inherit":
        assert "hello" in ended.out
        assert "there_ü" in ended.err
    else:
        assert "hello" not in ended.out + ended.err


@slow
def test_both_streams_are_passed_on_in_full(bench: Bench) -> None:
    ended = bench.started("pipes", "bytes:3000000")
    assert ended.out.split() == ["status=0", "out=3000000", "bytes", "err=3000000", "bytes"]
    assert [len(text) for text in ended.printed()] == [3_000_000, 3_000_000]


@slow
def test_a_reader_that_has_gone_is_felt(bench: Bench) -> None:
    """As by itself: writing fails with ERROR_NO_DATA or ERROR_BROKEN_PIPE, and the program decides."""
    ended = bench.started("closed", "bytes:300000")
    assert ended.call.status in (1232, 1109)


@slow
def test_words_and_folders_of_any_letters(bench: Bench) -> None:
    given = ["-o", "a b\\", 'say "hi"', "ü日本", "", "tab\there", "\\\\server\\share\\x", "%PATH%", '-DX=\\\\"q\\\\"']
    told = bench.folder / "told ü.txt"
    ended = bench.started("pipes", *given, f"line:{windows.named(told)}")
    assert ended.call.words == (*given, f"line:{windows.named(told)}")
    assert ended.call.cwd == windows.named(bench.work)
    assert ended.call.program == windows.named(bench.nvcc)
    line, folder = told.read_text(encoding="utf-8").splitlines()
    rest = line.partition('nvcc.exe"')[2] or line.partition("nvcc.exe")[2]
    assert rest == subprocess.list2cmdline(["", *ended.call.words])[2:]  # what the caller wrote, to the letter
    assert folder == ended.call.cwd


def test_response_files_in_utf_16_are_text(bench: Bench) -> None:
    (bench.work / "wide.rsp").write_text("-I inc\\ü @plain.rsp", encoding="utf-16")
    (bench.work / "plain.rsp").write_text("-DX=1")
    ended = bench.started("pipes", "@wide.rsp", "--options-file", "plain.rsp")
    found = {each.path: (each.text, each.encoding) for each in ended.call.response_files}
    assert found == {"wide.rsp": ("-I inc\\ü @plain.rsp", "utf-16"), "plain.rsp": ("-DX=1", "utf-8")}


@slow
def test_input_and_further_handles_go_through(bench: Bench) -> None:
    ended = bench.run(windows.named(bench.starter), "inherit", bench.called(), "stdin:", given="typed")
    assert "typed" in ended.out  # not always first: Wine lets the caller go on before the watcher does
    assert ended.printed()[0] == "typed"
    ended = bench.started("extra", "out:x")
    assert "err=extra" in ended.out


@slow
@pytest.mark.parametrize(("word", "status"), [("crash:", 0xC0000005), ("exit:0xC0000135", 0xC0000135), ("exit:1", 1)])
def test_the_end_is_the_compilers(bench: Bench, word: str, status: int) -> None:
    ended = bench.started("pipes", "out:before", word)
    assert f"status={status}" in ended.out
    assert (ended.call.status, ended.call.state) == (status, "failed")
    assert ended.printed()[0].startswith("before\n")  # Wine's own debugger may speak of a crash behind it


@slow
def test_what_is_left_running_keeps_nobody_waiting_and_can_go_on(bench: Bench) -> None:
    ended = bench.started("pipes", "hold:1500", "out:now")
    assert ended.call.status == 0
    assert ended.call.ended is not None
    assert ended.call.ended - ended.call.began < 1.4
    assert "late" in ended.out  # the caller reads to the end of its pipe, as it would by itself


@slow
def test_killing_the_compiler_is_its_end(bench: Bench) -> None:
    ended = bench.started("kill", f"started:{windows.named(bench.folder / 'begun')}", "sleep:60000")
    assert "status=77" in ended.out
    if bench.way == "watch":
        assert ended.call.status == 77
    else:  # it is the stand-in that was killed, and with it the compiler
        assert ended.call.state == "started"


@slow
def test_the_compiler_sees_no_debugger_and_nothing_of_ours(bench: Bench) -> None:
    ended = bench.started("pipes", "debugged:", "wish:CUWHEEL_RECORD", "wish:PATH")
    lines = ended.printed()[0].splitlines()
    assert lines[:2] == ["alone", "(not set)"]
    assert "cache" not in lines[2]


@slow
def test_jobservers_are_semaphores_and_stay_in_reach(bench: Bench) -> None:
    holder = subprocess.Popen(
        ["wine", str(bench.starter), "semaphore", "cuwheel-test-jobs"],
        env=windows.environment(),
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout
        assert holder.stdout.readline().strip() == b"ready"
        ended = bench.started("pipes", "wait:cuwheel-test-jobs", MAKEFLAGS="-j --jobserver-auth=cuwheel-test-jobs")
        assert ended.printed()[0] == "token\n"
        assert ended.call.changed.get("MAKEFLAGS", "-j --jobserver-auth=cuwheel-test-jobs").startswith("-j")
    finally:
        holder.kill()
        holder.communicate()


@slow
def test_secrets_are_masked_before_they_are_written(bench: Bench) -> None:
    child, record = bench.start(
        windows.named(bench.starter), "pipes", bench.called(), "--api-token", "abcdef123", "/DTOKEN=hunter22",
        "https://me:secret99@host/x", HF_TOKEN="tok-value-1",  # noqa: S106
    )  # fmt: skip
    child.communicate(timeout=60)
    text = (record / calls.CALLS_FILE).read_text(encoding="utf-8")
    for secret in ("abcdef123", "hunter22", "secret99", "tok-value-1"):
        assert secret not in text
    assert reader.read_record(record).calls[0].words[:3] == ("--api-token", "***", "/DTOKEN=***")


@slow
def test_unmasked_where_that_is_wished(bench: Bench) -> None:
    ended = bench.run(
        windows.named(bench.starter), "pipes", bench.called(), "-DPASSWORD=hunter22", wish=RecordOptions(masked=False)
    )
    events = (Path(ended.record.folder) / calls.CALLS_FILE).read_text(encoding="utf-8")
    assert json.loads(events.splitlines()[0])["words"] == ["-DPASSWORD=hunter22"]


def test_programs_inside_nvcc_are_its_own_and_are_told_with_their_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "watch")
    inner = bench.toolkit / "bin" / "cicc.exe"
    inner.write_bytes(bench.nvcc.read_bytes())
    ended = bench.started("pipes", "out:begin", f'run:"{windows.named(inner)}" err:deep exit:0xC0000135', "out:never")
    assert ended.call.status == 0xC0000135
    assert ended.printed() == ("begin\n", "deep\n")
    (found,) = ended.call.inner
    assert (found.name, found.status, found.words[0]) == ("cicc.exe", 0xC0000135, "err:deep")


@slow
def test_watching_ends_with_the_command_and_lets_others_live(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "watch")
    late = bench.folder / "late"
    behind = bench.toolkit / "bin" / "mspdbsrv.exe"
    behind.write_bytes(bench.nvcc.read_bytes())
    child, _ = bench.start(
        windows.named(bench.starter), "leave", windows.named(behind), "sleep:6000", f"started:{windows.named(late)}"
    )
    with child:
        assert child.wait(600) == 0
        assert not late.exists()
        assert wait_until([late])


@slow
def test_the_death_of_the_watcher_ends_the_build(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "watch")
    begun, late = bench.folder / "begun", bench.folder / "late"
    child, record = bench.start(
        windows.named(bench.starter), "inherit", bench.called(), f"started:{windows.named(begun)}", "sleep:2500",
        f"started:{windows.named(late)}",
    )  # fmt: skip
    assert wait_until([begun])
    child.kill()
    child.communicate(timeout=600)
    assert not wait_until([late], 3.0)
    assert reader.read_record(record).calls[0].state == "started"


def test_the_watcher_can_be_tried() -> None:
    done = subprocess.run(["wine", str(programs().watch), "--cuwheel-try"], env=windows.environment(), check=False)
    assert done.returncode == 7


def test_two_builds_of_the_programs_are_the_same(tmp_path: Path) -> None:
    one, two = programs(), shims.make_windows_programs(tmp_path / "elsewhere ü")
    assert one.watch.read_bytes() == two.watch.read_bytes()
    assert one.nvcc.read_bytes() == two.nvcc.read_bytes()
    assert one.watch.stat().st_size + one.nvcc.stat().st_size < 100_000


@slow
def test_ctrl_c_reaches_the_compiler_and_its_end_is_told(bench: Bench) -> None:
    """Windows gives 0xC000013A, Wine 0: what is seen is that it did not sleep on, and that its end is in the record."""
    ended = bench.started("ctrl-c", "out:begun", "sleep:30000", "out:never")
    assert ended.call.ended is not None
    assert ended.call.ended - ended.call.began < 20
    assert ended.call.status in (0, 0xC000013A)
    assert "never" not in ended.printed()[0]


@slow
def test_a_plan_replaces_architectures_and_a_launcher_goes_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "path")
    told = bench.folder / "told.txt"
    line = f"line:{windows.named(told)}"
    wish = RecordOptions(archs=("-gencode=arch=compute_90,code=sm_90",), phases=False)
    ended = bench.started(
        "pipes",
        "-arch=sm_50",
        "-c",
        "a b.cu",
        line,
        wish=wish,
        NVCC_APPEND_FLAGS="-gencode arch=compute_60,code=sm_60 -O3",
    )
    assert ended.call.words == ("-arch=sm_50", "-c", "a b.cu", line)
    assert ended.call.ran == ("-c", "a b.cu", line, *wish.archs)
    assert told.read_text(encoding="utf-8").splitlines()[0].endswith(f'-c "a b.cu" {line} {wish.archs[0]}')
    launcher = bench.folder / "sccache.exe"
    launcher.write_bytes(bench.nvcc.read_bytes())
    ended = bench.started("pipes", "-c", "a.cu", line, wish=RecordOptions(launcher=(windows.named(launcher),)))
    assert told.read_text(encoding="utf-8").startswith(
        f'{windows.named(launcher)} "{windows.named(bench.nvcc)}" -c a.cu'
    )


@slow
def test_the_end_of_what_the_command_printed_is_kept(bench: Bench) -> None:
    ended = bench.run(windows.named(bench.starter), "inherit", windows.named(bench.nvcc), "bytes:900000", "out:the end")
    said = reader.read_command_output(ended.record)
    assert 200_000 < len(said) <= 1 << 19
    assert "the end" in said
    assert len(ended.out) > 900_000


@slow
def test_a_pipe_named_as_a_response_file_is_left_to_the_compiler(bench: Bench) -> None:
    ended = bench.started("pipes", "@\\\\.\\pipe\\nobody", "@NUL", "out:fine")
    assert ended.printed()[0] == "fine\n"
    assert not [each for each in ended.call.response_files if "pipe" in each.path]


@slow
def test_what_a_call_left_running_can_print_after_the_watcher_has_gone(tmp_path: Path) -> None:
    """Its pipe goes on to a process that only reads: writing to it must not fail."""
    bench = Bench(tmp_path, "watch")
    late = bench.folder / "late"
    behind = f'run-on:"{windows.named(bench.nvcc)}" sleep:4000 out:late started:{windows.named(late)}'
    child, record = bench.start(windows.named(bench.starter), "null", bench.called(), behind, "out:now")
    with child:
        assert child.wait(600) == 0
        assert not late.exists()
        assert wait_until([late])
    assert reader.read_record(record).calls[0].status == 0
    names = sorted(path.suffix for path in (record / "output").iterdir())
    assert names == [".out", ".txt"]  # nothing came on the other stream
