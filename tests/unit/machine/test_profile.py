from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.machine import fleet, profile
from cuwheel.support import codec
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from pathlib import Path


def test_saved_and_read_back_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    for machine in MACHINES:
        profile.save(machine.profile, path)
        assert profile.load(path) == machine.profile
    assert [file.name for file in tmp_path.iterdir()] == ["machine.json"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", MalformedError),
        (b"not json", MalformedError),
        (b"[]", MalformedError),
        (b"{}", MalformedError),
        (b'{"schema": 7}', MalformedError),
        (b'{"schema": "cuwheel.doctor/1"}', MalformedError),
        (b'{"schema": "cuwheel.machine/1"}', MalformedError),
        (b'{"schema": "cuwheel.machine/1", "system": []}', MalformedError),
        (b'{"schema": "cuwheel.machine/2", "something": "new"}', NewerSchemaError),
        (b'{"schema": "cuwheel.machine/99999999999999999999999999"}', NewerSchemaError),
        (b"\xff\xfe", MalformedError),
        (b"[" * 100_000, MalformedError),
    ],
)
def test_broken_profiles(text: bytes, error: type[CuwheelError]) -> None:
    with pytest.raises(error) as caught:
        profile.decode(text, "machine.json")
    assert caught.value.hint
    assert "machine.json" in caught.value.message


def test_a_broken_profile_names_the_place() -> None:
    data = json.loads((profile.__doc__ and "{}") or "{}")
    data |= {"schema": profile.SCHEMA, "system": {"os": {"value": 3, "found_via": "x"}}, "driver": {}}
    with pytest.raises(MalformedError, match=r"\$\.system"):
        profile.decode(json.dumps(data).encode(), "machine.json")
    gpu = {"name": "x", "capability": "weird", "found_via": "NVML"}
    data = json.loads(codec.encode(MACHINES[0].profile)) | {"gpus": [gpu]}
    with pytest.raises(MalformedError, match=r"no architecture named 'weird'.*\$\.gpus"):
        profile.decode(json.dumps(data).encode(), "machine.json")


def test_missing_and_enormous_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="No such file"):
        profile.load(tmp_path / "nowhere.json")
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (profile._MAX_BYTES + 1))
    with pytest.raises(MalformedError, match="too large"):
        profile.load(large)


def test_one_machine_is_a_profile_a_gpu_or_both(tmp_path: Path) -> None:
    """The file of a profile may be named as text; any other text is a GPU."""
    saved, known = tmp_path / "gpu07.json", MACHINES[0].profile
    profile.save(known, saved)
    h100 = fleet.from_gpu("h100")
    assert fleet.one_machine(None) == fleet.one_machine(()) == (None, None)
    assert fleet.one_machine("h100") == fleet.one_machine(h100) == (None, h100)
    for each in (known, saved, str(saved)):
        assert fleet.one_machine(each) == (known, None)
        assert fleet.one_machine([each, "h100"]) == fleet.one_machine([each, h100, "this"]) == (known, h100)
    with pytest.raises(UsageError, match="one machine"):
        fleet.one_machine(["h100", "l40"])
    with pytest.raises(UsageError, match="one machine"):
        fleet.one_machine([known, saved])


def test_saving_where_one_may_not(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        profile.save(MACHINES[0].profile, tmp_path / "nowhere" / "machine.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/venv", "~/venv"),
        ("/home/alice", "~"),
        ("/home/alicent/venv", "/home/<name>/venv"),
        ("/scratch/alice/cuda:/home/bob/lib", "/scratch/<name>/cuda:/home/<name>/lib"),
        ("/Users/carol/lib", "/Users/<name>/lib"),
        (r"C:\Users\Dave\cuda", r"C:\Users\<name>\cuda"),
        ("//gpu07.corp/share", "//<name>/share"),
        ("/opt/malice/lib", "/opt/malice/lib"),
        ("/usr/local/cuda", "/usr/local/cuda"),
    ],
)
def test_nobody_is_named(text: str, expected: str) -> None:
    names = ("alice", "gpu07.corp", "gpu07")
    assert profile.scrub([text], home="/home/alice", names=names) == [expected]


def test_names_that_are_words_stay() -> None:
    assert profile.scrub(["/root/x /usr/pi/y"], home="/", names=("root", "pi", "")) == ["/root/x /usr/pi/y"]


def test_names_that_would_steer_a_terminal(tmp_path: Path) -> None:
    """A profile is anybody's: what its GPU is called is shown in every report."""
    machine = next(each for each in MACHINES if each.profile.gpus)
    path = tmp_path / "machine.json"
    profile.save(machine.profile, path)
    name = machine.profile.gpus[0].name
    path.write_text(path.read_text().replace(json.dumps(name), json.dumps(f"{name}\x1b[2J\nhint: rm -r")))
    assert profile.load(path).gpus[0].name == f"{name}\ufffd[2J\ufffdhint: rm -r"
