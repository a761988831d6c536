"""What an install changes in an environment: the very files, found out before, then installed by address and hash.

The environment as it was is kept file by file in the journal until the next install, and put back where anything fails.
"""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import candidates, overwriting
from cuwheel.delivery.best_candidate import Choice
from cuwheel.delivery.choosing import PackageSettings
from cuwheel.delivery.install_answer import Change, Install
from cuwheel.errors import UsageError
from cuwheel.machine import python_environment
from cuwheel.machine.fleet import Machine
from cuwheel.machine.world import World
from cuwheel.network import addresses, resolver, venvs
from cuwheel.network.resolver import Release
from cuwheel.network.settings import Settings
from cuwheel.support import quoting
from cuwheel.version import __version__
from cuwheel.wheel import journal, journal_file, requirements
from cuwheel.wheel.journal_file import Header, Journal, Pinned
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.wheel.metadata import distributions, read_info_file, site_packages
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.delivery.best_candidate import Search
    from cuwheel.delivery.requirements_file import RequirementsFile
    from cuwheel_core.support.finding import Finding


_CAUSED = re.compile(r"^ {4}(\S.*) (depends on|requested) (\S.*)$", re.MULTILINE)  # of pip
_REQUIRED = re.compile(r"^Requires-Dist: *([\w.-]+)", re.MULTILINE | re.IGNORECASE)
_TWO = 2


_MANAGED = "lib/python3*/EXTERNALLY-MANAGED"  # PEP 668


class InstallPlan(Struct, frozen=True, kw_only=True):
    """What would be done, and `answer`: what is shown of it. `names`: the packages that were asked for.

    `settings`: what has to be set, and `pinned` the files that are to say so. `slim_for`: GPUs whose code alone
    stays. `compile_for`: GPUs for which PTX is compiled. `network`: how files are reached, as pip and uv are
    configured. `allowed`: other packages that may change, normalised.
    """

    answer: Install
    network: Settings
    names: tuple[str, ...]
    machines: tuple[Machine, ...]
    choices: tuple[Choice, ...] = ()
    releases: tuple[Release, ...] = ()
    settings: PackageSettings = PackageSettings()
    pinned: tuple[Pinned, ...] = ()
    slim_for: tuple[Machine, ...] = ()
    compile_for: tuple[Machine, ...] = ()
    allowed: tuple[str, ...] = ()


def installed_versions(prefix: Path) -> dict[str, str]:
    """Normalised name → version, of the first folder that has it."""
    found: dict[str, str] = {}
    for folder in site_packages(prefix):
        for each in distributions(folder):
            found.setdefault(each.name, each.version)
    return found


def unclaimed_installers(prefix: Path) -> set[str]:
    """Which of pip, setuptools and wheel nothing requires that is installed: a new environment has them unasked."""
    infos = [each.info for folder in site_packages(prefix) for each in distributions(folder)]
    texts = [read_info_file(info, "METADATA").partition("\n\n")[0] for info in infos]
    required = {normalised(name) for text in texts for name in _REQUIRED.findall(text)}
    return {"pip", "setuptools", "wheel"} - required


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    names = sorted(before.keys() | after.keys())
    return tuple(
        Change(name=each, from_=before.get(each), to=after.get(each))
        for each in names
        if before.get(each) != after.get(each)
    )


def plan_releases(
    interpreter: Path,
    choices: Sequence[Choice],
    search: Search,
    installed: Mapping[str, str],
    listed: RequirementsFile | None = None,
) -> tuple[Release, ...]:
    """The files that have to be installed: the chosen ones, and of what they require whatever is not there yet.

    `listed`: with all that it asks for beside them.
    """
    own: dict[str, Release] = {}
    asked: list[str] = []
    chosen = {each.name for each in choices} | (listed.addressed if listed else set())
    for choice in choices:
        release, requires = _own(choice)
        own[release.name] = release
        asked += _required(release.file, requires, choice.requirement.extras, chosen)
    if listed is None:  # what one of them requires of another is what was chosen
        asked += [_exactly(own[each.name]) for each in choices[1:]]
    asked = list(dict.fromkeys(asked))
    own_first = bool(search.request.indexes)
    others: tuple[Release, ...] = ()
    if listed:  # what is required of others must allow the chosen versions
        with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
            file = Path(folder, "requirements.txt")
            file.touch(mode=0o600)
            file.write_text("".join(f"{each}\n" for each in _lines(listed, own, asked)), encoding="utf-8")
            words = ["--requirement", str(file)]
            others = resolver.would_install(interpreter, words, index_variables(search), own_first=own_first)
    elif asked:
        others = resolver.would_install(interpreter, asked, index_variables(search), own_first=own_first)
    # A build is of a version that may be installed from a wheel that does not run.
    new = (
        own[each.name]
        for each in choices
        if installed.get(each.name) != own[each.name].version or each.fallback == "source build"
    )
    return (*new, *(each for each in others if normalised(each.name) not in own))


def _exactly(release: Release) -> str:
    local = addresses.local_path(release.url)
    return f"{release.name} @ {release.url}" if local else f"{release.name}=={release.version}"


