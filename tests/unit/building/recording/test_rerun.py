from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cuwheel.building.recording import replays
from cuwheel.building.recording.calls import ResponseFile
from cuwheel.building.recording.replays import Masked
from cuwheel.errors import UsageError
from cuwheel_core.errors import UnreadableError
from tests.unit.building.recording.records import call, record


def test_the_environment_of_a_call_is_the_records_with_its_changes(tmp_path: Path) -> None:
    found = record(
        tmp_path / "r", call(["-c", "a.cu"], changed={"B": "2", "NEW": "x"}, unset=["A"]), environ={"A": "1", "B": "1"}
    )
    assert replays.call_environment(found, found.calls[0]) == {"B": "2", "NEW": "x"}


def test_masked_secrets_come_from_the_caller_or_are_left_out(tmp_path: Path) -> None:
    found = record(
        tmp_path / "r",
        call(["-c", "a.cu"]),
        environ={"MY_TOKEN": "***", "OTHER_TOKEN": "***", "URL": "https://***@host/x", "PLAIN": "1"},
    )
    made = replays.as_recorded(found, found.calls[0], {"MY_TOKEN": "mine", "PLAIN": "not this"})
    assert made.situation.environ == {"MY_TOKEN": "mine", "PLAIN": "1"}
    assert made.masked == (
        Masked(name="MY_TOKEN", restored=True),
        Masked(name="OTHER_TOKEN", restored=False),
        Masked(name="URL", restored=False),
    )


def test_stars_are_stars_where_nothing_was_masked(tmp_path: Path) -> None:
    found = record(tmp_path / "r", call(["-c", "a.cu"]), environ={"GLOB": "***"}, masked=False)
    made = replays.as_recorded(found, found.calls[0], {"GLOB": "else"})
    assert made.situation.environ == {"GLOB": "***"}
    assert made.masked == ()


def test_what_belonged_to_the_moment_is_left_out(tmp_path: Path) -> None:
    environ = {"MAKEFLAGS": " -j8 --jobserver-auth=***", "TMPDIR": str(tmp_path / "gone"), "TMP": str(tmp_path)}
    found = record(tmp_path / "r", call(["-c", "a.cu"]), environ=environ)
    made = replays.as_recorded(found, found.calls[0], {})
    assert made.situation.environ == {"MAKEFLAGS": " -j8", "TMP": str(tmp_path)}
    assert made.notes == (f"TMPDIR is not set: {tmp_path / 'gone'} is gone",)


