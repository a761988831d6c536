"""What an install changes in an environment: the very files, found out before, then installed by address and hash.

The environment as it was is kept file by file in the journal until the next install, and put back where anything fails.
"""

from __future__ import annotations

import copy
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.delivery import candidates, pin_files
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError, UsageError
from cuwheel.network import addresses, client, resolver, transfer, venvs
from cuwheel.network.resolver import Release
from cuwheel.network.settings import read_settings, settings_for_uv
from cuwheel.support import files, masking, quoting
from cuwheel.version import __version__
from cuwheel.wheel import journal, record, requirements
from cuwheel.wheel import metadata as dist_info
from cuwheel.wheel.journal import Header, Journal
from cuwheel.wheel.metadata import distributions, normalised, plain_name, site_packages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cuwheel.delivery.choosing import Choice
    from cuwheel.delivery.install_lock import LockedFile
    from cuwheel.delivery.request import InstallRequest
    from cuwheel.delivery.requirements_file import RequirementsFile
    from cuwheel.network.settings import Settings
    from cuwheel.support.finding import Finding
    from cuwheel.wheel.journal import Pinned


_INSTALL_S = 3600.0
_CAUSED = re.compile(r"^ {4}(\S.*) (depends on|requested) (\S.*)$", re.MULTILINE)  # of pip
_TWO = 2