def _lines(listed: RequirementsFile, own: Mapping[str, Release], asked: Sequence[str]) -> Iterator[str]:
    yield from listed.options
    yield from asked if not any(each.hashes for each in listed.lines) else ()
    for each in listed.lines:
        chosen = own.get(each.name)
        if chosen is None:
            yield each.text
        elif chosen.url:  # one that is yet to be built cannot be found
            local = addresses.local_path(chosen.url)
            yield _exactly(chosen) if local else f"{_exactly(chosen)} {each.hashes}".strip()


def release_of(choice: Choice) -> Release:
    return _own(choice)[0]


def _own(choice: Choice) -> tuple[Release, tuple[str, ...]]:
    """The file that was chosen; of a build that a dry run does not do, what would come of it."""
    if choice.taken is None:
        plan = choice.build
        if plan is None:
            raise ValueError(choice.name)
        return Release(name=plan.name, version=plan.version, url="", file=plan.source), plan.requires
    listing, version = choice.taken.candidate.listing, str(choice.taken.candidate.version)
    own = Release(
        name=choice.name, version=version, url=listing.url, file=listing.file, sha256=listing.sha256, size=listing.size
    )
    return own, choice.taken.requirements


def _required(file: str, texts: Iterable[str], extras: Iterable[str], chosen: Collection[str]) -> list[str]:
    """Conditions stay, for pip to decide where it installs; those of an extra hold if it was asked for.

    One with an address is refused, unless the package is `chosen`: that a wheel names a place is not asking for it.
    """
    wanted = {normalised(each) for each in extras}
    found = []
    for each in filter(None, map(requirements.parse, texts)):
        if each.url and normalised(each.name) in chosen:
            continue
        if each.url and requirements.holds(each, wanted):
            raise venvs.SourceRefusedError(f"{file} requires {each.name} @ {addresses.plain(each.url)}")
        condition = str(each.marker) if each.marker else ""
        if "extra" not in condition:
            found.append(str(each))
        elif each.marker and any(each.marker.evaluate({"extra": extra}) for extra in wanted):
            plain = copy.copy(each)
            plain.marker = None
            found.append(str(plain))
    return found


def conflict_in(output: str) -> str | None:
    """Which two of an installer's requirements exclude each other, in a sentence; None where that is not it."""
    found = dict.fromkeys(" ".join(each) for each in _CAUSED.findall(output.partition("conflict is caused by")[2]))
    first = list(found)[:_TWO]
    return f"{' and '.join(first)}: ask for other versions of one of them" if len(first) == _TWO else None


def index_variables(search: Search) -> dict[str, str]:
    """Options of ours as pip's and uv's variables: an address may hold a login, and command lines are public."""
    request, environ = search.request, resolver.pip_environment()
    if request.indexes:
        environ.pop("PIP_EXTRA_INDEX_URL", None)
        environ |= candidates.asked_first(search.places, search.session.settings, request.indexes)
    elif request.no_index:
        environ["PIP_NO_INDEX"] = "1"
    if request.find_links:
        environ["PIP_FIND_LINKS"] = " ".join(request.find_links)
        environ |= {"UV_FIND_LINKS": ",".join(request.find_links)} if request.indexes else {}
    return environ


# The environment as it was.

_SCRIPTS = ("bin", "Scripts")


