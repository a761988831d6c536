"""A record may come from anybody."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.building.recording import calls, reader, sccache, session
from cuwheel.errors import NewerSchemaError
from cuwheel.support import masking
from cuwheel_core.errors import MalformedError, UnreadableError

if TYPE_CHECKING:
    from pathlib import Path


def start(id_: str, began: int = 0, **more: Any) -> dict[str, Any]:
    event = {
        "event": "start",
        "id": id_,
        "pid": 1,
        "began": began,
        "tool": "nvcc",
        "name": "nvcc",
        "program": "/x/nvcc",
    }
    return event | {"words": ["-c", "a.cu"], "cwd": "/src", "changed": {}, "unset": [], "response_files": []} | more


def end(id_: str, **more: Any) -> dict[str, Any]:
    return {"event": "end", "id": id_, "ended": 2_000_000_000} | more


def made(folder: Path, *lines: dict[str, Any] | bytes, **head: Any) -> Path:
    folder.mkdir()
    for name in calls.RECORD_FOLDERS:
        (folder / name).mkdir()
    told = {
        "schema": calls.SCHEMA,
        "command": ["make"],
        "cwd": "/src",
        "began": "2026-01-01T00:00:00Z",
        "masked": True,
    }
    calls.write_json(folder, calls.HEAD_FILE, told | head)
    calls.write_json(folder, calls.ENVIRONMENT_FILE, {"PATH": "/bin"})
    text = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    (folder / calls.CALLS_FILE).write_bytes(text)
    return folder


def test_calls_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    lines = (
        start("b", 2),
        start("a", 1),
        end("b", status=0),
        end("a", signal=9),
        {"event": "finish", "ended": 3, "status": 2},
    )
    record = reader.read_record(made(tmp_path / "record", *lines))
    assert [(call.id, call.number, call.state) for call in record.calls] == [
        ("a", 1, "signalled"),
        ("b", 2, "succeeded"),
    ]
    assert (record.status, record.damaged) == (2, 0)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "start", "id": "x", "wor',
        b"\0\xff\n",
        b"[]\n",
        b"3\n",
        b'{"event": "start", "id": 7}\n',
        b"[" * 100_000 + b"\n",
        b'{"no": "event"}\n',
    ],
)
def test_damaged_lines_are_counted_and_left_out(tmp_path: Path, line: bytes) -> None:
    record = reader.read_record(made(tmp_path / "record", start("a"), end("a", status=0), line))
    assert [call.id for call in record.calls] == ["a"]
    assert record.damaged == 1


def test_values_of_other_types(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "words": [1, "x", None],
        "cwd": 5,
        "changed": [1],
        "unset": {},
        "began": "now",
        "tool": "shell",
    }
    record = reader.read_record(
        made(tmp_path / "record", start("a", **odd, response_files=[7, {"path": "p", "text": 3}]))
    )
    (call,) = record.calls
    assert (call.words, call.cwd, call.changed, call.unset, call.began) == (("x",), "", {}, (), 0.0)
    assert (call.tool, call.state) == ("compiler", "started")
    assert [(each.path, each.text) for each in call.response_files] == [("p", None)]


def test_lines_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LINE", 4096)
    record = reader.read_record(made(tmp_path / "record", start("a", words=["x" * 20_000]), start("b")))
    assert [call.id for call in record.calls] == ["b"]
    assert record.damaged == 1


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "output/../../secret", "output/link", "output", "x/y", "\0/\0"]
)
def test_files_outside_of_the_record_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = made(tmp_path / "record", start("a", stdout=name, stderr="output/a.err", phases=name))
    (folder / "output" / "link").symlink_to(tmp_path / "secret")
    (folder / "output" / "a.err").write_bytes(b"told \xff")
    record = reader.read_record(folder)
    assert reader.read_output(record, record.calls[0]) == ("", "told \N{REPLACEMENT CHARACTER}")


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = made(tmp_path / "record", start("a", stdout="output/a.out"))
    os.mkfifo(folder / "output" / "a.out")
    record = reader.read_record(folder)
    assert reader.read_output(record, record.calls[0]) == ("", "")


def test_what_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"no record\.json"):
        reader.read_record(tmp_path)
    made(tmp_path / "other", schema="pytest/1")
    with pytest.raises(MalformedError):
        reader.read_record(tmp_path / "other")
    made(tmp_path / "newer", schema="cuwheel.calls/9")
    with pytest.raises(NewerSchemaError):
        reader.read_record(tmp_path / "newer")
    (made(tmp_path / "cut") / calls.HEAD_FILE).write_text('{"schema"')
    with pytest.raises(MalformedError):
        reader.read_record(tmp_path / "cut")


def test_searches_for_a_program(tmp_path: Path) -> None:
    """Tried in three folders by one process: one call; found in the last: none that failed."""
    tries = [start("x", index, event="not-started", errno=2, pid=7, program=f"/{index}/nvcc") for index in range(3)]
    found = [start("y", 9, event="not-started", errno=2, pid=8), start("z", 10, pid=8), end("z", status=0)]
    record = reader.read_record(made(tmp_path / "record", *tries, *found))
    assert [(call.program, call.state) for call in record.calls] == [
        ("/2/nvcc", "not-started"),
        ("/x/nvcc", "succeeded"),
    ]
    assert record.calls[0].problem == os.strerror(2)


@pytest.mark.parametrize("wrong", [[1], {"a": 1}, "x", 1.5, True, None, [[]]])
def test_values_of_any_type_in_any_field(tmp_path: Path, wrong: object) -> None:
    """Each field of each kind of event in turn: read as if it were not there, or the line is damaged."""
    given = start("a"), start("b") | {"event": "not-started", "errno": 2}, end("a", status=0, signal=None, memory=1)
    more = {"ran": [], "parent": "", "phases": "", "searched": True, "stdout": "", "stderr": "", "hit": True}
    fields = sorted({*given[0], *given[1], *given[2], *more})
    for number, field in enumerate(fields):
        lines = [each | {field: wrong} for each in given]
        record = reader.read_record(made(tmp_path / str(number), *lines, *lines))
        for call in record.calls:
            reader.read_output(record, call)
            calls.summarize(record)


def test_masked_when_it_is_read(tmp_path: Path) -> None:
    """A record whose session was killed may hold more than its shims knew to mask."""
    told = "https://me:pw@host"
    folder = made(tmp_path / "record", start("a", words=[told], changed={"A_TOKEN": "v"}, stdout="output/a.out"))
    (folder / "output" / "a.out").write_text(told)
    record = reader.read_record(folder)
    assert record.calls[0].words == ("https://***@host",)
    assert record.calls[0].changed == {"A_TOKEN": masking.MASK}
    assert reader.read_output(record, record.calls[0])[0] == "https://***@host"


def test_sealing_keeps_lines_whole(tmp_path: Path) -> None:
    words = ['-DMY_TOKEN="abc\\"d" x', "https://me:pw@host", "-DPASS=1"]
    folder = made(tmp_path / "record", start("a", words=words), b'{"event": "start", "words": ["A_TOKEN=cut')
    before = (folder / calls.ENVIRONMENT_FILE).stat().st_mtime_ns
    (folder / "output" / "a.out").write_bytes(b"x \xff https://me:pw@host\n")
    session.mask_record(folder, {})
    text = (folder / calls.CALLS_FILE).read_text()
    assert "me:pw" not in text
    assert "cut" not in text
    record = reader.read_record(folder)
    assert [call.id for call in record.calls] == ["a"]
    assert (folder / "output" / "a.out").read_bytes() == b"x \xff https://***@host\n"
    assert (folder / calls.ENVIRONMENT_FILE).stat().st_mtime_ns == before
    assert not list(folder.rglob("*.new"))


def test_secrets_of_the_command_s_variables_are_sealed(tmp_path: Path) -> None:
    words = ["-Dx=plain-word-99", 'quo"te-99', "-c"]
    folder = made(tmp_path / "record", start("a", words=words), start("b", 1))
    (folder / "output" / "a.out").write_text("said plain-word-99\n")
    lines = (folder / calls.CALLS_FILE).read_text().splitlines()
    session.mask_record(folder, {"MY_TOKEN": "plain-word-99", "OTHER_TOKEN": 'quo"te-99', "PATH": "/src"})
    assert reader.read_record(folder).calls[0].words == ("-Dx=***", "***", "-c")
    assert (folder / "output" / "a.out").read_text() == "said ***\n"
    assert (folder / calls.CALLS_FILE).read_text().splitlines()[1] == lines[1]


@pytest.mark.parametrize("name", [calls.HEAD_FILE, calls.ENVIRONMENT_FILE, calls.CALLS_FILE])
def test_a_pipe_keeps_nobody_waiting(tmp_path: Path, name: str) -> None:
    folder = made(tmp_path / "record", start("a"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UnreadableError):
        reader.read_record(folder)


def test_colours_of_a_terminal_are_not_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "record", start("a", stdout="output/a.out"))
    (folder / "output" / "a.out").write_bytes(b"\x1b[01m\x1b[Ka.cu:1:\x1b[m\x1b[K \x1b[01;31merror\x1b[0m")
    record = reader.read_record(folder)
    assert reader.read_printed(record, record.calls[0]) == "a.cu:1: error"
    assert "\x1b" in reader.read_output(record, record.calls[0])[0]


def test_hits_marked_afterwards(tmp_path: Path) -> None:
    folder = made(tmp_path / "record", start("a"), start("b", 1), start("c", 2))
    sccache.mark_hits(reader.read_record(folder), {1: True, 2: False, 99: True})
    assert [call.cache_hit for call in reader.read_record(folder).calls] == [True, False, None]


def test_what_ccache_said(tmp_path: Path) -> None:
    said = {"a": "direct_cache_hit\n", "b": "cache_miss\n", "c": ""}
    lines = [start(id_, index, tool="cache", name="ccache") for index, id_ in enumerate(said)]
    folder = made(tmp_path / "record", *lines)
    for id_, text in said.items():
        (folder / "cache" / f"{id_}.txt").write_text(text)
    assert [call.cache_hit for call in reader.read_record(folder).calls] == [True, False, None]


def test_a_record_of_windows_is_read_anywhere(tmp_path: Path) -> None:
    program = "C:\\Program Files\\CUDA\\bin\\nvcc.exe"
    inner = {
        "event": "inner", "id": "a", "name": "cl.exe", "program": "C:\\VC\\cl.exe", "words": ["/c", "/DTOKEN=abcdef1"],
        "began": 10**9, "ended": 2 * 10**9, "status": 0xC0000135,
    }  # fmt: skip
    wide = {"path": "x.rsp", "text": "-c", "encoding": "utf-16"}
    folder = made(
        tmp_path / "r",
        start("a", program=program, name="nvcc.exe", cwd="C:\\work", response_files=[wide]),
        inner,
        inner | {"words": 7, "status": "x", "id": "nobody"},
        end("a", status=0xC0000135),
        start("b", program="bin\\nvcc.exe", name="nvcc.exe", cwd="\\\\server\\share"),
        way="watch",
    )
    record = reader.read_record(folder)
    first, second = record.calls
    assert (record.way, first.program, second.program) == ("watch", program, "\\\\server\\share\\bin\\nvcc.exe")
    assert (first.status, first.state) == (0xC0000135, "failed")
    assert [(each.name, each.status, each.words) for each in first.inner] == [
        ("cl.exe", 0xC0000135, ("/c", "/DTOKEN=***"))
    ]
    assert [(each.name, each.arch, each.seconds) for each in first.phases] == [("cl", "", 1.0)]
    assert first.response_files[0].encoding == "utf-16"
    assert not second.inner


@pytest.mark.parametrize(
    ("encoding", "raw", "text"),
    [
        ("cp1252", "für".encode("cp1252"), "für"),
        ("cp932", "エラー".encode("cp932"), "エラー"),
        ("cp1252", "für".encode(), "für"),
        ("cp99999", b"f\xfcr", "f\ufffdr"),
        ("rot13", b"f\xfcr", "f\ufffdr"),
        (7, b"f\xfcr", "f\ufffdr"),
    ],
)
def test_what_a_compiler_printed_in_a_code_page_is_text(
    tmp_path: Path, encoding: object, raw: bytes, text: str
) -> None:
    folder = made(tmp_path / "r", start("a", stdout="output/a.out"), end("a", status=1), encoding=encoding)
    (folder / "output" / "a.out").write_bytes(raw)
    record = reader.read_record(folder)
    assert reader.read_output(record, record.calls[0]) == (text, "")
