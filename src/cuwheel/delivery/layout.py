"""Where things are in a published folder. Every path is relative to it, with slashes, as it stands in links."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cuwheel.delivery.simple_api import FACTS, METADATA, PROVENANCE
from cuwheel.wheel.name import WheelName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FILES, SIMPLE = "files", "simple"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
PAGE = "index.html"
PRIVATE = ".cuwheel"  # a run under way: its lock and its journal
_HERE = f"../../{FILES}/"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
_BUILD = re.compile(r"\d[A-Za-z0-9_.]*", re.ASCII)
_VARIANT = re.compile(r"[0-9a-z_.]+", re.ASCII)
_CHANNEL = re.compile(r"cu[0-9]{2,4}(?:/torch[0-9]{1,2}\.[0-9]{1,3})?|variants", re.ASCII)
_LONGEST = 200  # of a file name's 255 bytes, so that `.cuwheel.json` and a writer's own suffix fit
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{1,200}(?:\.whl|-variants\.json)", re.ASCII)
_ADDRESS = re.compile(r"https?://[!-~]+", re.ASCII)


def wheel_name(file: str) -> WheelName | None:
    """The name of a wheel that may stand in a link and in a folder; None for any other, whatever it was made for."""
    name = WheelName.parse(file)
    if name is None or len(file) > _LONGEST or not _NAME.fullmatch(name.name):
        return None
    tags = all(map(_TAG.fullmatch, (name.python, name.abi, name.platform)))
    optional = (name.build is None or _BUILD.fullmatch(name.build)) and (
        name.variant is None or _VARIANT.fullmatch(name.variant)
    )
    return name if tags and optional and version(name.version) else None


def is_file(name: str) -> bool:
    """Whether a file of this name may be in an index: a wheel, or a list of variants. Pages have thousands of them."""
    return bool(_FILE.fullmatch(name))


def is_project(name: str) -> bool:
    """Whether it is a normalised name of a project."""
    return bool(_NAME.fullmatch(name.replace("-", "_"))) and canonicalize_name(name) == name


def is_channel(name: str) -> bool:
    return bool(_CHANNEL.fullmatch(name))


def project(name: WheelName) -> str:
    return canonicalize_name(name.name)


@lru_cache(maxsize=1 << 15)  # a project's pages, those of its channels too, have the same ones
def version(spelled: str) -> Version | None:
    """As it stands in a file name."""
    try:
        return Version(spelled.replace("_", "-"))
    except InvalidVersion:
        return None


def spelled_version(file: str) -> str:
    """The version in the name of a wheel, or of what lies beside it, as it is spelt there."""
    return file.split("-", 2)[1]


def versions(files: Iterable[str], known: Sequence[str] = ()) -> dict[str, str]:
    """Every spelling in these names → its version in the standard's spelling, the lowest first.

    `known`: versions that are in order already, which makes sorting thousands of them cheap.
    """
    places = {each: number for number, each in enumerate(known)}
    spelled = sorted({spelled_version(each) for each in files}, key=lambda each: places.get(each, len(places)))
    parsed = [(each, found) for each in spelled if (found := version(each))]
    return {each: _standard(found) for each, found in sorted(parsed, key=lambda pair: pair[1])}


_standard = lru_cache(maxsize=1 << 15)(str)


def project_page(project: str, channel: str = "") -> str:
    """Without `.json` or `.html`."""
    return f"{list_page(channel).removesuffix('index')}{project}/index"


def list_page(channel: str = "") -> str:
    return "/".join(filter(None, (channel, SIMPLE, "index")))


def url(file: str, files_url: str = "") -> str:
    """As a page of the flat index links to it. `files_url`: the address of the folder that holds the files."""
    return f"{files_url.rstrip('/')}/{quote(file)}" if files_url else _HERE + quote(file)


def url_from(channel: str, link: str) -> str:
    """The same link from a page of a channel, which is a folder or two deeper."""
    return "../" * len(channel.split("/")) + link if channel and link.startswith(_HERE) else link


def is_here(link: str) -> bool:
    """Whether a link of the flat index leads to this folder's own files."""
    return link.startswith(_HERE)


def is_link(link: str, file: str) -> bool:
    """Whether the flat index may link so to a file."""
    return link == _HERE + file or link == _HERE + quote(file) or bool(_ADDRESS.fullmatch(link))


def file(name: str) -> str:
    return f"{FILES}/{name}"


def beside(name: str) -> Iterator[str]:
    """A wheel and what lies beside it."""
    yield file(name)
    yield file(name + METADATA)
    yield file(name + FACTS)
    yield file(name + PROVENANCE)
