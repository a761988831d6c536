from __future__ import annotations

import pytest
from msgspec.structs import replace

from cuwheel.machine import profile
from cuwheel.machine.profile import Fact
from cuwheel.support import codec
from cuwheel.support.answer import to_json
from cuwheel.support.finding import RULES_FILE
from cuwheel.verdicts import machine_rules
from cuwheel.verdicts.machine_rules import RULES
from tests.unit.verdicts.machines import MACHINES, Machine


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
    groups = codec.read_toml(RULES_FILE)["group"]
    (rules,) = [each["rule"] for each in groups if each["title"] == "Machines"]
    assert {rule for machine in MACHINES for rule in machine.expected} == {each["id"] for each in rules}
    assert len(set(RULES)) == len(RULES)


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


TWO = Machine(
    name="Windows with two toolkits, and Visual Studio off PATH",
    os="Windows",
    expected=set(),
    toolkits=(("C:\\CUDA\\v12.8", "12.8.93", ("PATH",)), ("~\\CUDA v13", "13.0.88", ("CUDA_PATH",))),
    compilers=(("msvc", "19.44.35207", ("Visual Studio 2022",)),),
    variables={"CUDA_DISABLE_PTX_JIT": "1"},
)


@pytest.mark.parametrize(
    ("shell", "fixes"),
    [
        (
            "cmd",
            {
                "nvcc-mismatch": 'set "PATH=%USERPROFILE%\\CUDA v13\\bin;%PATH%" && set "CUDACXX=',
                "jit-switched": 'set "CUDA_DISABLE_PTX_JIT="',
                "host-compiler-not-on-path": 'call "vcvars64.bat" -vcvars_ver=14.44',
            },
        ),
        (
            "powershell",
            {
                "nvcc-mismatch": "$env:PATH = $HOME + '\\CUDA v13\\bin' + ';' + $env:PATH; $env:CUDACXX = ",
                "jit-switched": "$env:CUDA_DISABLE_PTX_JIT = $null",
                "host-compiler-not-on-path": "cmd /c '\"vcvars64.bat\" -vcvars_ver=14.44 && powershell'",
            },
        ),
        ("", {"jit-switched": 'set "CUDA_DISABLE_PTX_JIT="   (PowerShell: $env:CUDA_DISABLE_PTX_JIT = $null)'}),
    ],
)
def test_fixes_are_for_the_shell_that_asked(shell: str, fixes: dict[str, str]) -> None:
    """With backslashes alone; a profile of before shells were in it names both."""
    found = TWO.profile
    system = replace(found.system, shell=Fact(value=shell, found_via="the test") if shell else None)
    told = {each.rule: each.fix for each in machine_rules.examine(replace(found, system=system))}
    for rule, fix in fixes.items():
        assert told[rule].startswith(fix)
    assert "v13/bin" not in told["nvcc-mismatch"].partition("CUDACXX")[0]
