"""`name==version` into its source archive, through the user's own uv, with its configuration or pip's.

uv reads what the index says; pip is not asked, which would run the project's own code to learn its metadata.
"""

from __future__ import annotations

import re
from dataclasses import replace  # noqa: TID251 - of a dataclass
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError, MissingExtraError, NetworkError, UnknownNameError
from cuwheel.network import addresses, resolver, transfer, venvs
from cuwheel.support import files, log

if TYPE_CHECKING:
    from pathlib import Path

_OTHER_PYTHON = re.compile(r"does not satisfy Python[<>=~]=?\s*(\d+\.\d+)", re.ASCII)  # uv's words


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
    if venvs.uv() is None:
        raise MissingExtraError(["uv"], "finding the source of a release", "build")
    wanted = resolver.Wanted(requirements=(pinned,), dependencies=False, source=True)
    try:
        try:
            (release,) = resolver.resolve(wanted)
        except resolver.NotFoundError as error:
            # The source is wanted whatever it requires: which Python builds it is decided when it is there.
            if not (other := _OTHER_PYTHON.search(str(error))):
                raise
            (release,) = resolver.resolve(replace(wanted, python=other[1]))
    except NetworkError:
        raise
    except CuwheelError as error:
        tried = error.answers if isinstance(error, resolver.NotFoundError) else [str(error)]
        hint = "download its source yourself and give the folder or file: cuwheel build NAME-VERSION.tar.gz"
        raise UnknownNameError("source release on your index", pinned, hint="\n".join([hint, *tried])) from error
    place = kept / release.file
    if local := addresses.local_path(release.url):
        place.parent.mkdir(parents=True, exist_ok=True)
        return files.copy(local, place)
    log.info("downloading %s", place.name)
    transfer.download(release.url, place, sha256=release.sha256, size=release.size)
    return place
