"""Architectures and capabilities: texts that know their parts."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest
from msgspec import Struct

from cuwheel.support import codec
from cuwheel_core.facts.arch import Arch, Capability


class Pair(Struct, frozen=True, kw_only=True):
    capability: Capability | None
    archs: tuple[Arch, ...] = ()


PAIR = Pair(capability=Capability(9, 0), archs=(Arch.parse("sm_90a"), Arch.parse("compute_120")))


def test_they_are_ordered_by_number_and_not_as_texts() -> None:
    archs = [Arch.parse(each) for each in ("sm_120", "sm_90a", "sm_100f", "sm_90", "compute_90", "sm_75")]
    assert sorted(archs) == ["sm_75", "compute_90", "sm_90", "sm_90a", "sm_100f", "sm_120"]
    assert max(Capability(9, 0), Capability(10, 0)) == "10.0"
    assert Capability(10, 0) >= Capability(9, 0)
    assert Capability(9, 0) <= Capability(9, 0) < Capability(12, 1)


def test_copies_keep_their_parts() -> None:
    for each in (pickle.loads(pickle.dumps(PAIR)), copy.deepcopy(PAIR)):  # noqa: S301 - its own
        assert each == PAIR
        assert (each.archs[0].capability.major, each.archs[0].suffix, each.archs[1].kind) == (9, "a", "compute")


def test_in_json_they_are_texts() -> None:
    text = b'{"capability":"9.0","archs":["sm_90a","compute_120"]}'
    assert codec.encode(PAIR) == text
    assert codec.decode(text, Pair) == PAIR
    assert codec.decode(text, Pair).archs[1].capability.number == 120
    assert codec.convert(codec.builtins(PAIR), Pair) == PAIR
    assert type(codec.builtins(PAIR)["capability"]) is str
    assert codec.schema(Pair)["$defs"]["Pair"]["properties"]["archs"]["items"] == {"type": "string"}


@pytest.mark.parametrize("wrong", ['{"capability":"weird"}', '{"capability":9}', '{"capability":["9.0"]}'])
def test_what_is_none_is_refused_where_it_stands(wrong: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.capability"):
        codec.decode(wrong, Pair)


@pytest.mark.parametrize(("number", "readable"), [(90, True), (120, True), (5, False), (250, False), (65535, False)])
def test_a_damaged_file_may_claim_any_number(number: int, readable: bool) -> None:  # noqa: FBT001 - as in the table
    found = Arch(Capability.from_number(number), "a")
    assert found.readable is readable
    assert codec.decode(codec.encode(found), Arch) == found
    assert codec.decode(codec.encode(found.capability), Capability).number == number
