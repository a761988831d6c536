"""One rule for machines, in every function that takes some: a text, with commas or not, a file, a value, or several."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.errors import UsageError
from cuwheel.machine import fleet, probe, profile
from cuwheel.machine.fleet import Machine
from cuwheel_core.errors import UnknownNameError
from tests.unit.verdicts.machines import MACHINES

LIBRARY = Path(__file__).parents[2] / "fixtures" / "bin" / "plain-130.so"
PROFILE = next(each for each in MACHINES if each.name == "a healthy H200").profile

# Function of the API -> a call with machines, before anything is done with them.
CALLS: dict[str, Callable[[Any], object]] = {
    "build": lambda machines: cuwheel.BuildRequest(machines=machines),
    "catalogue_list": lambda on: cuwheel.catalogue_list(on=on),
    "check": lambda on: cuwheel.check(LIBRARY, on=on),
    "doctor": lambda on: cuwheel.doctor(on=on),
    "explain": lambda on: cuwheel.explain(io.BytesIO(b""), on=on),
    "find": lambda on: cuwheel.FindRequest("torch", on=on),
    "graft": lambda compile_: cuwheel.GraftRequest("a.whl", compile=compile_),
    "install": lambda on: cuwheel.InstallRequest("torch", on=on),
    "inspect": lambda on: cuwheel.inspect(LIBRARY, coverage=True, on=on),
    "plan": cuwheel.plan,
    "publish": lambda machines: cuwheel.PublishRequest(requirements=Path("r.txt"), to=Path("m"), machines=machines),
    "read_list": lambda on: cuwheel.read_list("90", on=on),
    "slim": lambda machines: cuwheel.SlimRequest("a.whl", machines=machines),
    "verify_fleet": lambda on: cuwheel.FleetRequest("a.whl", cluster="local", on=on),
}
ONE = {"doctor", "explain"}  # which are about one machine


def test_every_function_that_takes_machines_is_here() -> None:
    taking = {
        name
        for name in api.__all__
        for each in inspect.signature(getattr(api, name)).parameters.values()
        if each.name in ("on", "machines") or "Machine" in str(each.annotation)
    }
    assert taking == CALLS.keys()


@pytest.mark.parametrize("wrong", [90, 9.0, "", " , ", b"h100", {"h100": 1}, ["h100", None], ["h100", ""], [["h100"]]])
@pytest.mark.parametrize("name", CALLS)
def test_what_names_no_machine_is_told_in_one_sentence(name: str, wrong: object) -> None:
    with pytest.raises(UsageError) as told:
        CALLS[name](wrong)
    assert told.value.message.startswith("machines are GPU names, capabilities, profiles and fleet files, in one text ")
    assert told.value.message.endswith(" names none")
    assert "'h100,l40'" in told.value.hint


@pytest.mark.parametrize("name", sorted(CALLS.keys() - ONE))
def test_a_text_with_commas_is_the_list(name: str, tmp_path: Path) -> None:
    saved = tmp_path / "gpu07, and more.json"
    profile.save(PROFILE, saved)
    assert CALLS[name]("h100, l40") == CALLS[name](["h100", "l40"]) == CALLS[name](("h100,l40",))
    assert CALLS[name]("h100") == CALLS[name](["h100"]) != CALLS[name]("t4")
    assert CALLS[name](saved) == CALLS[name](str(saved)) == CALLS[name]([saved])


@pytest.mark.parametrize("name", sorted(CALLS.keys() - ONE - {"build"}))
def test_values_are_machines_too(name: str) -> None:
    known = Machine(name="mine", capability=fleet.from_gpu("h100").capability, driver="580.65.06")
    assert CALLS[name](known) == CALLS[name]([known])
    assert CALLS[name](PROFILE) == CALLS[name]([PROFILE])


def test_a_build_writes_its_machines_down() -> None:
    with pytest.raises(UsageError, match="stand in its configuration"):
        CALLS["build"](fleet.from_gpu("h100"))
    assert cuwheel.BuildRequest(machines="h100, l40").overrides == {"for_": ("h100", "l40")}


@pytest.mark.parametrize("name", ["catalogue_list", "check", "doctor", "plan", "read_list"])
def test_an_unknown_name_is_told_as_such(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no GPU named 'h10O'") as told:
        CALLS[name]("h10O")
    assert "H100" in told.value.hint


def test_a_check_of_a_text_is_one_of_these_machines() -> None:
    assert [each.machine for each in cuwheel.check(LIBRARY, on="h100,gtx 1080 ti").verdicts] == ["h100", "gtx 1080 ti"]


def test_a_plan_takes_lists_and_texts_beside_each_other() -> None:
    several = cuwheel.plan(["h100", "l40"], "a100, t4", cuda=["13.0"])
    assert several == cuwheel.plan("h100", "l40", "a100", "t4", cuda=["13.0"])


def test_a_machine_that_is_examined_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPU nobody can say what is wrong with the machine."""
    monkeypatch.setattr(probe, "probe", lambda _env, **_: PROFILE)
    saved = tmp_path / "gpu07.json"
    profile.save(PROFILE, saved)
    for on in (PROFILE, saved, str(saved), [str(saved)]):
        assert cuwheel.doctor(on=on).machine == PROFILE
    assert cuwheel.doctor(on="this").machine == cuwheel.doctor(on=()).machine == cuwheel.doctor(on=None).machine
    for wrong in ("h100", ["9.0"], fleet.from_gpu("h100")):
        with pytest.raises(UsageError, match="a machine is examined whole") as told:
            cuwheel.doctor(on=wrong)
        assert "cuwheel doctor --save FILE" in told.value.hint
    wrong_lists: list[Any] = [[PROFILE, saved], ["this", saved]]
    for several in wrong_lists:
        with pytest.raises(UsageError, match="one machine is examined at a time"):
            cuwheel.doctor(on=several)


def test_one_machine_may_be_a_fleet_of_one(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("[[machine]]\nname = 'a'\ngpu = 'h100'\n")
    (tmp_path / "two.toml").write_text("[[machine]]\nname='a'\ngpu='h100'\n[[machine]]\nname='b'\ngpu='l40'\n")
    known, gpu = fleet.one_machine(tmp_path / "one.toml")
    assert (known, gpu and gpu.gpu) == (None, "H100")
    with pytest.raises(UsageError, match="one machine"):
        fleet.one_machine(tmp_path / "two.toml")
    assert fleet.one_machine("9.0") == (None, fleet.from_gpu("9.0"))
    assert fleet.one_machine([PROFILE, "h100"]) == fleet.one_machine((PROFILE, fleet.from_gpu("h100")))
