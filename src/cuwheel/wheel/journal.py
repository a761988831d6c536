"""The one journal of changes to an environment or folder: how they are kept, finished after a crash, and undone.

Each run has a folder of its own below `.cuwheel/VERB`: `journal.jsonl`, whose lines survive a crash, `originals` (the
very files, by a second name) and, of files that may be changed in place, `copies`. `slim` prepares all new files in
`new` and then only renames. `install` lets an installer work, so it keeps every file first and finds out afterwards
what has changed. From there on both are the same: steps, each with the state of a file before and after.

A journal is anybody's word. It is checked as a whole before anything is done, and what it names is reached through
descriptors, never through a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from cuwheel.support import confined, system_calls
from cuwheel.support.confined import Tree
from cuwheel.support.files import errors_of, sync_file, sync_folder
from cuwheel.support.finding import finding
from cuwheel.wheel.journal_file import (
    ASIDE,
    FILE_NAME,
    FOLDER,
    Action,
    FileState,
    Header,
    Journal,
    Root,
    State,
    Step,
    Verb,
    Writer,
    journals,
    new_folder,
    read_journal,
    within,
)
from cuwheel.wheel.record import Digest, digest_of
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import bounded, opening

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding

_LIBRARY = (b"\x7fELF", b"MZ")
_SMALL = 1 << 20
_CACHE = "__pycache__"
_NOTHING = "nothing was changed"
_RERUN_HINT = "fix that and run it again: finished steps are kept"


# ---- slim: all new files are prepared apart, then renamed ----


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
        # Mode, times, extended attributes and, where we may, the owner of the file that it replaces.
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
        self._add(self._step("replace", path, staged, before, digest))

    def create(self, path: Path, staged: Path, digest: Digest) -> None:
        self._add(self._step("create", path, staged, None, digest))

    def remove(self, path: Path, listed: Path | None = None) -> None:
        """`listed`: the RECORD that lists it."""
        step = self._step("remove", path, self.stage(), _state(path.lstat()), None)
        self._add(replace(step, record=self._name(listed) if listed else None))

    def _name(self, path: Path) -> str:
        """Where it really is: no link on the way is followed later."""
        if not confined.leads_inside(self.root, path.parent):
            raise MalformedError(path, "is behind a link that leads out of its folder")
        return (path.parent.resolve() / path.name).relative_to(self.root).as_posix()

    def _step(self, action: Action, path: Path, staged: Path, before: FileState | None, digest: Digest | None) -> Step:
        after = None
        if digest:
            sync_file(staged)
            after = replace(_state(staged.stat()), sha256=digest.sha256)
        return Step(
            number=bounded.digits(staged.name), action=action, path=self._name(path), before=before, after=after
        )

    def _add(self, step: Step) -> None:
        with self._lock:
            self._steps.append(step)

    def apply(self) -> None:
        """All of it, or nothing and an error."""
        steps = tuple(sorted(self._steps, key=lambda each: each.path))
        writer, at = Writer(self._folder), within(self.root, self._folder)
        with errors_of(self.root, _NOTHING), Tree(self.root) as tree:
            writer.steps(steps)
            for step in steps:
                if step.before:
                    _keep_name(tree, step.path, f"{at}/originals/{step.number}")
            sync_folder(self._folder / "originals")
            sync_folder(self._folder / "new")
            _must_be_as_before(tree, steps)
            writer.state("switching")
            try:
                for step in steps:
                    _switch(tree, at, step)
                _sync_folders(self.root, steps)
                writer.state("done")
            except BaseException:
                _undo_switches(self.root, self._folder, steps)
                raise


@contextlib.contextmanager
def begin(root: Path, header: Header) -> Iterator[Changes]:
    """The caller holds the lock. What is not applied when the block ends leaves nothing behind."""
    folder = new_folder(root, "slim")
    with errors_of(root, _NOTHING):
        try:
            for part in ("new", "originals"):
                (folder / part).mkdir(parents=True)
            Writer(folder).start(replace(header, root=Root.of(root)))
            yield Changes(root, folder)
        finally:
            found = read_journal(folder)
            if found.state == "preparing":
                _forget(root, folder, found)
            elif found.state == "done":
                _clear(folder / "new")


def recover(root: Path, verb: Verb = "slim") -> tuple[Finding, ...]:
    """Finish or take back what an interrupted run left. The caller holds the lock."""
    findings: list[Finding] = []
    if verb == "slim" and any(each.state in ("installing", "undoing") for _, each in journals(root, "install")):
        raise UnreadableError(
            root, "an install was interrupted here", hint="cuwheel install --undo --env FOLDER puts it back; then again"
        )
    for folder, found in reversed(journals(root, verb)):
        if found.state == "switching":
            findings += _finish(root, folder, found)
        elif found.state == "undoing":
            findings += undo_one(root, folder, found)
        elif found.state in ("preparing", "committing"):
            _forget(root, folder, found)
    return tuple(findings)


def undo(root: Path) -> tuple[tuple[Step, ...], tuple[Finding, ...]]:
    """Every original of `slim` back in its place, the latest run first.

    What others changed since is left to them, and its original is kept: only `commit` gives up originals.
    """
    findings = list(recover(root))
    steps: list[Step] = []
    for folder, found in reversed(journals(root)):
        with errors_of(root, _RERUN_HINT):
            Writer(folder).state("undoing")
        findings += undo_one(root, folder, found)
        steps += found.steps
    remaining = {step.path for _, found in journals(root) for step in found.steps}
    return tuple(each for each in steps if each.path not in remaining), tuple(dict.fromkeys(findings))


def commit(root: Path) -> tuple[tuple[Step, ...], tuple[Finding, ...]]:
    """Give up the originals: only then is their space free."""
    findings = tuple(each for each in recover(root) if each.severity != "error")  # of what is given up now
    steps: list[Step] = []
    for folder, found in journals(root):
        steps += found.steps
        with errors_of(root, _RERUN_HINT):
            Writer(folder).state("committing")
            discard(folder)
    return tuple(steps), findings


def _keep_name(tree: Tree, path: str, kept: str) -> None:
    try:
        tree.link(path, kept)
    except OSError:  # file systems without hard links, files of others
        status = tree.status(path)
        if status and stat.S_ISLNK(status.st_mode):
            tree.symlink(tree.target(path), kept)
        else:
            _copy(tree, path, kept)


def _must_be_as_before(tree: Tree, steps: tuple[Step, ...]) -> None:
    for step in steps:
        if not _is(tree, step.path, step.before):
            raise UnreadableError(
                tree.root / step.path,
                "was changed by something else in the meantime",
                hint="run it again: nothing was changed",
            )


def _switch(tree: Tree, at: str, step: Step) -> None:
    staged = f"{at}/new/{step.number}"
    if step.action == "remove":
        _take_away(tree, step.path, at, step.number)
    elif tree.status(staged):
        _put(tree, staged, step.path, at, step.number)


def _finish(root: Path, folder: Path, found: Journal) -> Iterator[Finding]:
    """The new files were all ready: what remains is renaming."""
    at = within(root, folder)
    with errors_of(root, _RERUN_HINT), Tree(root) as tree:
        for step in found.steps:
            if _is(tree, step.path, step.before) or _was_interrupted(tree, step.path, at, step.number):
                _switch(tree, at, step)
            elif not _is(tree, step.path, step.after):
                yield _changed_since(step)
        _sync_folders(root, found.steps)
        Writer(folder).state("done")
        _clear(folder / "new")


def _undo_switches(root: Path, folder: Path, steps: tuple[Step, ...]) -> None:
    """Renames need no room on the disk. What cannot be undone now is left to the next run, as after a kill."""
    with contextlib.suppress(OSError):
        Writer(folder).state("undoing")
    with contextlib.suppress(OSError):
        if not _restore(root, folder, steps):
            discard(folder)


# ---- install: all that is there is kept, then an installer works ----


def keep_all(root: Path, header: Header, scope: Sequence[str]) -> tuple[Path, Journal]:
    """Every file below the folders of `scope`. The caller holds the lock; then anything may happen to them."""
    folder = new_folder(root, "install")
    at = within(root, folder)
    with errors_of(root, _NOTHING), Tree(root) as tree:
        try:
            for part in ("originals", "copies"):
                (folder / part).mkdir(parents=True)
            Writer(folder).start(replace(header, root=Root.of(root)))
            steps = []
            for number, (path, there) in enumerate(_all_there(tree, scope, at), start=1):
                steps.append(Step(number=number, action="keep", path=path, before=there))
                if there.kind == "file":
                    _keep_file(tree, path, at, number)
            Writer(folder).steps(steps)
            Writer(folder).state("installing")
        except BaseException:
            discard(folder)
            raise
    return folder, Journal(header=replace(header, root=Root.of(root)), steps=tuple(steps), state="installing")


def all_there(root: Path, scope: Sequence[str], folder: Path) -> dict[str, FileState]:
    """Every file, folder and link below some folders, but for those of this run's journal."""
    with errors_of(root, _RERUN_HINT), Tree(root) as tree:
        return dict(_all_there(tree, scope, within(root, folder)))


