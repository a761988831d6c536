"""Documents of variants: the same bytes for the same variants, and refusals of everything that is not one."""

from __future__ import annotations

import json

import pytest

from cuwheel.wheel import variant
from cuwheel.wheel.variant import Document, Property, Variant
from cuwheel_core.errors import MalformedError
from cuwheel_core.wheel.tags import WheelName


def one(label: str = "cu130_sm90", arch: str = "90_real") -> Variant:
    values = {"cuda_version_lower_bound": ("13.0",), "sm_arch": (arch,)}
    return Variant(
        label=label,
        properties=tuple(Property(namespace="nvidia", feature=key, values=value) for key, value in values.items()),
    )


def test_what_is_written_is_read_again() -> None:
    document = variant.for_nvidia([one(), one("cu130_sm80", "80_real")])
    read = variant.parse(variant.encoded(document), "variant.json")
    assert {each.label: each for each in read.variants} == {each.label: each for each in document.variants}
    assert read.namespaces == ("nvidia",)
    assert variant.encoded(read) == variant.encoded(document)


def test_the_order_of_the_variants_does_not_change_the_bytes() -> None:
    first, second = one(), one("cu130_sm80", "80_real")
    assert variant.encoded(variant.for_nvidia([first, second])) == variant.encoded(variant.for_nvidia([second, first]))


def test_the_document_has_the_keys_of_the_specification() -> None:
    told = json.loads(variant.encoded(variant.for_nvidia([one()])))
    assert list(told) == ["$schema", "default-priorities", "providers", "variants"]
    assert told["default-priorities"] == {"namespace": ["nvidia"]}
    assert set(told["providers"]["nvidia"]) == {"requires", "plugin-api"}
    assert told["variants"] == {
        "cu130_sm90": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real"]}}
    }


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"variants": []}',
        b'{"variants": {"A": {"nvidia": {"sm_arch": ["90_real"]}}}}',
        b'{"variants": {"a-b": {"nvidia": {"sm_arch": ["90_real"]}}}}',
        b'{"variants": {"../x": {"nvidia": {"sm_arch": ["90_real"]}}}}',
        b'{"variants": {"x": {"nvidia": {"sm_arch": [90]}}}}',
        b'{"variants": {"x": {"nvidia": {"sm_arch": []}}}}',
        b'{"variants": {"x": {"nvidia": {"<b>": ["90_real"]}}}}',
        b'{"variants": {"x": {}}}',
        b'{"variants": {"null": {"nvidia": {"sm_arch": ["90_real"]}}}}',
        b'{"variants": {}, "providers": []}',
        b'{"variants": {}, "default-priorities": {"namespace": "nvidia"}}',
        b"\xff\xfe",
        b'{"variants": ' + b"[" * 100_000,
        b" " * ((1 << 20) + 1),
    ],
)
def test_what_is_not_such_a_document_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedError):
        variant.parse(text, "variant.json")


def test_a_label_means_the_same_in_every_wheel() -> None:
    first, other = variant.for_nvidia([one()]), variant.for_nvidia([one(arch="80_real")])
    whole = variant.together([first, first, variant.for_nvidia([one("cu126_sm90")])], "pkg-1-variants.json")
    assert [each.label for each in whole.variants] == ["cu130_sm90", "cu126_sm90"]
    with pytest.raises(MalformedError, match="cu130_sm90 are for different machines"):
        variant.together([first, other], "pkg-1-variants.json")


def test_a_provider_is_the_same_in_every_wheel() -> None:
    other = Document(variants=(), providers={"nvidia": {"requires": ["another"]}})
    with pytest.raises(MalformedError, match="different providers of nvidia"):
        variant.together([variant.for_nvidia([one()]), other], "pkg-1-variants.json")


def test_variants_of_other_namespaces_are_kept() -> None:
    blas = Document(
        variants=(Variant(label="mkl", properties=(Property(namespace="blas", feature="provider", values=("mkl",)),)),),
        namespaces=("blas",),
        providers={"blas": {"requires": ["blas-provider"]}},
    )
    whole = variant.together([variant.for_nvidia([one()]), blas], "pkg-1-variants.json")
    assert whole.namespaces == ("nvidia", "blas")
    assert set(whole.providers) == {"nvidia", "blas"}


def test_the_name_of_the_document_beside_the_wheels() -> None:
    name = WheelName.parse("my_pkg-1.2-cp312-cp312-linux_x86_64-cu130_sm90.whl")
    assert name
    assert variant.set_name(name) == "my_pkg-1.2-variants.json"
