"""Files of every format that outlives a run, as each version wrote them, are read by this one."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from cuwheel.building.recording import reader
from cuwheel.cli import main
from cuwheel.delivery import lock_files
from cuwheel.device_code import wheel_facts
from cuwheel.toolchains.lock import read_lock
from cuwheel.wheel import journal_file
from cuwheel_lab.measuring import bench

_VERSIONS = sorted(path for path in (Path(__file__).parents[1] / "fixtures" / "formats").iterdir() if path.is_dir())


@pytest.fixture(params=_VERSIONS, ids=lambda path: path.name)
def written(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def _told(capsys: pytest.CaptureFixture[str], words: list[str], status: int = 0) -> dict[str, object]:
    assert main([*words, "--json"]) == status, capsys.readouterr().err
    return dict(json.loads(capsys.readouterr().out))


def test_facts_of_a_wheel(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = wheel_facts.load(written / "wheel.cuwheel.json")
    assert (facts.name, facts.version, [each.path for each in facts.libraries]) == (
        "subject",
        "1.0",
        ["subject/native.so"],
    )
    assert _told(capsys, ["check", str(written / "wheel.cuwheel.json"), "--on", "h100"])["verdicts"]


def test_a_lock(written: Path) -> None:
    lock = lock_files.read_lock(written / "pylock.node.toml")
    assert (lock.wanted, [part.machines for part in lock.parts]) == (("subject",), [("node",)])


def test_a_lock_of_toolkits(written: Path) -> None:
    found = read_lock(written / "cuwheel.lock")
    (toolchain,) = found.toolchain
    assert (toolchain.cuda, toolchain.provider, toolchain.components) == (
        "13.0",
        "index",
        ("nvcc", "cudart", "cccl", "nvvm"),
    )
    assert {len(each.sha256) for each in toolchain.archive} == {64}


def test_a_catalogue(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(written / "catalogue", tmp_path / "catalogue")
    for each in list((tmp_path / "catalogue").rglob("*.base64")):
        each.with_suffix("").write_bytes(base64.b64decode(each.read_bytes()))
    told = str(_told(capsys, ["catalogue", "list", str(tmp_path / "catalogue"), "--on", "h100"]))
    assert "'subject'" in told
    assert "'native'" in told


def test_a_fleet_and_a_profile(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(capsys, ["plan", "--for", str(written / "fleet.toml")])["jobs"]
    assert main(["doctor", "--on", str(written / "profile.json"), "--json"]) in {0, 1}
    assert json.loads(capsys.readouterr().out)["machine"]["system"]["cpu"]["value"] == "x86_64"


def test_a_record(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = reader.read_record(written / "record")
    assert [call.state for call in record.calls] == ["succeeded", "failed"]
    assert "compute_120" in reader.read_printed(record, record.calls[1])
    causes = _told(capsys, ["explain", str(written / "record")])["causes"]
    assert isinstance(causes, list)
    assert causes


def test_a_proof(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(capsys, ["verify", "--read", str(written / "proof.json")])["wheels"]


def test_a_journal(written: Path) -> None:
    found = journal_file.read_journal(written / "journal")
    assert found.header
    assert found.header.targets == ("subject",)
    assert {step.path.rpartition("/")[2] for step in found.steps} >= {"native.so", "RECORD"}


def test_trials_and_a_benchmark(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = _told(capsys, ["lab", "trials", "report", str(written / "trials")], 1)["groups"]
    assert isinstance(groups, list)
    assert [(each["runs"], each["failures"]) for each in groups] == [(3, 0), (3, 3)]
    assert [level.concurrency for level in bench.read_earlier(written / "bench.json").levels]
