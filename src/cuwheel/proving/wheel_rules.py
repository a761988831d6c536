"""What is wrong with a wheel as a file: RECORD, tags, metadata, licences. Each rule has an id that stays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from packaging.metadata import InvalidMetadata, Metadata, parse_email
from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion, Version

from cuwheel.support import limited
from cuwheel.support.finding import finding
from cuwheel.verdicts import variant_reach, variant_values, wheel_tags
from cuwheel.verdicts.wheel_tags import WheelSubject, one_or_many
from cuwheel.wheel import variant as variants
from cuwheel.wheel.file import compare_hashes, environment_path, installed_names, is_strong
from cuwheel.wheel.record import SIGNATURES
from cuwheel_core.support.finding import examine as examine_checks
from cuwheel_core.support.finding import gravest_first
from cuwheel_core.support.wording import a_few, first_few
from cuwheel_core.wheel.metadata import RecordRow, fields, record_rows
from cuwheel_core.wheel.tags import normalised, plain_name
from cuwheel_core.wheel.zip_reader import escapes

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding


# Is it a wheel at all, with each file once?


def wheel_structure(subject: WheelSubject) -> Iterator[Finding]:
    wheel = subject.wheel
    if len(wheel.infos) != 1:
        count = len(wheel.infos) or "no"
        yield finding("wheel-structure", f"it has {count} dist-info folders, but must have one", evidence=wheel.infos)
        return
    texts = (("METADATA", wheel.metadata), ("WHEEL", wheel.wheel), ("RECORD", wheel.record))
    unread = [name for name, text in texts if text is None]
    missing = [name for name in unread if wheel.info + name not in wheel.sizes]
    for name in unread:
        if name not in missing:
            size = wheel.sizes[wheel.info + name]
            yield finding(
                "wheel-structure", f"{wheel.info}{name} was not read: it is damaged, or too large ({size:,} bytes)"
            )
    if missing:
        yield finding("wheel-structure", f"{wheel.info} has no {' and no '.join(missing)}")


def dist_info_name(subject: WheelSubject) -> Iterator[Finding]:
    file = subject.wheel.name
    if len(subject.wheel.infos) != 1 or file is None:  # tags say that
        return
    name, _, version = subject.wheel.info.removesuffix(".dist-info/").partition("-")
    if (normalised(name), version.replace("-", "_")) != (file.project, file.version):
        yield finding(
            "dist-info-name",
            f"the folder inside is {subject.wheel.info}, but the file is for {file.name} {file.version}",
            evidence=(subject.file,),
        )


def same_file_twice(subject: WheelSubject) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    twice = []
    elsewhere = {each: f"../{place}" for each in subject.wheel.sizes if (place := environment_path(each))}
    for member, place in (installed_names(subject.wheel.sizes) | elsewhere).items():
        if (other := seen.setdefault(place.lower(), member)) != member:
            twice.append(f"{other} and {member}")
    if twice:
        yield finding(
            "same-file-twice", "several files would be installed under the same name", evidence=first_few(sorted(twice))
        )


# What an environment has of its own, on any system: its settings, its Python, and how it is entered.
_ENVIRONMENTS_OWN = re.compile(
    r"pyvenv\.cfg|(?:bin|scripts)/(?:pythonw?[\d.]*t?(?:\.exe)?|activate(?:\.\w+|_this\.py)?|deactivate\.\w+)"
    r"|conda-meta/.+|\.cuwheel/.+",
    re.IGNORECASE | re.ASCII,
)
_OTHERS_FILES = re.compile(r"lib(?:64)?/(?:python[\d.]+t?/)?(?:site|dist)-packages/([^/]+)", re.IGNORECASE | re.ASCII)


def data_over_others(subject: WheelSubject) -> Iterator[Finding]:
    """Its own folder in site-packages a data folder may name, however roundabout that is."""
    own = {place.partition("/")[0].lower() for place in installed_names(subject.wheel.sizes).values()}
    places = ((each, environment_path(each)) for each in subject.wheel.sizes)
    strange = []
    for member, place in places:
        into = _OTHERS_FILES.match(place) if place else None
        if place and (_ENVIRONMENTS_OWN.fullmatch(place) or (into and into[1].lower() not in own)):
            strange.append(member)
    if strange:
        yield finding(
            "data-over-others",
            "its data folder has files for places that are the environment's own, or another package's",
            evidence=first_few(sorted(strange)),
        )


# RECORD: every file once, with the hash that it has.

_REPAIR = "build it again, or download it again; a tool that changes a wheel must also rewrite RECORD"


def _recorded(subject: WheelSubject) -> list[RecordRow]:
    return [row for row in record_rows(subject.wheel.record or "") if row.path]


def _own(subject: WheelSubject) -> set[str]:
    """RECORD itself and its signatures have no row with a hash."""
    info = subject.wheel.info
    return {f"{info}RECORD", *(info + name for name in SIGNATURES)}


def every_file_recorded(subject: WheelSubject) -> Iterator[Finding]:
    if subject.wheel.record is None:
        return
    listed = [row.path for row in _recorded(subject)]
    if bad := [str(number) for number, row in enumerate(record_rows(subject.wheel.record), 1) if not row.path]:
        yield finding("record-rows", f"RECORD cannot be read as a table: line {a_few(bad, 1)}")
    members = set(subject.wheel.sizes)
    if extra := members - set(listed) - _own(subject):
        yield finding(
            "record-rows",
            f"{one_or_many(len(extra), 'a file is', 'files are')} in the wheel and not in RECORD",
            evidence=first_few(sorted(extra)),
        )
    if lost := {path for path in listed if path not in members and not path.endswith("/")} - _own(subject):
        yield finding(
            "record-rows",
            f"{one_or_many(len(lost), 'a file is', 'files are')} in RECORD and not in the wheel",
            evidence=first_few(sorted(lost)),
        )
    if twice := {path for path, count in Counter(listed).items() if count > 1}:
        yield finding(
            "record-rows",
            f"RECORD lists {one_or_many(len(twice), 'a file', 'files')} more than once",
            evidence=first_few(sorted(twice)),
        )


def record_unsafe_path(subject: WheelSubject) -> Iterator[Finding]:
    if paths := {row.path for row in _recorded(subject) if escapes(row.path)}:
        yield finding(
            "record-unsafe-path",
            "RECORD names files outside the installation folder",
            evidence=first_few(sorted(paths)),
        )


def record_hashes(subject: WheelSubject) -> Iterator[Finding]:
    named = [row for row in _recorded(subject) if row.path in subject.wheel.sizes and row.path not in _own(subject)]
    strong = [row for row in named if is_strong(row.hash)]
    if weak := {f"{row.path} ({row.hash[:40] or 'none'})" for row in named} - {
        f"{row.path} ({row.hash[:40] or 'none'})" for row in strong
    }:
        yield finding(
            "record-hash", "RECORD has no hash, or a weak one, for some files", evidence=first_few(sorted(weak))
        )
    wrong, broken = compare_hashes(subject.wheel, {row.path: row.hash for row in strong})
    if wrong:
        yield finding(
            "record-hash",
            f"the hash of {one_or_many(len(wrong), 'a file', 'files')} is not the one in RECORD",
            evidence=first_few(sorted(wrong)),
        )
    sizes = subject.wheel.sizes
    if other := {row.path for row in named if row.size and row.size != str(sizes[row.path])} - wrong:
        yield finding("record-hash", "the size in RECORD is not that of the file", evidence=first_few(sorted(other)))
    if broken:
        yield finding(
            "record-hash",
            f"{one_or_many(len(broken), 'a file', 'files')} in the wheel cannot be unpacked",
            evidence=first_few(sorted(f"{name}: {problem}" for name, problem in broken.items())),
        )


# METADATA: valid, and about the wheel that it is in.

# Installers read these; the others are for people.
_GRAVE = ("name", "version", "metadata-version", "requires-dist", "requires-python", "provides-extra")
_MOST = 8


def metadata_invalid(subject: WheelSubject) -> Iterator[Finding]:
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
        yield finding(
            "metadata-invalid",
            "METADATA has errors that affect installers",
            evidence=tuple(grave[:_MOST]),
            severity="error",
        )
    if slight:
        yield finding(
            "metadata-invalid", "METADATA breaks the rules of its own version", evidence=tuple(slight[:_MOST])
        )


def _field(error: BaseException) -> str:
    return error.field if isinstance(error, InvalidMetadata) else "metadata"


def metadata_differs(subject: WheelSubject) -> Iterator[Finding]:
    try:
        name, version, _, _ = limited.wheel_file(plain_name(subject.file))
    except InvalidWheelFilename:
        return
    written = dict(reversed(list(fields(subject.wheel.metadata or ""))))
    if "name" in written and normalised(written["name"]) != name:
        yield finding("metadata-differs", f"its name is {written['name']!r} in METADATA and {name!r} in the file name")
    if "version" in written and not _same(written["version"], version):
        yield finding(
            "metadata-differs", f"its version is {written['version']} in METADATA and {version} in the file name"
        )


def _same(text: str, version: Version) -> bool:
    try:
        return limited.version(text) == version
    except InvalidVersion:
        return False


# A variant wheel (PEP 825): its label in the name and inside, and whether what it says is true of its device code.

_SHOWN = 6


def variant_differs(subject: WheelSubject) -> Iterator[Finding]:
    named = subject.wheel.name.variant if subject.wheel.name else None
    has_file = subject.wheel.info + variants.FILE in subject.wheel.members
    inside = subject.survey.variant.label if subject.survey.variant else None
    if named and not variants.is_label(named):
        yield finding(
            "variant-differs", f"{named!r} in its name is no label: digits, small letters, _ and . are allowed"
        )
    elif named and not has_file:
        yield finding("variant-differs", f"its name has the label {named}, and it has no {variants.FILE}")
    elif inside and named is None:
        yield finding(
            "variant-differs", f"it says that it is the variant {inside}, and its name has no label", severity="warning"
        )
    elif inside and inside != named:
        yield finding("variant-differs", f"its name has the label {named}, and its {variants.FILE} has {inside}")


def variant_untrue(subject: WheelSubject) -> Iterator[Finding]:
    variant = subject.survey.variant
    if variant is None:
        return
    if found := variant_reach.untrue(subject.survey, variant):
        gpus = a_few([str(each.capability) for each in found], _SHOWN)
        yield finding(
            "variant-untrue",
            f"the variant {variant.label} says that it is for GPUs on which it does not run: {gpus}",
            evidence=(
                *variant_values.variant_in_words(variant),
                *(f"{each.capability}, a driver of CUDA {each.cuda}: {each.outcome}" for each in found[:_SHOWN]),
            ),
        )


VARIANT_RULES = (variant_differs, variant_untrue)


# Licence files: those that the metadata names are there; one at least is there.

_LIKE = re.compile(r"(?:^|/)(?:licen[sc]e|copying|notice|authors|eula)[^/]*$", re.IGNORECASE)


def licence_file_missing(subject: WheelSubject) -> Iterator[Finding]:
    info, members = subject.wheel.info, subject.wheel.sizes
    named = [value for key, value in fields(subject.wheel.metadata or "") if key == "license-file" and value]
    # Before PEP 639 they lay beside METADATA, some by their bare names.
    missing = [
        each
        for each in named
        if not {f"{info}licenses/{each}", f"{info}license_files/{each}", info + each, info + each.rpartition("/")[2]}
        & members.keys()
    ]
    if missing:
        yield finding(
            "licence-file-missing",
            "licence files that METADATA names are not in the wheel",
            evidence=first_few(sorted(missing)),
        )


def no_licence(subject: WheelSubject) -> Iterator[Finding]:
    info = subject.wheel.info
    if info and not any(name.startswith(info) and _LIKE.search(name) for name in subject.wheel.sizes):
        yield finding("licence-none", "it contains no licence file")


RULES = (
    wheel_structure,
    dist_info_name,
    same_file_twice,
    data_over_others,
    every_file_recorded,
    record_unsafe_path,
    record_hashes,
    *wheel_tags.RULES,
    metadata_invalid,
    metadata_differs,
    *VARIANT_RULES,
    licence_file_missing,
    no_licence,
)
_UNSAFE = ("zip-", "record-unsafe-path")


def must_not_be_unpacked(findings: Iterable[Finding]) -> bool:
    return any(each.rule.startswith(_UNSAFE) for each in findings)


def examine(subject: WheelSubject) -> tuple[Finding, ...]:
    """All that is found, the gravest first."""
    found = [*subject.wheel.findings, *examine_checks(RULES, subject)]
    known = {each.rule for each in found}
    # What `inspect` says of the file too, as long as it is not the same in other words.
    found += [each for each in subject.survey.findings if each.rule not in known and each.rule != "wheel-incomplete"]
    return gravest_first(dict.fromkeys(found))
