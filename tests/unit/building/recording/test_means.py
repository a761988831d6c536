"""Which way a machine records, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cuwheel.building.recording import means, windows_programs
from cuwheel.building.recording.instructions import Wish
from cuwheel.building.recording.windows_programs import Programs
from cuwheel.errors import CuwheelError, ToolError, UnreadableError, UsageError

_PROGRAMS = Programs(watch=Path("watch.exe"), nvcc=Path("nvcc.exe"))


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setattr(means, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(windows_programs, "shipped", lambda: _PROGRAMS)
    monkeypatch.setattr(means, "_can_watch", lambda _programs: True)
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path))
    return monkeypatch


@pytest.mark.parametrize(
    ("wish", "way"),
    [
        (Wish(), "watch"),
        (Wish(way="watch"), "watch"),
        (Wish(way="path"), "path"),
        (Wish(archs=("-arch=sm_90",)), "path"),
        (Wish(launcher=("sccache",)), "path"),
    ],
)
@pytest.mark.usefixtures("on_windows")
def test_what_only_watches_cannot_change_calls(wish: Wish, way: str) -> None:
    chosen = means.choose({}, wish)
    assert (chosen.way, chosen.keeper, chosen.stand_in) == (way, _PROGRAMS.watch, _PROGRAMS.nvcc)
    kept = chosen.keeping(("make", "-j8"))
    assert kept == ("watch.exe", "--cuwheel-keep", "make", "-j8")
    assert means.quiet(kept) == ("watch.exe", "--cuwheel-keep-quiet", "make", "-j8")
    if way == "watch":
        assert chosen.led({"A": "1"}) == {"A": "1"}


def test_where_watching_is_refused_nvcc_is_stood_in_for(on_windows: pytest.MonkeyPatch) -> None:
    on_windows.setattr(means, "_can_watch", lambda _programs: False)
    assert means.choose({}, Wish()).way == "path"
    with pytest.raises(ToolError, match="cannot watch"):
        means.choose({}, Wish(way="watch"))


@pytest.mark.parametrize("wish", [Wish(way="preload"), Wish(way="watch", archs=("-arch=sm_90",))])
@pytest.mark.usefixtures("on_windows")
def test_ways_that_windows_has_not(wish: Wish) -> None:
    with pytest.raises(UsageError) as refused:
        means.choose({}, wish)
    assert "--way" in refused.value.hint


def test_a_checkout_without_the_programs_says_how_to_make_them(on_windows: pytest.MonkeyPatch) -> None:
    on_windows.setattr(windows_programs, "shipped", lambda: None)
    with pytest.raises(UnreadableError) as refused:
        means.choose({}, Wish())
    assert "./run windows" in refused.value.hint


def test_watching_is_for_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "os", SimpleNamespace(name="posix"))
    with pytest.raises(CuwheelError, match="is for Windows"):
        means.choose({}, Wish(way="watch"))


def test_programs_of_other_sources_are_not_taken(tmp_path: Path) -> None:
    for name in ("watch.exe", "nvcc.exe"):
        (tmp_path / name).touch()
    assert windows_programs.shipped(tmp_path) is None
    (tmp_path / windows_programs.ORIGIN).write_text("0" * 64)
    assert windows_programs.shipped(tmp_path) is None
    (tmp_path / windows_programs.ORIGIN).write_text(windows_programs.source_digest() + "\n")
    assert windows_programs.shipped(tmp_path) == Programs(watch=tmp_path / "watch.exe", nvcc=tmp_path / "nvcc.exe")