def _all_there(tree: Tree, scope: Sequence[str], at: str) -> Iterator[tuple[str, FileState]]:
    """Other journals are files like any other. Their folders as such, and the lock, come and go."""
    passing = (FOLDER, f"{FOLDER}/slim", f"{FOLDER}/install", f"{FOLDER}/slim/lock", at)
    for place in scope:
        for path, status in tree.entries(place) if not place or tree.status(place) else ():
            kind = _kind(status)
            if kind and path not in passing and not path.startswith(f"{at}/"):
                target = tree.target(path) if kind == "link" else None
                mode = stat.S_IMODE(status.st_mode)
                yield path, replace(_state(status), kind=kind, mode=mode, target=target)


def _keep_file(tree: Tree, path: str, at: str, number: int) -> None:
    """Keeps a file by a second name, and by a copy: what is imported may write into a file where it is.

    Large libraries have a copy where the file system makes one for nothing. Nobody writes into those in place:
    whoever has one loaded would crash. If it happens all the same, it is found out and said.
    """
    if FOLDER in path.split("/") and path.endswith(".jsonl"):  # with a second name it would not be believed
        _copy(tree, path, f"{at}/copies/{number}")
        return
    try:
        tree.link(path, f"{at}/originals/{number}")
    except OSError:  # file systems without hard links, files of others
        _copy(tree, path, f"{at}/copies/{number}")
        return
    with contextlib.suppress(PermissionError):  # one that its owner may not read either
        _copy(tree, path, f"{at}/copies/{number}", whole=False)