class Change(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A package: `from` is null where it is new, `to` where it is gone. `index`: where its file is from, if known."""

    name: str
    from_: str | None
    to: str | None
    index: str = ""


def installed_versions(prefix: Path) -> dict[str, str]:
    """Normalised name → version, of the first folder that has it."""
    found: dict[str, str] = {}
    for folder in site_packages(prefix):
        for each in distributions(folder):
            found.setdefault(each.name, each.version)
    return found


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
    request: InstallRequest,
    there: Mapping[str, str],
    listed: RequirementsFile | None = None,
) -> tuple[Release, ...]:
    """The files that have to be installed: the chosen ones, and of what they require whatever is not there yet.

    `listed`: with all that it asks for beside them.
    """
    own: dict[str, Release] = {}
    asked: list[str] = []
    given = {each.name for each in choices} | (listed.addressed if listed else set())
    for choice in choices:
        release, requires = _own(choice)
        own[release.name] = release
        asked += _required(release.file, requires, candidates.parse_requirement(choice.wanted).extras, given)
    if listed is None:  # what one of them requires of another is what was chosen
        asked += [_exactly(own[each.name]) for each in choices[1:]]
    others: tuple[Release, ...] = ()
    if asked or listed:
        others = _resolved(interpreter, list(dict.fromkeys(asked)), request, own, listed)
    new = (own[each.name] for each in choices if not _is_there(own[each.name], each, there))
    return (*new, *(each for each in others if normalised(each.name) not in own))


def _resolved(
    interpreter: Path,
    asked: Sequence[str],
    request: InstallRequest,
    own: Mapping[str, Release],
    listed: RequirementsFile | None,
) -> tuple[Release, ...]:
    """What is required of others must allow the chosen versions."""
    environ = index_variables(request)
    if listed is None:
        return resolver.would_install(interpreter, asked, environ, own_first=bool(request.indexes))
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        file = Path(folder, "requirements.txt")
        file.touch(mode=0o600)
        file.write_text("".join(f"{each}\n" for each in _lines(listed, own, asked)), encoding="utf-8")
        return resolver.would_install(
            interpreter, ["--requirement", str(file)], environ, own_first=bool(request.indexes)
        )


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


def locked_release(wanted: LockedFile, local: Path | None) -> Release:
    """`local`: where the file is already."""
    return Release(
        name=wanted.name,
        version=wanted.version,
        url=local.as_uri() if local else wanted.url,
        file=wanted.file,
        sha256=wanted.sha256,
        size=wanted.size,
    )


def release_of(choice: Choice) -> Release:
    return _own(choice)[0]


def _own(choice: Choice) -> tuple[Release, tuple[str, ...]]:
    """The file that was chosen; of a build that a dry run does not do, what would come of it."""
    if choice.ruling is None:
        plan = choice.build
        if plan is None:
            raise ValueError(choice.name)
        return Release(name=plan.name, version=plan.version, url="", file=plan.source), plan.requires
    listing, version = choice.ruling.candidate.listing, str(choice.ruling.candidate.version)
    own = Release(
        name=choice.name, version=version, url=listing.url, file=listing.file, sha256=listing.sha256, size=listing.size
    )
    return own, choice.ruling.requires


def _is_there(own: Release, choice: Choice, there: Mapping[str, str]) -> bool:
    """A build is of a version that may be installed from a wheel that does not run."""
    return there.get(own.name) == own.version and choice.fallback != "source build"


def _required(file: str, texts: Iterable[str], extras: Iterable[str], given: Collection[str]) -> list[str]:
    """Conditions stay, for pip to decide where it installs; those of an extra hold if it was asked for.

    One with an address is refused, unless the package is `given`: that a wheel names a place is not asking for it.
    """
    wanted = {normalised(each) for each in extras}
    found = []
    for each in filter(None, map(requirements.parse, texts)):
        if each.url and normalised(each.name) in given:
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


def index_variables(request: InstallRequest) -> dict[str, str]:
    """Options of ours as pip's and uv's variables: an address may hold a login, and command lines are public."""
    environ = resolver.pip_environment()
    settings = read_settings()
    if request.indexes and not request.no_index:
        where = candidates.configured_places(settings, indexes=request.indexes, find_links=request.find_links)
        environ.pop("PIP_EXTRA_INDEX_URL", None)
        environ |= candidates.asked_first(where, settings, request.indexes)
    if request.find_links:
        environ["PIP_FIND_LINKS"] = " ".join(request.find_links)
        environ |= {"UV_FIND_LINKS": ",".join(request.find_links)} if request.indexes else {}
    if request.no_index:
        environ["PIP_NO_INDEX"] = "1"
    return environ


def install_releases(interpreter: Path, releases: Sequence[Release], scratch: Path) -> str:
    """Install exactly these files; what the installer printed."""
    found = read_settings()
    lines = [_line(each, found, scratch) for each in releases]
    hashed = all(" --hash=" in each for each in lines)
    listed = scratch / "requirements.txt"
    listed.touch(mode=0o600)  # addresses with logins
    listed.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    options = ["--no-deps", *(["--require-hashes"] if hashed else []), "--requirement", str(listed)]
    if uv := venvs.uv():
        environ, inherited = settings_for_uv()
        command = [uv, "pip", "install", "--python", str(interpreter), "--only-binary=:all:", *inherited, *options]
    else:
        environ = resolver.pip_environment()
        command = [*venvs.pip_for(interpreter), "install", *options]
    done = venvs.ask_installer(command, timeout=_INSTALL_S, env=environ)
    return done.stdout + done.stderr


def hide_origins(prefix: Path, releases: Iterable[Release]) -> None:
    """An installer writes where a wheel came from into direct_url.json: a login, and the signature of an address."""
    names = {normalised(each.name) for each in releases}
    there = (each for folder in site_packages(prefix) for each in distributions(folder))
    for info in (each.info for each in there if each.name in names):
        before = dist_info.read_info_file(info, "direct_url.json")
        if (hidden := masking.text(before, random=False)) == before:
            continue
        files.write(info / "direct_url.json", hidden)
        digests = {f"{info.name}/direct_url.json": record.digest_of_bytes(hidden.encode())}
        files.write(info / "RECORD", record.changed(dist_info.read_info_file(info, "RECORD"), digests))


def _line(release: Release, found: Settings, scratch: Path) -> str:
    url, sha256 = release.url, release.sha256
    local = addresses.local_path(url)
    if plain_name(release.file) != release.file or (local and _on_a_share(local)):
        local = on_disk(release, scratch)
    if local:
        url, sha256 = local.absolute().as_uri(), sha256 or files.sha256(local)
    else:
        url = addresses.with_login(url, client.login_at_once(url, found))
    return f"{release.name} @ {url}" + (f" --hash=sha256:{sha256}" if sha256 else "")


def on_disk(release: Release, scratch: Path) -> Path:
    """The file, under a name that installers know: they do not know those of variants."""
    local, plain = addresses.local_path(release.url), plain_name(release.file)
    to = scratch / plain
    if local:
        return local if plain == local.name and not _on_a_share(local) else files.copy(local, to)
    transfer.download(release.url, to, sha256=release.sha256, size=release.size)
    return to


def _on_a_share(path: Path) -> bool:
    """Of a server, on Windows: uv takes file://server/share for a folder of this machine."""
    return path.drive.startswith("\\\\")


# The environment as it was.

_SCRIPTS = ("bin", "Scripts")
_OLD = ".cuwheel-install/journal.json"  # of an earlier cuwheel
_INTERRUPTED = (b'"state":"installing"', b'"state":"undoing"')


class EnvironmentCopy:
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
                f"{changed[0]} was changed since {_name_in_journal(found)} was installed: nothing was put back",
                hint=f"{slim.strip()} pip uninstall {_name_in_journal(found)}",
            )
        found = replace(found, state="undoing")
        self._must_be_ours(folder, found)
        journal.Writer(folder).state("undoing")
        return _name_in_journal(found), self._undo(folder, found)

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


def _name_in_journal(found: Journal) -> str:
    return ", ".join(found.header.targets) if found.header else ""
