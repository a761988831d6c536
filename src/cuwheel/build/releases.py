"""`name==version` into its source archive, through the user's own uv or pip and their configuration.

uv is asked first: it reads what the index says, where pip would run the project's own code to learn its metadata.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from cuwheel import log, network, process, venvs
from cuwheel.errors import CuwheelError, NetworkError, UnknownNameError
from cuwheel.toolchain import downloads, resolver

_RESOLVE_S = 300.0
_DOWNLOAD_S = 1800.0


def download(pinned: str, cache: Path, *, offline: bool) -> Path:
    """Kept, and checked against the index's hash where it tells one."""
    kept = cache / "sdists" / pinned.replace("==", "-").lower()
    if there := [each for each in sorted(kept.glob("*")) if not each.name.endswith(".part")]:
        return there[0]
    if offline:
        raise NetworkError(
            pinned, "its source is not in the cache, and --offline forbids to fetch it", hint="run this once without"
        )
    tried = []
    for way in (_by_uv, _by_pip):
        try:
            if found := way(pinned, kept):
                return found
        except (CuwheelError, msgspec.DecodeError, KeyError, IndexError, TypeError) as error:
            if isinstance(error, NetworkError):
                raise
            tried.append(error.hint if isinstance(error, UnknownNameError) else str(error) or type(error).__name__)
    hint = "get its sources yourself and name the folder or the file: cuwheel build NAME-VERSION.tar.gz"
    raise UnknownNameError("source release on your index", pinned, hint="\n".join([hint, *tried]))


def _by_uv(pinned: str, kept: Path) -> Path | None:
    tool = venvs.uv()
    if tool is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.in")
        wanted.write_text(pinned + "\n")
        command = [tool, "--quiet", "pip", "compile", str(wanted), "--no-deps", "--format", "pylock.toml"]
        done = process.run(command, timeout=_RESOLVE_S)
    told = msgspec.toml.decode(done.stdout)["packages"][0].get("sdist")
    if told is None:
        raise UnknownNameError("source release on your index", pinned, hint="there are only wheels of it")
    url, sha256 = told["url"], told.get("hashes", {}).get("sha256")
    place = kept / unquote(Path(urlsplit(url).path).name)
    if local := downloads.local_path(url):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(local, place)
        return place
    log.info("downloading %s", place.name)
    network.download(url, place, sha256=sha256)
    return place


def _by_pip(pinned: str, kept: Path) -> Path | None:
    pip = resolver.pip()
    if pip is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-deps", "--no-binary=:all:", "--dest", folder]
        process.run([*pip, "download", "--quiet", *options, pinned], timeout=_DOWNLOAD_S)
        (found,) = Path(folder).iterdir()
        kept.mkdir(parents=True, exist_ok=True)
        part = kept / f"{found.name}.part"
        shutil.copyfile(found, part)
        return part.rename(kept / found.name)
