"""`cuwheel build`: its options become a request, and only what was said overrides the configuration."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.cli import frame
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from cuwheel.building.request import BuildRequest


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def build(request: BuildRequest) -> None:
        found.update((each.name, getattr(request, each.name)) for each in fields(request))

    monkeypatch.setattr(api, "build", build)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return found


def run(*words: str) -> None:
    command, args = frame.understood(["build", *words])
    command.run(args)


def test_nothing_said_leaves_everything_to_the_configuration(called: dict[str, Any]) -> None:
    run()
    assert called["settings"] == {}
    assert (called["source"], called["output"], called["machines"], called["at_once"]) == (
        ".",
        Path("dist").absolute(),
        (),
        1,
    )


def test_what_is_said_becomes_the_configurations(called: dict[str, Any]) -> None:
    run(
        *("src", "--for", "h100,l40", "--for", "9.0", "--cuda", "13.0,13.4", "--python", "3.10", "--force-archs"),
        *("--naming", "local", "--timeout", "60", "--require", "torch<3,>=2", "--with", "cublas,cudnn", "--future"),
        *("--no-ptx", "--allow", "sm_75", "--no-repair", "--backend", "torch", "--subdirectory", "python"),
        *("--host-only", "--guard", "inject", "--no-recipe", "--variable", "A=b=c", "--config-setting", "d.e="),
    )
    assert called["machines"] == ("h100", "l40", "9.0")
    assert called["cuda"] == ("13.0", "13.4")
    assert called["settings"] == {
        "force_archs": True,
        "naming": "local",
        "timeout": 60.0,
        "requires": ["torch<3,>=2"],
        "components": ("cublas", "cudnn"),
        "plan": {"future": True, "ptx": False},
        "gate": {"allow": ("sm_75",), "device_code": False},
        "guard": "inject",
        "recipe": False,
        "environment": {"A": "b=c"},
        "config_settings": {"d.e": ""},
        "repair": {"enabled": False},
        "backend": "torch",
        "subdirectory": "python",
    }


@pytest.mark.parametrize("words", [("--variable", "A"), ("--variable", "=1"), ("--config-setting", "k")])
def test_pairs_that_are_none(called: dict[str, Any], words: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="=VALUE"):
        run(*words)
    assert called == {}


def test_options_that_exclude_each_other(called: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be used together"):
        frame.run(["build", "--from", "/", "--locked"])
    assert called == {}


@pytest.mark.parametrize("words", [("--jobs", "0"), ("--jobs", "two"), ("--naming", "everything"), ("--at-once", "-1")])
def test_options_that_are_none(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=words[0]):
        frame.run(["build", *words])
