"""An index in a folder: what is added, refused, yanked, removed, kept; and nothing else touched."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.delivery import transaction
from cuwheel.delivery.request import PublishRequest
from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.report import terminal
from cuwheel.report.answer import document_of
from cuwheel_core.errors import MalformedError, UnknownNameError, UnreadableError
from tests.fixtures import systems
from tests.unit.delivery import published
from tests.unit.delivery.published import cuda_wheel, names, page, state, wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit
FOO = "foo-1.0-py3-none-any.whl"


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    return tmp_path / "dist"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


def test_a_wheel_with_all_that_the_standards_want(dist: Path, index: Path) -> None:
    made = wheel(dist, headers=("Requires-Python: >=3.9", "License-File: LICENSE"))
    answer = cuwheel.publish(made, to=index)
    assert answer.succeeded
    (row,) = answer.wheels
    assert (row.file, row.added, row.outcome) == (FOO, True, "added")
    found = page(index, "simple/foo")
    assert (found["name"], found["versions"], found["meta"]) == ("foo", ["1.0"], {"api-version": "1.3"})
    (file,) = found["files"]
    assert file["hashes"] == {"sha256": row.sha256}
    assert file["size"] == made.stat().st_size
    assert file["requires-python"] == ">=3.9"
    assert file["upload-time"] == "2026-01-01T00:00:00Z"
    assert (index / "files" / f"{FOO}.metadata").read_text().startswith("Metadata-Version: ")
    assert json.loads((index / "files" / f"{FOO}.cuwheel.json").read_text())["sha256"] == row.sha256
    ((link, attributes, label),) = published.anchors(index, "simple/foo")
    assert link == f"../../files/{FOO}#sha256={row.sha256}"
    assert label == FOO
    for each in ('data-requires-python=">=3.9"', "data-core-metadata=", "data-dist-info-metadata=",
                 f'data-size="{made.stat().st_size}"', 'data-upload-time="2026-01-01T00:00:00Z"'):  # fmt: skip
        assert each in attributes
    assert published.problems(index) == []
    assert f"{row.sha256}  files/{FOO}\n" in (index / "SHA256SUMS").read_text()
    assert not (index / ".cuwheel").exists()


def test_the_same_wheel_again_changes_nothing(dist: Path, index: Path) -> None:
    made = wheel(dist)
    cuwheel.publish(made, to=index)
    before = state(index)
    answer = cuwheel.publish(made, to=index)
    assert answer.succeeded
    assert [each.outcome for each in answer.wheels] == ["present"]
    assert answer.changes == ()
    assert state(index) == before


def test_a_journal_that_was_half_written_is_cleared_away(dist: Path, index: Path) -> None:
    wheel(dist)
    cuwheel.publish(dist, to=index)
    before = state(index)
    draft = index / ".cuwheel" / "publishing" / ".journal.json.1-0123456789ab.part"
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text("{")
    cuwheel.publish(dist, to=index)
    assert state(index) == before


def test_other_content_under_a_published_name_is_refused(dist: Path, index: Path, tmp_path: Path) -> None:
    cuwheel.publish(wheel(dist), to=index)
    before = state(index)
    other = wheel(tmp_path / "other", requires=["numpy"])
    new = wheel(tmp_path / "other", version="2.0")
    answer = cuwheel.publish([other, new], to=index)
    assert not answer.succeeded
    assert [each.rule for each in answer.findings if each.severity == "error"] == ["publish-file-differs"]
    assert [each.added for each in answer.wheels] == [False, False]
    assert state(index) == before


def test_where_one_wheel_is_refused_none_is_published(dist: Path, index: Path) -> None:
    good, bad = wheel(dist), wheel(dist, version="2.0", metadata_version="3.0")
    answer = cuwheel.publish([good, bad], to=index)
    assert not answer.succeeded
    assert {each.rule for each in answer.findings} >= {"metadata-differs"}
    assert bad.name in answer.findings[0].message
    assert not index.exists()
    assert {each.file == FOO: each.outcome for each in answer.wheels} == {True: "skipped", False: "refused"}


@pytest.mark.parametrize("name", ["..-1.0-py3-none-any.whl", "foo-1.0-py3-none-any", "foo-1 0-py3-none-any.whl",
                                  "<b>-1.0-py3-none-any.whl", "foo-x-py3-none-any.whl", 'fo"o-1.0-py3-none-any.whl',
                                  f"{'f' * 190}-1.0-py3-none-any.whl"])  # fmt: skip
def test_a_name_that_no_index_may_have(name: str, dist: Path, index: Path) -> None:
    path = wheel(dist).rename(dist / systems.named(name))
    answer = cuwheel.publish(path, to=index)
    assert not answer.succeeded
    assert answer.findings[0].rule == "not-a-wheel"
    assert not index.exists()


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip", b"\0" * 5000])
def test_what_is_not_a_wheel(data: bytes, dist: Path, index: Path) -> None:
    dist.mkdir()
    (dist / FOO).write_bytes(data)
    answer = cuwheel.publish(dist / FOO, to=index)
    assert [each.rule for each in answer.findings] == ["not-a-wheel"]
    assert not index.exists()


def test_html_in_metadata_is_text(dist: Path, index: Path) -> None:
    made = wheel(
        dist, headers=("License-File: LICENSE", 'Summary: <script>alert("x")</script>', "Requires-Python: >=3.9, <4")
    )
    cuwheel.publish(made, to=index)
    cuwheel.publish(to=index, yank=[FOO], reason='"><script>alert(1)</script>')
    for path in index.rglob("*.html"):
        assert "<script>alert" not in path.read_text()
    assert page(index, "simple/foo")["files"][0]["yanked"] == '"><script>alert(1)</script>'
    assert published.problems(index) == []


def test_yanked_with_a_reason_and_back(dist: Path, index: Path) -> None:
    cuwheel.publish(wheel(dist), to=index)
    before = state(index)
    dry = cuwheel.publish(to=index, yank=[FOO], dry_run=True)
    assert (dry.yanked, state(index)) == ((FOO,), before)
    done = cuwheel.publish(to=index, yank=[FOO], reason="wrong results")
    assert (done.yanked, done.unyanked) == ((FOO,), ())
    told = io.StringIO()
    terminal.write(document_of(done, verbose=False), told)
    assert f"yanked: {FOO}\n" in told.getvalue()
    # The folder's name may be longer than the line.
    assert f"1 file yanked in {index} yanked: {FOO} " in " ".join(told.getvalue().split()) + " "
    assert page(index, "simple/foo")["files"][0]["yanked"] == "wrong results"
    assert 'data-yanked="wrong results"' in published.anchors(index, "simple/foo")[0][1]
    cuwheel.publish(to=index, yank=["foo==1.0"])
    assert page(index, "simple/foo")["files"][0]["yanked"] is True
    assert 'data-yanked=""' in published.anchors(index, "simple/foo")[0][1]
    done = cuwheel.publish(to=index, unyank=[FOO])
    assert (done.yanked, done.unyanked) == ((), (FOO,))
    assert state(index) == before


def test_a_version_means_its_labels_too(dist: Path, index: Path) -> None:
    cuwheel.publish([cuda_wheel(dist, "1.0+cu130"), wheel(dist, "1.1")], to=index)
    cuwheel.publish(to=index, remove=["foo==1.0"])
    assert names(index) == ["foo-1.1-py3-none-any.whl"]


def test_removed_without_a_trace(dist: Path, index: Path) -> None:
    cuwheel.publish(wheel(dist), to=index)
    before = state(index)
    cuda = cuda_wheel(dist, "2.0", requires=["torch==2.11.0"], name="bar")
    answer = cuwheel.publish(cuda, to=index)
    assert answer.channels == ("cu130", "cu130/torch2.11")
    assert names(index, "cu130/torch2.11/simple/bar") == [cuda.name]
    answer = cuwheel.publish(to=index, remove=[cuda.name])
    assert (answer.removed, answer.channels) == ((cuda.name,), ())
    assert state(index) == before
    assert not (index / "cu130").exists()


def test_the_newest_releases_stay(dist: Path, index: Path) -> None:
    versions = ("0.9", "1.0+cu130", "1.0+cu128", "1.10", "1.9", "2.0rc1")
    cuwheel.publish([*(wheel(dist, each) for each in versions), wheel(dist, "0.1", name="bar")], to=index)
    cuwheel.publish(wheel(dist, "2.0"), to=index, keep=3)
    assert sorted(each.split("-")[1] for each in names(index)) == ["1.10", "2.0", "2.0rc1"]
    assert names(index, "simple/bar") == ["bar-0.1-py3-none-any.whl"]
    cuwheel.publish(wheel(dist, "0.2", name="bar"), to=index)
    cuwheel.publish(to=index, keep=1)
    assert names(index) == ["foo-2.0-py3-none-any.whl"]
    assert names(index, "simple/bar") == ["bar-0.2-py3-none-any.whl"]


def test_builds_of_one_version_are_counted_by_their_labels(dist: Path, index: Path) -> None:
    """Every week another build of a development version: the oldest of them go."""
    versions = [f"1.0.dev0+{week}.cu{cuda}" for week in (8, 9, 10) for cuda in (128, 130)]
    cuwheel.publish([wheel(dist, each) for each in versions], to=index, keep=2)
    assert sorted(each.split("-")[1] for each in names(index)) == sorted(versions[2:])
    cuwheel.publish(wheel(dist, "1.0.dev0+11"), to=index, keep=1)
    assert [each.split("-")[1] for each in names(index)] == ["1.0.dev0+11"]


def test_what_is_not_kept_is_not_added_first(dist: Path, index: Path) -> None:
    cuwheel.publish(wheel(dist, "2.0"), to=index)
    before = state(index)
    answer = cuwheel.publish(wheel(dist, "1.0"), to=index, keep=1)
    assert state(index) == before
    assert answer.changes == ()
    assert [each.outcome for each in answer.wheels] == ["skipped"]


@pytest.mark.parametrize("word", ["foo-2.0-py3-none-any.whl", "foo==2.0", "bar==1.0", "bar-1.0-py3-none-any.whl"])
@pytest.mark.parametrize("option", ["yank", "unyank", "remove"])
def test_what_is_not_in_the_index_is_named(option: str, word: str, dist: Path, index: Path) -> None:
    cuwheel.publish(wheel(dist), to=index)
    before = state(index)
    with pytest.raises(UnknownNameError, match="file in this index"):
        cuwheel.publish(PublishRequest(to=index, **{option: [word]}))  # type: ignore[arg-type]
    assert state(index) == before


def test_a_dry_run_names_exactly_what_changes(dist: Path, index: Path) -> None:
    given = [cuda_wheel(dist, "2.0"), wheel(dist)]
    cuwheel.publish([given[1], cuda_wheel(dist, "0.9", name="bar")], to=index)
    request = PublishRequest(given, to=index, remove=["bar==0.9"], dry_run=True)
    before = state(index)
    planned = cuwheel.publish(request)
    assert state(index) == before
    done = cuwheel.publish(given, to=index, remove=["bar==0.9"])
    after = state(index)
    assert planned.changes == done.changes
    assert (planned.wheels, planned.channels, planned.removed) == (done.wheels, done.channels, done.removed)
    written = {path for path in after if before.get(path) != after[path]}
    assert {each.path for each in planned.changes if each.action == "written"} == written
    assert {each.path for each in planned.changes if each.action == "removed"} == before.keys() - after.keys()
    for each in planned.changes:
        assert each.size == ((index / each.path).stat().st_size if each.action == "written" else None)


def test_a_dry_run_makes_no_folder(dist: Path, index: Path) -> None:
    assert cuwheel.publish(wheel(dist), to=index, dry_run=True).wheels[0].added
    assert not index.exists()


def test_files_elsewhere(dist: Path, index: Path) -> None:
    made = cuda_wheel(dist, "1.0+cu130")
    cuwheel.publish(made, to=index, files_url="https://a.example/releases/v1/")
    for relative in ("simple/foo", "cu130/simple/foo"):
        assert page(index, relative)["files"][0]["url"] == (
            "https://a.example/releases/v1/foo-1.0%2Bcu130-py3-none-linux_x86_64.whl"
        )
    assert (index / "files" / made.name).exists()  # to be uploaded there


def test_a_large_asset_is_warned_of(dist: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuwheel.delivery.publishing._LARGEST_ASSET", 100)
    found = cuwheel.publish(wheel(dist), to=index, files_url="https://a.example/x", dry_run=True).findings
    assert [(each.rule, each.severity) for each in found] == [("publish-asset-size", "warning")]
    assert cuwheel.publish(wheel(dist), to=index, dry_run=True).findings == ()


def test_a_folder_of_wheels(dist: Path, index: Path) -> None:
    wheel(dist), wheel(dist, "2.0")
    assert len(cuwheel.publish(dist, to=index).wheels) == 2
    with pytest.raises(UnreadableError, match="no wheel"):
        cuwheel.publish(index, to=index)


def test_two_different_files_of_one_name(dist: Path, index: Path, tmp_path: Path) -> None:
    one, other = wheel(dist), wheel(tmp_path / "b", requires=["numpy"])
    assert [each.rule for each in cuwheel.publish([one, other], to=index).findings] == ["publish-two-files"]
    other.write_bytes(one.read_bytes())
    assert len(cuwheel.publish([one, other], to=index).wheels) == 1


@pytest.mark.parametrize("theirs", ["simple", "files", "index.html", "SHA256SUMS"])
def test_somebody_elses_folder_is_not_touched(theirs: str, dist: Path, index: Path) -> None:
    (index / theirs).mkdir(parents=True)
    with pytest.raises(UsageError, match="not an index that cuwheel made"):
        cuwheel.publish(wheel(dist), to=index)
    assert [path.name for path in index.rglob("*")] == [theirs]


def test_another_tools_index_is_not_touched(dist: Path, index: Path) -> None:
    (index / "simple").mkdir(parents=True)
    (index / "simple" / "index.json").write_text('{"meta": {"api-version": "1.0"}, "projects": []}')
    with pytest.raises(UsageError, match="not an index that cuwheel made"):
        cuwheel.publish(wheel(dist), to=index)


def test_a_newer_layout_is_not_touched(dist: Path, index: Path) -> None:
    (index / "simple").mkdir(parents=True)
    (index / "simple" / "index.json").write_text('{"_schema": "cuwheel.index/2", "projects": []}')
    with pytest.raises(NewerSchemaError):
        cuwheel.publish(wheel(dist), to=index)


@pytest.mark.parametrize("change", [
    lambda text: text.replace(FOO, "../../../etc/passwd"),
    lambda text: text.replace('"name":"foo"', '"name":"bar"'),
    lambda text: text.replace('"size"', '"_channels":["../.."],"size"'), lambda text: text[:50],
    lambda text: text.replace('{"sha256":"', '{"sha256":"\\n'),
    lambda text: text.replace("../../files/", "javascript:"),
    lambda text: text.replace("../../files/", "../../../"),
])  # fmt: skip
def test_a_page_that_somebody_changed_is_not_built_upon(change: object, dist: Path, index: Path) -> None:
    cuwheel.publish(wheel(dist), to=index)
    path = index / "simple/foo/index.json"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    before = state(index)
    with pytest.raises(MalformedError):
        cuwheel.publish(wheel(dist, "2.0"), to=index)
    assert state(index) == before


def test_a_damaged_page_is_made_again_from_the_files(dist: Path, index: Path) -> None:
    cuwheel.publish([wheel(dist), cuda_wheel(dist, "2.0")], to=index)
    before = state(index)
    lost = ("simple/foo/index.json", "cu130/simple/foo/index.html", "SHA256SUMS", f"files/{FOO}.metadata")
    for path in lost:
        (index / path).unlink()
    cuwheel.publish(index / "files", to=index)
    assert state(index) == before


def test_a_damaged_file_is_replaced_by_the_one_that_was_published(dist: Path, index: Path) -> None:
    made = wheel(dist)
    cuwheel.publish(made, to=index)
    before = state(index)
    (index / "files" / FOO).write_bytes(b"x" * made.stat().st_size)
    (index / "files" / f"{FOO}.cuwheel.json").write_text("{}")
    cuwheel.publish(made, to=index)
    assert state(index) == before


def test_a_file_that_no_page_has_is_not_written_over(dist: Path, index: Path, tmp_path: Path) -> None:
    cuwheel.publish(wheel(dist, "2.0"), to=index)
    theirs = wheel(dist)
    shutil.copy(theirs, index / "files")
    answer = cuwheel.publish(wheel(tmp_path / "b", requires=["numpy"]), to=index)
    assert [each.rule for each in answer.findings] == ["publish-file-differs"]
    assert cuwheel.publish(theirs, to=index).wheels[0].added


def test_a_file_that_changes_while_it_is_published(dist: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = wheel(dist)
    real = transaction._fill

    def change_first(*words: object) -> None:
        made.write_bytes(made.read_bytes() + b"x")
        real(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(transaction, "_fill", change_first)
    with pytest.raises(UnreadableError, match="changed while"):
        cuwheel.publish(made, to=index)
    assert state(index) == {}


class _Interrupted(BaseException):
    """As a signal would."""


def test_interrupted_after_any_step_the_index_serves(
    dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, a project and a channel come and go, cut off after each step in turn; then any other run repairs it."""
    first = [wheel(dist), cuda_wheel(dist, "0.9", name="gone", library="plain-124.so"), wheel(dist, name="other")]
    new = [cuda_wheel(dist, "2.0"), wheel(dist, "2.0", name="fresh")]
    real, counted = transaction._commit, [0]

    def interrupted(*words: object) -> None:
        if counted[0] == 0:
            raise _Interrupted
        counted[0] -= 1
        real(*words)  # type: ignore[arg-type]

    def attempt(index: Path) -> None:
        cuwheel.publish(new, to=index, remove=["gone==0.9"])

    before, whole = tmp_path / "before", tmp_path / "whole"
    cuwheel.publish(first, to=before)
    shutil.copytree(before, whole)
    attempt(whole)
    for number in range(60):
        index = tmp_path / f"index{number}"
        shutil.copytree(before, index)
        counted[0] = number
        monkeypatch.setattr(transaction, "_commit", interrupted)
        try:
            attempt(index)
        except _Interrupted:
            monkeypatch.setattr(transaction, "_commit", real)
        else:
            break
        assert published.problems(index) == [], number
        other = tmp_path / f"other{number}"
        shutil.copytree(index, other)
        cuwheel.publish(to=other, yank=["other==1.0"])
        cuwheel.publish(to=other, unyank=["other==1.0"])
        assert published.problems(other) == []
        linked = {*names(other), *names(other, "simple/other")}
        for project in ("fresh", "gone"):
            if (other / "simple" / project).exists():
                linked |= set(names(other, f"simple/{project}"))
        assert {path.name for path in (other / "files").glob("*.whl")} == linked
        attempt(index)
        assert state(index) == state(whole), number
    else:
        pytest.fail("it never came to its end")
    assert number > 20


def test_what_every_index_has_alike_is_written_once_and_mended(dist: Path, index: Path) -> None:
    first = wheel(dist)
    cuwheel.publish(first, to=index)
    machines = index / "page" / "machines.js"
    before = machines.read_bytes()
    changes = cuwheel.publish(wheel(dist, "2.0"), to=index).changes
    assert not {"page/machines.js", "page/page.js"} & {each.path for each in changes}
    machines.write_text("// cuwheel 0.0\n")
    cuwheel.publish(wheel(dist, "3.0"), to=index)
    assert machines.read_bytes() == before
    (index / "page" / "page.js").unlink()
    cuwheel.publish(first, to=index)
    assert (index / "page" / "page.js").exists()
