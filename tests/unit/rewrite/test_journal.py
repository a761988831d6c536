from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import NewerSchemaError, UnreadableError
from cuwheel.rewrite import changes, journal, lock, record
from cuwheel.rewrite.journal import FileState, Header, Step, Writer
from tests.unit.rewrite.packages import contents, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER = Header(tool="tests", targets=("h100 (9.0)",))
STEP = Step(number=1, action="create", path="a", before=None, after=FileState(size=1, mtime_ns=2, inode=3, sha256="f"))


def staged(one: changes.Changes, data: bytes) -> tuple[Path, record.Digest]:
    path = one.stage()
    path.write_bytes(data)
    return path, record.digest_of_bytes(data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
        os.utime(tmp_path / name, ns=(10**18, 10**18 + 12345))
    (tmp_path / "b").chmod(0o555)
    return tmp_path


def change(root: Path, *, fail: Callable[[], None] = lambda: None) -> None:
    with changes.begin(root, HEADER) as one:
        one.replace(root / "a", *staged(one, b"new a"))
        one.replace(root / "b", *staged(one, b"B" * 1000))  # of the same size
        one.remove(root / "c")
        one.create(root / "d", *staged(one, b"new d"))
        fail()
        one.apply()


def test_lines_are_read_back(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.start(HEADER)
    writer.steps((STEP,))
    writer.state("switching")
    assert journal.read(tmp_path) == journal.Journal(header=HEADER, steps=(STEP,), state="switching")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_cut_short_was_never_acted_upon(tmp_path: Path, cut: int) -> None:
    writer = Writer(tmp_path)
    writer.start(HEADER)
    writer.state("done")
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert journal.read(tmp_path).state == ("done" if cut == 1 else "preparing")
    writer.state("undoing")
    assert journal.read(tmp_path).state == "undoing"


def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    Writer(tmp_path).start(Header(tool="later", targets=(), schema="cuwheel.slim-journal/2"))
    with pytest.raises(NewerSchemaError):
        journal.read(tmp_path)


def test_undo_restores_every_byte_mode_and_time(root: Path) -> None:
    before = snapshot(root)
    change(root)
    assert (root / "a").read_bytes() == b"new a"
    assert not (root / "c").exists()
    assert (root / "b").stat().st_mode & 0o777 == 0o555
    steps, findings = changes.undo(root)
    assert (len(steps), findings) == (4, ())
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_runs_are_undone_in_reverse(root: Path) -> None:
    before = snapshot(root)
    change(root)
    with changes.begin(root, HEADER) as one:
        one.replace(root / "a", *staged(one, b"newer a"))
        one.apply()
    changes.undo(root)
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_commit_frees_the_originals(root: Path) -> None:
    change(root)
    after = {path: data for path, data in contents(root).items() if ".cuwheel" not in path}
    steps, _ = changes.commit(root)
    assert len(steps) == 4
    assert contents(root) == after


def test_hard_links_are_never_written_through(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    os.link(root / "a", cache)
    inode = cache.stat().st_ino
    change(root)
    assert cache.read_bytes() == b"a" * 1000
    changes.undo(root)
    assert (root / "a").stat().st_ino == inode  # linked to the cache again


def test_what_fails_before_the_switch_changes_nothing(root: Path) -> None:
    before = snapshot(root)

    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UnreadableError, match="No space left") as raised:
        change(root, fail=fail)
    assert "make room first" in raised.value.hint
    assert snapshot(root) == before


def test_what_fails_in_the_switch_is_taken_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)
    switch = changes._switch

    def fails(*args: object) -> None:
        if args[2].path == "c":  # type: ignore[attr-defined]
            raise PermissionError(1, "Operation not permitted", str(root / "c"))
        switch(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(changes, "_switch", fails)
    with pytest.raises(UnreadableError, match="not permitted"):
        change(root)
    assert snapshot(root) == before


def test_a_file_that_changes_meanwhile_stops_it(root: Path) -> None:
    def other() -> None:
        (root / "a").write_bytes(b"pip was here")

    with pytest.raises(UnreadableError, match="changed by something else"):
        change(root, fail=other)
    assert (root / "b").read_bytes() == b"b" * 1000
    assert not (root / ".cuwheel" / "slim" / "0001").exists()


def test_undo_leaves_what_others_changed_since(root: Path) -> None:
    change(root)
    (root / "a").write_bytes(b"upgraded")
    (root / "d").unlink()
    _, findings = changes.undo(root)
    assert (root / "a").read_bytes() == b"upgraded"
    assert (root / "b").read_bytes() == b"b" * 1000
    assert [each.rule for each in findings] == ["changed-since"]


@pytest.mark.parametrize("stop", range(5))
@pytest.mark.parametrize("then", ["slim", "undo"])
def test_an_interrupted_switch_is_finished_or_taken_back(
    root: Path, stop: int, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill would leave it: some files switched, the journal without an end."""
    before, switch = snapshot(root), changes._switch
    done: list[object] = []

    class Killed(BaseException):
        pass

    def dies(*args: object) -> None:
        if len(done) == stop:
            raise Killed
        switch(*args)  # type: ignore[arg-type]
        done.append(args)

    monkeypatch.setattr(changes, "_switch", dies)
    monkeypatch.setattr(changes, "_take_back", lambda *_: None)
    if stop < 4:
        with pytest.raises(Killed):
            change(root)
    else:
        change(root)
    monkeypatch.undo()
    if then == "slim":
        assert changes.recover(root) == ()
        assert (root / "a").read_bytes() == b"new a"
        assert (root / "d").read_bytes() == b"new d"
        assert not (root / "c").exists()
    changes.undo(root)
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_without_hard_links_originals_are_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)

    def cannot(*_args: object, **_more: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", cannot)
    change(root)
    changes.undo(root)
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_a_second_run_is_told_who_is_there(tmp_path: Path) -> None:
    folder = changes.folder_of(tmp_path)
    with lock.locked(folder):
        with pytest.raises(UnreadableError, match=f"another cuwheel \\(process {os.getpid()}\\)"), lock.locked(folder):
            pass
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_nobody_holds_is_no_lock(tmp_path: Path) -> None:
    folder = changes.folder_of(tmp_path)
    folder.mkdir(parents=True)
    (folder / "lock").write_text("999999\n")
    with lock.locked(folder):
        assert (folder / "lock").read_text() == f"{os.getpid()}\n"


def test_scratch_folders_of_the_dead_are_cleared(tmp_path: Path) -> None:
    dead = tmp_path / ".cuwheel-slim-dead"
    dead.mkdir()
    (dead / "half a library.so").touch()
    (tmp_path / f"{dead.name}.lock").touch()
    (tmp_path / ".cuwheel-slim-killed-at-birth.lock").touch()
    with lock.scratch(tmp_path) as alive:
        assert not dead.exists()
        assert len(list(tmp_path.iterdir())) == 2
        with lock.scratch(tmp_path) as other:
            assert alive.is_dir()
            assert other != alive
    assert list(tmp_path.iterdir()) == []
