"""A project's pages in the flat index and in its channels, written once for all of them.

A channel lists some of the flat index's files, with links that begin a folder or two deeper: its pages are made of the
flat ones' lines, since there may be thousands. `update.channel_page` is what they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.delivery import layout, simple_api, simple_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.delivery.simple_api import Project

# None of these can be in a text: there a quotation mark is escaped in JSON, and a bracket in HTML.
_CHANNELS = b',"_channels":'  # the last key of a file
_LINK = '<a href="'
_KEYS = ('"url":"', '"provenance":"')


def rendered(page: Project, channels: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Paths and contents, the flat index first."""
    lines, rows = simple_api.encoded_lines(page.files), simple_html.file_rows(page.files)
    title = simple_html.project_title(page.name)
    path = layout.project_page(page.name)
    yield f"{path}.json", simple_api.with_lines(page, lines)
    yield f"{path}.html", simple_html.with_rows(title, rows)
    for channel in channels:
        inside = [number for number, each in enumerate(page.files) if channel in each.channels]
        if not inside:
            continue
        path = layout.project_page(page.name, channel)
        names = (page.files[number].filename for number in inside)
        versions = page.versions if len(inside) == len(page.files) else layout.versions(names, page.versions)
        data = simple_api.with_lines(replace(page, versions=versions), _without_channels(lines, inside))
        for key in _KEYS:
            data = data.replace((key + layout.HERE).encode(), (key + layout.url_from(channel, layout.HERE)).encode())
        html = "".join([rows[number] for number in inside])
        html = html.replace(_LINK + layout.HERE, _LINK + layout.url_from(channel, layout.HERE))
        yield f"{path}.json", data
        yield f"{path}.html", simple_html.with_rows(title, [html])


def _without_channels(lines: Sequence[bytes], inside: Iterable[int]) -> list[bytes]:
    """Which channels a file is in, the flat index alone says."""
    return [lines[number].rpartition(_CHANNELS)[0] + b"}" for number in inside]
