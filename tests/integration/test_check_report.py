"""The files of `check --report`, read by programs that others wrote for them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import cache, manifest
from tests.fixtures.command import call

pytestmark = [pytest.mark.integration, pytest.mark.download]
_VALIDATOR = "@microsoft/sarif-multitool-linux"
_MINUTES = 600
_READ = """
import json, sys
from junitparser import JUnitXml
print(json.dumps([
    (suite.name, suite.tests, suite.failures, [(case.name, [type(x).__name__ for x in case.result]) for case in suite])
    for suite in JUnitXml.fromfile(sys.argv[1])
]))
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    for name in ("plain-130.so", "family-130.so"):
        shutil.copy(manifest.HERE / "bin" / name, tmp_path)
    words = ("--on", "h100,v100", "--max-size", "10kB", "--archs", "sm_90,compute_90", "--report", "report")
    assert call("check", "plain-130.so", "family-130.so", *words, cwd=tmp_path).status == 1
    return tmp_path / "report"


@pytest.mark.skipif(not shutil.which("npm") or sys.platform != "linux", reason="needs npm, on Linux")
def test_sarif_by_its_validator(report: Path) -> None:
    """Its schema, its authors' rules, and GitHub's. That no address tells more about cuwheel is all that it finds."""

    def make(folder: Path) -> None:
        words = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(folder), f"{_VALIDATOR}@5.7.0"]
        if subprocess.run(words, check=False, timeout=_MINUTES).returncode:
            raise cache.UnavailableError(f"{_VALIDATOR} cannot be had")

    tool = cache.made("sarif-multitool-5.7.0", make) / "node_modules" / _VALIDATOR
    program, schema, found = tool / "Sarif.Multitool", tool / "sarif-2.1.0.json", report / "found.sarif"
    program.chmod(0o755)
    words = ["validate", "check.sarif", "--rule-kind", "Sarif;Ghas", "--json-schema", str(schema), "-o", str(found)]
    environ = {"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1", "HOME": str(report)}
    done = subprocess.run([program, *words], cwd=report, env=environ, capture_output=True, text=True, check=False)
    assert found.exists(), done.stdout + done.stderr
    results = json.loads(found.read_bytes())["runs"][0]["results"]
    assert {each["ruleId"] for each in results} == {"SARIF2005"}, done.stdout


def test_junit_by_a_program_that_reads_it(report: Path) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    words = [uv, "run", "--quiet", "--no-project", "--with", "junitparser==5.0.3", "python", "-c", _READ, "junit.xml"]
    done = subprocess.run(words, cwd=report, capture_output=True, text=True, check=False, timeout=_MINUTES)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first == [
        "plain-130.so", 3, 2, [["size and architectures", ["Failure"]], ["h100", []], ["v100", ["Failure"]]],
    ]  # fmt: skip
    assert second[1:3] == [3, 3]
