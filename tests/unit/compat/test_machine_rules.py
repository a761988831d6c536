from __future__ import annotations

import pytest

from cuwheel.compat import machine_rules
from cuwheel.compat.machine_rules import RULES
from cuwheel.machine import profile
from cuwheel.report.answer import to_json
from tests.unit.compat.machines import MACHINES, Machine


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_machine_gives_exactly_its_findings(machine: Machine) -> None:
    findings = machine_rules.examine(machine.profile)
    assert {finding.rule for finding in findings} == machine.expected


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_finding_says_why_and_what_to_do(machine: Machine) -> None:
    for finding in machine_rules.examine(machine.profile):
        assert finding.message
        assert finding.evidence
        assert finding.fix


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_saved_machine_is_diagnosed_alike(machine: Machine) -> None:
    saved = to_json(machine.profile).encode()
    assert machine_rules.examine(profile.decode(saved, "saved")) == machine_rules.examine(machine.profile)


def test_there_are_enough_machines_and_each_rule_fires_somewhere() -> None:
    assert len(MACHINES) >= 40
    assert len({machine.name for machine in MACHINES}) == len(MACHINES)
    assert {rule for machine in MACHINES for rule in machine.expected} == {rule.id for rule in RULES}


def test_rule_ids_are_unique_and_documented() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    for rule in RULES:
        assert rule.why
        assert rule.source


def test_the_gravest_comes_first() -> None:
    mixed = next(machine for machine in MACHINES if machine.name.startswith("case 1: CMake"))
    severities = [finding.severity for finding in machine_rules.examine(mixed.profile)]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


def _finding(name: str, rule: str) -> str:
    machine = next(machine for machine in MACHINES if machine.name.startswith(name))
    found = next(finding for finding in machine_rules.examine(machine.profile) if finding.rule == rule)
    return f"{found.message}\n{found.fix}"


def test_the_fix_names_what_is_on_the_machine() -> None:
    assert "accepts gcc up to 12, but would use 13.2.0" in _finding("case 1: CMake", "host-compiler-too-new")
    assert 'NVCC_PREPEND_FLAGS="-ccbin /usr/bin/gcc-12.3.0"' in _finding("case 1: CMake", "host-compiler-too-new")
    for name, rule in (("conda: GCC 13", "host-compiler-too-new"), ("conda: no compiler", "host-compiler-missing")):
        assert "/usr/bin/gcc-12.4.0" in _finding(name, rule)
        assert "apt install" not in _finding(name, rule)
    assert "RTX 5060 Ti (12.0)" in _finding("case 4: a Windows", "architecture-misses-gpu")
    assert 'in candle/.cargo/config.toml: CUDA_COMPUTE_CAP = "120"' in _finding(
        "case 4: a Windows", "architecture-misses-gpu"
    )
    assert "error 35" in _finding("torch for CUDA 13 on a driver", "driver-too-old")
    assert "570.133.20" in _finding("torch for CUDA 13 on a driver", "driver-too-old")
    assert "apt install g++-13" not in _finding("GCC 14 with CUDA 12.4", "host-compiler-too-new")  # Fedora
