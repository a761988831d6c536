from __future__ import annotations

import json

import pytest

from cuwheel.delivery import simple_api
from cuwheel.delivery.simple_api import Hashes, ListedProject, Project, ProjectList, PublishedFile
from cuwheel.errors import NewerSchemaError
from cuwheel_core.errors import MalformedError

FILE = PublishedFile(
    filename="foo-1.0-py3-none-any.whl",
    url="../../files/foo-1.0-py3-none-any.whl",
    hashes=Hashes("ab" * 32),
    requires_python=">=3.9",
    size=7,
    upload_time="2026-01-01T00:00:00Z",
    core_metadata=Hashes("cd" * 32),
    dist_info_metadata=Hashes("cd" * 32),
    facts=Hashes("ef" * 32),
    channels=("cu130",),
)


def test_a_project_in_the_words_of_the_standards() -> None:
    page = json.loads(simple_api.encode_page(Project(name="foo", versions=("1.0",), files=(FILE,))))
    assert page["meta"] == {"api-version": "1.3"}
    assert (page["name"], page["versions"]) == ("foo", ["1.0"])
    (file,) = page["files"]
    assert file["requires-python"] == ">=3.9"
    assert file["core-metadata"] == file["dist-info-metadata"] == {"sha256": "cd" * 32}
    assert file["upload-time"] == "2026-01-01T00:00:00Z"
    assert file["size"] == 7
    assert "yanked" not in file
    assert file["_channels"] == ["cu130"]


@pytest.mark.parametrize("page", [
    Project(name="foo", versions=("1.0",), files=(FILE, FILE)),
    Project(name="foo"),
    ProjectList(schema=simple_api.SCHEMA, projects=(ListedProject("foo", ("cu130",)), ListedProject("bar"))),
])  # fmt: skip
def test_what_is_written_is_read_back(page: Project | ProjectList) -> None:
    data = simple_api.encode_page(page)
    assert simple_api.parse_page(data, type(page), "x") == page
    assert data.endswith(b"\n")


def test_a_name_that_looks_like_the_list_of_files_changes_nothing() -> None:
    page = Project(name='"files":[]', files=(FILE,))
    assert simple_api.parse_page(simple_api.encode_page(page), Project, "x") == page


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"files": 3}', b"[" * 100_000])
def test_what_is_not_a_page_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError, match="not a page"):
        simple_api.parse_page(data, Project, "simple/foo/index.json")


def test_what_a_newer_tool_wrote_is_refused() -> None:
    with pytest.raises(NewerSchemaError):
        simple_api.parse_page(b'{"meta": {"api-version": "2.0"}, "name": "foo"}', Project, "x")
    with pytest.raises(NewerSchemaError):
        simple_api.parse_page(b'{"_schema": "cuwheel.index/2"}', ProjectList, "x")