def _copy(tree: Tree, path: str, to: str, *, whole: bool = True) -> None:
    """Copies a file with its times, mode and owner.

    `whole`: False where a large library need not be copied byte by byte.
    """
    source = tree.open(path, os.O_RDONLY)
    with os.fdopen(source, "rb", buffering=0) as data:
        status = os.fstat(source)
        made = tree.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(status.st_mode))
        with os.fdopen(made, "wb", buffering=0) as copy:
            if not system_calls.clone(source, made):
                large = status.st_size > _SMALL and opening.read_at(source, 4, 0).startswith(_LIBRARY)
                if large and not whole:
                    tree.unlink(to)
                    return
                shutil.copyfileobj(data, copy, _SMALL)
            if os.name != "nt":
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(PermissionError):
                        os.fchown(made, status.st_uid, status.st_gid)
                if stat.S_IMODE(os.fstat(made).st_mode) != stat.S_IMODE(status.st_mode):  # some systems refuse that
                    os.fchmod(made, stat.S_IMODE(status.st_mode))
    tree.set_times(to, status.st_mtime_ns)


def is_other(root: Path, folder: Path, step: Step) -> bool:
    """Whether a file or link that was kept has other contents now; one that was written anew with the same has not."""
    with Tree(root) as tree:
        there, before = tree.status(step.path), step.before
        if there is None or before is None or before.kind == "folder" or _is(tree, step.path, before):
            return False
        kept = _kept(tree, within(root, folder), step)
    if before.kind != "file" or _kind(there) != "file" or kept is None or there.st_size != before.size:
        return True
    return digest_of(root / kept).sha256 != digest_of(root / step.path).sha256


