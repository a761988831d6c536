from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel_core.wheel import metadata
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path


@systems.LINUX_PATHS
def test_environments_and_debians_python(tmp_path: Path) -> None:
    places = ["lib/python3.12/site-packages", "lib/python3/dist-packages", "local/lib/python3.12/dist-packages"]
    for each in places:
        (tmp_path / each).mkdir(parents=True)
    assert {each.relative_to(tmp_path).as_posix() for each in metadata.site_packages(tmp_path)} == set(places)


def test_distributions_of_a_folder(tmp_path: Path) -> None:
    for each in ("Foo.Bar-1.0+cu130.dist-info", "a_b-2.dist-info", "odd.dist-info", "a_b"):
        (tmp_path / each).mkdir()
    found = [(each.name, each.version) for each in metadata.distributions(tmp_path)]
    assert found == [("foo-bar", "1.0+cu130"), ("a-b", "2")]
