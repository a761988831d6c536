"""An index that is served, brought along by a job that has no memory of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel import api
from cuwheel.errors import UsageError
from cuwheel_core.errors import CuwheelError
from tests.unit.delivery import published
from tests.unit.delivery.published import cuda_wheel, wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    root = tmp_path / "served"
    cuwheel.publish([cuda_wheel(tmp_path / "old"), wheel(tmp_path / "old", name="other")], to=root)
    cuwheel.publish(to=root, yank=["other==1.0"], reason="slow")
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    return root


def test_one_more_wheel_and_all_that_was_there(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    new, made = cuda_wheel(tmp_path / "new", "2.0"), tmp_path / "made"
    assert cuwheel.publish(new, to=made, existing=str(served)).succeeded
    cuwheel.publish(new, to=served)
    assert published.state(made) == published.state(served)  # times and yanked files too
    assert api.publish_check(made).findings == ()


def test_what_was_just_copied_is_no_interrupted_run(served: Path, tmp_path: Path) -> None:
    made = cuwheel.publish(cuda_wheel(tmp_path / "new", "2.0"), to=tmp_path / "made", existing=str(served))
    assert [each.rule for each in made.findings] == []


def test_builds_of_one_version_are_published_under_their_labels(served: Path, tmp_path: Path) -> None:
    """One after the other, each job in a folder of its own; without a label the second one is refused, and told how."""
    other = cuda_wheel(tmp_path / "rebuilt", headers=["License-File: LICENSE", "Summary: of another week"])
    refused = cuwheel.publish(other, to=tmp_path / "refused", existing=str(served))
    assert [each.rule for each in refused.findings] == ["publish-file-differs"]
    assert "label=42" in (refused.findings[0].fix or "")
    for week in ("41", "42"):
        made = tmp_path / f"made-{week}"
        new = cuda_wheel(tmp_path / week, f"1.0+{week}")
        told = cuwheel.publish(new, to=made, existing=str(served))
        assert (told.succeeded, told.findings) == (True, ())
        served = made
    assert published.page(served, "simple/foo")["versions"] == ["1.0", "1.0+41", "1.0+42"]


def test_where_none_is_served_it_is_the_first_one(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert cuwheel.publish(wheel(tmp_path / "new"), to=tmp_path / "made", existing=str(tmp_path / "nothing")).succeeded
    assert published.names(tmp_path / "made") == ["foo-1.0-py3-none-any.whl"]


def test_a_folder_that_has_an_index_keeps_its_own(served: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    cuwheel.publish(wheel(tmp_path / "a", name="own"), to=made)
    cuwheel.publish(wheel(tmp_path / "b", name="own", version="2.0"), to=made, existing=str(served))
    assert [each["name"] for each in published.page(made, "simple")["projects"]] == ["own"]


def test_files_elsewhere_stay_there(tmp_path: Path, served: Path) -> None:
    page = served / "simple" / "foo" / "index.json"
    page.write_text(page.read_text().replace("../../files/", served.as_uri() + "/files/"))
    with pytest.raises(CuwheelError, match="not one of an index by cuwheel"):  # only https addresses are
        cuwheel.publish(wheel(tmp_path / "new"), to=tmp_path / "made", existing=str(served))


def _truncated(root: Path) -> None:
    path = next((root / "files").glob("foo*.whl"))
    path.write_bytes(path.read_bytes()[:-1])


def _escaping(root: Path) -> None:
    page = root / "simple" / "foo" / "index.json"
    told = json.loads(page.read_text())
    told["files"][0]["filename"] = "../../../x-1.0-py3-none-any.whl"
    page.write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_truncated, "not what the page says"),
        (_escaping, "not one of an index by cuwheel"),
        (lambda root: (root / "simple" / "foo" / "index.json").unlink(), "missing"),
        (lambda root: next((root / "files").glob("*.metadata")).unlink(), "missing"),
        (lambda root: (root / "simple" / "index.json").write_text("{}"), "is not an index"),
    ],
)
def test_one_that_is_damaged_is_not_published_on(
    damage: Callable[[Path], object], words: str, served: Path, tmp_path: Path
) -> None:
    damage(served)
    with pytest.raises(CuwheelError, match=words):
        cuwheel.publish(wheel(tmp_path / "new"), to=tmp_path / "made", existing=str(served))
    assert not (tmp_path / "made" / "index.html").exists()


def test_nothing_is_brought_by_a_dry_run(served: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--existing copies an index"):
        cuwheel.publish(wheel(tmp_path / "new"), to=tmp_path / "made", existing=str(served), dry_run=True)
