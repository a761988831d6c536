"""Published packages, slimmed: valid wheels with the same verdict, and environments that go back to the last byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.machine.fleet import Refinement
from cuwheel.support import process
from tests.fixtures.cache import UnavailableError
from tests.oracle import packages
from tests.unit.changes.slim.packages import snapshot, wrong_members, wrong_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.packages import Published

pytestmark = pytest.mark.download

MINUTE = 60.0
KNOWN = Refinement(os="linux", driver="580.65.06", glibc="2.36", python="3.11")


def wheel_of(package: Published) -> Path:
    try:
        return packages.wheel(package)
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("package", packages.published(), ids=str)
def test_a_slimmed_package_is_valid_and_runs_where_it_ran(package: Published, tmp_path: Path) -> None:
    source = wheel_of(package)
    made = api.slim(source, machines=["h100"], output=tmp_path)
    if not made.written:
        assert {each.rule for each in made.findings} & {"nothing-to-slim", "signed"}
        assert list(tmp_path.iterdir()) == []
        return
    (output,) = tmp_path.iterdir()
    assert str(output) == made.output
    assert wrong_members(output) == wrong_members(source)
    assert made.wheel
    assert made.wheel.bytes_after < made.wheel.bytes_before
    before, after = (api.check(each, on=["h100"], refine=KNOWN).verdicts[0] for each in (source, output))
    assert after.outcome == before.outcome
    assert after.predicted_error == before.predicted_error


def test_real_packages_in_an_environment_and_back(tmp_path: Path) -> None:
    env = tmp_path / "env"
    process.run([sys.executable, "-m", "venv", env], timeout=10 * MINUTE)
    chosen = ("bitsandbytes", "nvidia-curand", "jaxmg")
    wheels = [wheel_of(each) for each in packages.published() if str(each).startswith(chosen)]
    linux = [path for path in wheels if "manylinux" in path.name and "x86_64" in path.name]
    newest = {path.name.partition("-")[0]: path for path in sorted(linux)}
    python = env / "bin" / "python"
    process.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *newest.values()], timeout=5 * MINUTE
    )
    before = snapshot(env)
    made = api.slim(env=env, machines=["h100"])
    assert made.total.bytes_after < made.total.bytes_before / 2
    (site,) = env.glob("lib/python3*/site-packages")
    assert wrong_records(site) == []
    api.slim_undo(env)
    assert snapshot(env) == before
    api.slim(env=env, machines=["h100"], commit=True)
    process.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *newest], timeout=MINUTE)
    assert not list(site.glob("bitsandbytes*"))
