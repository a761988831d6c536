"""A published index as its users meet it: in a folder, or on a server."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urljoin

from cuwheel.delivery import layout, simple_api
from cuwheel.delivery.index_folder import IndexFolder
from cuwheel.errors import MalformedError
from cuwheel.network import addresses, transfer
from cuwheel.network.client import StatusError
from cuwheel.support import confined

if TYPE_CHECKING:
    from collections.abc import Iterator

_ABSENT = (404, 410)


class Site(Protocol):
    """`name`: as people know it. Paths are relative to the folder of the index."""

    name: str

    def read(self, path: str) -> bytes | None:
        """A page; None where there is none."""

    def file(self, page: str, link: str) -> contextlib.AbstractContextManager[Path | None]:
        """What a page links to, on this disk as long as the block lasts; None where the link leads nowhere."""


class FolderSite:
    def __init__(self, root: Path) -> None:
        self.index = IndexFolder(root)
        self.name = str(root)

    def read(self, path: str) -> bytes | None:
        return self.index.read(path)

    @contextlib.contextmanager
    def file(self, page: str, link: str) -> Iterator[Path | None]:
        if "://" in link:
            with _downloaded(link) as path:
                yield path
            return
        relative = unquote(urljoin(f"http://index/{page}", link)).removeprefix("http://index/")
        try:
            path = confined.inside(self.index.root.resolve(), relative, self.index.path(page))
        except MalformedError:
            yield None
            return
        yield path if path.is_file() else None


class WebSite:
    def __init__(self, url: str) -> None:
        base = url.rstrip("/").removesuffix(f"/{layout.PAGE}").removesuffix(f"/{layout.SIMPLE}")
        self.name = addresses.plain(base)

    def read(self, path: str) -> bytes | None:
        try:
            return transfer.fetch(f"{self.name}/{path}", limit=simple_api.LARGEST_PAGE)
        except StatusError as error:
            if error.status in _ABSENT:
                return None
            raise

    @contextlib.contextmanager
    def file(self, page: str, link: str) -> Iterator[Path | None]:
        url = urljoin(f"{self.name}/{page}", link)
        if not url.startswith(("https://", "http://")):
            yield None
            return
        with _downloaded(url) as path:
            yield path


def of(place: str | Path) -> Site:
    text = str(place)
    if text.startswith(("https://", "http://")):
        return WebSite(text)
    local = addresses.local_path(text)
    return FolderSite(local or Path(place))


@contextlib.contextmanager
def _downloaded(url: str) -> Iterator[Path | None]:
    with tempfile.TemporaryDirectory(prefix="cuwheel-check-") as folder:
        path = Path(folder, addresses.file_name(url))
        with contextlib.suppress(StatusError):
            transfer.download(url, path)
        yield path if path.exists() else None
