"""The simple repository API as values and as JSON: a project with its files, and the list of projects.

PEP 503, 691, 700, 714, 740. Keys that begin with an underscore are the index's own (PEP 691 leaves them to it): they
carry what cuwheel knows of a file, so that a project's `index.json` is all that has to be read to publish one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code import wheel_facts
from cuwheel.errors import NewerSchemaError
from cuwheel.support import codec
from cuwheel_core.wheel.tags import WheelName

API_VERSION = "1.3"
SCHEMA = "cuwheel.index/1"
# What stands behind a wheel's name for the files beside it.
METADATA, FACTS, PROVENANCE = ".metadata", wheel_facts.SUFFIX, ".provenance"
LARGEST_PAGE = 1 << 28
SIMPLE = "simple"  # the folder of an index that has its pages

Page = TypeVar("Page", bound="Project | ProjectList")
_FILE_KEYS = {
    "requires_python": "requires-python",
    "upload_time": "upload-time",
    "core_metadata": "core-metadata",
    "dist_info_metadata": "dist-info-metadata",
    "facts": "_facts",
    "provenance_hashes": "_provenance",
    "channels": "_channels",
}


class Meta(Struct, frozen=True, rename={"api_version": "api-version"}):
    api_version: str = API_VERSION


class Hashes(Struct, frozen=True, omit_defaults=True, gc=False):
    """Of a file. Others than this one are not read."""

    sha256: str = ""


class PublishedFile(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename=_FILE_KEYS):
    """A file of a project, as its page shows it.

    `hashes`: without any for a file that changes its content, such as the list of variants. `yanked`: a reason or True.
    `core_metadata`, `dist_info_metadata`: the hash of `<file>.metadata`, under both names that installers know.
    `facts`: the hash of `<file>.cuwheel.json`. `provenance`: a link to its attestations. `channels`: `cu130`,
    `cu130/torch2.11`.
    """

    filename: str
    url: str
    hashes: Hashes
    requires_python: str | None = None
    size: int | None = None
    upload_time: str | None = None
    yanked: bool | str = False
    core_metadata: Hashes | bool = False
    dist_info_metadata: Hashes | bool = False
    facts: Hashes | None = None
    provenance: str | None = None
    provenance_hashes: Hashes | None = None
    channels: tuple[str, ...] = ()

    @property
    def wheel(self) -> WheelName | None:
        """The name of the wheel that this is; None for what lies beside the wheels."""
        return WheelName.parse(self.filename)

    @property
    def sha256(self) -> str:
        return self.hashes.sha256

    def files_beside(self) -> Iterator[tuple[str, str]]:
        """What lies beside it: the suffix of its name, and its sha256, which may be empty."""
        for suffix, hashes in (
            (METADATA, self.core_metadata),
            (FACTS, self.facts),
            (PROVENANCE, self.provenance_hashes),
        ):
            if isinstance(hashes, Hashes):
                yield suffix, hashes.sha256


class Project(Struct, frozen=True, kw_only=True):
    """`name` is normalised."""

    meta: Meta = Meta()
    name: str
    versions: tuple[str, ...] = ()
    files: tuple[PublishedFile, ...] = ()


class ListedProject(Struct, frozen=True, omit_defaults=True, rename={"channels": "_channels"}):
    """`channels`: those that have a file of it."""

    name: str
    channels: tuple[str, ...] = ()


class ProjectList(Struct, frozen=True, kw_only=True, rename={"schema": "_schema"}):
    """`schema`: of the folder's layout; an index that another tool made has none."""

    meta: Meta = Meta()
    schema: str = ""
    projects: tuple[ListedProject, ...] = ()


def encode_page(page: Project | ProjectList) -> bytes:
    """A line for each file, so that people and `diff` can read it."""
    return json_with_lines(page, json_lines(page.files if isinstance(page, Project) else page.projects))


def json_lines(rows: Iterable[PublishedFile | ListedProject]) -> list[bytes]:
    return codec.encode_lines(rows).splitlines()


def json_with_lines(page: Project | ProjectList, written: Iterable[bytes]) -> bytes:
    """`written`: its files or projects, as JSON."""
    key = "files" if isinstance(page, Project) else "projects"
    head, _, tail = codec.encode(replace(page, **{key: ()})).rpartition(b"[]")
    return b"".join((head, b"[\n", b",\n".join(written), b"\n]", tail, b"\n"))


def parse_page(data: bytes, type_: type[Page], name: str) -> Page:
    """What stands in somebody's folder, or on a server. `name`: what it is called in errors."""
    found = codec.parse(data, type_, name, "a page of a package index")
    if not found.meta.api_version.startswith("1."):
        raise NewerSchemaError(name, f"simple API {found.meta.api_version}", API_VERSION)
    if isinstance(found, ProjectList) and found.schema not in ("", SCHEMA):
        raise NewerSchemaError(name, found.schema, SCHEMA)
    return found
