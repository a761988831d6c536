"""Secrets in the words, response files, variables and output of recorded calls are in no file that is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.command import call

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
_PLANTED = "hunter2x"
_BUILD = f"""\
curl -u ann:{_PLANTED} http://h
printf -- '-u\\nann:{_PLANTED}\\n--token\\n{_PLANTED}\\n' > words.rsp
export FETCH='curl -uann:{_PLANTED}'
nvcc -c x.cu -o x.o -u ann:{_PLANTED} -Xcompiler "curl --user=ann:{_PLANTED}" -token {_PLANTED} @words.rsp
"""


@pytest.mark.parametrize("way", ["preload", "path"])
def test_no_file_of_a_record_has_one(tmp_path: Path, way: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in (
        ("curl", "exit 0"),
        ("nvcc", f"echo \"ran ['curl', '-u', 'ann:{_PLANTED}']: fatal\" >&2; curl -sSuann:{_PLANTED} h; exit 1"),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    (tmp_path / "build.sh").write_text(_BUILD)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    words = ("--way", way, "-o", "kept", "--", "sh", "build.sh")
    told = [call("record", *words, env=environ, cwd=tmp_path)]
    told.append(call("explain", "kept", "--report", "upstream.md", env=environ, cwd=tmp_path))
    told.append(call("record", "replay", "kept:1", "--print", env=environ, cwd=tmp_path))
    told.append(call("record", "replay", "kept", "--list", "--json", env=environ, cwd=tmp_path))
    assert (tmp_path / "kept" / "calls.jsonl").stat().st_size
    own = ("build.sh", "words.rsp", "tools/curl", "tools/nvcc")
    with_it = [
        path.relative_to(tmp_path).as_posix()
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file() and _PLANTED in path.read_text("utf-8", "replace")
    ]
    assert [each for each in with_it if each not in own] == []
    for each in told[1:]:
        assert _PLANTED not in each.all
    assert _PLANTED not in told[0].stdout + told[0].stderr.partition("Call 1 failed")[2]