def describe_changes(root: Path, folder: Path, kept: Journal, state: State, scope: Sequence[str]) -> Journal:
    """What became of the files that were kept, as steps; originals of all others go."""
    now = all_there(root, scope, folder)
    steps: list[Step] = []
    same: dict[str, Step] = {}
    last = 0
    for step in kept.steps:
        last = max(last, step.number)
        after = now.pop(step.path, None)
        if after != step.before:
            steps.append(replace(step, action="replace" if after else "remove", after=after))
        elif after and after.kind == "folder":
            same[step.path] = replace(step, action="replace", after=after)
    for number, (path, after) in enumerate(now.items(), start=last + 1):
        steps.append(Step(number=number, action="create", path=path, after=after))
    # Putting a file back changes the time of its folder, which then has to be put back as well.
    steps += [same[each] for each in {step.path.rpartition("/")[0] for step in steps} & same.keys()]
    found = Journal(header=kept.header, steps=tuple(sorted(steps, key=lambda each: each.path)), state=state)
    with errors_of(root, _RERUN_HINT):
        try:
            Writer(folder).rewrite(found)
        except OSError:
            if state != "undoing":
                raise
            return found  # on a full disk: putting back needs no room, and by what was kept the next run goes on
    needed = {str(each.number) for each in steps}
    for part in ("originals", "copies"):
        for each in (folder / part).iterdir():
            if each.name not in needed:
                with contextlib.suppress(OSError):
                    each.unlink()
    return found


# ---- putting back, of both ----


def undo_one(root: Path, folder: Path, found: Journal) -> list[Finding]:
    """Every step of one journal taken back. What could not be is left in it, with its original."""
    with errors_of(root, _RERUN_HINT):
        stuck = _restore(root, folder, found.steps)
        _sync_folders(root, found.steps)
        if stuck:
            Writer(folder).rewrite(replace(found, steps=stuck, state="kept"))
            _clear(folder / "new")
        else:
            discard(folder)
    return [_not_restored(step, folder / "originals" / str(step.number)) for step in stuck]


def changed_since(root: Path, steps: Iterable[Step]) -> list[str]:
    """Files that are no longer what the journal left there. Compiled Python comes by itself."""
    with Tree(root) as tree:
        made = [each for each in steps if each.after and _CACHE not in each.path]
        return [each.path for each in made if not _is(tree, each.path, each.after)]


