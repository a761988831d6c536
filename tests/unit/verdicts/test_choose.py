"""The driver's choice in one container: each line was seen on an H200, or follows from one that was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.verdicts.choice import Choice, Code, Loader, choose, serves


def _codes(text: str) -> list[Code]:
    found = []
    for word in text.split():
        arch, _, isa = word.partition("@")
        found.append(Code(arch=Arch.parse(arch), ptx_isa=isa or None))
    return found


def _choose(text: str, capability: str = "9.0", isa: str | None = "9.0", jit: str = "allowed") -> Choice:
    return choose(_codes(text), Loader(capability=Capability.parse(capability), ptx_isa=isa, jit=jit))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "capability", "how", "taken"),
    [
        ("sm_90", "9.0", "native", "sm_90"),
        ("sm_80", "8.9", "compatible", "sm_80"),
        ("sm_80 sm_86 sm_89", "8.7", "compatible", "sm_86"),
        ("sm_90a", "9.0", "native", "sm_90a"),
        ("compute_80@8.0", "9.0", "jit", "compute_80"),
        ("compute_90a@8.0", "9.0", "jit", "compute_90a"),
        ("compute_75@8.0 sm_100", "9.0", "jit", "compute_75"),
        ("sm_90 sm_90a", "9.0", "native", "sm_90a"),
        ("sm_90a sm_90", "9.0", "native", "sm_90a"),
        ("compute_90 compute_90a", "9.0", "jit", "compute_90a"),
        ("compute_80 compute_90 compute_75", "9.0", "jit", "compute_90"),
        ("compute_90 sm_80", "8.9", "compatible", "sm_80"),
        ("sm_100f", "10.3", "compatible", "sm_100f"),
        ("sm_100 sm_100f", "10.0", "native", "sm_100f"),
        ("sm_101", "11.0", "native", "sm_101"),
    ],
)
def test_what_is_taken(code: str, capability: str, how: str, taken: str) -> None:
    choice = _choose(code, capability)
    assert (choice.how, choice.error) == (how, None)
    assert choice.entry is not None
    assert str(_codes(code)[choice.entry].arch) == taken


@pytest.mark.parametrize(
    ("code", "capability"),
    [
        ("", "9.0"),
        ("sm_80", "9.0"),
        ("sm_86", "8.0"),
        ("compute_100", "9.0"),
        ("sm_100f", "9.0"),
        ("compute_100f", "9.0"),
        ("sm_90a", "10.0"),
        ("lto_90", "9.0"),
    ],
)
def test_no_kernel_image(code: str, capability: str) -> None:
    choice = _choose(code, capability)
    assert (choice.how, choice.error and choice.error.code, choice.entry) == ("none", 209, None)


@pytest.mark.parametrize("code", ["compute_90@9.4", "compute_80@9.0 compute_90@9.4", "sm_80 compute_90@9.4"])
def test_ptx_newer_than_the_driver_even_beside_an_older_one(code: str) -> None:
    assert (_choose(code).how, getattr(_choose(code).error, "code", None)) == ("none", 222)


def test_machine_code_of_a_newer_toolkit_runs() -> None:
    assert _choose("sm_90 compute_90@9.4").how == "native"


@pytest.mark.parametrize(
    ("code", "capability", "entry"),
    [
        ("sm_90 sm_90", "9.0", 0),
        ("compute_80@8.4 compute_80@9.0", "9.0", 0),
        ("compute_80@9.0 compute_80@8.4", "9.0", 0),
        ("compute_90a compute_90a", "9.0", 0),
        ("compute_90@8.4 compute_90@9.0", "9.0", 1),
        ("compute_90@9.0 compute_90@8.4 compute_80", "9.0", 1),
        ("compute_90@9.0 compute_90@8.4", "10.0", 0),
    ],
)
def test_the_first_of_equals_but_of_the_gpus_own_ptx_the_last(code: str, capability: str, entry: int) -> None:
    assert _choose(code, capability).entry == entry


def test_an_unknown_driver_is_a_condition() -> None:
    assert _choose("compute_90@9.4", isa=None) == Choice(how="jit", entry=0, needs_isa="9.4")
    assert _choose("compute_90", isa=None).needs_isa is None


def test_switches() -> None:
    assert getattr(_choose("sm_80 compute_90@8.0", jit="disabled").error, "code", None) == 223
    assert _choose("sm_90 compute_90@8.0", jit="disabled").how == "native"
    assert getattr(_choose("sm_90", jit="forced").error, "code", None) == 209
    assert _choose("sm_90 compute_90@8.0", jit="forced").how == "jit"


ARCHS = st.builds(
    Arch,
    st.sampled_from(gpus.current_capabilities()),
    st.sampled_from(("", "a")),
    st.sampled_from(("sm", "compute")),
)
CONTAINERS = st.lists(st.builds(Code, arch=ARCHS, ptx_isa=st.just("8.0")), max_size=6)
DEVICES = st.builds(Loader, capability=st.sampled_from(gpus.current_capabilities()), ptx_isa=st.just("9.0"))


@given(CONTAINERS, DEVICES, ARCHS)
def test_more_code_never_hurts_where_the_driver_knows_its_ptx(codes: list[Code], device: Loader, more: Arch) -> None:
    before, after = choose(codes, device), choose([*codes, Code(arch=more, ptx_isa="8.0")], device)
    if before.how != "none":
        assert after.how != "none"
        assert ("native", "compatible", "jit").index(after.how) <= ("native", "compatible", "jit").index(before.how)


@given(CONTAINERS, DEVICES)
def test_what_is_taken_serves_the_device_and_order_does_not_matter(codes: list[Code], device: Loader) -> None:
    choice = choose(codes, device)
    assert (choice.how == "none") == (not any(serves(code.arch, device.capability) for code in codes))
    if choice.entry is not None:
        assert serves(codes[choice.entry].arch, device.capability)
    assert choose(codes[::-1], device).how == choice.how
