"""Pages of an index: kept with what their server says of their age, and asked for again only if they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuwheel.errors import CuwheelError
from cuwheel.network import addresses, client, transfer
from cuwheel.support import codec, files, log, system_calls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NOT_MODIFIED = 304
_VALIDATORS = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))


class Page(msgspec.Struct, frozen=True):
    """`url`: where it came from in the end, after redirects: its links are relative to that. `kind`: its media type."""

    url: str
    kind: str
    body: bytes
    validators: dict[str, str] = {}


def read(url: str, *, accept: str, limit: int, session: client.Session) -> Page:
    """Raises `client.NotThereError` where the server has none."""
    place = files.cache_folder() / "pages" / files.sha256_of(f"{accept}\n{addresses.plain(url)}".encode())
    kept = _kept(place, limit)
    headers = {"Accept": accept, **_conditions(kept)}
    with client.request("GET", url, headers, session=session) as response:
        if kept and response.status_code == _NOT_MODIFIED:
            return kept
        page = Page(
            url=addresses.plain(str(response.url)),
            kind=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            body=transfer.body_of(response, limit),
            validators=_validators(response.headers),
        )
    if page.validators and "no-store" not in response.headers.get("Cache-Control", "").lower():
        _keep(place, page)
    return page


def _conditions(kept: Page | None) -> dict[str, str]:
    return (
        {asked: kept.validators[header] for header, asked in _VALIDATORS if header in kept.validators} if kept else {}
    )


def _validators(headers: Mapping[str, str]) -> dict[str, str]:
    return {header: value for header, _ in _VALIDATORS if (value := headers.get(header))}


def _kept(place: Path, limit: int) -> Page | None:
    try:
        with place.open("rb") as file:
            data = system_calls.read_up_to(file, 2 * limit + 1)
        return codec.unpack(data, Page) if len(data) <= 2 * limit else None
    except (OSError, msgspec.DecodeError):
        return None


def _keep(place: Path, page: Page) -> None:
    """A cache that cannot be written is no reason to fail."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write(place, codec.pack(page))
    except (OSError, CuwheelError) as error:
        log.debug("%s is not kept: %s", page.url, error)
