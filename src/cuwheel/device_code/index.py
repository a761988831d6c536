"""`name==version` into a wheel on disk, through the user's own pip or uv and their configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.network import addresses, resolver, transfer
from cuwheel.support import files, log
from cuwheel.support.wording import size

if TYPE_CHECKING:
    from pathlib import Path


def wheel_of(pinned: str, *, platform: str | None = None, python: str | None = None) -> Path:
    """The wheel of `name==version` for this platform and Python or others, downloaded once and kept."""
    with log.progress(f"asking your index for {pinned}"):
        release = _resolve(pinned, platform, python)
    if local := addresses.local_path(release.url):
        return local
    kept = files.cache_folder() / "wheels" / (release.sha256 or "unhashed")[:16] / release.file
    if not kept.exists():
        total = release.size or transfer.size_of(release.url)
        log.info("downloading %s (%s)", release.file, size(total) if total else "size unknown")
        transfer.download(release.url, kept, sha256=release.sha256, size=release.size)
    return kept


def _resolve(pinned: str, platform: str | None, python: str | None) -> resolver.Release:
    wanted = resolver.Wanted(requirements=(pinned,), dependencies=False, platform=platform, python=python)
    try:
        return resolver.resolve(wanted)[0]
    except resolver.NotFoundError as error:
        asked = [*([f"Python {python}"] if python else []), *([platform] if platform else [])]
        named = f"{pinned} for {' and '.join(asked)}" if asked else pinned
        hint = "download it yourself (pip download --no-deps) and pass the file"
        if not error.answers:
            hint = "neither pip nor uv was found: " + hint
        raise UnknownNameError("wheel on your index", named, hint="\n".join([hint, *error.answers])) from error
