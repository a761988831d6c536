"""`publish --check` names every single thing that can be wrong with an index."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery.index_folder import JOURNAL, Journal
from cuwheel.support import codec
from cuwheel_core.errors import UnreadableError
from tests.unit.delivery.published import cuda_wheel, wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.unit
FOO, CUDA = "foo-1.0-py3-none-any.whl", "foo-2.0+cu130-py3-none-linux_x86_64.whl"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    made = [
        wheel(folder, headers=("Requires-Python: >=3.9", "License-File: LICENSE")),
        cuda_wheel(folder, "2.0+cu130", requires=["torch==2.11.0"]),
        wheel(folder, name="bar"),
    ]
    cuwheel.publish(made, to=tmp_path / "index")
    return tmp_path / "index"


def test_a_sound_index(index: Path) -> None:
    answer = api.publish_check(index)
    assert answer.succeeded
    assert answer.findings == ()
    assert answer.action == "check"
    assert {each.file: each.outcome for each in answer.wheels} == dict.fromkeys(
        (FOO, CUDA, "bar-1.0-py3-none-any.whl"), "sound"
    )
    assert answer.channels == ("cu130", "cu130/torch2.11")


def _edit(path: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def act(index: Path) -> None:
        file = index / path
        before = file.read_text()
        file.write_text(change(before))
        assert file.read_text() != before

    return act


def _replace(path: str, old: str, new: str) -> Callable[[Path], None]:
    return _edit(path, lambda text: text.replace(old, new, 1))


def _remove(path: str) -> Callable[[Path], None]:
    return lambda index: (index / path).unlink()


def _write(path: str, data: bytes) -> Callable[[Path], None]:
    def act(index: Path) -> None:
        (index / path).parent.mkdir(parents=True, exist_ok=True)
        (index / path).write_bytes(data)

    return act


def _same_size(path: str) -> Callable[[Path], None]:
    def act(index: Path) -> None:
        data = bytearray((index / path).read_bytes())
        data[len(data) // 2] ^= 1
        (index / path).write_bytes(data)

    return act


def _everywhere(name: str, old: str, new: str) -> Callable[[Path], None]:
    """In every page: nothing but the file itself contradicts it."""

    def act(index: Path) -> None:
        for path in [*index.rglob("index.html"), *index.rglob("index.json"), index / "SHA256SUMS"]:
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(re.sub(old, new, line) if name in line else line for line in lines))

    return act


def _swapped(suffix: str) -> Callable[[Path], None]:
    """Of what lies beside a wheel another one's, with its hash in every page: only the wheel tells."""

    def act(index: Path) -> None:
        path, other = index / "files" / f"{FOO}{suffix}", index / "files" / f"{CUDA}{suffix}"
        old = hashlib.sha256(path.read_bytes()).hexdigest()
        path.write_bytes(other.read_bytes())
        _everywhere("", old, hashlib.sha256(path.read_bytes()).hexdigest())(index)

    return act


