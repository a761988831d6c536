"""A catalogue in the page of an index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel import api
from cuwheel_core.errors import CuwheelError, MalformedError
from tests.unit.delivery.published import catalogue_of, cuda_wheel, state, wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def held(tmp_path: Path) -> str:
    made = [cuda_wheel(tmp_path / "held", "2.0", "bar"), cuda_wheel(tmp_path / "held", "1.0", "bar", "plain-124.so")]
    return str(catalogue_of(tmp_path / "catalogue", made))


def test_the_newest_release_for_each_gpu_is_shown_and_linked(tmp_path: Path, held: str) -> None:
    index = tmp_path / "index"
    cuwheel.publish(wheel(tmp_path / "dist"), to=index, catalogue=held)
    text = (index / "catalogue.html").read_text()
    assert 'data-capability="9.0" data-label="9.0"><b>2.0</b>' in text
    assert 'data-capability="6.1" data-label="6.1"><b>1.0</b>' in text
    assert 'href="catalogue.html"' in (index / "index.html").read_text()
    assert api.publish_check(index).findings == ()


def test_it_stays_until_it_is_taken_away(tmp_path: Path, held: str) -> None:
    index = tmp_path / "index"
    cuwheel.publish(wheel(tmp_path / "dist"), to=index, catalogue=held)
    cuwheel.publish(wheel(tmp_path / "dist", "2.0"), to=index)
    assert 'href="catalogue.html"' in (index / "index.html").read_text()
    answer = cuwheel.publish(to=index, catalogue="none")
    assert {each.path: each.action for each in answer.changes} == {"index.html": "written", "catalogue.html": "removed"}
    assert "catalogue.html" not in (index / "index.html").read_text()
    assert not (index / "catalogue.html").exists()


def test_a_link_to_a_page_that_is_lost_is_named(tmp_path: Path, held: str) -> None:
    index = tmp_path / "index"
    cuwheel.publish(wheel(tmp_path / "dist"), to=index, catalogue=held)
    (index / "catalogue.html").unlink()
    (finding,) = api.publish_check(index).findings
    assert (finding.rule, finding.message) == ("index-page", "catalogue.html: it is not there")


@pytest.mark.parametrize("content", ["", "{}", '{"schema": "cuwheel.catalogue-list/9"}'])
def test_a_catalogue_that_cannot_be_read_changes_nothing(tmp_path: Path, content: str) -> None:
    index, place = tmp_path / "index", tmp_path / "damaged"
    cuwheel.publish(wheel(tmp_path / "dist"), to=index)
    before = state(index)
    place.mkdir()
    (place / "catalogue.json").write_text(content)
    with pytest.raises(CuwheelError):
        cuwheel.publish(wheel(tmp_path / "dist", "2.0"), to=index, catalogue=str(place))
    assert state(index) == before


def test_names_in_a_catalogue_are_text(tmp_path: Path, held: str) -> None:
    path = tmp_path / "catalogue" / "catalogue.json"
    whole, made = path.read_text(), wheel(tmp_path / "dist")
    path.write_text(whole.replace('"2.0"', f'"{EVIL}"'))
    cuwheel.publish(made, to=tmp_path / "index", catalogue=held)
    assert EVIL not in (tmp_path / "index" / "catalogue.html").read_text()
    for name in (EVIL, "../bar"):  # of a package: it becomes a path
        path.write_text(whole.replace('"bar"', json.dumps(name)))
        with pytest.raises(MalformedError, match="is not a catalogue"):
            cuwheel.publish(made, to=tmp_path / "index", catalogue=held)
