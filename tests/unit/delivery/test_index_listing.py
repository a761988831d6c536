"""Pages of indexes as the world has them, and as somebody hostile would write them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from cuwheel.delivery import candidates, index_folder
from cuwheel.errors import NewerSchemaError
from cuwheel_core.errors import MalformedError

JSON = "application/vnd.pypi.simple.v1+json"
PAGE = "https://index.test/simple/demo/"
SHA = "ab" * 32


def _json(*files: Any, version: str = "1.1") -> bytes:
    return json.dumps({"meta": {"api-version": version}, "name": "demo", "files": files}).encode()


def _told(name: str = "demo-1.0-py3-none-any.whl", **more: Any) -> dict[str, Any]:
    return {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": SHA}, **more}


def test_what_json_says() -> None:
    body = _json(
        {**_told(size=5, yanked="broken", _facts={"sha256": "cd" * 32}), "requires-python": ">=3.9"},
        _told("demo-2.0.tar.gz", hashes={}, yanked=True, url="https://files.test/demo-2.0.tar.gz"),
    )
    first, second = candidates.listed_files(body, JSON, PAGE)
    assert first.url == "https://index.test/files/demo-1.0-py3-none-any.whl"
    assert (first.sha256, first.size, first.requires_python) == (SHA, 5, ">=3.9")
    assert (first.yanked, first.facts) == ("broken", "cd" * 32)
    assert (second.url, second.sha256, second.yanked) == ("https://files.test/demo-2.0.tar.gz", None, "")


def test_what_html_says() -> None:
    body = f"""<!DOCTYPE html><html><head><base href="/other/"></head><body>
    <a href="demo-1.0-py3-none-any.whl#sha256={SHA}" data-requires-python="&gt;=3.9" data-yanked="" data-size="7"
       data-cuwheel-facts="sha256={"cd" * 32}">x</a>
    <a href="https://files.test/demo-1.0%2Bcu130-cp311-cp311-linux_x86_64.whl">y</a>
    <a href="#top">top</a><a>none</a></body></html>""".encode()
    first, second = candidates.listed_files(body, "text/html", PAGE)
    assert (first.url, first.sha256) == ("https://index.test/other/demo-1.0-py3-none-any.whl", SHA)
    assert (first.requires_python, first.yanked, first.size) == (">=3.9", "", 7)
    assert first.facts == "cd" * 32
    assert second.file == "demo-1.0+cu130-cp311-cp311-linux_x86_64.whl"
    assert (second.yanked, second.sha256) == (None, None)


@pytest.mark.parametrize(
    "bad",
    [
        5,
        {},
        _told(url=7),
        _told(hashes="none"),
        _told(url="file:///etc/passwd"),
        _told(url="javascript:alert(1)"),
        _told(url="https://[::1"),
        _told(url="x" * 5000),
        _told("demo-1.0-py3-none-any.whl", url="https://files.test/another-1.0-py3-none-any.whl"),
        _told(url="https://files.test/.."),
        _told(url="https://files.test/%2e%2e%2fetc%2f"),
    ],
)
def test_a_bad_file_hides_no_other(bad: Any) -> None:
    good = _told("demo-3.0-py3-none-any.whl")
    (found,) = candidates.listed_files(_json(bad, good), JSON, PAGE)
    assert found.file == "demo-3.0-py3-none-any.whl"


def test_a_server_does_not_send_us_to_files_of_this_machine() -> None:
    body = b'<a href="file:///etc/demo-1.0-py3-none-any.whl">x</a>'
    assert candidates.listed_files(body, "text/html", PAGE) == ()
    assert len(candidates.listed_files(body, "text/html", "file:///srv/simple/demo/index.html")) == 1


def test_a_hash_that_is_none_is_not_kept() -> None:
    (found,) = candidates.listed_files(_json(_told(hashes={"sha256": "zz"}, size=-4)), JSON, PAGE)
    assert (found.sha256, found.size) == (None, None)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"meta": 1}', b"\xff{", b"[" * 100_000])
def test_what_is_not_a_page(body: bytes) -> None:
    with pytest.raises(MalformedError, match="is not a page of a package index"):
        candidates.listed_files(body, JSON, PAGE)


def test_a_newer_protocol_is_said_to_be_one() -> None:
    with pytest.raises(NewerSchemaError, match=r"simple API 2\.0"):
        candidates.listed_files(_json(version="2.0"), JSON, PAGE)


@pytest.mark.parametrize("kind", [JSON, "text/html"])
def test_a_page_without_end_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, and before its files are looked at: the newest may be the last."""
    monkeypatch.setattr(candidates, "_MOST_FILES", 1000)

    def page(count: int) -> bytes:
        names = [f"demo-{number}-py3-none-any.whl" for number in range(count)]
        return (
            _json(*map(_told, names)) if kind == JSON else "".join(f"<a href={each}>x</a>" for each in names).encode()
        )

    assert len(candidates.listed_files(page(1000), kind, PAGE)) == 1000
    with pytest.raises(MalformedError, match="lists more than 1,000 files") as caught:
        candidates.listed_files(page(1001), kind, PAGE)
    assert "--find-links" in caught.value.hint


@pytest.mark.parametrize(
    "rest",
    ["<a " * 20_000, "<a href='" * 20_000, "<!--x>" * 20_000, f"<a href=x.whl>{('x' * 1000 + '<b>') * 30_000}"],
    ids=["tag", "attribute", "comment", "text"],
)
def test_what_never_ends_is_read_once(rest: str) -> None:
    began = time.process_time()
    found = candidates.listed_files(f"<a href={_told()['filename']}>x</a>{rest}".encode(), "text/html", PAGE)
    assert time.process_time() - began < 3
    assert found[0].file == _told()["filename"]


def test_a_comment_hides_no_more_than_itself() -> None:
    body = b"<!-- <a href=demo-1.0.tar.gz>x</a> --><a href=demo-2.0.tar.gz>x</a><!-- --> <a href=demo-3.0.tar.gz>"
    assert [each.file for each in candidates.listed_files(body, "text/html", PAGE)] == [
        "demo-2.0.tar.gz",
        "demo-3.0.tar.gz",
    ]


@pytest.mark.parametrize("name", ["", "pkg", "x.whl", "-"])
def test_what_is_no_wheel_s_name_has_no_version(name: str) -> None:
    assert index_folder.versions_in([name, "pkg-1.0-py3-none-any.whl"]) == ("1.0",)
