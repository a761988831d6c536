"""An environment as it was before an install, kept file by file in the journal until the next install."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.delivery import pin_files
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError, UsageError
from cuwheel.support import quoting
from cuwheel.version import __version__
from cuwheel.wheel import journal
from cuwheel.wheel.journal import Header, Journal
from cuwheel.wheel.metadata import site_packages

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.support.finding import Finding
    from cuwheel.wheel.journal import Pinned

_SCRIPTS = ("bin", "Scripts")
_OLD = ".cuwheel-install/journal.json"  # of an earlier cuwheel
_INTERRUPTED = (b'"state":"installing"', b'"state":"undoing"')


class Copy:
    """Of one environment, which is resolved. Whoever changes it holds the journal's lock."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self._begun: tuple[Path, Journal] | None = None

    def begin(self, name: str, pinned: tuple[Pinned, ...] = ()) -> None:
        """Every file is kept. `pinned`: settings that will be written."""
        header = Header(tool=f"cuwheel {__version__}", targets=(name,), pinned=pinned)
        self._begun = journal.keep_all(self.prefix, header, self._scope())

    def must_keep_out(self) -> None:
        """A wheel can bring files for any place in an environment, but not for the journal's."""
        folder, found = self._kept()
        before = {each.path: each.before for each in found.steps if each.path.startswith(f"{journal.FOLDER}/")}
        now = journal.all_there(self.prefix, [journal.FOLDER], folder)
        if strange := sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path)):
            raise MalformedError(
                self.prefix / strange[0],
                "came with a package, but that folder is cuwheel's own: it keeps its journal there",
            )

    def restore(self) -> tuple[Finding, ...]:
        """As it was before `begin`: what is new goes, what is gone or replaced comes back."""
        folder, found = self._kept()
        found = journal.settle(self.prefix, folder, found, "undoing", self._scope())
        self._begun = None
        return self._undo(folder, found)

    def finish(self) -> None:
        """What the install replaced is kept, for `undo`; the copies of all else go, and so does the install before."""
        folder, found = self._kept()
        journal.settle(self.prefix, folder, found, "done", self._scope())
        self._begun = None
        self._forget_older()

    def interrupted(self) -> str:
        """What a run that was killed had begun to install; nothing where none was. Changes nothing."""
        self._must_not_be_older()
        names = [_name(found) for _, found in self._journals() if found.state in ("installing", "undoing")]
        return names[0] if names else ""

    def recover(self) -> tuple[str, tuple[Finding, ...]]:
        """What a run that was killed left, put back; what it was about, or nothing."""
        name = self.interrupted()
        findings: tuple[Finding, ...] = ()
        for folder, found in self._journals():
            if found.state == "installing":  # and with it goes whatever a wheel brought for this folder
                self._begun = folder, found
                findings = self.restore()
            elif found.state == "undoing":
                findings = self._undo(folder, found)
        journal.recover(self.prefix, "install")
        self._forget_older()
        journal.recover(self.prefix)
        return name, findings

    def undo(self) -> tuple[str, tuple[Finding, ...]]:
        """What the last install did, put back; what was installed. Refused where its files were changed since."""
        done = [(folder, found) for folder, found in self._journals() if found.state in ("done", "kept")]
        if not done:
            if (self.prefix / _OLD).is_file():
                raise UnreadableError(
                    self.prefix / _OLD,
                    "is the journal of an earlier cuwheel, in a form that is no longer read",
                    hint="undo that install with the cuwheel that made it, or install the versions you want by name",
                )
            raise UsageError(f"there is no install to undo in {self.prefix}", hint="cuwheel install NAME")
        folder, found = done[-1]
        if changed := journal.changed_since(self.prefix, found.steps) if found.state == "done" else []:
            where = ["--env", str(self.prefix)]
            slim = " if it was slimmed: " + quoting.here(["cuwheel", "slim", "--undo", *where]) + " first; else"
            raise UsageError(
                f"{changed[0]} was changed since {_name(found)} was installed: nothing was put back",
                hint=f"{slim.strip()} pip uninstall {_name(found)}",
            )
        found = replace(found, state="undoing")
        self._must_be_ours(folder, found)
        journal.Writer(folder).state("undoing")
        return _name(found), self._undo(folder, found)

    def _undo(self, folder: Path, found: Journal) -> tuple[Finding, ...]:
        """Settings outside first: the journal goes with the last file. Those inside are files like any other."""
        inside = {str(self.prefix / each.path) for each in found.steps}
        for each in found.header.pinned if found.header else ():
            if each.path not in inside:
                pin_files.restore(each)
        return tuple(journal.undo_one(self.prefix, folder, found))

    def _kept(self) -> tuple[Path, Journal]:
        if self._begun is None:
            raise ValueError(self.prefix)
        return self._begun

    def _journals(self) -> list[tuple[Path, Journal]]:
        """One that is to be put back first removes what else a wheel may have left beside it, read or not."""
        readable: list[tuple[Path, Journal]] = []
        refused: CuwheelError | None = None
        for folder in journal.folders(self.prefix, "install"):
            try:
                found = journal.read(folder, self.prefix)
                if found.state == "preparing" and any(each.action != "keep" for each in found.steps):
                    raise MalformedError(folder, "its journal was cut short; nothing was changed")
                self._must_be_ours(folder, found)
                readable.append((folder, found))
            except CuwheelError as error:
                refused = refused or error
        unfinished = [each for each in readable if each[1].state == "installing"]
        if refused and not unfinished:
            raise refused
        return unfinished if refused else readable

    def _must_be_ours(self, folder: Path, found: Journal) -> None:
        for each in found.header.pinned if found.header else ():
            pin_files.must_be_ours(each, folder)

    def _forget_older(self) -> None:
        """Only the last install is undone."""
        done = [folder for folder, found in self._journals() if found.state == "done"]
        for folder in done[:-1]:
            journal.discard(folder)

    def _must_not_be_older(self) -> None:
        path = self.prefix / _OLD
        if path.is_file() and not path.is_symlink() and any(each in path.read_bytes() for each in _INTERRUPTED):
            raise UnreadableError(
                path,
                "tells of an install by an earlier cuwheel that was interrupted, in a form that is no longer read",
                hint="let the cuwheel that began it put the environment back, or make a new environment",
            )

    def _scope(self) -> list[str]:
        """All of an environment of its own; of a Python that is the system's, its packages and programs alone."""
        if (self.prefix / "pyvenv.cfg").is_file() or (self.prefix / "conda-meta").is_dir():
            return [""]
        scripts = [self.prefix / each for each in _SCRIPTS if (self.prefix / each).is_dir()]
        inside = [each for each in (*site_packages(self.prefix), *scripts) if each.is_relative_to(self.prefix)]
        return [*(each.relative_to(self.prefix).as_posix() for each in inside), journal.FOLDER]


def _name(found: Journal) -> str:
    return ", ".join(found.header.targets) if found.header else ""