def test_here_is_the_callers_environment_and_compiler(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    found = record(tmp_path / "r", call(["-c", "a.cu"]), environ={"A": "1"})
    caller = {"PATH": str(nvcc.parent), "B": "2"}
    made = replays.as_here(found, found.calls[0], caller)
    assert (made.situation.environ, made.situation.program) == (caller, str(nvcc))
    assert made.situation.cwd == "/nowhere"
    assert Path(replays.as_here(found, found.calls[0], {"CUDA_HOME": str(tmp_path)}).situation.program) == nvcc
    assert replays.as_here(found, found.calls[0], {"PATH": "/nothing"}).situation.program == "/opt/cuda/bin/nvcc"


def test_the_same_compiler_by_a_link_is_no_other_one(tmp_path: Path) -> None:
    real = tmp_path / "nvcc-real"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    (tmp_path / "nvcc").symlink_to(real)
    found = record(tmp_path / "r", call(["-c", "a.cu"], program=str(real)))
    assert replays.as_here(found, found.calls[0], {"PATH": str(tmp_path)}).situation.program == str(real)


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    found = record(tmp_path / "r", call(["-c", "a.cu"], cwd=str(tmp_path / "gone")))
    made = replays.as_recorded(found, found.calls[0], {})
    with pytest.raises(UnreadableError, match="no longer exists") as caught, replays.ready_to_run(made, scratch=False):
        pass
    assert "--directory" in caught.value.hint


@pytest.mark.parametrize("there", ["the same", "changed", "gone"])
def test_response_files_are_as_they_were(there: str, tmp_path: Path) -> None:
    text = "-I inc\n@sub/more.rsp\n"
    files = [{"path": "flags.rsp", "text": text}, {"path": "sub/more.rsp", "text": "-DX"}]
    if there != "gone":
        (tmp_path / "sub").mkdir()
        (tmp_path / "flags.rsp").write_bytes(text.encode())
        (tmp_path / "sub" / "more.rsp").write_text("-DX" if there == "the same" else "-DY")
    found = record(
        tmp_path / "r", call(["-c", "@flags.rsp", "-optf", "sub/more.rsp"], cwd=str(tmp_path), response_files=files)
    )
    made = replays.as_recorded(found, found.calls[0], {})
    with replays.ready_to_run(made, scratch=False) as ready:
        if there == "the same":
            assert ready.command[1:] == ("-c", "@flags.rsp", "-optf", "sub/more.rsp")
            assert ready.restored == ()
            return
        assert "sub/more.rsp" in ready.restored
        _, first, option, second = ready.command[1:]
        assert option == "--options-file"
        assert Path(second).read_text() == "-DX"
        assert Path(first[1:]).read_text() == f"-I inc\n@{second}\n"
    assert not Path(second).exists()


def test_a_response_file_that_nobody_could_read_is_left_alone(tmp_path: Path) -> None:
    found = record(
        tmp_path / "r", call(["@x.rsp"], cwd=str(tmp_path), response_files=[{"path": "x.rsp", "text": None}])
    )
    assert found.calls[0].response_files == (ResponseFile(path="x.rsp", text=None),)
    with replays.ready_to_run(replays.as_recorded(found, found.calls[0], {}), scratch=False) as ready:
        assert ready.command[1:] == ("@x.rsp",)


def test_scratch_leaves_the_builds_files_alone(tmp_path: Path) -> None:
    found = record(tmp_path / "r", call(["-c", "a.cu", "-o", "a.o"], cwd=str(tmp_path)))
    made = replays.as_recorded(found, found.calls[0], {})
    with replays.ready_to_run(made, scratch=True) as ready:
        place = Path(ready.command[-1])
        assert place.parent.is_dir()
        assert not place.is_relative_to(tmp_path)
        assert [(name, Path(there)) for name, there in ready.written] == [("a.o", place)]
    assert not place.parent.exists()


def test_a_response_file_may_say_where_to_write(tmp_path: Path) -> None:
    files = [{"path": "all.rsp", "text": '-c "my a.cu" -o build/a.o'}]
    found = record(tmp_path / "r", call(["@all.rsp"], cwd=str(tmp_path), response_files=files))
    with replays.ready_to_run(replays.as_recorded(found, found.calls[0], {}), scratch=True) as ready:
        assert ready.command[1:3] == ("-c", "my a.cu")
        assert ready.written[0][0] == "build/a.o"
        assert "build/a.o" not in ready.command


def test_what_writes_in_ways_of_its_own_is_refused(tmp_path: Path) -> None:
    found = record(tmp_path / "r", call(["-c", "a.c", "b.c"], tool="compiler", program="/x/gcc", cwd=str(tmp_path)))
    made = replays.as_recorded(found, found.calls[0], {})
    with pytest.raises(UsageError, match="would overwrite the build's files"), replays.ready_to_run(made, scratch=True):
        pass


def test_what_cuwheel_itself_changed_is_run_as_it_was_run(tmp_path: Path) -> None:
    found = record(tmp_path / "r", call(["-arch=sm_80"], ran=["-arch=sm_90"]))
    assert replays.as_recorded(found, found.calls[0], {}).situation.words == ("-arch=sm_90",)


def test_the_same_job_in_another_record(tmp_path: Path) -> None:
    one = record(tmp_path / "one", call(["-c", "src/b.cu", "-O2", "-o", "b.o"]))
    other = record(
        tmp_path / "other",
        call(["-c", "x/a.cu"]),
        call(["-E", "x/b.cu"]),
        call(["-c", "x/b.cu", "-O2", "-o", "b.o"]),
        call(["-c", "x/b.cu", "-O2", "-o", "b.o"], tool="compiler"),
    )
    assert replays.same_call(other, one.calls[0]) == other.calls[2]
    assert replays.same_call(other, replace(one.calls[0], words=("-c", "z.cu"))) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/tmp/a1/x.cu(12): error: no\n1 error detected", "/tmp/b77/x.cu(12): error: no\n"),
        ("warning: w\nx.cu:1:2: fatal error: y.h: No such file", "x.cu:9:9: fatal error: y.h: No such file"),
    ],
)
def test_the_same_failure_is_the_same_whatever_its_paths(one: str, other: str) -> None:
    first, second = (replays.error_sign(replays.first_error(text)) for text in (one, other))
    assert first == second != ""


def test_other_failures_are_others() -> None:
    assert replays.error_sign("a.cu(1): error: no") != replays.error_sign(
        "nvcc fatal : Unsupported gpu architecture 'sm_10'"
    )


def test_a_response_file_in_utf_16_is_compared_and_restored_as_such(tmp_path: Path) -> None:
    (tmp_path / "same.rsp").write_text("-DÜ=1", encoding="utf-16")
    files = [{"path": name, "text": "-DÜ=1", "encoding": "utf-16"} for name in ("same.rsp", "gone.rsp")]
    for names in (("same.rsp",), ("gone.rsp",)):
        given = [each for each in files if each["path"] in names]
        words = [f"@{name}" for name in names]
        found = record(tmp_path / names[0][:4], call(words, cwd=str(tmp_path), response_files=given))
        prepared = replays.as_recorded(found, found.calls[0], {})
        with replays.ready_to_run(prepared, scratch=False) as made:
            assert made.restored == (() if names == ("same.rsp",) else names)
            if made.restored:
                assert Path(made.command[1][1:]).read_text(encoding="utf-16") == "-DÜ=1"
