"""The wheel in Python for Windows, under Wine."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.dist.conftest import LIBRARY
from tests.wine import windows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(windows.missing()), reason=windows.missing())


def test_a_road_of_each_verb(core: Path, wheel: Path, tmp_path: Path) -> None:
    for each in (core, wheel):
        with zipfile.ZipFile(each) as packed:
            packed.extractall(tmp_path / "site")
    (tmp_path / "error.log").write_text("CUDA error: no kernel image is available for execution on the device\n")
    (tmp_path / "libplain.so").write_bytes(LIBRARY.read_bytes())
    env = {"PYTHONPATH": windows.named(tmp_path / "site"), "CUWHEEL_CACHE": windows.named(tmp_path / "cache")}
    for status, *words in (
        (0, "--version"),
        (0, "explain", "error.log", "--on", "h100"),
        (0, "inspect", "libplain.so"),
        (0, "check", "libplain.so", "--on", "h100", "--set", "os=linux,cpu=x86_64"),
        (0, "slim", "libplain.so", "--for", "h100", "-o", "slim.so"),
        (0, "plan", "--for", "h100"),
        (0, "record", "-o", "record", "--", "cmd", "/c", "exit 0"),  # with the programs that ship
        (2, "trace", "--", "cmd"),  # Linux only, and it says so
    ):
        done = windows.run(["-m", "cuwheel", *map(str, words)], env=env, cwd=tmp_path)
        assert done.returncode == status, (words, done.stdout[-2000:], done.stderr[-2000:])
        assert b"this is a bug" not in done.stderr
    assert (tmp_path / "slim.so").read_bytes() != LIBRARY.read_bytes()
