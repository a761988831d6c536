"""Changes to many files at once that can be undone.

All new files are prepared apart and every original is kept by a hard link before the first name changes;
what follows is renaming alone. So a file is the original or the finished one at any moment, a run that was
killed is finished or taken back by the next, and nothing is ever written through a link into a cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel import confined, locking
from cuwheel.errors import UnreadableError
from cuwheel.files import errors_of, sync_file, sync_folder
from cuwheel.finding import Finding
from cuwheel.slimming import in_use, journal
from cuwheel.slimming.journal import FileState, Root, Step, Writer
from cuwheel.wheel.record import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.slimming.journal import Action, Header, Journal
    from cuwheel.wheel.record import Digest

_NOTHING = "nothing was changed"
_RERUN_HINT = "fix that and run it again: finished steps are kept"


def folder_of(root: Path) -> Path:
    """Where the journals of an environment or folder are."""
    return root / ".cuwheel" / "slim"


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """No other cuwheel changes `root` while the block runs."""
    confined.must_be_a_folder(root / ".cuwheel")
    confined.must_be_a_folder(folder_of(root))
    with locking.locked(folder_of(root)):
        yield


class Changes:
    """What one run is about to change below `root`. Nothing changes before `apply`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self._folder = root, folder
        self._steps: list[Step] = []
        self._next = 0
        self._lock = threading.Lock()

    def stage(self) -> Path:
        """A place for a new file, on the file system of the root."""
        with self._lock:
            self._next += 1
            return self._folder / "new" / str(self._next)

    def replace(self, path: Path, staged: Path, digest: Digest) -> None:
        """`staged` will take the place of `path`, with its mode, owner and times."""
        before = _state(path.lstat())
        if before.size == digest.size and not path.is_symlink():
            # A RECORD mostly keeps its size: only its content tells the two apart in a copied environment.
            before = replace(before, sha256=digest_of(path).sha256)
        _make_alike(staged, path)
        self._add(self._step("replace", path, staged, before, digest))

    def create(self, path: Path, staged: Path, digest: Digest) -> None:
        self._add(self._step("create", path, staged, None, digest))

    def remove(self, path: Path, listed: Path | None = None) -> None:
        """`listed`: the RECORD that lists it."""
        step = self._step("remove", path, self.stage(), _state(path.lstat()), None)
        self._add(replace(step, record=listed.relative_to(self.root).as_posix() if listed else None))

    def _step(self, action: Action, path: Path, staged: Path, before: FileState | None, digest: Digest | None) -> Step:
        after = None
        if digest:
            sync_file(staged)
            after = replace(_state(staged.stat()), sha256=digest.sha256)
        inside = path.relative_to(self.root).as_posix()
        confined.inside(self.root, inside, path)
        return Step(number=int(staged.name), action=action, path=inside, before=before, after=after)

    def _add(self, step: Step) -> None:
        with self._lock:
            self._steps.append(step)

    def apply(self) -> None:
        """All of it, or nothing and an error."""
        steps = tuple(sorted(self._steps, key=lambda each: each.path))
        writer = Writer(self._folder)
        with errors_of(self.root, _NOTHING):
            writer.steps(steps)
            for step in steps:
                _keep_original(self.root, self._folder, step)
            sync_folder(self._folder / "originals")
            sync_folder(self._folder / "new")
            _must_be_as_before(self.root, steps)
            writer.state("switching")
            try:
                for step in steps:
                    _switch(self.root, self._folder, step)
                _sync_folders(self.root, steps)
                writer.state("done")
            except BaseException:
                _take_back(self.root, self._folder, steps)
                raise


@contextlib.contextmanager
def begin(root: Path, header: Header) -> Iterator[Changes]:
    """The caller holds the lock. What is not applied when the block ends leaves nothing behind."""
    folders = _folders(root)
    folder = folder_of(root) / f"{int(folders[-1].name) + 1 if folders else 1:04}"
    with errors_of(root, _NOTHING):
        try:
            for part in ("new", "originals"):
                (folder / part).mkdir(parents=True)
            Writer(folder).start(replace(header, root=Root.of(root)))
            yield Changes(root, folder)
        finally:
            found = journal.read(folder)
            if found.state == "preparing":
                _forget(root, folder, found)
            elif found.state == "done":
                in_use.clear(folder / "new")


