"""Is it a wheel at all, with each file once?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.support.wording import first_few
from cuwheel.verdicts.rule import Found, rule
from cuwheel.wheel.file import installed_names
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.verdicts.wheel_tags import WheelSubject

_SOURCE = "the binary distribution format, packaging.python.org/specifications"


@rule(
    "wheel-structure",
    severity="error",
    why="A wheel has one dist-info folder, with METADATA, WHEEL and RECORD in it. Installers refuse anything else.",
    source=_SOURCE,
    fix="build it again with a standard build backend",
)
def structure(subject: WheelSubject) -> Iterator[Found]:
    wheel = subject.wheel
    if len(wheel.infos) != 1:
        count = len(wheel.infos) or "no"
        yield Found(message=f"it has {count} dist-info folders, but must have one", evidence=wheel.infos)
        return
    texts = (("METADATA", wheel.metadata), ("WHEEL", wheel.wheel), ("RECORD", wheel.record))
    unread = [name for name, text in texts if text is None]
    missing = [name for name in unread if wheel.info + name not in wheel.sizes]
    for name in unread:
        if name not in missing:
            size = wheel.sizes[wheel.info + name]
            yield Found(message=f"{wheel.info}{name} was not read: it is damaged, or too large ({size:,} bytes)")
    if missing:
        yield Found(message=f"{wheel.info} has no {' and no '.join(missing)}")


@rule(
    "dist-info-name",
    severity="error",
    why="The dist-info folder is named after the name and version of the file; installers compare them.",
    source=_SOURCE,
    fix="build it again with a standard build backend",
)
def dist_info_name(subject: WheelSubject) -> Iterator[Found]:
    file = subject.wheel.name
    if len(subject.wheel.infos) != 1 or file is None:  # tags say that
        return
    name, _, version = subject.wheel.info.removesuffix(".dist-info/").partition("-")
    if (normalised(name), version.replace("-", "_")) != (normalised(file.name), file.version):
        yield Found(
            message=f"the folder inside is {subject.wheel.info}, but the file is for {file.name} {file.version}",
            evidence=(subject.file,),
        )


@rule(
    "same-file-twice",
    severity="warning",
    why="""Two files with the same final name overwrite each other: names that differ only in case do so on Windows and
    macOS, and what lies in .data/platlib lands beside the rest.""",
    source=_SOURCE,
    fix="give them different names",
)
def same_file_twice(subject: WheelSubject) -> Iterator[Found]:
    seen: dict[str, str] = {}
    twice = []
    for member, place in installed_names(subject.wheel.sizes).items():
        if (other := seen.setdefault(place.lower(), member)) != member:
            twice.append(f"{other} and {member}")
    if twice:
        yield Found(message="several files would be installed under the same name", evidence=first_few(sorted(twice)))


RULES = (structure, dist_info_name, same_file_twice)
