"""The distributions of this repository are of one version, and ask for one another by exactly that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each says its version once; all others read it there, or are held to it here.
VERSIONS = {
    each.parent.name: each
    for pattern in ("src/*/version.py", "*/src/*/version.py", "*/src/*/__init__.py")
    for each in ROOT.glob(pattern)
    if "__version__ = " in each.read_text()
}
PROJECTS = [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")]


def version_of(package: str) -> str:
    found = re.search(r'^__version__ = "(.+)"$', VERSIONS[package].read_text(), re.MULTILINE)
    assert found, package
    return found[1]


def test_all_distributions_have_one_version() -> None:
    assert VERSIONS.keys() == {"cuwheel", "cuwheel_core", "cuwheel_lab"}
    assert {version_of(each) for each in VERSIONS} == {version_of("cuwheel")}


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_distribution_asks_for_the_others_of_its_own_version(path: Path) -> None:
    asked = re.findall(r'"cuwheel(?:-[a-z]+)?(?:\[[a-z,]+\])?([<>=!~][^"]*)"', path.read_text())
    together = "!=0+pip.install.core.and.this.together; os_name != 'from a checkout: pip install ./core ."
    told = f"=={version_of('cuwheel')}+checkout,{together}"
    assert [each for each in asked if each not in (f"{told}'", f"{told} ./lab'")] == []
    assert f'\nversion = "{version_of("cuwheel")}+checkout"\n' in path.read_text()
    assert asked or path.parent.name == "core"  # which needs none of them