def recover(root: Path) -> tuple[Finding, ...]:
    """Finish or take back what an interrupted run left. The caller holds the lock."""
    findings: list[Finding] = []
    for folder, found in reversed(_journals(root)):
        if found.state == "switching":
            findings += _finish(root, folder, found)
        elif found.state == "undoing":
            findings += _undo(root, folder, found)
        elif found.state in ("preparing", "committing"):
            _forget(root, folder, found)
    return tuple(findings)


def undo(root: Path) -> tuple[tuple[Step, ...], tuple[Finding, ...]]:
    """Every original back in its place, the latest run first.

    What others changed since is left to them, and its original is kept: only `commit` gives up originals.
    """
    findings = list(recover(root))
    steps: list[Step] = []
    for folder, found in reversed(_journals(root)):
        with errors_of(root, _RERUN_HINT):
            Writer(folder).state("undoing")
        findings += _undo(root, folder, found)
        steps += found.steps
    remaining = {step.path for _, found in _journals(root) for step in found.steps}
    return tuple(each for each in steps if each.path not in remaining), tuple(dict.fromkeys(findings))


def commit(root: Path) -> tuple[tuple[Step, ...], tuple[Finding, ...]]:
    """Give up the originals: only then is their space free."""
    findings = tuple(each for each in recover(root) if each.severity != "error")  # of what is given up now
    steps: list[Step] = []
    for folder, found in _journals(root):
        steps += found.steps
        with errors_of(root, _RERUN_HINT):
            Writer(folder).state("committing")
            _discard(folder)
    return tuple(steps), findings


def _folders(root: Path) -> list[Path]:
    place = folder_of(root)
    if not confined.must_be_a_folder(place):
        return []
    found = sorted(each for each in place.iterdir() if each.name.isdecimal() and each.name.isascii())
    for folder in found:
        for part in (folder, folder / "new", folder / "originals", folder / in_use.FOLDER):
            confined.must_be_a_folder(part)
    return found


def _journals(root: Path) -> list[tuple[Path, Journal]]:
    """All of them are read and checked before the first is acted upon."""
    return [(folder, journal.read(folder, root)) for folder in _folders(root)]


def _keep_original(root: Path, folder: Path, step: Step) -> None:
    if step.before is None:
        return
    path, kept = root / step.path, _original(folder, step)
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:  # file systems without hard links, files of others
        shutil.copy2(path, kept, follow_symlinks=False)
        if not kept.is_symlink():
            sync_file(kept)


def _must_be_as_before(root: Path, steps: tuple[Step, ...]) -> None:
    for step in steps:
        path = root / step.path
        if not _is(path, step.before):
            raise UnreadableError(
                path, "was changed by something else in the meantime", hint="run it again: nothing was changed"
            )


def _switch(root: Path, folder: Path, step: Step) -> None:
    path, staged = root / step.path, folder / "new" / str(step.number)
    if step.action == "remove":
        in_use.take_away(path, folder, step.number)
    elif staged.exists():
        in_use.put(staged, path, folder, step.number)


def _forget(root: Path, folder: Path, found: Journal) -> None:
    """What was prepared and never done: the originals that were kept are still in use, by another name."""
    with in_use.modes_kept([root / step.path for step in found.steps]):
        in_use.clear(folder)


def _discard(folder: Path) -> None:
    """A journal that is settled. Libraries that a process of Windows has loaded stay; the next run removes them."""
    journal.remove(folder)
    if os.name == "nt":
        in_use.clear(folder)
    else:
        shutil.rmtree(folder)


def _finish(root: Path, folder: Path, found: Journal) -> Iterator[Finding]:
    """The new files were all ready: what remains is renaming."""
    with errors_of(root, _RERUN_HINT):
        for step in found.steps:
            path = root / step.path
            if _is(path, step.before) or in_use.was_interrupted(path, folder, step.number):
                _switch(root, folder, step)
            elif not _is(path, step.after):
                yield _changed_since(step)
        _sync_folders(root, found.steps)
        Writer(folder).state("done")
        in_use.clear(folder / "new")


