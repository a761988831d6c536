"""`cuwheel ci watch`: whether upstream has a release that was not built yet."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from cuwheel.delivery import candidates, index_folder
from cuwheel.errors import UnknownNameError, UnreadableError
from cuwheel.network import client
from cuwheel.support import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TIMEOUT_S = 120.0
_TAG = re.compile(r"^[0-9a-f]{40,64}\trefs/tags/(\S+?)(\^\{\})?$", re.ASCII)
_VERSION = re.compile(r"(?:^|[^0-9A-Za-z])v?(\d+(?:\.\d+)+[0-9A-Za-z.]*)$", re.ASCII)
_GIT = ("https://", "http://", "file://", "ssh://", "git@")


class Release(Struct, frozen=True, kw_only=True):
    """`ref`: the tag in a repository, or the version."""

    version: str
    ref: str


class Watched(Struct, frozen=True, kw_only=True):
    """`new`: upstream has a release that is later than all that were built. `fingerprint`: of that release."""

    upstream: str
    newest: Release
    built: str
    new: bool
    fingerprint: str

    @property
    def title(self) -> str:
        return f"{self.upstream} {self.newest.version} is out"


def watch(upstream: str, built: str, name: str = "") -> Watched:
    """`upstream`: a package, or the address of a git repository. `built`: an index, or a version.

    `name`: of the package in that index, if it is not upstream's.
    """
    found = list(_tags(upstream) if upstream.startswith(_GIT) else _released(upstream))
    if not found:
        raise UnreadableError(upstream, "has no release", hint="cuwheel ci watch torch --built 2.10")
    newest = max(found, key=lambda each: Version(each.version))
    before = _built(built, name or _package(upstream))
    return Watched(
        upstream=upstream,
        newest=newest,
        built=str(before) if before else "",
        new=before is None or Version(newest.version) > before,
        fingerprint=hashlib.sha256(f"{upstream} {newest.version}".encode()).hexdigest()[:20],
    )


def _package(upstream: str) -> str:
    return upstream.rstrip("/").removesuffix(".git").rpartition("/")[2] if upstream.startswith(_GIT) else upstream


def _tags(url: str) -> Iterator[Release]:
    done = process.run(("git", "ls-remote", "--tags", "--", url), timeout=_TIMEOUT_S)
    for line in done.stdout.splitlines():
        tag = _TAG.match(line)
        version = tag and _VERSION.search(tag[1])
        if tag and version and (parsed := _final(version[1])):
            yield Release(version=str(parsed), ref=tag[1])


def _released(name: str, indexes: Sequence[str] = ()) -> Iterator[Release]:
    """Of the indexes that pip or uv is configured with, or of these alone; withdrawn ones do not count."""
    with client.Session() as session:
        places = candidates.configured_places(session.found, indexes=indexes)
        if indexes:  # that upstream has a release does not mean that it was built
            places = places._replace(indexes=(), find_links=())
        for each in candidates.list_candidates(candidates.parse_requirement(name), places, session):
            if each.listing.yanked is None and (parsed := _final(str(each.version))):
                yield Release(version=str(parsed), ref=str(parsed))


def _final(text: str) -> Version | None:
    """Previews are nobody's to rebuild for."""
    try:
        parsed = Version(text)
    except InvalidVersion:
        return None
    return None if parsed.is_prerelease else Version(parsed.public)


def _built(place: str, name: str) -> Version | None:
    """The newest that was built."""
    if "://" not in place and (version := _final(place)):
        return version
    index = place.rstrip("/").removesuffix(f"/{index_folder.SIMPLE}")
    try:
        found = list(_released(name, [f"{index}/{index_folder.SIMPLE}" if "://" in index else index]))
    except UnknownNameError:  # nothing was built yet
        return None
    return max((Version(each.version) for each in found), default=None)


def output(watched: Watched) -> str:
    """Lines for $GITHUB_OUTPUT; none of them has a line break of its own, since versions and tags have none."""
    rows = {
        "new": "true" if watched.new else "false",
        "version": watched.newest.version,
        "ref": watched.newest.ref,
        "title": watched.title,
        "fingerprint": watched.fingerprint,
    }
    return "".join(f"{name}={value}\n" for name, value in rows.items())
