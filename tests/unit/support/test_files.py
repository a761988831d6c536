from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from cuwheel.support import codec, files
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import opening

if TYPE_CHECKING:
    from pathlib import Path


def test_the_new_file_takes_the_old_ones_place(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    files.write(target, "new é")
    assert target.read_bytes() == "new é".encode()
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), files.replacing(target) as file:  # noqa: PT012 - the block is what fails
        file.write(b"half")
        _ = 1 / 0
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_copy_is_whole_or_the_old_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)))
    assert files.copy(source, target) == target
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises((IsADirectoryError, PermissionError)):  # the second is what Windows says of a folder
        files.copy(tmp_path, target)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_a_refusal_of_the_system_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "report.html"
    with pytest.raises(UnreadableError) as caught:
        files.write(target, "text")
    assert str(target) in caught.value.message


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 127)
    files.write(target, "text")
    assert target.read_text() == "text"


def test_two_writers_at_once(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    with files.replacing(target) as first, files.replacing(target) as second:
        first.write(b"first")
        second.write(b"second")
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_bytes(b"12345")
    assert files.read_limited(path, 5, "a proof") == b"12345"
    with pytest.raises(MalformedError, match=r"has more than 4 bytes: too large for a proof") as caught:
        files.read_limited(path, 4, "a proof", hint="write one")
    assert caught.value.hint == "write one"


def test_a_missing_file_is_an_error_or_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"here")
    assert files.read_if_present(path, 4, "a page") == b"here"
    for missing in (tmp_path / "none", path / "below"):
        assert files.read_if_present(missing, 4, "a page") is None
        with pytest.raises(UnreadableError):
            files.read_limited(missing, 4, "a page")
    with pytest.raises(UnreadableError):
        files.read_if_present(tmp_path, 4, "a page")


def test_the_head_and_the_tail_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\nlast \xff")
    assert opening.head(path, 5) == "first"
    assert files.tail(path, 6) == "last \ufffd"
    assert files.tail(path, 100, start=6) == "last \ufffd"
    assert opening.head(tmp_path / "none") == files.tail(tmp_path / "none", 5) == ""


@pytest.mark.parametrize(
    ("source", "wanted", "number", "expected"),
    [
        ("libk.so", "slim/", 1, "slim/libk.so"),  # the path does not have the slash any more
        ("libk.so", "small.so", 1, "small.so"),
        ("libk.so.1", "libk.so.2", 1, "libk.so.2"),
        ("libk.so", "there", 1, "there/libk.so"),
        ("program", "smaller", 1, "smaller"),
        ("libk.so", "small.so", 2, "small.so/libk.so"),
    ],
)
def test_where_a_changed_copy_goes(source: str, wanted: str, number: int, expected: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert files.output_of(tmp_path / source, tmp_path / wanted, alone=number == 1) == tmp_path / expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes in folders")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """A folder of somebody else may hold anything under the name of a file that is read."""
    pipe = tmp_path / "pyvenv.cfg"
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for the pipe"))
    signal.alarm(10)
    try:
        assert opening.head(pipe) == ""
        for read in (lambda: files.read_limited(pipe, 100, "a test"), lambda: files.sha256(pipe)):
            with pytest.raises(UnreadableError, match="is not a plain file"):
                read()
        with pytest.raises(OSError, match="is not a plain file"):
            codec.read_toml(pipe)
        with pytest.raises(IsADirectoryError):
            codec.read_toml(tmp_path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_an_absolute_path_has_no_dots_unless_it_goes_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert files.absolute("../dist/./x") == tmp_path / "dist" / "x"
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "far" / "away")
    assert files.absolute("link/../dist").resolve() == tmp_path / "far" / "dist"


def test_links_in_a_circle_have_an_absolute_path_too(tmp_path: Path) -> None:
    """Whoever opens the file says what is wrong with it, in a sentence."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for path in ("one", "one/x"):
        assert files.absolute(tmp_path / path) == tmp_path / path
    assert files.absolute(tmp_path / "dist" / ".." / "one") == tmp_path / "one"
