"""NVIDIA's redistributable archives: any release, described by a manifest, from a server, a mirror or a folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cuwheel.errors import UnavailableError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.machine.system import TEGRA_RELEASE
from cuwheel.network import addresses
from cuwheel.support import codec
from cuwheel.toolchains import archives, workplace
from cuwheel.toolchains.providers import index
from cuwheel.toolchains.toolchain import Archive, Recipe
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import versions
from cuwheel_core.support import bounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.toolchains.toolchain import Wanted
    from cuwheel.toolchains.workplace import Surroundings

_LISTED = re.compile(r"redistrib_(\d+\.\d+\.\d+)\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def decide(wanted: Wanted, around: Surroundings) -> Recipe:
    base = wanted.redist_url or tables().toolchains.redist.url
    release = _release(base, wanted)
    name = f"redistrib_{release}.json"
    manifest = _manifest(base, name, offline=wanted.offline)
    platform = _platform(wanted.cpu, tegra=around.machine.exists(TEGRA_RELEASE))
    libraries = _platform(wanted.target, tegra=bool(wanted.l4t)) if wanted.target else platform
    found: dict[str, Archive] = {}
    for row in wanted.components:
        for archive in _archives(row, manifest, platform if row.programs else libraries, base):
            found[archive.name] = archive
    packaged = [row for row in wanted.components if row.package]
    return Recipe(
        provider="redist",
        cuda=wanted.cuda,
        release=release,
        platform=wanted.platform,
        components=tuple(row.name for row in wanted.components),
        archives=archives.in_order([*found.values(), *index.libraries(wanted, packaged)]),
        found_via=f"{name} of {base}",
    )


def _release(base: str, wanted: Wanted) -> str:
    """The patch release: as asked for, else the newest that the place lists, else the last that the table knows."""
    if wanted.exact:
        return wanted.exact
    listed = [each for each in _listed(base, offline=wanted.offline) if versions.minor(each) == wanted.cuda]
    release = max(listed, key=versions.key) if listed else toolchain_parts.release_of(wanted.cuda)
    if release is None:
        raise UnavailableError(f"{base} lists no release of {wanted.cuda}")
    return release


def _listed(base: str, *, offline: bool) -> list[str]:
    """Empty if the server shows no list."""
    if local := addresses.local_path(base):
        return [match[1] for path in local.glob("redistrib_*.json") if (match := _LISTED.fullmatch(path.name))]
    try:
        page = archives.text_of(base, "", offline=offline).decode(errors="replace")
    except CuwheelError:
        return []
    return _LISTED.findall(page)


def _manifest(base: str, name: str, *, offline: bool) -> dict[str, Any]:
    place = archives.join_address(base, name)
    return codec.parse(archives.text_of(base, name, offline=offline), dict[str, Any], place, "a manifest")


def _platform(cpu: str, *, tegra: bool) -> str:
    """A platform as manifests call it: arm64 is `sbsa` for servers and `aarch64` for Jetson."""
    if cpu != "aarch64":
        return f"linux-{cpu}"
    return "linux-aarch64" if tegra else "linux-sbsa"


def _archives(row: Component, manifest: dict[str, Any], platform: str, base: str) -> Iterator[Archive]:
    for key in (*row.redist, *row.redist_any):
        if key not in manifest:
            if key in row.redist:
                raise UnavailableError(f"the manifest has no {key}, which is part of {row.name}")
            continue
        platforms = manifest[key] if isinstance(manifest[key], dict) else {}
        if platform not in platforms:
            raise UnavailableError(f"{key} {platforms.get('version', '')} is not available for {platform}")
        yield _archive(key, str(platforms.get("version", "")), platforms[platform], base)


def _archive(key: str, version: str, entry: Any, base: str) -> Archive:  # noqa: ANN401 - whatever stands there
    """Sizes are strings there. A path that leads out of the folder is not valid."""
    row = entry if isinstance(entry, dict) else {}
    path, sha256, size = str(row.get("relative_path", "")), str(row.get("sha256", "")).lower(), str(row.get("size"))
    inside = path and not path.startswith("/") and "://" not in path and ".." not in unquote(path).split("/")
    if not inside or not _SHA256.fullmatch(sha256):
        raise MalformedError(base, f"its manifest has no usable entry for {key}: {path!r} {sha256!r}")
    return Archive(
        kind="tar",
        name=key,
        version=version,
        file=addresses.file_name(path),
        url=archives.join_address(base, path),
        sha256=sha256,
        size=bounded.whole(size),
    )


make = workplace.install_archives
