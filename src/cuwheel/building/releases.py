"""`name==version` into its source archive, through the user's own uv or pip and their configuration.

uv is asked first: it reads what the index says, where pip would run the project's own code to learn its metadata.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cuwheel import files, log, process, resolver
from cuwheel.errors import CuwheelError, NetworkError, UnknownNameError
from cuwheel.network import addresses, transfer

_DOWNLOAD_S = 1800.0


def download(pinned: str, cache: Path, *, offline: bool) -> Path:
    """Kept, and checked against the index's hash where it tells one."""
    kept = cache / "sdists" / pinned.replace("==", "-").lower()
    if there := [each for each in sorted(kept.glob("*")) if not each.name.endswith(".part")]:
        return there[0]
    if offline:
        raise NetworkError(
            pinned,
            "its source is not in the cache, and --offline forbids downloading it",
            hint="run this once without --offline",
        )
    tried: list[str] = []
    for way in (_by_uv, _by_pip):
        try:
            if found := way(pinned, kept):
                return found
        except NetworkError:
            raise
        except CuwheelError as error:
            tried += error.answers if isinstance(error, resolver.NotFoundError) else [str(error)]
    hint = "download its source yourself and give the folder or file: cuwheel build NAME-VERSION.tar.gz"
    raise UnknownNameError("source release on your index", pinned, hint="\n".join([hint, *tried]))


def _by_uv(pinned: str, kept: Path) -> Path:
    (release,) = resolver.resolve(resolver.Wanted(requirements=(pinned,), dependencies=False, source=True))
    place = kept / release.file
    if local := addresses.local_path(release.url):
        place.parent.mkdir(parents=True, exist_ok=True)
        return files.copy(local, place)
    log.info("downloading %s", place.name)
    transfer.download(release.url, place, sha256=release.sha256, size=release.size)
    return place


def _by_pip(pinned: str, kept: Path) -> Path | None:
    pip = resolver.pip()
    if pip is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-deps", "--no-binary=:all:", "--dest", folder]
        command = [*pip, "download", "--quiet", *options, pinned]
        process.run(command, timeout=_DOWNLOAD_S, env=resolver.pip_environment())
        (found,) = Path(folder).iterdir()
        kept.mkdir(parents=True, exist_ok=True)
        return files.copy(found, kept / found.name)
