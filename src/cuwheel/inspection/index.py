"""`name==version` into a wheel on disk, through the user's own pip or uv and their configuration."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from cuwheel import log, network, process
from cuwheel.errors import ToolError, UnknownNameError
from cuwheel.units import size

_PINNED = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9.!+_-]+")
_RESOLVE_S = 120.0


class Remote(NamedTuple):
    url: str
    sha256: str | None


def is_pinned(target: str) -> bool:
    return bool(_PINNED.fullmatch(target))


def wheel_of(pinned: str, *, platform: str | None = None) -> Path:
    """The wheel of `name==version` for this platform or another, downloaded once and kept."""
    remote = _resolve(pinned, platform)
    parts = urlsplit(remote.url)
    name = unquote(Path(parts.path).name)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    from platformdirs import user_cache_path  # noqa: PLC0415 - needed for downloads alone

    kept = user_cache_path("cuwheel") / "wheels" / (remote.sha256 or "unhashed")[:16] / name
    if not kept.exists():
        total = network.size_of(remote.url)
        log.info("downloading %s (%s)", name, size(total) if total else "size not told")
        network.download(remote.url, kept, sha256=remote.sha256)
    return kept


def _resolve(pinned: str, platform: str | None) -> Remote:
    """Ask pip, else uv: whichever the user has has the user's indexes and credentials."""
    tried = []
    for tool in (_ask_pip, _ask_uv):
        try:
            if found := tool(pinned, platform):
                return found
        except (ToolError, msgspec.DecodeError, KeyError, IndexError, TypeError) as error:
            tried.append(str(error))
    wanted = f"{pinned} for {platform}" if platform else pinned
    hint = "download it yourself (pip download --no-deps) and give the file"
    if not tried:
        hint = "neither pip nor uv was found: " + hint
    raise UnknownNameError("wheel on your index", wanted, hint="\n".join([hint, *tried]))


def _ask_pip(pinned: str, platform: str | None) -> Remote | None:
    pip = _pip()
    if pip is None:
        return None
    with tempfile.TemporaryDirectory() as unused:
        chosen = ["--platform", platform, "--target", unused] if platform else []
        command = [*pip, "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--only-binary=:all:"]
        done = process.run([*command, *chosen, "--report", "-", pinned], timeout=_RESOLVE_S)
    told = msgspec.json.decode(done.stdout)["install"][0]["download_info"]
    return Remote(told["url"], told.get("archive_info", {}).get("hashes", {}).get("sha256"))


def _pip() -> list[str] | None:
    own = [sys.executable, "-m", "pip"]
    if process.run([*own, "--version"], timeout=_RESOLVE_S, check=False).status == 0:
        return own
    found = shutil.which("pip") or shutil.which("pip3")
    return [found] if found else None


def _ask_uv(pinned: str, platform: str | None) -> Remote | None:
    uv = shutil.which("uv")
    if uv is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.in")
        wanted.write_text(pinned + "\n")
        options = ["--no-deps", "--only-binary=:all:", "--format", "pylock.toml"]
        target = ["--python-platform", _uv_platform(platform)] if platform else []
        done = process.run([uv, "--quiet", "pip", "compile", wanted, *options, *target], timeout=_RESOLVE_S)
    wheels = msgspec.toml.decode(done.stdout)["packages"][0]["wheels"]
    told = min(wheels, key=lambda wheel: _distance(wheel["url"], platform))
    return Remote(told["url"], told.get("hashes", {}).get("sha256"))


def _distance(url: str, platform: str | None) -> int:
    """uv lists every wheel that fits; the one that an installer would take comes first."""
    from packaging.tags import sys_tags  # noqa: PLC0415 - uv alone needs it
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    try:
        tags = parse_wheel_filename(unquote(Path(urlsplit(url).path).name))[3]
    except InvalidWheelFilename:
        return sys.maxsize
    if platform:
        return 0 if any(tag.platform == platform for tag in tags) else 1
    return next((rank for rank, tag in enumerate(sys_tags()) if tag in tags), sys.maxsize)


def _uv_platform(tag: str) -> str:
    """uv names platforms otherwise than wheels do."""
    if tag.startswith("win"):
        return "windows"
    if tag.startswith("macosx"):
        return "aarch64-apple-darwin" if tag.endswith("arm64") else "x86_64-apple-darwin"
    cpu = "aarch64" if tag.endswith("aarch64") else "x86_64"
    version = re.match(r"manylinux_(\d+)_(\d+)_", tag)
    return f"{cpu}-manylinux_{version[1]}_{version[2]}" if version else f"{cpu}-unknown-linux-gnu"
