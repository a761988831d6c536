"""Records, and matrix files, by anybody: an answer or a sentence, never a bug, and nothing is run that cannot be."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cuwheel.building.recording import calls
from cuwheel.cli import main
from cuwheel.errors import ConfigurationError
from cuwheel.support import process
from cuwheel_core.errors import CuwheelError
from cuwheel_lab.measuring import matrix

TEXT = st.text(max_size=12) | st.sampled_from(
    [
        "-o",
        "-c",
        "a.cu",
        "@x.rsp",
        "-",
        "***",
        "",
        "\0",
        "..",
        "/",
        "-optf",
        "PATH",
        "a:b",
        "--version",
        "nvcc",
        "\udce9",
    ]
)
JUNK = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.lists(TEXT, max_size=3)
EVENT = st.fixed_dictionaries(
    {"event": st.sampled_from(["start", "end", "not-started", "finish", "?"]), "id": st.sampled_from(["1", "2"])},
    optional={
        "tool": st.sampled_from(["nvcc", "compiler", "linker", "cache", "x"]) | JUNK,
        "name": TEXT | JUNK,
        "program": TEXT | JUNK,
        "words": st.lists(TEXT, max_size=5) | JUNK,
        "ran": st.lists(TEXT, max_size=2) | JUNK,
        "cwd": TEXT | st.just("/") | JUNK,
        "changed": st.dictionaries(TEXT, TEXT, max_size=3) | JUNK,
        "unset": st.lists(TEXT, max_size=2) | JUNK,
        "response_files": st.lists(st.dictionaries(st.sampled_from(["path", "text"]), TEXT | st.none()), max_size=2),
        "began": st.integers() | JUNK,
        "ended": st.integers() | JUNK,
        "status": st.integers(-3, 300) | JUNK,
        "signal": st.integers(0, 70) | JUNK,
        "errno": st.integers(0, 200) | JUNK,
        "stdout": TEXT | st.just("output/1.out"),
        "stderr": TEXT | st.just("output/1.err"),
    },
)  # fmt: skip


class NothingRunsError(CuwheelError):
    exit_code = 99


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(words: list[str], *, env: dict[str, str] | None, **_: object) -> None:
        """As far as the system would let it: what Popen itself refuses is a bug of ours."""
        assert words
        assert words[0]
        assert not any("\0" in word for word in words)
        assert env is not None
        assert not any("\0" in name + value or "=" in name or not name for name, value in env.items())
        raise NothingRunsError("started")

    monkeypatch.setattr(process, "_started", started)
    monkeypatch.setattr(process, "attend", lambda words, **more: started(list(words), **more))


@pytest.mark.usefixtures("nothing_runs")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENT, max_size=6), environ=st.dictionaries(TEXT, TEXT, max_size=4), masked=st.booleans())
@example(events=[{"event": "not-started", "id": "1", "errno": 1 << 31}], environ={}, masked=True)  # that is no C int
def test_any_record_is_answered(events: list[dict[str, object]], environ: dict[str, str], masked: bool) -> None:  # noqa: FBT001
    folder = Path(tempfile.mkdtemp(prefix="cuwheel-hostile-"))
    try:
        (folder / "output").mkdir()
        (folder / "output" / "1.err").write_bytes(b"\xff error: \x00 x\n")
        head = {"schema": calls.SCHEMA, "command": ["make"], "cwd": "/", "masked": masked}
        (folder / calls.HEAD_FILE).write_text(json.dumps(head))
        (folder / calls.ENVIRONMENT_FILE).write_text(json.dumps(environ))
        (folder / calls.CALLS_FILE).write_text("".join(json.dumps(event) + "\n" for event in events))
        for words in (
            ["record", "replay", f"{folder}", "--list", "--json"], ["record", "replay", f"{folder}:1", "--print"],
            ["record", "replay", f"{folder}:1"], ["record", "replay", f"{folder}:1", "--json", "--scratch"],
            ["record", "replay", f"{folder}:1", "--here", "--json"],
            ["record", "diff", f"{folder}:1", ":2", "--max-runs", "0"], ["record", "diff", f"{folder}:1"],
            ["record", "replay", f"{folder}:1", "--print", "--shell", "cmd"], ["explain", str(folder)],
            ["explain", str(folder), "--report", str(folder / "x.md"), "--json"],
        ):  # fmt: skip
            assert main(words) in {0, 1, 2, 4, 5, 6, 7, 99}, words
    finally:
        shutil.rmtree(folder)


TOML = st.recursive(
    st.booleans() | st.integers(-5, 5) | TEXT.filter(lambda text: "\udce9" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=3),
    max_leaves=8,
)
FILE = st.dictionaries(
    st.sampled_from(
        ["command", "axes", "directory", "clean", "copy", "timeout", "environment", "include", "exclude", "x"]
    ),
    TOML
    | st.sampled_from(
        ["make {a}", "{a}", {"a": {"none": ""}}, {"a": ["1", "2"]}, {"a": {"b": "c"}}, [{"a": "1"}], ".", 3.0]
    ),
)


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@settings(max_examples=150, deadline=None)
@given(FILE)
def test_any_matrix_file_is_read_or_refused(data: dict[str, object]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="cuwheel-hostile-"))
    (folder / "m.toml").write_text("".join(f"{key} = {toml(value)}\n" for key, value in data.items()))
    try:
        configurations = matrix.load_matrix(folder / "m.toml").configurations
    except ConfigurationError as error:
        configurations = ()
        assert error.problems  # noqa: PT017 - most are refused, and some are not
    finally:
        shutil.rmtree(folder)
    assert all(each.command for each in configurations)
