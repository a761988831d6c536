"""`catalogue` of an index on loopback, and `find` that asks it instead of reading wheels."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from cuwheel import api
from cuwheel.buffer import MemoryBuffer
from cuwheel.cli import main
from cuwheel.delivery import catalogue
from cuwheel.errors import MalformedError, NetworkError, NewerSchemaError, UsageError
from cuwheel.inspection import wheel_facts
from cuwheel.report.answer import SCHEMAS, to_json
from cuwheel.wheel.file import WheelFile
from tests.integration.index_server import clean_environment, serving
from tests.integration.test_find import LINUX, NATIVE, _served, _wheel

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.index_server import Behaviour

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "SHIPPED", tmp_path / "none")


@pytest.fixture
def index(tmp_path: Path) -> Behaviour:
    wheels = [_wheel(tmp_path / "dist", each, NATIVE) for each in ("1.0", "1.0.1", "1.1", "2.0")]
    return _served(wheels, facts=False)


def test_the_newest_of_each_minor_release_is_added_once(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        first = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        again = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    assert [(each.version, each.outcome) for each in first.rows] == [
        ("2.0", "added"),
        ("1.1", "added"),
        ("1.0.1", "added"),
    ]
    assert {each.outcome for each in again.rows} == {"known"}
    assert again.wheels == 3
    assert first.succeeded
    jsonschema.validate(json.loads(to_json(first)), json.loads((SCHEMAS / "catalogue-1.json").read_text()))


def test_releases_that_begin_with_zeros_are_minor_ones_each(tmp_path: Path) -> None:
    wheels = [_wheel(tmp_path / "dist", each, NATIVE) for each in ("0.0.8", "0.0.9", "0.0.9.post1", "0.1.0", "0.1.1")]
    with serving(_served(wheels, facts=False)) as address:
        found = api.catalogue(["demo"], to=tmp_path / "catalogue", indexes=[f"{address}/simple"])
    assert [each.version for each in found.rows] == ["0.1.1", "0.0.9.post1", "0.0.8"]


def test_find_asks_the_catalogue_and_reads_no_wheel(
    index: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "another"))
        found = api.find("demo==2.0", on=["h100"], refine=LINUX, indexes=[f"{address}/simple"], catalogues=[str(to)])
    assert found.downloaded == 0
    assert [(each.version, each.outcome, each.known_from) for each in found.candidates] == [
        ("2.0", "native", "catalogue")
    ]


def test_wheels_for_other_pythons_are_known_by_their_release(tmp_path: Path) -> None:
    """One wheel of a release is held, and whoever has another Python asks about another file."""
    tags = [f"cp{each}-cp{each}-manylinux_2_28_x86_64" for each in ("311", "312", "313")]
    tags.append("cp313-cp313t-manylinux_2_28_x86_64")
    behaviour = _served([_wheel(tmp_path / "dist", "1.0", NATIVE, each) for each in tags], facts=False)
    to = tmp_path / "catalogue"
    with serving(behaviour) as address:
        added = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        found = api.find("demo", on=["h100"], refine=LINUX, indexes=[f"{address}/simple"], catalogues=[str(to)])
    assert [each.file for each in added.rows] == ["demo-1.0-cp313-cp313-manylinux_2_28_x86_64.whl"]
    assert found.downloaded == 0
    chosen = found.candidates[0]
    assert (chosen.file, chosen.known_from) == ("demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", "catalogue")
    assert (chosen.chosen, chosen.outcome) == (True, "native")


def test_the_newest_release_for_each_machine_is_listed(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    found = api.catalogue_list(to, on=["h100", "v100"])
    assert [(each.machine, each.version) for each in found.projects[0].newest] == [("h100", "2.0"), ("v100", None)]
    assert found.projects[0].versions == ("2.0", "1.1", "1.0.1")
    generations = api.catalogue_list(to).projects[0].newest
    assert {each.machine: each.version for each in generations}["9.0"] == "2.0"


def test_a_budget_that_is_spent_is_said_and_what_came_stays(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        found = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"], budget=100)
    assert {each.outcome for each in found.rows} == {"over-budget"}
    assert not found.succeeded


def test_a_package_that_is_not_there_does_not_stop_the_others(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        found = api.catalogue(["absent", "demo"], to=to, indexes=[f"{address}/simple"])
    assert [each.outcome for each in found.rows] == ["failed", "added", "added", "added"]


def test_damaged_catalogues_are_refused_with_words(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    held = next((to / "facts").iterdir())
    digest = held.name.partition(".")[0]
    held.write_bytes(b"not zstd")
    with pytest.raises(MalformedError, match="damaged"):
        catalogue.Catalogue(to).facts(digest)
    listed = to / catalogue.LIST
    listed.write_text(listed.read_text().replace("catalogue-list/1", "catalogue-list/9"))
    with pytest.raises(NewerSchemaError):
        _ = catalogue.Catalogue(to).contents
    listed.write_text("[]")
    with pytest.raises(MalformedError, match="is not a catalogue"):
        _ = catalogue.Catalogue(to).contents


def test_facts_of_another_wheel_are_not_believed(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    first, second, *_ = sorted((to / "facts").iterdir())
    second.write_bytes(first.read_bytes())
    digest = second.name.partition(".")[0]
    assert catalogue.Catalogue(to).facts(digest) is None
    assert catalogue.Catalogue(to).facts(hashlib.sha256(b"").hexdigest()) is None


def test_what_add_and_list_take_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["catalogue", "add", "torch"]) == 2
    assert main(["catalogue", "list", "--to", "x"]) == 2
    assert main(["catalogue", "list", "a", "b"]) == 2
    assert "hint" in capsys.readouterr().err
    with pytest.raises(UsageError):
        api.catalogue([], to=tmp_path)


def test_half_a_wheel_does_not_pass_for_a_whole_one(tmp_path: Path) -> None:
    """A line that breaks says nothing about the libraries that were not read."""

    class Breaking(MemoryBuffer):
        def read(self, offset: int, count: int) -> bytes:
            if offset < self.size // 2:
                raise NetworkError("http://example.com", "the line broke")
            return super().read(offset, count)

    path = _wheel(tmp_path, "1.0", NATIVE)
    with WheelFile(path, Breaking(path.name, path.read_bytes())) as wheel, pytest.raises(NetworkError):
        wheel_facts.of_wheel(wheel, sha256="0" * 64)


def test_the_catalogue_that_ships_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    held = catalogue.Catalogue(catalogue.SHIPPED)
    assert len({each.name for each in held.contents.wheels}) >= 30
    for each in held.contents.wheels:
        facts = held.facts(each.sha256)
        assert facts is not None, each.file
        assert not [found for found in facts.findings if found.rule == "library-unreadable"], each.file
    found = api.catalogue_list(on=["gtx 1080 ti", "h100"])
    newest = {each.machine: each.version for row in found.projects if row.name == "bitsandbytes" for each in row.newest}
    assert newest["gtx 1080 ti"]
    assert newest["h100"]
