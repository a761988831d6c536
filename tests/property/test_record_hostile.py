"""A record may hold anything: it is read, or refused in a sentence."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.building.recording import calls, command, reader, session
from cuwheel_core.errors import CuwheelError

_NAMES = ("event", "id", "pid", "began", "ended", "tool", "name", "program", "words", "ran", "cwd", "changed", "unset")
_MORE = ("status", "signal", "errno", "memory", "stdout", "phases", "response_files", "searched", "hit", "parent")
_WORDS = (
    "start",
    "end",
    "not-started",
    "cache",
    "finish",
    "nvcc",
    "-c",
    "a.cu",
    "-arch=sm_90",
    "@x",
    "output/a",
    "../x",
)
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(_WORDS), st.just(0)
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
)
_EVENTS = st.dictionaries(st.sampled_from(_NAMES + _MORE), _VALUES, max_size=12)
_LINES = st.one_of(_EVENTS.map(lambda event: json.dumps(event).encode()), st.binary(max_size=60))


@settings(max_examples=80, deadline=None)
@given(lines=st.lists(_LINES, max_size=8), head=st.one_of(st.just({}), _EVENTS), whole=st.booleans())
def test_it_is_read_or_refused(lines: list[bytes], head: dict[str, object], whole: bool) -> None:  # noqa: FBT001
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in calls.RECORD_FOLDERS:
            (folder / each).mkdir()
        (folder / calls.HEAD_FILE).write_text(json.dumps({**head, "schema": calls.SCHEMA}))
        (folder / calls.ENVIRONMENT_FILE).write_text(json.dumps(head))
        (folder / calls.CALLS_FILE).write_bytes(b"\n".join(lines) + (b"\n" if whole else b""))
        try:
            for _ in range(2):
                record = reader.read_record(folder)
                for call in record.calls:
                    reader.read_output(record, call)
                calls.first_failure(record)
                calls.summarize(record)
                command.save_trace(record, folder / "trace.json")
                command.save_compile_commands(record, folder / "commands.json")
                session.mask_record(folder, {})
        except CuwheelError:
            return
        assert [call.number for call in record.calls] == list(range(1, len(record.calls) + 1))
