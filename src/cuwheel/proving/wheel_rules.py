"""What is wrong with a wheel as a file: RECORD, tags, metadata, licences. Each rule has an id that stays."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from packaging.metadata import InvalidMetadata, Metadata, parse_email
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from cuwheel.support.finding import gravest_first
from cuwheel.support.wording import a_few, first_few
from cuwheel.verdicts import variant_reach, variant_values, wheel_tags
from cuwheel.verdicts.rule import Found, rule
from cuwheel.verdicts.rule import examine as examine_rules
from cuwheel.verdicts.wheel_tags import WheelSubject, one_or_many
from cuwheel.wheel import variant as variants
from cuwheel.wheel.file import compare_hashes, installed_names, is_strong
from cuwheel.wheel.metadata import RecordRow, fields, normalised, plain_name, record_rows
from cuwheel.wheel.record import SIGNATURES
from cuwheel.wheel.zip_reader import escapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.support.finding import Finding


# Is it a wheel at all, with each file once?

_WHEEL_FORMAT = "the binary distribution format, packaging.python.org/specifications"


@rule(
    "wheel-structure",
    severity="error",
    why="A wheel has one dist-info folder, with METADATA, WHEEL and RECORD in it. Installers refuse anything else.",
    source=_WHEEL_FORMAT,
    fix="build it again with a standard build backend",
)
def wheel_structure(subject: WheelSubject) -> Iterator[Found]:
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
    source=_WHEEL_FORMAT,
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
    source=_WHEEL_FORMAT,
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


# RECORD: every file once, with the hash that it has.

_RECORD_SPEC = "recording installed projects, packaging.python.org/specifications"
_REPAIR = "build it again, or download it again; a tool that changes a wheel must also rewrite RECORD"


def _recorded(subject: WheelSubject) -> list[RecordRow]:
    return [row for row in record_rows(subject.wheel.record or "") if row.path]


def _unreadable(text: str) -> str:
    """What is wrong with lines that are not rows of a table."""
    bad = [str(number) for number, row in enumerate(record_rows(text), 1) if not row.path]
    return f"line {a_few(bad, 1)}" if bad else ""


def _own(subject: WheelSubject) -> set[str]:
    """RECORD itself and its signatures have no row with a hash."""
    info = subject.wheel.info
    return {f"{info}RECORD", *(info + name for name in SIGNATURES)}


@rule(
    "record-rows",
    severity="error",
    why="""RECORD lists every file of the wheel, each once. What is missing from it is never uninstalled and never
    checked; a row without a file is a file that was lost.""",
    source=_RECORD_SPEC,
    fix=_REPAIR,
)
def every_file_recorded(subject: WheelSubject) -> Iterator[Found]:
    if subject.wheel.record is None:
        return
    listed = [row.path for row in _recorded(subject)]
    if problem := _unreadable(subject.wheel.record):
        yield Found(message=f"RECORD cannot be read as a table: {problem}")
    there = set(subject.wheel.sizes)
    if extra := there - set(listed) - _own(subject):
        yield Found(
            message=f"{one_or_many(len(extra), 'a file is', 'files are')} in the wheel and not in RECORD",
            evidence=first_few(sorted(extra)),
        )
    if lost := {path for path in listed if path not in there and not path.endswith("/")} - _own(subject):
        yield Found(
            message=f"{one_or_many(len(lost), 'a file is', 'files are')} in RECORD and not in the wheel",
            evidence=first_few(sorted(lost)),
        )
    if twice := {path for path, count in Counter(listed).items() if count > 1}:
        yield Found(
            message=f"RECORD lists {one_or_many(len(twice), 'a file', 'files')} more than once",
            evidence=first_few(sorted(twice)),
        )


@rule(
    "record-unsafe-path",
    severity="error",
    why="A path that leaves the environment lets an uninstall delete other files.",
    source=_RECORD_SPEC,
    fix="do not install it",
)
def record_unsafe_path(subject: WheelSubject) -> Iterator[Found]:
    if paths := {row.path for row in _recorded(subject) if escapes(row.path)}:
        yield Found(message="RECORD names files outside the installation folder", evidence=first_few(sorted(paths)))


@rule(
    "record-hash",
    severity="error",
    why="The hash in RECORD proves that a file is the one that was built. Installers may refuse a wheel without it.",
    source=_RECORD_SPEC,
    fix=_REPAIR,
)
def record_hashes(subject: WheelSubject) -> Iterator[Found]:
    named = [row for row in _recorded(subject) if row.path in subject.wheel.sizes and row.path not in _own(subject)]
    strong = [row for row in named if is_strong(row.hash)]
    if weak := {f"{row.path} ({row.hash[:40] or 'none'})" for row in named} - {
        f"{row.path} ({row.hash[:40] or 'none'})" for row in strong
    }:
        yield Found(message="RECORD has no hash, or a weak one, for some files", evidence=first_few(sorted(weak)))
    wrong, broken = compare_hashes(subject.wheel, {row.path: row.hash for row in strong})
    if wrong:
        yield Found(
            message=f"the hash of {one_or_many(len(wrong), 'a file', 'files')} is not the one in RECORD",
            evidence=first_few(sorted(wrong)),
        )
    sizes = subject.wheel.sizes
    if other := {row.path for row in named if row.size and row.size != str(sizes[row.path])} - wrong:
        yield Found(message="the size in RECORD is not that of the file", evidence=first_few(sorted(other)))
    if broken:
        yield Found(
            message=f"{one_or_many(len(broken), 'a file', 'files')} in the wheel cannot be unpacked",
            evidence=first_few(sorted(f"{name}: {problem}" for name, problem in broken.items())),
        )


# METADATA: valid, and about the wheel that it is in.

_METADATA_SPEC = "core metadata, packaging.python.org/specifications"
_FIX_METADATA = "correct [project] in pyproject.toml and build it again"
# Installers read these; the others are for people.
_GRAVE = ("name", "version", "metadata-version", "requires-dist", "requires-python", "provides-extra")
_MOST = 8


@rule(
    "metadata-invalid",
    severity="warning",
    why="Indexes refuse metadata that breaks the rules.",
    source=_METADATA_SPEC,
    fix=_FIX_METADATA,
)
def metadata_invalid(subject: WheelSubject) -> Iterator[Found]:
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
    source=_METADATA_SPEC,
    fix="build it again; do not rename a wheel by hand",
)
def metadata_differs(subject: WheelSubject) -> Iterator[Found]:
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


# A variant wheel (PEP 825): its label in the name and inside, and whether what it says is true of its device code.

_VARIANT_PEP = "PEP 825 (draft), wheel variants"
_FIX_VARIANT = "write its variants anew from the plain wheel: cuwheel build --variants"
_SHOWN = 6


@rule(
    "variant-differs",
    severity="error",
    why="""The label of a variant is in the name of the file and in variant.json inside, and must be the same:
    installers that know variants go by both.""",
    source=_VARIANT_PEP,
    fix=_FIX_VARIANT,
)
def variant_differs(subject: WheelSubject) -> Iterator[Found]:
    named = subject.wheel.name.variant if subject.wheel.name else None
    has_file = subject.wheel.info + variants.FILE in subject.wheel.members
    inside = subject.survey.variant.label if subject.survey.variant else None
    if named and not variants.is_label(named):
        yield Found(message=f"{named!r} in its name is no label: digits, small letters, _ and . are allowed")
    elif named and not has_file:
        yield Found(message=f"its name has the label {named}, and it has no {variants.FILE}")
    elif inside and named is None:
        yield Found(message=f"it says that it is the variant {inside}, and its name has no label", severity="warning")
    elif inside and inside != named:
        yield Found(message=f"its name has the label {named}, and its {variants.FILE} has {inside}")


@rule(
    "variant-untrue",
    severity="error",
    why="""A variant says which machines a wheel is for, and installers that know variants believe it. This one also
    matches machines on which the wheel does not run: GPUs that its device code does not serve, or drivers that are too
    old.""",
    source=f"{_VARIANT_PEP}; nvidia-variant-provider, get_supported_configs; docs/variants.md",
    fix=_FIX_VARIANT,
)
def variant_untrue(subject: WheelSubject) -> Iterator[Found]:
    variant = subject.survey.variant
    if variant is None:
        return
    if found := variant_reach.untrue(subject.survey, variant):
        gpus = a_few([str(each.capability) for each in found], _SHOWN)
        yield Found(
            message=f"the variant {variant.label} says that it is for GPUs on which it does not run: {gpus}",
            evidence=(
                *variant_values.variant_in_words(variant),
                *(f"{each.capability}, a driver of CUDA {each.cuda}: {each.outcome}" for each in found[:_SHOWN]),
            ),
        )


VARIANT_RULES = (variant_differs, variant_untrue)


# Licence files: those that the metadata names are there; one at least is there.

_LICENCE_PEP = "PEP 639"
_LIKE = re.compile(r"(?:^|/)(?:licen[sc]e|copying|notice|authors|eula)[^/]*$", re.IGNORECASE)


@rule(
    "licence-file-missing",
    severity="error",
    why="License-File names a file of the wheel; most licences require passing on their text.",
    source=_LICENCE_PEP,
    fix="license-files in pyproject.toml must match files of the source",
)
def licence_file_missing(subject: WheelSubject) -> Iterator[Found]:
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
    source=_LICENCE_PEP,
    fix='license-files = ["LICENSE*"] in [project] of pyproject.toml',
)
def no_licence(subject: WheelSubject) -> Iterator[Found]:
    info = subject.wheel.info
    if info and not any(name.startswith(info) and _LIKE.search(name) for name in subject.wheel.sizes):
        yield Found(message="it contains no licence file")


RULES = (
    wheel_structure,
    dist_info_name,
    same_file_twice,
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
    """Whether the file must not be unpacked at all."""
    return any(each.rule.startswith(_UNSAFE) for each in findings)


def examine(subject: WheelSubject) -> tuple[Finding, ...]:
    """All that is found, the gravest first."""
    found = [*subject.wheel.findings, *examine_rules(RULES, subject)]
    known = {each.rule for each in found}
    # What `inspect` says of the file too, as long as it is not the same in other words.
    found += [each for each in subject.survey.findings if each.rule not in known and each.rule != "wheel-incomplete"]
    return gravest_first(dict.fromkeys(found))
