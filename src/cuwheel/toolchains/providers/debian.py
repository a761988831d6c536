"""Debian's non-free packages, unpacked without root: the releases that a suite has, and no others.

apt is given a configuration of its own: the system's sources are read (which mirror to ask), never changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UnavailableError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.network import addresses
from cuwheel.support import process
from cuwheel.toolchains import archives, workplace
from cuwheel.toolchains.providers import index
from cuwheel.toolchains.toolchain import Archive, Recipe
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.facts.rows.toolchains import CrossCompiler, DebianSuite, EmulatedPython
    from cuwheel.toolchains.toolchain import Wanted
    from cuwheel.toolchains.workplace import Surroundings

_UPDATE_S = 300.0
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FOLDERS = ("state/lists/partial", "cache/archives/partial", "parts")
# 'http://…/x_1_amd64.deb' x_1_amd64.deb 1234 SHA256:…
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")
_CONFIGURATION = """\
Dir::State "{home}/state";
Dir::State::status "/dev/null";
Dir::Cache "{home}/cache";
Dir::Etc::sourcelist "{listed}";
Dir::Etc::sourceparts "{parts}";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "{cpu}";
APT::Architectures {{ "{cpu}"; }};
APT::Get::AllowUnauthenticated "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
"""
_SOURCES = """\
Types: deb
URIs: {mirror}
Suites: {suite}
Components: main contrib non-free
Signed-By: {keyring}
"""


def decide(wanted: Wanted, around: Surroundings) -> Recipe:
    row = _suite(wanted)
    if all(each.programs for each in wanted.components):
        row = replace(row, packages=row.packages[:1])  # the others are headers, and most of a gigabyte of libraries
    found = packages(row, wanted.cpu, around, offline=wanted.offline, sources=wanted.apt_sources)
    # `12.4.131~12.4.1-2` is the compiler of release 12.4.1.
    version = next((each.version for each in found if each.name == row.packages[0]), "")
    match = re.search(r"~(\d+\.\d+\.\d+)-", version)
    if not match or not match[1].startswith(f"{row.cuda}."):
        raise UnavailableError(f"Debian {row.suite} has {row.packages[0]} {version or 'nowhere'} now")
    release = match[1]
    optional = [each for each in wanted.components if not each.base]
    return Recipe(
        provider="debian",
        cuda=wanted.cuda,
        release=release,
        platform=f"linux-{wanted.cpu}",
        components=tuple(each.name for each in wanted.components),
        archives=archives.in_order([*found, *index.libraries(wanted, optional)]),
        found_via=f"nvidia-cuda-toolkit {release} of Debian {row.suite}",
    )


def _suite(wanted: Wanted) -> DebianSuite:
    row = toolchain_parts.debian_suite(wanted.cuda)
    if row is None:
        known = ", ".join(f"{each.cuda} ({each.suite})" for each in tables().toolchains.debian)
        raise UnavailableError(f"Debian only has {known}")
    if wanted.exact not in (None, toolchain_parts.release_of(wanted.cuda)):
        raise UnavailableError(f"Debian {row.suite} has {toolchain_parts.release_of(wanted.cuda)}")
    return row


def packages(
    row: DebianSuite | CrossCompiler | EmulatedPython,
    cpu: str,
    around: Surroundings,
    *,
    offline: bool = False,
    sources: str | None = None,
) -> list[Archive]:
    """Where a suite has the packages of a row, those for that processor. `sources`: a file that names a mirror."""
    if not around.machine.which_all("apt-get"):
        raise UnavailableError("this is not Debian or a derivative: apt-get was not found")
    with around.store.locked(f"apt-{row.suite}-{cpu}"):  # apt would not wait for another
        environ = _configured(row.suite, PROCESSORS[cpu].debian, sources, around)
        if not offline:
            process.run(["apt-get", "update"], timeout=_UPDATE_S, env=environ)
        done = process.run(["apt-get", "download", "--print-uris", *row.packages], timeout=_UPDATE_S, env=environ)
    return [_archive(*match) for match in _URI.findall(done.stdout)]


def _configured(suite: str, cpu: str, sources: str | None, around: Surroundings) -> Mapping[str, str]:
    """The environment in which apt knows that suite and nothing else."""
    home = around.store.folder / "apt" / f"{suite}-{cpu}"  # apt forgets the lists of another processor
    try:
        for folder in _FOLDERS:
            (home / folder).mkdir(parents=True, exist_ok=True)
        listed, parts = "/dev/null", home / "parts"
        if sources:
            place = Path(sources).absolute()
            listed, parts = (str(place), Path(os.devnull)) if place.suffix == ".list" else ("/dev/null", place.parent)
        else:
            # The one that the system's own configuration asks for Debian's packages.
            command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
            found = process.run(command, timeout=_UPDATE_S).stdout.split()
            if not found:
                raise UnavailableError("no mirror of Debian is configured here: give one with --provider debian=FILE")
            text = _SOURCES.format(mirror=found[0], suite=suite, keyring=_KEYRING)
            (home / "parts" / "suite.sources").write_text(text, encoding="utf-8")
        settings = _CONFIGURATION.format(home=home, listed=listed, parts=parts, cpu=cpu)
        (home / "apt.conf").write_bytes(os.fsencode(settings))
    except OSError as error:
        raise UnreadableError.from_os(error, home) from error
    return {**os.environ, "APT_CONFIG": str(home / "apt.conf")}


def _archive(url: str, file: str, size: str, sha256: str) -> Archive:
    file = addresses.file_name(file)
    name, version, _ = file.split("_", 2)
    return Archive(kind="deb", name=name, version=version, file=file, url=url, sha256=sha256, size=bounded.digits(size))


make = workplace.install_archives
