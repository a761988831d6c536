"""`cuwheel build`: its options become a request, and only what was said overrides the configuration."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.cli import frame, main
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
    assert (called["source"], called["output"], called["machines"]) == (".", Path("dist").absolute(), ())


def test_what_is_said_becomes_the_configurations(called: dict[str, Any]) -> None:
    run(
        *("src", "--for", "h100,l40", "--for", "9.0", "--cuda", "13.0,13.4", "--python", "3.10"),
        *("--set", "force-archs=true", "--set", "timeout=60", "--set", "plan.future=true", "--set", "plan.ptx=false"),
        *("--set", "naming=local", "--require", "torch<3,>=2", "--with", "cublas,cudnn"),
        *("--set", "gate.allow=sm_75,sm_80", "--set", "gate.allow=sm_86", "--set", "repair.enabled=false"),
        *("--set", "backend=torch", "--set", "subdirectory=python", "--set", "gate.device-code=false"),
        *(
            "--set",
            "guard=inject",
            "--set",
            "recipe=false",
            "--set",
            "environment.A=b=c",
            "--set",
            "config-settings.d.e=",
        ),
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
        "gate": {"allow": ["sm_75", "sm_80", "sm_86"], "device_code": False},
        "guard": "inject",
        "recipe": False,
        "environment": {"A": "b=c"},
        "config_settings": {"d.e": ""},
        "repair": {"enabled": False},
        "backend": "torch",
        "subdirectory": "python",
    }


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("merge", "is not a key and its value"),
        ("merg=true", "did you mean 'merge'"),
        ("merge=maybe", "merge"),
        ("plan.futur=true", "did you mean 'future'"),
        ("plan=true", "cannot be set"),
        ("verify.check=x", "cannot be set"),
        ("timeout=soon", "timeout"),
        ("naming=mine", "naming"),
        ("subdirectory.x=1", "cannot be set"),
    ],
)
def test_settings_that_are_none(
    called: dict[str, Any], setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "--set", setting]) == 2
    told = capsys.readouterr().err
    assert "--set" in told
    assert said in told
    assert called == {}


@pytest.mark.parametrize("words", [("--jobs", "0"), ("--jobs", "two"), ("--set", "naming=everything")])
def test_options_that_are_none(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=words[0]):
        frame.run(["build", *words])
