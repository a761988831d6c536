"""Variants of a wheel (PEP 825): a label in the file's name, and a document that says which machines it is for.

`variant.json` in the dist-info folder holds one label; `NAME-VERSION-variants.json` beside the wheels holds them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.facts.tables import tables
from cuwheel.support import codec
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.patterns import lazy_pattern

if TYPE_CHECKING:
    from cuwheel.wheel.file import WheelFile
    from cuwheel_core.wheel.tags import WheelName

FILE = "variant.json"
NULL = "null"  # the label of a variant for every machine
_LIMIT = 1 << 20
_LABEL = lazy_pattern(r"[0-9a-z_.]+", re.ASCII)
_WORD = lazy_pattern(r"[0-9a-z_]+", re.ASCII)
_WHAT = "a document of wheel variants"


class Property(Struct, frozen=True, kw_only=True):
    """A machine must have one of the values, or it is not one that the variant is for."""

    namespace: str
    feature: str
    values: tuple[str, ...]


class Variant(Struct, frozen=True, kw_only=True):
    label: str
    properties: tuple[Property, ...]


class VariantWheel(Struct, frozen=True, kw_only=True):
    """A variant in its place. `made_from`: the plain wheel whose files it has."""

    path: str
    size: int
    sha256: str
    label: str
    properties: tuple[Property, ...]
    made_from: str


class VariantSet(Struct, frozen=True, kw_only=True):
    """All that was written of one release. `document`: the variants of the release, for installers.

    `plain`: what installers take that know nothing of variants, or find none that fits.
    """

    document: str
    wheels: tuple[VariantWheel, ...]
    plain: tuple[str, ...]


class Document(Struct, frozen=True, kw_only=True):
    """`namespaces`: the most important first. `providers`: what tells an installer which values a machine has."""

    variants: tuple[Variant, ...]
    namespaces: tuple[str, ...] = ()
    providers: Mapping[str, object] = field(default_factory=dict)


def for_nvidia(variants: Iterable[Variant]) -> Document:
    """A document of variants that NVIDIA's provider decides on."""
    row = tables().variants.provider
    provider = {"requires": [row.requires], "plugin-api": row.plugin_api}
    return Document(variants=tuple(variants), namespaces=(row.namespace,), providers={row.namespace: provider})


def set_name(name: WheelName) -> str:
    """The name of the document beside the wheels of a release."""
    return f"{name.name}-{name.version}-variants.json"


def encoded(document: Document) -> bytes:
    """The same bytes for the same variants, whatever their order."""
    variants: dict[str, dict[str, dict[str, Sequence[str]]]] = {}
    for variant in sorted(document.variants, key=lambda each: each.label):
        properties = variants.setdefault(variant.label, {})
        for each in sorted(variant.properties, key=lambda each: (each.namespace, each.feature)):
            properties.setdefault(each.namespace, {})[each.feature] = each.values
    whole = {
        "$schema": tables().variants.schema,
        "default-priorities": {"namespace": document.namespaces},
        "providers": {name: document.providers[name] for name in sorted(document.providers)},
        "variants": variants,
    }
    return codec.indented(whole)


def parse(data: bytes, name: str) -> Document:
    """What somebody's file says."""
    if len(data) > _LIMIT:
        raise MalformedError(name, f"has more than {_LIMIT:,} bytes: too large for a document of variants")
    found = codec.parse(data, dict[str, Any], name, _WHAT)
    try:
        variants = codec.convert(found.get("variants"), dict[str, dict[str, dict[str, tuple[str, ...]]]])
        providers = codec.convert(found.get("providers", {}), dict[str, dict[str, object]])
        priorities = codec.convert(found.get("default-priorities", {}), dict[str, Any])
        namespaces = codec.convert(priorities.get("namespace", []), tuple[str, ...])
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedError(name, f"is not {_WHAT}: {error}") from error
    document = Document(
        variants=tuple(_variant(label, properties) for label, properties in variants.items()),
        namespaces=namespaces,
        providers=providers,
    )
    if problem := _problem(document):
        raise MalformedError(name, f"is not {_WHAT}: {problem}")
    return document


def _variant(label: str, properties: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Variant:
    return Variant(
        label=label,
        properties=tuple(
            Property(namespace=namespace, feature=feature, values=values)
            for namespace, features in properties.items()
            for feature, values in features.items()
        ),
    )


def _problem(document: Document) -> str:
    for variant in document.variants:
        if not _LABEL.fullmatch(variant.label):
            return f"the label {variant.label[:80]!r} has other characters than digits, small letters, _ and ."
        if (variant.label == NULL) != (not variant.properties):
            return f"the label {variant.label[:80]!r}: {NULL} is the label of a variant without properties"
        for each in variant.properties:
            if not _WORD.fullmatch(each.namespace) or not _WORD.fullmatch(each.feature) or not each.values:
                return f"the label {variant.label[:80]!r}: a property without a proper name or without values"
    return ""


def is_label(text: str) -> bool:
    return bool(_LABEL.fullmatch(text))


def document_of(wheel: WheelFile) -> Document | None:
    """Reads the document of a wheel's variant; None where it has none. Raises where it cannot be understood."""
    member = wheel.info + FILE
    if not wheel.info or member not in wheel.members:
        return None
    if wheel.sizes[member] > _LIMIT:
        raise MalformedError(wheel.path, f"its {FILE} has {wheel.sizes[member]:,} bytes: too large for one")
    return parse(wheel.read(member), f"{wheel.path.name}: {FILE}")


def of_wheel(wheel: WheelFile) -> Variant | None:
    """The variant that a wheel says it is; None where it says nothing."""
    document = document_of(wheel)
    if document is None:
        return None
    if len(document.variants) != 1:
        raise MalformedError(
            wheel.path, f"its {FILE} has {len(document.variants)} labels, and one is allowed", hint="build it again"
        )
    return document.variants[0]


def together(documents: Iterable[Document], name: str) -> Document:
    """One document of all of them. The same label must mean the same everywhere, and so must a provider."""
    variants: dict[str, Variant] = {}
    whole = Document(variants=())
    for each in documents:
        for variant in each.variants:
            known = variants.setdefault(variant.label, variant)
            if not same(known, variant):
                raise MalformedError(name, f"two wheels with the label {variant.label} are for different machines")
        for namespace, provider in each.providers.items():
            if whole.providers.get(namespace, provider) != provider:
                raise MalformedError(name, f"two wheels name different providers of {namespace}")
        listed = tuple(dict.fromkeys((*whole.namespaces, *each.namespaces)))
        whole = replace(whole, namespaces=listed, providers={**whole.providers, **each.providers})
    return replace(whole, variants=tuple(variants.values()))


def same(one: Variant, other: Variant) -> bool:
    """Whether they are for the same machines, whatever the order of what they say."""
    return _plain(one) == _plain(other)


def _plain(variant: Variant) -> dict[tuple[str, str], frozenset[str]]:
    return {(each.namespace, each.feature): frozenset(each.values) for each in variant.properties}
