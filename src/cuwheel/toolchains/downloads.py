"""Archives onto this disk: from a folder, the cache or a server, and never used before their hash is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from msgspec import Struct

from cuwheel.errors import MalformedError, NetworkError, UnreadableError
from cuwheel.network import transfer
from cuwheel.network.addresses import local_path
from cuwheel.support import files, log
from cuwheel.toolchains.store import DOWNLOADS, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.toolchains.toolchain import Archive

_MAX_MANIFEST = 16 * 1024 * 1024


class Supply(Struct, frozen=True, kw_only=True):
    """Where archives come from. `base`: a folder or URL that has them by name, instead of where each says it is."""

    store: Store
    offline: bool = False
    base: str | None = None


def obtain(archives: Sequence[Archive], supply: Supply) -> Iterator[Path]:
    """Each as a file with the right hash, in their order."""
    with supply.store.locked(DOWNLOADS, shared=True):  # until the last is used: nobody removes them meanwhile
        for number, archive in enumerate(archives, 1):
            log.debug("archive %d of %d: %s", number, len(archives), archive.file)
            yield _obtain(archive, supply)


def _obtain(archive: Archive, supply: Supply) -> Path:
    url = join(supply.base, archive.file) if supply.base else archive.url
    if local := local_path(url):
        _check(local, archive)
        return local
    kept = supply.store.downloads / archive.sha256[:16] / archive.file
    with supply.store.locked(f"download-{archive.sha256[:16]}"):
        if kept.is_file():
            _check(kept, archive)
            return kept
        if supply.offline or not url:
            raise NetworkError(
                archive.file,
                "is not in the cache, and --offline forbids downloading it" if supply.offline else "has no address",
                hint="run this once with a network, or bring it from another machine: cuwheel toolchain fetch VERSION "
                "--to FOLDER",
            )
        log.info("downloading %s%s", archive.file, f" ({archive.size / 1e6:.1f} MB)" if archive.size else "")
        transfer.download(url, kept, sha256=archive.sha256, size=archive.size, label=archive.file)
    return kept


def keep(archives: Sequence[Archive], supply: Supply) -> tuple[Path, ...]:
    """In the cache, also those that lie in a folder of somebody's: a lock names them without it."""
    return tuple(
        path for each in archives for path in copy_to(supply.store.downloads / each.sha256[:16], [each], supply)
    )


def copy_to(folder: Path, archives: Sequence[Archive], supply: Supply) -> tuple[Path, ...]:
    """For machines without a network."""
    copied = []
    for archive, path in zip(archives, obtain(archives, supply), strict=True):
        target = folder / archive.file
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (target.is_file() and files.sha256(target) == archive.sha256):
                files.copy(path, target)
        except OSError as error:
            raise UnreadableError.from_os(error, target) from error
        copied.append(target)
    return tuple(copied)


def text_of(base: str, name: str, *, offline: bool = False) -> bytes:
    """A small file below a folder or URL: a manifest."""
    url = join(base, name) if name else base
    if local := local_path(url):
        try:
            return local.read_bytes()
        except OSError as error:
            raise UnreadableError.from_os(error, local) from error
    if offline:
        raise NetworkError(url, "is on a server, which --offline forbids")
    return transfer.fetch(url, limit=_MAX_MANIFEST)


def join(base: str, name: str) -> str:
    """`name` below `base`, whether that is a folder or a URL."""
    if "://" in base:
        return urljoin(base.rstrip("/") + "/", name)
    return str(Path(base, name))


def _check(path: Path, archive: Archive) -> None:
    found = files.sha256(path)
    if found != archive.sha256:
        raise MalformedError(
            path,
            f"sha256 is {found}, expected {archive.sha256}",
            hint="it is damaged or another file: remove it and fetch it again",
        )