def _restore(root: Path, folder: Path, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """What goes first, the inner before the outer; then what comes back, the outer before the inner.

    The steps that something else changed since: those were left alone.
    """
    at = within(root, folder)
    stuck: list[Step] = []
    with Tree(root) as tree:
        for step in reversed(steps):
            if _is(tree, step.path, step.before):
                continue  # never switched, or restored already
            there = tree.status(step.path)
            if not _is_ours(tree, at, step, there) or not _still_installed(tree, step, steps):
                stuck.append(step)
            elif step.before is None or (there and step.before.mode is not None and _kind(there) != step.before.kind):
                _remove(tree, step.path, at, step.number)
        left = {each.number for each in stuck}
        stuck += [step for step in steps if step.number not in left and not _put_back(tree, at, step)]
        for step in reversed(steps):
            if step.before and step.before.kind == "folder":
                with contextlib.suppress(OSError):
                    tree.set_times(step.path, step.before.mtime_ns)
    return tuple(sorted(stuck, key=lambda each: each.path))


def _is_ours(tree: Tree, at: str, step: Step, there: os.stat_result | None) -> bool:
    """Whether what is there is what the journal left, or what a run that was killed made of it."""
    if _is(tree, step.path, step.after) or _was_interrupted(tree, step.path, at, step.number):
        return True
    if step.before is None or step.before.mode is None:
        return False
    return there is None or (_kind(there) == step.before.kind and _kept(tree, at, step) is None)


def _put_back(tree: Tree, at: str, step: Step) -> bool:
    """Renamed, not copied: that needs no room, and there is no moment without the old file or the new one.

    False where nothing is kept of it.
    """
    before = step.before
    if before is None or _is(tree, step.path, before):
        return True
    tree.make_folders(step.path.rpartition("/")[0])
    if before.kind == "folder":
        tree.make_folders(step.path)
    elif before.kind == "link":
        if tree.status(step.path):
            tree.unlink(step.path)
        tree.symlink(before.target or "", step.path)
        return True
    elif kept := _kept(tree, at, step):
        _put(tree, kept, step.path, at, step.number)
    elif not _has_contents(tree.status(step.path), before):
        return False
    if before.mode is not None:
        tree.set_mode(step.path, before.mode)
    return True


def _kept(tree: Tree, at: str, step: Step) -> str | None:
    """The very file, unless it was changed in place since: then its copy."""
    original, copy = f"{at}/originals/{step.number}", f"{at}/copies/{step.number}"
    there = tree.status(original)
    if there and step.before and (step.before.mode is None or _has_contents(there, step.before)):
        return original
    return copy if tree.status(copy) else None


def _has_contents(there: os.stat_result | None, before: FileState) -> bool:
    return there is not None and (there.st_size, there.st_mtime_ns) == (before.size, before.mtime_ns)


def _remove(tree: Tree, path: str, at: str, number: int) -> None:
    """A folder only if nothing but compiled Python is left in it."""
    there = tree.status(path)
    if there is None or _kind(there) != "folder":
        _take_away(tree, path, at, number)
        return
    for name, status in reversed(list(tree.entries(path))):
        if _CACHE in name[len(path) :].split("/"):
            with contextlib.suppress(OSError):
                (tree.remove_folder if stat.S_ISDIR(status.st_mode) else tree.unlink)(name)
    with contextlib.suppress(OSError):
        tree.remove_folder(path)


def _still_installed(tree: Tree, step: Step, steps: tuple[Step, ...]) -> bool:
    """A removed file must not come back into a package that was uninstalled, or upgraded, since."""
    listed = next((each for each in steps if step.record and each.path == step.record), None)
    return listed is None or _is(tree, listed.path, listed.before) or _is(tree, listed.path, listed.after)


def _forget(root: Path, folder: Path, found: Journal) -> None:
    """What was prepared and never done: the originals that were kept are still in use, by another name."""
    paths = [root / step.path for step in found.steps] if os.name == "nt" else []
    # Clearing another name of a file changes whether it may be written, on Windows: put right afterwards.
    modes = {path: path.stat().st_mode for path in paths if path.is_file()}
    _clear(folder)
    for path, mode in modes.items():
        path.chmod(mode)


def discard(folder: Path) -> None:
    """A journal that is settled. Libraries that a process of Windows has loaded stay; the next run removes them."""
    (folder / FILE_NAME).unlink(missing_ok=True)
    if os.name == "nt":
        _clear(folder)
    else:
        shutil.rmtree(folder)
    if folder.parent.name == "install":  # where the lock is not
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


def _clear(folder: Path) -> None:
    """Removes as much of a folder as the system lets go.

    Windows removes no file that may not be written: that is changed first.
    """
    if os.name == "nt":
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(stat.S_IWRITE)
    shutil.rmtree(folder, ignore_errors=True)


def _sync_folders(root: Path, steps: tuple[Step, ...]) -> None:
    for folder in {(root / step.path).parent for step in steps}:
        sync_folder(folder)


# ---- files ----

# Files that a process has loaded: Windows neither replaces nor removes them, but lets them be renamed. So they go
# aside, into the folder of the journal. Between that and the new file nothing has the name: whoever comes next knows by
# the file that is aside. What is settled stays there until the journal goes, or the next run.


def _put(tree: Tree, made: str, path: str, at: str, number: int) -> None:
    """`made` gets the name `path`. `at`, `number`: of the journal, and of the step in it."""
    away = f"{at}/{ASIDE}/{number}"
    try:
        tree.replace(made, path)
    except PermissionError:
        tree.make_folders(f"{at}/{ASIDE}")
        tree.replace(path, away)
        try:
            tree.replace(made, path)
        except BaseException:
            tree.replace(away, path)
            raise
    if tree.status(away):
        tree.replace(away, _settled(away))


def _take_away(tree: Tree, path: str, at: str, number: int) -> None:
    """Nothing has the name `path` any more."""
    try:
        tree.unlink(path)
    except PermissionError:
        tree.make_folders(f"{at}/{ASIDE}")
        tree.replace(path, _settled(f"{at}/{ASIDE}/{number}"))


def _was_interrupted(tree: Tree, path: str, at: str, number: int) -> bool:
    """Whether a file went aside and nothing has taken its name yet."""
    return tree.status(path) is None and tree.status(f"{at}/{ASIDE}/{number}") is not None


def _settled(away: str) -> str:
    return f"{away}-settled-{time.monotonic_ns():x}"


def _state(status: os.stat_result) -> FileState:
    return FileState(size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)


def _kind(status: os.stat_result) -> Literal["file", "folder", "link"] | None:
    """The kind of a file; None for pipes, sockets and devices, which no package brings."""
    mode = status.st_mode
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else None


def _is(tree: Tree, path: str, wanted: FileState | None) -> bool:
    """Whether the file is this one; None: whether there is none. A copied environment has other inodes."""
    status = tree.status(path)
    if status is None or wanted is None:
        return status is None and wanted is None
    if wanted.mode is not None:
        if _kind(status) != wanted.kind or (wanted.kind != "link" and stat.S_IMODE(status.st_mode) != wanted.mode):
            return False
        if wanted.kind == "folder":
            return True
        if wanted.kind == "link":
            return tree.target(path) == wanted.target
    if status.st_size != wanted.size:
        return False
    if (status.st_ino, status.st_mtime_ns) == (wanted.inode, wanted.mtime_ns):
        return True
    if wanted.sha256 is None:
        return status.st_mtime_ns == wanted.mtime_ns
    return stat.S_ISREG(status.st_mode) and digest_of(tree.root / path).sha256 == wanted.sha256


# ---- what is said ----


def _changed_since(step: Step) -> Finding:
    return finding(
        "changed-since",
        f"{step.path} was changed, or removed, by something else after it was slimmed: left as it is",
        fix="reinstall its package if it does not work",
        severity="warning",
    )


def _not_restored(step: Step, original: Path) -> Finding:
    since = "it was installed" if original.parts[-4] == "install" else "it was slimmed"
    words = f"{step.path} was changed, or removed, by something else after {since}: left as it is"
    if step.before is None:
        return finding("changed-since", words, fix="remove it yourself if it is not needed")
    verb = "slim" if since == "it was slimmed" else "install"
    give_up = ", or delete it with cuwheel slim --commit" if verb == "slim" else ""
    return finding(
        "changed-since", f"{words}; its original is kept as {original}", fix=f"copy the original back{give_up}"
    )
