"""METADATA: valid, and about the wheel that it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.metadata import InvalidMetadata, Metadata, parse_email
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from cuwheel.verdicts.rule import Found, rule
from cuwheel.wheel.metadata import fields, plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.verdicts.wheel_tags import WheelSubject

_SOURCE = "core metadata, packaging.python.org/specifications"
_FIX = "correct [project] in pyproject.toml and build it again"
# Installers read these; the others are for people.
_GRAVE = ("name", "version", "metadata-version", "requires-dist", "requires-python", "provides-extra")
_MOST = 8


@rule(
    "metadata-invalid",
    severity="warning",
    why="Indexes refuse metadata that breaks the rules.",
    source=_SOURCE,
    fix=_FIX,
)
def invalid(subject: WheelSubject) -> Iterator[Found]:
    text = subject.wheel.metadata
    if text is None:
        return
    found: list[tuple[str, str]] = []
    try:
        raw, unparsed = parse_email(text)
        found += [(key, f"{key}: not understood") for key in unparsed]
        Metadata.from_raw(raw, validate=True)
    except Exception as error:  # noqa: BLE001 - packaging raises groups of its own, and whatever a value provokes
        problems = getattr(error, "exceptions", (error,))
        found += [(_field(each), f"{_field(each)}: {str(each).splitlines()[0][:200]}") for each in problems]
    grave = [words for field, words in found if field in _GRAVE]
    slight = [words for field, words in found if field not in _GRAVE]
    if grave:
        yield Found(
            message="METADATA has errors that affect installers", evidence=tuple(grave[:_MOST]), severity="error"
        )
    if slight:
        yield Found(message="METADATA breaks the rules of its own version", evidence=tuple(slight[:_MOST]))


def _field(error: BaseException) -> str:
    return error.field if isinstance(error, InvalidMetadata) else "metadata"


@rule(
    "metadata-differs",
    severity="error",
    why="The name and version in METADATA must match the file name; installers refuse a wheel where they differ.",
    source=_SOURCE,
    fix="build it again; do not rename a wheel by hand",
)
def differs(subject: WheelSubject) -> Iterator[Found]:
    try:
        name, version, _, _ = parse_wheel_filename(plain_name(subject.file))
    except InvalidWheelFilename:
        return
    written = dict(reversed(list(fields(subject.wheel.metadata or ""))))
    if "name" in written and canonicalize_name(written["name"]) != name:
        yield Found(message=f"its name is {written['name']!r} in METADATA and {name!r} in the file name")
    if "version" in written and not _same(written["version"], version):
        yield Found(message=f"its version is {written['version']} in METADATA and {version} in the file name")


def _same(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except InvalidVersion:
        return False


RULES = (invalid, differs)
