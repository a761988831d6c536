from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import NewerSchemaError
from cuwheel.support import files
from cuwheel.support.confined import Tree
from cuwheel.wheel import journal, journal_file, record
from cuwheel.wheel.journal_file import FileState, Header, Root, Step, Writer
from cuwheel_core.errors import MalformedError, UnreadableError
from tests.fixtures import systems
from tests.unit.changes.slim.packages import contents, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.wheel.journal_file import State

HEADER = Header(tool="tests", targets=("h100 (9.0)",))
STEP = Step(number=1, action="create", path="a", before=None, after=FileState(size=1, mtime_ns=2, inode=3, sha256="f"))


def staged(one: journal.Changes, data: bytes) -> tuple[Path, record.Digest]:
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
    with journal.begin(root, HEADER) as one:
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
    assert journal_file.read_journal(tmp_path) == journal_file.Journal(header=HEADER, steps=(STEP,), state="switching")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_cut_short_was_never_acted_upon(tmp_path: Path, cut: int) -> None:
    writer = Writer(tmp_path)
    writer.start(HEADER)
    writer.state("done")
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert journal_file.read_journal(tmp_path).state == ("done" if cut == 1 else "preparing")
    writer.state("undoing")
    assert journal_file.read_journal(tmp_path).state == "undoing"


def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    Writer(tmp_path).start(Header(tool="later", targets=(), schema="cuwheel.journal/4"))
    with pytest.raises(NewerSchemaError):
        journal_file.read_journal(tmp_path)


def test_undo_restores_every_byte_mode_and_time(root: Path) -> None:
    before, mode = snapshot(root), (root / "b").stat().st_mode
    change(root)
    assert (root / "a").read_bytes() == b"new a"
    assert not (root / "c").exists()
    assert (root / "b").stat().st_mode == mode
    steps, findings = journal.undo(root)
    assert (len(steps), findings) == (4, ())
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_runs_are_undone_in_reverse(root: Path) -> None:
    before = snapshot(root)
    change(root)
    with journal.begin(root, HEADER) as one:
        one.replace(root / "a", *staged(one, b"newer a"))
        one.apply()
    journal.undo(root)
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_commit_frees_the_originals(root: Path) -> None:
    change(root)
    after = {path: data for path, data in contents(root).items() if ".cuwheel" not in path}
    steps, _ = journal.commit(root)
    assert len(steps) == 4
    assert contents(root) == after


