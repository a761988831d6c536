"""What an install changes in an environment: the very files, found out before, then installed by address and hash."""

from __future__ import annotations

import copy
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.delivery import candidates
from cuwheel.network import addresses, client, resolver, transfer, venvs
from cuwheel.network.resolver import Release
from cuwheel.network.settings import read_settings, settings_for_uv
from cuwheel.support import files, masking
from cuwheel.wheel import metadata as dist_info
from cuwheel.wheel import record, requirements
from cuwheel.wheel.metadata import distributions, normalised, plain_name, site_packages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cuwheel.delivery.choosing import Choice
    from cuwheel.delivery.install_lock import LockedFile
    from cuwheel.delivery.request import InstallRequest
    from cuwheel.delivery.requirements_file import RequirementsFile
    from cuwheel.network.settings import Settings

_INSTALL_S = 3600.0
_CAUSED = re.compile(r"^ {4}(\S.*) (depends on|requested) (\S.*)$", re.MULTILINE)  # of pip
_TWO = 2


class Change(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A package: `from` is null where it is new, `to` where it is gone. `index`: where its file is from, if known."""

    name: str
    from_: str | None
    to: str | None
    index: str = ""


def installed(prefix: Path) -> dict[str, str]:
    """Normalised name → version, of the first folder that has it."""
    found: dict[str, str] = {}
    for folder in site_packages(prefix):
        for each in distributions(folder):
            found.setdefault(each.name, each.version)
    return found


def between(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    names = sorted(before.keys() | after.keys())
    return tuple(
        Change(name=each, from_=before.get(each), to=after.get(each))
        for each in names
        if before.get(each) != after.get(each)
    )


def planned(
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
        asked += _required(release.file, requires, candidates.wanted(choice.wanted).extras, given)
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
    environ = indexes(request)
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


def locked(wanted: LockedFile, local: Path | None) -> Release:
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


def conflict(output: str) -> str | None:
    """Which two of an installer's requirements exclude each other, in a sentence; None where that is not it."""
    found = dict.fromkeys(" ".join(each) for each in _CAUSED.findall(output.partition("conflict is caused by")[2]))
    first = list(found)[:_TWO]
    return f"{' and '.join(first)}: ask for other versions of one of them" if len(first) == _TWO else None


def indexes(request: InstallRequest) -> dict[str, str]:
    """Options of ours as pip's and uv's variables: an address may hold a login, and command lines are public."""
    environ = resolver.pip_environment()
    settings = read_settings()
    if request.indexes and not request.no_index:
        where = candidates.places(settings, indexes=request.indexes, find_links=request.find_links)
        environ.pop("PIP_EXTRA_INDEX_URL", None)
        environ |= candidates.asked_first(where, settings, request.indexes)
    if request.find_links:
        environ["PIP_FIND_LINKS"] = " ".join(request.find_links)
        environ |= {"UV_FIND_LINKS": ",".join(request.find_links)} if request.indexes else {}
    if request.no_index:
        environ["PIP_NO_INDEX"] = "1"
    return environ


def apply(interpreter: Path, releases: Sequence[Release], scratch: Path) -> str:
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