def _take_back(root: Path, folder: Path, steps: tuple[Step, ...]) -> None:
    """Renames need no room on the disk. What cannot be taken back now is left to the next run."""
    with contextlib.suppress(OSError):
        Writer(folder).state("undoing")
    with contextlib.suppress(OSError):
        stuck = [step for step in reversed(steps) if not _restore(root, folder, step, steps)]
        if not stuck:
            _discard(folder)


def _undo(root: Path, folder: Path, found: Journal) -> list[Finding]:
    with errors_of(root, _RERUN_HINT):
        stuck = [step for step in reversed(found.steps) if not _restore(root, folder, step, found.steps)]
        _sync_folders(root, found.steps)
        if stuck:
            Writer(folder).keep_only(found, tuple(reversed(stuck)))
            in_use.clear(folder / "new")
        else:
            _discard(folder)
    return [_not_restored(step, _original(folder, step)) for step in stuck]


def _restore(root: Path, folder: Path, step: Step, steps: tuple[Step, ...]) -> bool:
    """False: something else changed it since, and it was left alone."""
    path, kept = root / step.path, _original(folder, step)
    if _is(path, step.before):
        return True  # never switched, or restored already
    ours = _is(path, step.after) or in_use.was_interrupted(path, folder, step.number)
    if not ours or not _still_installed(root, step, steps):
        return False
    if step.action == "create":
        in_use.take_away(path, folder, step.number)
    elif os.path.lexists(kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        in_use.put(kept, path, folder, step.number)
    else:
        return False
    return True


def _original(folder: Path, step: Step) -> Path:
    return folder / "originals" / str(step.number)


def _still_installed(root: Path, step: Step, steps: tuple[Step, ...]) -> bool:
    """A removed file must not come back into a package that was uninstalled, or upgraded, since."""
    listed = next((each for each in steps if step.record and each.path == step.record), None)
    return listed is None or _is(root / listed.path, listed.before) or _is(root / listed.path, listed.after)


def _state(status: os.stat_result) -> FileState:
    return FileState(size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)


def _is(path: Path, wanted: FileState | None) -> bool:
    """Whether the file is this one; None: whether there is none. A copied environment has other inodes."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return wanted is None
    if wanted is None or status.st_size != wanted.size:
        return False
    if (status.st_ino, status.st_mtime_ns) == (wanted.inode, wanted.mtime_ns):
        return True
    if wanted.sha256 is None:
        return status.st_mtime_ns == wanted.mtime_ns
    return stat.S_ISREG(status.st_mode) and digest_of(path).sha256 == wanted.sha256


def _make_alike(staged: Path, path: Path) -> None:
    """Mode, times, extended attributes and, where we may, the owner of the file that it replaces."""
    shutil.copystat(path, staged)
    there, here = path.stat(), staged.stat()
    if (there.st_uid, there.st_gid) != (here.st_uid, here.st_gid):
        try:
            os.chown(staged, there.st_uid, there.st_gid)
        except PermissionError as error:
            raise UnreadableError(
                path, "belongs to another user", hint="run cuwheel as the user who owns the environment"
            ) from error
        staged.chmod(stat.S_IMODE(there.st_mode))  # changing the owner clears the set-user-id bits


def _sync_folders(root: Path, steps: tuple[Step, ...]) -> None:
    for folder in {(root / step.path).parent for step in steps}:
        sync_folder(folder)


def _changed_since(step: Step) -> Finding:
    return Finding(
        rule="changed-since",
        severity="warning",
        message=f"{step.path} was changed, or removed, by something else after it was slimmed: left as it is",
        fix="reinstall its package if it does not work",
    )


def _not_restored(step: Step, original: Path) -> Finding:
    words = f"{step.path} was changed, or removed, by something else after it was slimmed: left as it is"
    if step.before is None:
        return Finding(
            rule="changed-since", severity="error", message=words, fix="remove it yourself if it is not needed"
        )
    return Finding(
        rule="changed-since",
        severity="error",
        message=f"{words}; its original is kept as {original}",
        fix="copy the original back, or delete it with cuwheel slim --commit",
    )
