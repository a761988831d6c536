"""Which way a machine records, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cuwheel.building.recording import recorder, shims
from cuwheel.building.recording.shims import RecordOptions, WindowsPrograms
from cuwheel.errors import ToolError, UsageError
from cuwheel.support import own_c
from cuwheel_core.errors import CuwheelError, UnreadableError

_PROGRAMS = WindowsPrograms(watch=Path("watch.exe"), nvcc=Path("nvcc.exe"))


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setattr(recorder, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(shims, "shipped_windows_programs", lambda: _PROGRAMS)
    monkeypatch.setattr(recorder, "_can_watch", lambda _programs: True)
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path))
    return monkeypatch


@pytest.mark.parametrize(
    ("wish", "way"),
    [
        (RecordOptions(), "watch"),
        (RecordOptions(way="watch"), "watch"),
        (RecordOptions(way="path"), "path"),
        (RecordOptions(archs=("-arch=sm_90",)), "path"),
        (RecordOptions(launcher=("sccache",)), "path"),
    ],
)
@pytest.mark.usefixtures("on_windows")
def test_what_only_watches_cannot_change_calls(wish: RecordOptions, way: str) -> None:
    chosen = recorder.choose_recorder({}, wish)
    assert (chosen.way, chosen.keeper, chosen.stand_in) == (way, _PROGRAMS.watch, _PROGRAMS.nvcc)
    kept = chosen.kept_command(("make", "-j8"))
    assert kept == ("watch.exe", "--cuwheel-keep", "make", "-j8")
    assert recorder.quiet_command(kept) == ("watch.exe", "--cuwheel-keep-quiet", "make", "-j8")
    if way == "watch":
        assert chosen.redirected_environ({"A": "1"}) == {"A": "1"}


def test_where_watching_is_refused_nvcc_is_stood_in_for(on_windows: pytest.MonkeyPatch) -> None:
    on_windows.setattr(recorder, "_can_watch", lambda _programs: False)
    assert recorder.choose_recorder({}, RecordOptions()).way == "path"
    with pytest.raises(ToolError, match="cannot watch"):
        recorder.choose_recorder({}, RecordOptions(way="watch"))


@pytest.mark.parametrize("wish", [RecordOptions(way="preload"), RecordOptions(way="watch", archs=("-arch=sm_90",))])
@pytest.mark.usefixtures("on_windows")
def test_ways_that_windows_has_not(wish: RecordOptions) -> None:
    with pytest.raises(UsageError) as refused:
        recorder.choose_recorder({}, wish)
    assert "--way" in refused.value.hint


def test_a_checkout_without_the_programs_says_how_to_make_them(on_windows: pytest.MonkeyPatch) -> None:
    on_windows.setattr(shims, "shipped_windows_programs", lambda: None)
    with pytest.raises(UnreadableError) as refused:
        recorder.choose_recorder({}, RecordOptions())
    assert "./run prebuild" in refused.value.hint


def test_watching_is_for_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "os", SimpleNamespace(name="posix"))
    with pytest.raises(CuwheelError, match="is for Windows"):
        recorder.choose_recorder({}, RecordOptions(way="watch"))


def test_programs_of_other_sources_are_not_taken(tmp_path: Path) -> None:
    for name in ("watch.exe", "nvcc.exe"):
        (tmp_path / name).touch()
    assert shims.shipped_windows_programs(tmp_path) is None
    (tmp_path / own_c.ORIGIN).write_text("0" * 64)
    assert shims.shipped_windows_programs(tmp_path) is None
    (tmp_path / own_c.ORIGIN).write_text(shims.windows_digest() + "\n")
    assert shims.shipped_windows_programs(tmp_path) == WindowsPrograms(
        watch=tmp_path / "watch.exe", nvcc=tmp_path / "nvcc.exe"
    )