CASES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "truncated": (_edit(f"files/{FOO}.metadata", lambda text: text[:20]), "index-metadata", FOO),
    "file truncated": (_write(f"files/{FOO}", b"PK"), "index-hash", FOO),
    "file exchanged": (_same_size(f"files/{FOO}"), "index-hash", FOO),
    "front page lost": (_remove("index.html"), "index-page", "index.html"),
    "front page without a project": (_replace("index.html", "simple/bar/", "simple/other/"), "index-page", "bar"),
    "the page's code lost": (_remove("page/page.js"), "index-page", "page/page.js"),
    "the page's project lost": (_remove("page/projects/foo.js"), "index-page", "page/projects/foo.js"),
    "the page's project changed": (_replace("page/projects/foo.js", "1.0", "1.1"), "index-page", "projects/foo.js"),
    "the page's wheel lost": (_remove(f"page/wheels/{FOO}.js"), "index-page", f"page/wheels/{FOO}.js"),
    "the page of a wheel lost": (_remove(f"page/wheels/{FOO}.html"), "index-page", f"page/wheels/{FOO}.html"),
    "the page's wheel of other facts": (
        _edit(f"page/wheels/{FOO}.js", lambda text: re.sub("of [0-9a-f]{4}", "of 0000", text, count=1)),
        "index-page",
        "other facts",
    ),
    "file lost": (_remove(f"files/{FOO}"), "index-link", FOO),
    "metadata lost": (_remove(f"files/{FOO}.metadata"), "index-metadata", FOO),
    "metadata swapped": (_swapped(".metadata"), "index-metadata", FOO),
    "facts lost": (_remove(f"files/{FOO}.cuwheel.json"), "index-facts", FOO),
    "facts damaged": (_write(f"files/{FOO}.cuwheel.json", b"{}"), "index-facts", FOO),
    "facts swapped": (_swapped(".cuwheel.json"), "index-facts", FOO),
    "link out": (_replace("simple/foo/index.json", "../files/foo-1.0", "../../foo-1.0"), "index-page", "not one of an"),
    "page lost": (_remove("simple/foo/index.html"), "index-page", "simple/foo/index.html"),
    "json lost": (_remove("simple/foo/index.json"), "index-page", "simple/foo/index.json"),
    "json damaged": (_write("simple/foo/index.json", b"{"), "index-page", "simple/foo/index.json"),
    "hash in html": (_replace("simple/foo/index.html", "#sha256=", "#sha256=0"), "index-page", "simple/foo/index.html"),
    "file only in html": (_replace("simple/foo/index.html", "</body>", '<a href="x">x</a></body>'), "index-page", "x"),
    "file not in html": (_edit("simple/foo/index.html", lambda text: re.sub(".*-any.*", "", text)), "index-page", FOO),
    "python in html": (_replace("simple/foo/index.html", "&gt;=3.9", "&gt;=3.1"), "index-page", "requires-python"),
    "python everywhere": (_everywhere(FOO, r"=3\.9", "=3.1"), "index-metadata", ">=3.1"),
    "yanked in html": (_replace("simple/foo/index.html", "<a ", '<a data-yanked="" '), "index-page", "yanked"),
    "size": (_everywhere(FOO, r'("size":|data-size=")', r"\g<1>1"), "index-hash", "truncated"),
    "version": (_replace("simple/foo/index.json", '["1.0"', '["1.1"'), "index-page", "versions"),
    "list lost": (_remove("simple/index.html"), "index-page", "simple/index.html"),
    "project unlisted": (_replace("simple/index.html", '<a href="foo/">foo</a>', ""), "index-page", "foo"),
    "project listed": (_replace("simple/index.html", "</body>", '<a href="x/">x</a></body>'), "index-page", "x"),
    "project invented": (_replace("simple/index.json", '"projects":[', '"projects":[{"name":"x"},'), "index-page", "x"),
    "strange project": (_replace("simple/index.json", '"bar"', '"../bar"'), "index-page", "../bar"),
    "channel page lost": (_remove("cu130/simple/foo/index.json"), "index-page", "cu130/simple/foo/index.json"),
    "channel html lost": (_remove("cu130/torch2.11/simple/foo/index.html"), "index-page", "cu130/torch2.11"),
    "channel list lost": (_remove("cu130/simple/index.json"), "index-page", "cu130/simple/index.json"),
    "channel listed wrong": (_replace("simple/index.json", '"cu130",', ""), "index-channel", "foo"),
    "channel empty": (_write("cu128/simple/index.json", b"{}"), "index-channel", "cu128"),
    "channel left": (_everywhere(CUDA, ',"cu130/torch2.11"', ""), "index-channel", CUDA),
    "sums lost": (_remove("SHA256SUMS"), "index-sums", "SHA256SUMS"),
    "sums short": (_edit("SHA256SUMS", lambda text: text[text.index("\n") + 1 :]), "index-sums", "lacks"),
    "sums long": (_edit("SHA256SUMS", lambda text: f"{'0' * 64}  files/x.whl\n{text}"), "index-sums", "files/x.whl"),
    "sums wrong": (_edit("SHA256SUMS", lambda text: "0" * 64 + text[64:]), "index-sums", "it says 000"),
    "sums commented": (_edit("SHA256SUMS", lambda text: text + "# signed\n"), "index-sums", "lines"),
    "unlisted": (_write("files/x-1.0-py3-none-any.whl", b""), "index-unlisted", "files/x-1.0"),
    "interrupted": (_write(".cuwheel/publishing/journal.json", b"{}"), "publish-interrupted", "interrupted"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named(case: str, index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage, rule, words = CASES[case]
    damage(index)
    answer = api.publish_check(index)
    told = [f"{each.message} {' '.join(each.evidence)}" for each in answer.findings if each.rule == rule]
    assert any(words in each for each in told), answer.findings
    grave = any(each.severity == "error" for each in answer.findings)
    assert main(["publish", "--check", str(index)]) == (1 if grave else 0)
    shown = capsys.readouterr()
    assert rule in shown.out
    assert "Traceback" not in shown.err


def test_what_is_wrong_with_pages_is_mended_by_publishing_the_files_again(index: Path) -> None:
    pages = ("index.html", f"page/wheels/{FOO}.js", f"page/wheels/{CUDA}.html", "page/projects/bar.js")
    for path in ("simple/foo/index.html", "cu130/simple/foo/index.json", "SHA256SUMS", f"files/{FOO}.cuwheel.json"):
        (index / path).unlink()
    for path in pages:
        (index / path).unlink()
    assert not api.publish_check(index).succeeded
    cuwheel.publish(index / "files", to=index)
    assert api.publish_check(index).findings == ()


def test_where_there_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no index here"):
        api.publish_check(tmp_path)


def test_a_channel_that_an_interrupted_run_began(index: Path, tmp_path: Path) -> None:
    """Killed with the first file of a channel under its hidden name: that is said, and the next run clears it away."""
    journal = Journal(projects=("foo",), channels=("cu124",), files=())
    (index / JOURNAL).parent.mkdir(parents=True)
    (index / JOURNAL).write_bytes(codec.encode(journal))
    begun = index / "cu124" / "simple" / "foo" / ".index.html.0123.part"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"<!DOC")
    assert {each.rule for each in api.publish_check(index).findings} == {"publish-interrupted"}
    again = cuwheel.publish(wheel(tmp_path / "more", name="other"), to=index)
    assert "publish-interrupted" in {each.rule for each in again.findings}
    assert not (index / "cu124").exists()
    assert api.publish_check(index).findings == ()


def test_pages_of_the_simple_index_load_and_tell_nothing(index: Path) -> None:
    for path in (index / "simple").rglob("*.html"):
        text = path.read_text()
        assert "Content-Security-Policy\" content=\"default-src 'none'" in text
        assert '<meta name="referrer" content="no-referrer">' in text