def test_hard_links_are_never_written_through(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    os.link(root / "a", cache)
    inode = cache.stat().st_ino
    change(root)
    assert cache.read_bytes() == b"a" * 1000
    journal.undo(root)
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
    switch = journal._switch

    def fails(*args: object) -> None:
        if args[2].path == "c":  # type: ignore[attr-defined]
            raise PermissionError(1, "Operation not permitted", str(root / "c"))
        switch(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "_switch", fails)
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
    _, findings = journal.undo(root)
    assert (root / "a").read_bytes() == b"upgraded"
    assert (root / "b").read_bytes() == b"b" * 1000
    assert [each.rule for each in findings] == ["changed-since"]


@pytest.mark.parametrize("stop", range(5))
@pytest.mark.parametrize("then", ["slim", "undo"])
def test_an_interrupted_switch_is_finished_or_taken_back(
    root: Path, stop: int, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill would leave it: some files switched, the journal that never ended."""
    before, switch = snapshot(root), journal._switch
    done: list[object] = []

    class Killed(BaseException):
        pass

    def dies(*args: object) -> None:
        if len(done) == stop:
            raise Killed
        switch(*args)  # type: ignore[arg-type]
        done.append(args)

    monkeypatch.setattr(journal, "_switch", dies)
    monkeypatch.setattr(journal, "_undo_switches", lambda *_: None)
    if stop < 4:
        with pytest.raises(Killed):
            change(root)
    else:
        change(root)
    monkeypatch.undo()
    if then == "slim":
        assert journal.recover(root) == ()
        assert (root / "a").read_bytes() == b"new a"
        assert (root / "d").read_bytes() == b"new d"
        assert not (root / "c").exists()
    journal.undo(root)
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


@systems.NO_MODES
def test_without_hard_links_originals_are_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)

    def cannot(*_args: object, **_more: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", cannot)
    change(root)
    journal.undo(root)
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Inodes of files that a process of Windows has loaded: they can be renamed, not replaced or removed."""
    found: set[int] = set()
    replace, unlink = Tree.replace, Tree.unlink

    def is_loaded(tree: Tree, name: str) -> bool:
        there = tree.status(name)
        return there is not None and there.st_ino in found

    def replaced(self: Tree, made: str, name: str) -> None:
        if is_loaded(self, name):
            raise PermissionError(13, "Access is denied", name)
        replace(self, made, name)

    def unlinked(self: Tree, name: str) -> None:
        if is_loaded(self, name):
            raise PermissionError(13, "Access is denied", name)
        unlink(self, name)

    monkeypatch.setattr(Tree, "replace", replaced)
    monkeypatch.setattr(Tree, "unlink", unlinked)
    return found


def test_loaded_libraries_are_renamed_first(root: Path, loaded: set[int]) -> None:
    before = snapshot(root)
    loaded.update((root / name).stat().st_ino for name in ("a", "c"))
    change(root)
    assert (root / "a").read_bytes() == b"new a"
    assert not (root / "c").exists()
    loaded.add((root / "a").stat().st_ino)  # the new one was loaded since
    steps, findings = journal.undo(root)
    assert (len(steps), findings) == (4, ())
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


@pytest.mark.parametrize("way", ["finished", "undone"])
def test_killed_while_a_loaded_library_was_aside(
    root: Path, loaded: set[int], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Nothing has its name then: the next run knows that it was not somebody else who removed it."""
    before = snapshot(root)
    loaded.add((root / "a").stat().st_ino)
    monkeypatch.setattr(journal, "_undo_switches", lambda *_: None)  # killed: nothing is undone
    rename = Tree.replace

    def killed(self: Tree, made: str, name: str) -> None:
        rename(self, made, name)
        if made == "a":
            raise KeyboardInterrupt

    monkeypatch.setattr(Tree, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        change(root)
    monkeypatch.setattr(Tree, "replace", rename)
    assert not (root / "a").exists()
    if way == "finished":
        assert journal.recover(root) == ()
        assert (root / "a").read_bytes() == b"new a"
    assert journal.undo(root)[1] == ()
    assert {path: state for path, state in snapshot(root).items() if ".cuwheel" not in path} == before


def test_a_file_that_others_removed_is_not_taken_for_one_aside(root: Path, loaded: set[int]) -> None:
    loaded.add((root / "a").stat().st_ino)
    change(root)
    loaded.clear()
    (root / "a").unlink()
    _, findings = journal.undo(root)
    assert [each.rule for each in findings] == ["changed-since"]


def test_a_second_run_is_told_who_is_there(tmp_path: Path) -> None:
    folder = journal_file.folder_of(tmp_path)
    with files.folder_lock(folder):
        with (
            pytest.raises(UnreadableError, match=f"another cuwheel process \\({os.getpid()}\\)"),
            files.folder_lock(folder),
        ):
            pass
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_nobody_holds_is_no_lock(tmp_path: Path) -> None:
    folder = journal_file.folder_of(tmp_path)
    folder.mkdir(parents=True)
    (folder / "lock").write_text("999999\n")
    with files.folder_lock(folder):
        assert (folder / "lock").read_text() == f"{os.getpid()}\n"


def test_scratch_folders_of_the_dead_are_cleared(tmp_path: Path) -> None:
    dead = tmp_path / ".cuwheel-slim-dead"
    dead.mkdir()
    (dead / "half a library.so").touch()
    (tmp_path / f"{dead.name}.lock").touch()
    (tmp_path / ".cuwheel-slim-killed-at-birth.lock").touch()
    with files.scratch_beside(tmp_path) as alive:
        assert not dead.exists()
        assert len(list(tmp_path.iterdir())) == 2
        with files.scratch_beside(tmp_path) as other:
            assert alive.is_dir()
            assert other != alive
    assert list(tmp_path.iterdir()) == []


def originals(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob(".cuwheel/slim/*/originals/*")}


def outside(root: Path) -> dict[str, str]:
    return {path: state for path, state in contents(root).items() if ".cuwheel" not in path}


def test_undo_keeps_the_originals_of_what_it_could_not_restore(root: Path) -> None:
    change(root)
    (root / "a").write_bytes(b"upgraded")
    steps, (finding,) = journal.undo(root)
    assert {each.path for each in steps} == {"b", "c", "d"}
    assert (finding.rule, finding.severity) == ("changed-since", "error")
    ((kept, data),) = originals(root).items()
    assert data == b"a" * 1000
    assert kept in finding.message
    # Slimmed anew, undone again: nothing of the first run is done twice, and its original is still there.
    assert journal.recover(root) == ()
    with journal.begin(root, HEADER) as one:
        one.replace(root / "b", *staged(one, b"B" * 1000))
        one.create(root / "d", *staged(one, b"new d"))
        one.apply()
    assert journal.recover(root) == ()
    assert (root / "d").exists()
    _, (again,) = journal.undo(root)
    assert again == finding
    assert originals(root)[kept] == b"a" * 1000
    # Put right by hand: then there is nothing left to undo.
    (root / kept).replace(root / "a")
    assert journal.undo(root)[1] == ()
    assert not list((root / ".cuwheel" / "slim").iterdir())
    assert set(outside(root)) == {"a", "b", "c"}


def test_what_undo_kept_is_given_up_by_commit_alone(root: Path) -> None:
    change(root)
    (root / "a").write_bytes(b"upgraded")
    journal.undo(root)
    steps, findings = journal.commit(root)
    assert ([each.path for each in steps], findings) == (["a"], ())
    assert (root / "a").read_bytes() == b"upgraded"
    assert not originals(root)


def test_an_undo_killed_half_way_keeps_them_too(root: Path) -> None:
    change(root)
    (root / "a").write_bytes(b"upgraded")
    Writer(root / ".cuwheel" / "slim" / "0001").state("undoing")
    (finding,) = journal.recover(root)
    assert finding.severity == "error"
    assert list(originals(root).values()) == [b"a" * 1000]


def test_what_changed_during_the_switch_keeps_its_original(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = journal._switch

    def interfered(*args: object) -> None:
        if args[2].path == "c":  # type: ignore[attr-defined]
            (root / "a").write_bytes(b"pip was here")
            raise PermissionError(1, "Operation not permitted")
        switch(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "_switch", interfered)
    with pytest.raises(UnreadableError, match="not permitted"):
        change(root)
    assert b"a" * 1000 in originals(root).values()


# ---- journals that a stranger wrote ----

OUTSIDE = [
    "../victim/.profile",
    "/VICTIM/.profile",
    "x/../../victim/.profile",
    "link/.profile",
    "a\0b",
    "",
    ".",
    "./a/..",
]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / ".profile").write_text("mine\n")
    return folder


def hostile(tmp_path: Path, path: str, state: State, *, root: Root | None) -> Path:
    """A folder whose journal creates, replaces and removes `path`."""
    folder = tmp_path / "stranger"
    run = folder / ".cuwheel" / "slim" / "0001"
    for part in ("new", "originals"):
        (run / part).mkdir(parents=True)
    if path.startswith("link"):
        (folder / "link").symlink_to(tmp_path / "victim")
    for number in ("1", "2", "3"):
        (run / "new" / number).write_text("evil\n")
        (run / "originals" / number).write_text("evil\n")
    mine = journal._state((tmp_path / "victim" / ".profile").lstat())
    evil = FileState(size=5, mtime_ns=0, inode=0, sha256=record.digest_of_bytes(b"evil\n").sha256)
    writer = Writer(run)
    writer.start(Header(tool="stranger", targets=(), root=root or Root.of(folder.resolve())))
    writer.steps(
        (
            Step(number=1, action="create", path=path, before=None, after=mine),
            Step(number=2, action="replace", path=path, before=evil, after=mine),
            Step(number=3, action="create", path=f"{path}-new", before=None, after=evil),
        )
    )
    writer.state(state)
    return folder


@pytest.mark.parametrize("state", ["switching", "done", "undoing", "committing", "preparing", "kept"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_no_journal_reaches_out_of_its_folder(tmp_path: Path, victim: Path, path: str, state: State) -> None:
    """Even one that knows the folder it is in."""
    folder = hostile(tmp_path, path.replace("/VICTIM", str(victim)), state, root=None)
    before = contents(tmp_path)
    for act in (journal.recover, journal.undo, journal.commit):
        with pytest.raises(MalformedError, match=r"outside its folder|out of its folder"):
            act(folder)
        assert contents(tmp_path) == before


def test_a_journal_of_another_folder_is_refused(tmp_path: Path, victim: Path) -> None:
    folder = hostile(tmp_path, "harmless", "done", root=Root(path="/elsewhere", inode=1, owner=0))
    before = contents(tmp_path)
    for act in (journal.recover, journal.undo, journal.commit):
        with pytest.raises(MalformedError, match="is a journal of changes to") as raised:
            act(folder)
        assert str(folder / ".cuwheel") in raised.value.hint
    assert contents(tmp_path) == before
    assert (victim / ".profile").read_text() == "mine\n"


def test_a_copied_environment_is_not_undone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    change(root)
    copy = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(root, copy)
    before = contents(copy)
    with pytest.raises(MalformedError, match="this is another folder"):
        journal.undo(copy)
    assert contents(copy) == before
    journal.undo(root)
    assert (root / "a").read_bytes() == b"a" * 1000


def test_a_moved_environment_is_not_undone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    change(root)
    moved = tmp_path_factory.mktemp("moved") / "env"
    root.rename(moved)
    with pytest.raises(MalformedError, match="this is another folder"):
        journal.undo(moved)
    moved.rename(root)
    assert journal.undo(root)[1] == ()


LINKS = [".cuwheel", ".cuwheel/slim", ".cuwheel/slim/0001", ".cuwheel/slim/0001/originals", ".cuwheel/slim/0001/new"]


@pytest.mark.parametrize("place", LINKS)
def test_folders_of_the_journal_are_no_links(root: Path, tmp_path_factory: pytest.TempPathFactory, place: str) -> None:
    change(root)
    away = tmp_path_factory.mktemp("away") / "victim"
    if not (root / place).exists():
        (root / place).mkdir()
    (root / place).rename(away)
    (away / "precious").write_text("mine")
    (root / place).symlink_to(away)
    before = contents(away)
    for act in (journal.undo, journal.commit):
        with pytest.raises(MalformedError, match="not a folder of its own"), journal_file.locked(root):
            act(root)
    assert contents(away) == before


@pytest.mark.parametrize("name", ["lock", "0001/journal.jsonl"])
@pytest.mark.parametrize("way", ["symlink", "hard link", "pipe"])
def test_files_of_the_journal_are_no_links(
    root: Path, tmp_path_factory: pytest.TempPathFactory, name: str, way: str
) -> None:
    change(root)
    precious = tmp_path_factory.mktemp("away") / "precious"
    path = root / ".cuwheel" / "slim" / name
    data = path.read_bytes() if path.exists() else b"mine"
    precious.write_bytes(data)
    path.unlink(missing_ok=True)
    if way == "symlink":
        path.symlink_to(precious)
    elif way == "hard link":
        os.link(precious, path)
    else:
        os.mkfifo(path)
    with pytest.raises(MalformedError), journal_file.locked(root):
        journal.undo(root)
    assert precious.read_bytes() == data


def test_nothing_is_changed_behind_a_link_out_of_the_folder(root: Path, victim: Path) -> None:
    (root / "info").symlink_to(victim)
    (victim / "x").write_text("mine")
    inner = root / "inner"
    inner.mkdir()
    (inner / "x").write_text("x")
    (inner / "info").symlink_to(victim)
    with pytest.raises(MalformedError, match="out of its folder"), journal.begin(inner, HEADER) as one:
        one.replace(inner / "info" / "x", *staged(one, b"evil"))
    assert (victim / "x").read_text() == "mine"


@pytest.mark.parametrize("line", ["[" * 100_000, '{"step": {"x":' + "[" * 100_000, "\\ud800", "{}", "null", "\0"])
def test_odd_lines_are_passed_over(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_text(line + "\n")
    assert journal_file.read_journal(tmp_path).steps == ()


def test_a_folder_that_is_gone_for_good_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the working folder was removed: nobody brings it back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UnreadableError), files.folder_lock(Path("root", ".cuwheel", "slim")):
        pass
