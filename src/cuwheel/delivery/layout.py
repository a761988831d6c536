"""Where things are in a published folder. Every path is relative to it, with slashes, as it stands in links."""

from __future__ import annotations

import bisect
import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cuwheel.delivery.simple_api import FACTS, METADATA, PROVENANCE
from cuwheel.wheel.metadata import WheelName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FILES, SIMPLE = "files", "simple"
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
PAGE = "index.html"
CATALOGUE_PAGE = "catalogue.html"
SHIPPED_CATALOGUE, NO_CATALOGUE = "shipped", "none"  # in place of a folder or an address
PRIVATE = ".cuwheel"  # a run under way: its lock and its journal
HERE = f"../../{FILES}/"  # from a project's page in the flat index to the files
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
_BUILD = re.compile(r"\d[A-Za-z0-9_.]*", re.ASCII)
_VARIANT = re.compile(r"[0-9a-z_.]+", re.ASCII)
CHANNEL = r"(?:cu[0-9]{2,4}(?:/torch[0-9]{1,2}\.[0-9]{1,3})?|variants)"
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._+!-]{1,200}(?:\.whl|-variants\.json)"
_FILE = re.compile(FILE_NAME, re.ASCII)
_CHANNEL = re.compile(CHANNEL, re.ASCII)
_FEW = 100  # versions to be put among those that are in order
_LONGEST = 200  # of a file name's 255 bytes, so that `.cuwheel.json` and a writer's own suffix fit


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


def versions(files: Iterable[str], known: Sequence[str] = ()) -> tuple[str, ...]:
    """Those in these names, in the standard's spelling, the lowest first.

    `known`: some of them that are in order already. Thousands need not be taken apart again for a new one.
    """
    spelled = {spelled_version(each) for each in files}
    ordered = [each for each in known if each in spelled]
    found = {str(parsed) for each in spelled.difference(ordered) if (parsed := version(each))}.difference(ordered)
    if len(found) > _FEW:
        return tuple(sorted([*ordered, *found], key=Version))
    for each in found:
        bisect.insort(ordered, each, key=Version)
    return tuple(ordered)


def project_page(project: str, channel: str = "") -> str:
    """Without `.json` or `.html`."""
    return f"{list_page(channel).removesuffix('index')}{project}/index"


def list_page(channel: str = "") -> str:
    return "/".join(filter(None, (channel, SIMPLE, "index")))


def url(file: str, files_url: str = "") -> str:
    """As a page of the flat index links to it. `files_url`: the address of the folder that holds the files."""
    return f"{files_url.rstrip('/')}/{quote(file)}" if files_url else HERE + quote(file)


def url_from(channel: str, link: str) -> str:
    """The same link from a page of a channel, which is a folder or two deeper."""
    return "../" * len(channel.split("/")) + link if channel and link.startswith(HERE) else link


def is_here(link: str) -> bool:
    """Whether a link of the flat index leads to this folder's own files."""
    return link.startswith(HERE)


def file(name: str) -> str:
    return f"{FILES}/{name}"


def beside(name: str) -> Iterator[str]:
    """A wheel and what lies beside it."""
    yield file(name)
    yield file(name + METADATA)
    yield file(name + FACTS)
    yield file(name + PROVENANCE)