class EnvironmentCopy:
    """A copy of one environment, which is resolved. Whoever changes it holds the journal's lock."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self._begun: tuple[Path, Journal] | None = None
        self._claims: overwriting.Claims = {}

    def begin(self, name: str, pinned: tuple[Pinned, ...] = ()) -> None:
        """Every file is kept. `pinned`: settings that will be written."""
        header = Header(tool=f"cuwheel {__version__}", targets=(name,), pinned=pinned)
        self._begun = journal.keep_all(self.prefix, header, self._scope())
        self._claims = overwriting.claims(self.prefix)

    def must_keep_out(self) -> None:
        """A wheel can bring files for any place in an environment, but not for the journal's."""
        folder, found = self._kept()
        before = {each.path: each.before for each in found.steps if each.path.startswith(f"{journal_file.FOLDER}/")}
        now = journal.all_there(self.prefix, [journal_file.FOLDER], folder)
        if strange := sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path)):
            raise MalformedError(
                self.prefix / strange[0],
                "came with a package, but that folder is cuwheel's own: it keeps its journal there",
            )

    def must_leave_others(self, names: Collection[str], allowed: Collection[str] = ()) -> None:
        """What is not their own, the distributions `names` must not have written over, unless it is of one `allowed` to
        change. All are normalised.
        """
        folder, found = self._kept()
        compared = overwriting.as_compared(self.prefix)
        kept = {compared(each.path): each for each in found.steps}

        def is_other(path: str) -> bool:
            return path in kept and journal.is_other(self.prefix, folder, kept[path])

        for path, by, owner in overwriting.overwritten(self._claims, overwriting.claims(self.prefix), names, is_other):
            if not owner:
                raise MalformedError(self.prefix / path, f"is the environment's own, and {by} overwrites it")
            if owner not in allowed and not overwriting.is_nobodys(path):
                whose = f"is of {owner}, and {by} overwrites it"
                raise MalformedError(self.prefix / path, whose, f"where that may be: --allow {owner}")

    def restore(self) -> tuple[Finding, ...]:
        """Everything as it was before `begin`: what is new goes, what is gone or replaced comes back."""
        folder, found = self._kept()
        if not folder.is_dir():
            name = _name_in_journal(found)
            raise UnreadableError(
                folder,
                f"was removed while {name} was installed, and with it the copies of all files: nothing could be put "
                f"back, and what was installed of {name} is still there",
                hint=f"pip uninstall {name}, or make a new environment",
            )
        found = journal.describe_changes(self.prefix, folder, found, "undoing", self._scope())
        self._begun = None
        return self._undo(folder, found)

    def finish(self) -> None:
        """What the install replaced is kept, for `undo`; the copies of all else go, and so does the install before."""
        folder, found = self._kept()
        journal.describe_changes(self.prefix, folder, found, "done", self._scope())
        self._forget_older()
        self._begun = None

    def interrupted(self) -> str:
        """What a run that was killed had begun to install; nothing where none was. Changes nothing."""
        names = [_name_in_journal(found) for _, found in self._journals() if found.state in ("installing", "undoing")]
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
            raise UsageError(f"there is no install to undo in {self.prefix}", hint="cuwheel install NAME")
        folder, found = done[-1]
        if changed := journal.changed_since(self.prefix, found.steps) if found.state == "done" else []:
            where = ["--env", str(self.prefix)]
            slim = " if it was slimmed: " + quoting.here(["cuwheel", "slim", "--undo", *where]) + " first; else"
            raise UsageError(
                f"{changed[0]} was changed since {_name_in_journal(found)} was installed: nothing was put back",
                hint=f"{slim.strip()} pip uninstall {_name_in_journal(found)}",
            )
        found = replace(found, state="undoing")
        self._must_be_ours(folder, found)
        journal_file.Writer(folder).state("undoing")
        return _name_in_journal(found), self._undo(folder, found)

    def _undo(self, folder: Path, found: Journal) -> tuple[Finding, ...]:
        """Settings outside first: the journal goes with the last file. Those inside are files like any other."""
        inside = {str(self.prefix / each.path) for each in found.steps}
        for each in found.header.pinned if found.header else ():
            if each.path not in inside:
                from cuwheel.delivery import pin_files  # noqa: PLC0415 - few write settings

                pin_files.restore_settings(each)
        return tuple(journal.undo_one(self.prefix, folder, found))

    def _kept(self) -> tuple[Path, Journal]:
        if self._begun is None:
            raise ValueError(self.prefix)
        return self._begun

    def _journals(self) -> list[tuple[Path, Journal]]:
        """One that is to be put back first removes what else a wheel may have left beside it, read or not."""
        readable: list[tuple[Path, Journal]] = []
        refused: CuwheelError | None = None
        for folder in journal_file.folders(self.prefix, "install"):
            try:
                found = journal_file.read_journal(folder, self.prefix)
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
            from cuwheel.delivery import pin_files  # noqa: PLC0415 - few write settings

            pin_files.must_be_ours(each, folder)

    def _forget_older(self) -> None:
        """Only the last install is undone."""
        done = [folder for folder, found in self._journals() if found.state == "done"]
        for folder in done[:-1]:
            journal.discard(folder)

    def _scope(self) -> list[str]:
        """All of an environment of its own; of a Python that is the system's, its packages and programs alone."""
        if (self.prefix / "pyvenv.cfg").is_file() or (self.prefix / "conda-meta").is_dir():
            return [""]
        scripts = [self.prefix / each for each in _SCRIPTS if (self.prefix / each).is_dir()]
        inside = [each for each in (*site_packages(self.prefix), *scripts) if each.is_relative_to(self.prefix)]
        return [*(each.relative_to(self.prefix).as_posix() for each in inside), journal_file.FOLDER]


class Place(Struct, frozen=True, kw_only=True):
    """An environment that may be changed."""

    prefix: Path
    interpreter: Path
    copy: EnvironmentCopy


def locate_environment(env: Path | None) -> Place:
    python, folders = python_environment.locate(World.here(), env)
    prefix = Path(python.prefix).resolve()  # the active one may be named by a link as well
    # First: such a system often has `python3` alone.
    if not (prefix / "pyvenv.cfg").is_file() and any(prefix.glob(_MANAGED)):
        raise UnreadableError(
            prefix,
            "is managed by the system: its own package manager installs there, and pip and uv refuse to",
            hint="python3 -m venv .venv, then --env .venv",
        )
    interpreter = venvs.interpreter(prefix)
    if not interpreter.exists():
        interpreter = interpreter.with_name("python3")
    if not folders or not interpreter.exists():
        raise UnreadableError(prefix, "is not a Python environment", hint="python -m venv .venv, then --env .venv")
    return Place(prefix=prefix, interpreter=interpreter, copy=EnvironmentCopy(prefix))


def _name_in_journal(found: Journal) -> str:
    return ", ".join(found.header.targets) if found.header else ""
