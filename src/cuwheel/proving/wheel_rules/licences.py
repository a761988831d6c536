"""Licence files: those that the metadata names are there; one at least is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.support.wording import first_few
from cuwheel.verdicts.rule import Found, rule
from cuwheel.wheel.metadata import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.verdicts.wheel_tags import WheelSubject

_SOURCE = "PEP 639"
_LIKE = re.compile(r"(?:^|/)(?:licen[sc]e|copying|notice|authors|eula)[^/]*$", re.IGNORECASE)


@rule(
    "licence-file-missing",
    severity="error",
    why="License-File names a file of the wheel; most licences require passing on their text.",
    source=_SOURCE,
    fix="license-files in pyproject.toml must match files of the source",
)
def named_and_missing(subject: WheelSubject) -> Iterator[Found]:
    info, there = subject.wheel.info, subject.wheel.sizes
    named = [value for key, value in fields(subject.wheel.metadata or "") if key == "license-file" and value]
    # Before PEP 639 they lay beside METADATA, some by their bare names.
    missing = [
        each
        for each in named
        if not {f"{info}licenses/{each}", f"{info}license_files/{each}", info + each, info + each.rpartition("/")[2]}
        & there.keys()
    ]
    if missing:
        yield Found(
            message="licence files that METADATA names are not in the wheel", evidence=first_few(sorted(missing))
        )


@rule(
    "licence-none",
    severity="warning",
    why="Most licences do not allow passing on a wheel without their text.",
    source=_SOURCE,
    fix='license-files = ["LICENSE*"] in [project] of pyproject.toml',
)
def none(subject: WheelSubject) -> Iterator[Found]:
    info = subject.wheel.info
    if info and not any(name.startswith(info) and _LIKE.search(name) for name in subject.wheel.sizes):
        yield Found(message="it contains no licence file")


RULES = (named_and_missing, none)
