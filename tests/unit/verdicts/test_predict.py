"""What becomes of a whole library: containers added up, the device link and its objects, what stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cuwheel_core.device_code.libraries import Absent, Cudart, Library, Registration, Symbols, Wrapper
from cuwheel_core.device_code.library import NOTHING
from cuwheel_core.facts.arch import Arch
from cuwheel_core.verdicts.predict import Containers, Prediction, reach_of
from tests.unit.verdicts.subjects import library, machine

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machine

DRIVER = {"driver": "580.65.06"}


def predict(of: Library, on: Machine) -> Prediction:
    return reach_of(of).on(on)


def conditions(told: Prediction) -> tuple[str, ...]:
    return tuple(each.text for each in told.conditions)


def _code(told: Prediction) -> int | None:
    return told.predicted_error.code if told.predicted_error else None


def _told(told: Prediction) -> tuple[str, int | None]:
    return told.outcome, _code(told)


@pytest.mark.parametrize(
    ("containers", "capability", "expected"),
    [
        (("sm_90",), "9.0", ("native", None)),
        (("sm_90", "sm_90 sm_80"), "9.0", ("native", None)),
        (("sm_80", "sm_80"), "8.6", ("compatible", None)),
        (("sm_90", "compute_80"), "9.0", ("jit", None)),
        (("sm_86", "sm_80"), "8.6", ("compatible", None)),
        (("sm_80",), "9.0", ("fails", 209)),
        (("sm_90", "sm_80"), "9.0", ("partial", 209)),
        (("sm_90", ""), "9.0", ("partial", 209)),
        (("",), "9.0", ("fails", 209)),
        (("sm_90", "compute_90@9.9"), "9.0", ("partial", 222)),
        (("compute_90@9.9",), "9.0", ("fails", 222)),
        (("sm_90", "lto_90"), "9.0", ("native", None)),
        (("lto_90",), "9.0", ("unknown", None)),
        ((), "9.0", ("unknown", None)),
    ],
)
def test_containers_add_up(containers: tuple[str, ...], capability: str, expected: tuple[str, int | None]) -> None:
    assert _told(predict(library(*containers), machine(capability, **DRIVER))) == expected


def test_containers_are_counted() -> None:
    told = predict(library("sm_89", "sm_80", "compute_80", "sm_90"), machine("8.9", **DRIVER))
    assert told.containers == Containers(native=1, compatible=1, jit=1, none=1)
    assert {(each.arch, each.how) for each in told.taken} == {
        ("sm_89", "native"),
        ("sm_80", "compatible"),
        ("compute_80", "jit"),
    }
    assert told.missing == ("sm_90 (in .nv_fatbin)",)


@pytest.mark.parametrize(
    ("linked", "objects", "expected"),
    [
        (("sm_90",), ("sm_90 compute_90", "sm_90"), ("native", None)),
        (("sm_80",), ("sm_80 compute_80", "sm_80 compute_80"), ("jit", None)),
        (("sm_80",), ("sm_80 sm_90", "sm_80 sm_90"), ("jit", None)),
        (("sm_80",), ("sm_80", "sm_80"), ("fails", 500)),
        (("sm_80",), ("sm_80 compute_80", "sm_80"), ("fails", 500)),
        (("sm_80",), ("sm_80 compute_90@9.9", "sm_80 compute_90@9.9"), ("fails", 222)),
        (("sm_80",), ("sm_80 compute_90@9.9", "sm_80"), ("fails", 222)),
        (("sm_90",), ("", ""), ("native", None)),
        (("sm_80",), ("", ""), ("fails", 500)),
        ((), ("", ""), ("fails", 500)),
        (("sm_80",), ("", "sm_90"), ("fails", 500)),
        ((), ("sm_90", "compute_90"), ("jit", None)),
        ((), ("sm_90", "sm_80"), ("fails", 500)),
        (("sm_80",), ("lto_80",), ("fails", 500)),
    ],
)
def test_the_device_link_and_its_objects(
    linked: tuple[str, ...], objects: tuple[str, ...], expected: tuple[str, int | None]
) -> None:
    assert _told(predict(library(linked=linked, objects=objects), machine("9.0", **DRIVER))) == expected


def test_plain_containers_beside_a_device_link_stand_alone() -> None:
    told = predict(library("sm_90", linked=("sm_80",), objects=("sm_80",)), machine("9.0", **DRIVER))
    assert _told(told) == ("partial", 500)
    assert told.containers == Containers(native=1, none=1)


def test_objects_of_libcudadevrt_prove_nothing() -> None:
    devrt = "sm_75 sm_80 sm_86 sm_90 sm_100"
    names = (OTHER, Symbols(kernels=(), functions=("cudaGetDevice", "__cudaCDP2Free"), wanted=()))
    told = predict(library(linked=("sm_80",), objects=("sm_80", devrt), symbols=names), machine("9.0", **DRIVER))
    assert _told(told) == ("fails", 500)
    assert not told.mixed_objects
    mixed = predict(library(linked=("sm_80",), objects=("sm_80", "sm_80 compute_80")), machine("9.0", **DRIVER))
    assert mixed.mixed_objects
    assert [each.code for each in mixed.alternatives] == [300]


KERNEL = Symbols(kernels=("mark",), functions=(), wanted=("helper", "vprintf"))
OTHER = Symbols(kernels=("mark_2",), functions=(), wanted=("helper",))
HELPER = Symbols(kernels=(), functions=("helper",), wanted=("vprintf",))


def _lacking(*codes: str, linked: bool = False, entry: int = 0, everything: bool = False) -> Library:
    lacks = (Absent(entry=entry, names=("_Z4gonev",), everything=everything),)
    return library(linked=codes, objects=codes, absent=lacks) if linked else library(*codes, absent=lacks)


def test_what_the_host_registers_and_the_code_lacks() -> None:
    def told(made: Library) -> tuple[str, int | None, tuple[str, ...]]:
        said = predict(made, machine("9.0", **DRIVER))
        return *_told(said), said.absent

    for linked in (False, True):
        assert told(_lacking("sm_90", linked=linked)) == ("partial", 500, ("_Z4gonev",))
        assert told(_lacking("sm_90", linked=linked, everything=True)) == ("fails", 500, ("_Z4gonev",))
    assert told(_lacking("sm_80 sm_90", entry=0)) == ("native", None, ())  # of another entry than the one taken
    assert told(_lacking("sm_80 sm_90", entry=1)) == ("partial", 500, ("_Z4gonev",))
    assert told(_lacking("lto_90 sm_80 sm_90", entry=2)) == ("partial", 500, ("_Z4gonev",))
    assert told(_lacking("sm_80", entry=0)) == ("fails", 209, ())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("compute_80", ("jit", None)),
        ("compute_100", ("fails", 218)),
        ("compute_90@9.9", ("fails", 222)),
        ("compute_100@9.9", ("fails", 222)),
    ],
)
def test_a_file_of_ptx(code: str, expected: tuple[str, int | None]) -> None:
    made = library(code, format="ptx", containers=False, registration=NOTHING)
    assert _told(predict(made, machine("9.0", **DRIVER))) == expected


def test_more_architectures_than_the_link_do_not_make_an_object_the_runtimes() -> None:
    made = library(linked=("sm_80",), objects=("sm_80 sm_90", "sm_80"), symbols=(KERNEL, HELPER))
    assert _told(predict(made, machine("9.0", **DRIVER))) == ("fails", 300)


def test_variables_of_objects_that_do_not_fit_are_missed() -> None:
    variable = Symbols(kernels=(), functions=("table",), wanted=(), variables=("table",))
    for names, expected in (((OTHER, variable), ("partial", 500)), ((variable, OTHER), ("partial", 500))):
        free = tuple(replace(each, wanted=()) for each in names)
        made = library(linked=("sm_80",), objects=("sm_90", "sm_80"), symbols=free)
        assert _told(predict(made, machine("9.0", **DRIVER))) == expected


@pytest.mark.parametrize(
    ("objects", "symbols", "expected"),
    [
        (("sm_90", "sm_80"), (KERNEL, HELPER), ("fails", 300)),
        (("sm_90", ""), (KERNEL, None), ("fails", 300)),
        (("sm_80", "sm_90"), (KERNEL, HELPER), ("fails", 500)),
        (("", "sm_90"), (None, HELPER), ("fails", 500)),
        (("sm_90", "sm_90", "sm_80"), (KERNEL, HELPER, OTHER), ("partial", 500)),
        (("sm_90", "sm_90", ""), (KERNEL, HELPER, None), ("partial", 500)),
        (("sm_80", "compute_80", "sm_90"), (KERNEL, HELPER, OTHER), ("partial", 500)),
        (("sm_90", "sm_80", "sm_90"), (KERNEL, HELPER, OTHER), ("fails", 300)),
        (("sm_90", "sm_90", "sm_80"), (KERNEL, HELPER, HELPER), ("jit", None)),
        (("sm_90", "sm_80"), (None, HELPER), ("fails", 500)),
        (("sm_90", "sm_80", "compute_90@9.9"), (KERNEL, HELPER, OTHER), ("fails", 222)),
    ],
)
def test_objects_that_fit_are_linked_without_the_others(
    objects: tuple[str, ...], symbols: tuple[Symbols | None, ...], expected: tuple[str, int | None]
) -> None:
    told = predict(library(linked=("sm_80",), objects=objects, symbols=symbols), machine("9.0", **DRIVER))
    assert _told(told) == expected
    assert bool(told.alternatives) == (symbols[0] is None and objects[0] == "sm_90")


@pytest.mark.parametrize(
    ("linked", "objects", "expected"),
    [
        ("sm_90", ("sm_90", "sm_90"), ("native", None)),
        ("sm_80", ("sm_90", "sm_90"), ("fails", 209)),
        ("sm_80", ("sm_80", "sm_90"), ("fails", 209)),
        ("sm_80", ("sm_90", "compute_80@9.4"), ("fails", 209)),
        ("sm_80", ("compute_80@9.4", "sm_90"), ("fails", 222)),
        ("sm_80", ("sm_80", "sm_80"), ("fails", 500)),
        ("sm_80", ("compute_80@9.0",), ("jit", None)),
    ],
)
def test_objects_of_a_toolkit_newer_than_the_driver_are_not_linked(
    linked: str, objects: tuple[str, ...], expected: tuple[str, int | None]
) -> None:
    newer = library(linked=(linked,), objects=objects, cuda=13, toolkits=("13.4",))
    told = predict(newer, machine("9.0", **DRIVER))
    assert _told(told) == expected
    assert told.link_too_new == (_code(told) == 209)


def test_who_wrote_the_objects_may_be_a_condition() -> None:
    objects = {"linked": ("sm_80",), "objects": ("sm_90",)}
    wanted = "driver 615.71.09 or later (CUDA 13.4), to link its objects"
    newer = library(**objects, cuda=13, toolkits=("13.4",))  # type: ignore[arg-type]
    assert conditions(predict(newer, machine(os="linux"))) == (wanted,)
    some = library(**objects, cuda=13, toolkits=("13.0", "13.4"))  # type: ignore[arg-type]
    told = predict(some, machine(**DRIVER))
    assert (told.outcome, conditions(told)) == ("jit", (wanted,))
    assert conditions(predict(library(**objects), machine(**DRIVER))) == ()  # type: ignore[arg-type]
    assert predict(newer, machine(driver_cuda="13.4")).outcome == "jit"
    unheard = library(**objects, toolkits=("99.1",))  # type: ignore[arg-type]
    assert "a driver of CUDA 99.1 or later, to link its objects" in conditions(predict(unheard, machine()))


@pytest.mark.parametrize(
    ("path", "chooses"),
    [
        ("nvidia/lib/libcublasLt.so.12", True),
        ("nvidia/lib/libcudnn_adv.so.9", True),
        ("cutensor/lib/libcutensor.so.2", True),
        ("pkg/libpkg.so", False),
    ],
)
def test_libraries_that_choose_their_kernels(path: str, chooses: bool) -> None:  # noqa: FBT001
    told = predict(library("sm_80", "sm_90", "sm_100", path=path), machine("9.0", **DRIVER))
    assert _told(told) == (("native", None) if chooses else ("partial", 209))
    assert not told.heuristic
    assert predict(library("sm_80", path=path), machine("9.0", **DRIVER)).outcome == "fails"


def test_what_a_library_asks_the_gpu_with_does_not_make_it_run() -> None:
    """cuSPARSELt 0.6.2: of 2,513 containers one fits a T4, with an empty kernel."""
    containers = ("sm_80 sm_90a compute_52", *["sm_80"] * 120, *["sm_90a"] * 120)
    path = "cusparselt/lib/libcusparseLt.so.0"
    assert _told(predict(library(*containers, path=path), machine("7.5", **DRIVER))) == ("fails", 209)
    for capability in ("8.0", "9.0"):
        assert predict(library(*containers, path=path), machine(capability, **DRIVER)).outcome == "native"
    all_fit = library("sm_80 sm_90", "compute_80", path=path)
    assert predict(all_fit, machine("9.0", **DRIVER)).outcome == "native", "the best decides, as where some do not fit"


def test_what_a_library_that_chooses_lacks_it_does_not_take() -> None:
    """cuFFT registers kernels for bfloat16 that it has no code of for a V100."""
    lacks = (Absent(entry=0, names=("bfloat16_kernel",)),)
    cufft = library("sm_70 sm_80", path="lib/libcufft.so.10", absent=lacks)
    assert _told(predict(cufft, machine("7.0", **DRIVER))) == ("native", None)
    assert _told(predict(library("sm_70 sm_80", absent=lacks), machine("7.0", **DRIVER))) == ("partial", 500)


def test_the_guess_for_unknown_ones_says_that_it_is_one() -> None:
    told = predict(library(*["sm_80 sm_90"] * 15, *["sm_100f"] * 5), machine("9.0", **DRIVER))
    assert (told.outcome, told.heuristic, told.basis) == ("native", True, "fitting")
    few = predict(library(*["sm_80 sm_90"] * 3, "sm_100f"), machine("9.0", **DRIVER))
    assert (few.outcome, few.heuristic) == ("partial", False)
    one_list = predict(library(*["sm_80 sm_90"] * 30, "sm_80"), machine("9.0", **DRIVER))
    assert (one_list.outcome, one_list.heuristic) == ("partial", False)


@pytest.mark.parametrize(
    ("path", "jit", "expected"),
    [
        # By a guess the weakest of those that serve decides: its own kernels may be just those.
        ("pkg/libpkg.so", "allowed", ("jit", None)),
        ("pkg/libpkg.so", "disabled", ("partial", 223)),
        ("pkg/libpkg.so", "forced", ("partial", 209)),
        # Of a library that is known to choose, the best does.
        ("lib/libcudnn_ops.so.9", "allowed", ("native", None)),
        ("lib/libcudnn_ops.so.9", "disabled", ("native", None)),
    ],
)
def test_what_serves_least_decides_where_choosing_is_a_guess(
    path: str, jit: str, expected: tuple[str, int | None]
) -> None:
    containers = (*["sm_80 sm_90"] * 10, *["compute_80"] * 10, *["sm_100"] * 14)
    told = predict(library(*containers, path=path), machine("9.0", jit=jit, **DRIVER))
    assert _told(told) == expected
    compatible = predict(library(*["sm_80"] * 10, *["sm_86"] * 10, *["sm_90"] * 5), machine("8.6", **DRIVER))
    assert compatible.outcome == "compatible"


@pytest.mark.parametrize(
    ("cuda", "known", "expected"),
    [
        (13, {"driver": "570.26"}, ("fails", 35)),
        (13, {"driver_cuda": "12.8"}, ("fails", 35)),
        (12, {"driver": "525.60.13"}, ("native", None)),
        (12, {"driver": "520.61.05"}, ("fails", 35)),
        (12, {"driver": "528.02", "os": "windows"}, ("fails", 35)),
        (12, {"driver_cuda": "13.0"}, ("native", None)),
        (None, {"driver": "520.61.05"}, ("native", None)),
    ],
)
def test_driver_floors(cuda: int | None, known: dict[str, Any], expected: tuple[str, int | None]) -> None:
    assert _told(predict(library("sm_90", cuda=cuda), machine("9.0", **known))) == expected


@pytest.mark.parametrize(
    ("minor", "known", "expected"),
    [
        (1, {"driver": "396.37"}, ("fails", 35)),
        (1, {"driver": "410.48"}, ("fails", 35)),  # the driver of 10.0: there was no minor-version compatibility
        (1, {"driver": "418.39"}, ("native", None)),
        (2, {"driver": "418.87.00"}, ("fails", 35)),
        (2, {"driver": "440.33"}, ("native", None)),
        (0, {"driver": "411.30", "os": "windows"}, ("fails", 35)),
        (2, {"driver_cuda": "10.1"}, ("fails", 35)),
        (1, {"driver_cuda": "10.1"}, ("native", None)),
        (2, {"driver_cuda": "11.0"}, ("native", None)),
    ],
)
def test_before_cuda_11_every_release_needs_its_own_driver(
    minor: int, known: dict[str, Any], expected: tuple[str, int | None]
) -> None:
    shared = Cudart(linkage="dynamic", major=10, minor=minor, evidence=f"needs libcudart.so.10.{minor}")
    assert _told(predict(library("sm_61", cuda=10, cudart=shared), machine("6.1", **known))) == expected
    static = Cudart(linkage="static", major=10, evidence="")
    by_its_cubins = library("sm_61", cuda=10, cudart=static, toolkits=("9.2", f"10.{minor}"))
    assert _told(predict(by_its_cubins, machine("6.1", **known))) == expected
    wanted = {0: "410.48", 1: "418.39", 2: "440.33"}[minor]
    told = conditions(predict(library("sm_61", cuda=10, cudart=shared), machine("6.1")))
    assert f"driver {wanted} or later (CUDA 10.{minor})" in told


def test_old_ptx_asks_for_the_driver_of_its_own_toolkit() -> None:
    old = library("compute_61@6.0", cuda=9)
    assert predict(old, machine("7.0", driver="384.81")).outcome == "jit"
    assert "driver 384.81 or later (CUDA 9.0), to compile its PTX (ISA 6.0)" in conditions(predict(old, machine("7.0")))
    newer = library("compute_61@6.4", runtime=False)
    assert _told(predict(newer, machine("7.0", driver="396.37"))) == ("fails", 222)
    assert predict(newer, machine("7.0", driver="418.39")).outcome == "jit"


def test_the_floor_comes_before_everything_else() -> None:
    assert _told(predict(library("sm_80", cuda=13), machine("9.0", driver="570.26"))) == ("fails", 35)
    without_runtime = library("sm_90", cuda=13, runtime=False)
    assert predict(without_runtime, machine("9.0", driver="570.26")).outcome == "native"


@pytest.mark.parametrize(
    ("driver", "expected"), [("535.54.03", "fails"), ("550.54.14", "native"), ("570.26", "native")]
)
def test_zstd_needs_a_newer_driver_under_cuda_12(driver: str, expected: str) -> None:
    assert predict(library("sm_90", compression="zstd"), machine("9.0", driver=driver)).outcome == expected
    assert predict(library("sm_90", compression="lz4"), machine("9.0", driver=driver)).outcome == "native"


def test_zstd_by_the_drivers_cuda() -> None:
    packed = library("sm_90", compression="zstd")
    assert predict(packed, machine("9.0", driver_cuda="12.2")).stops == ("zstd",)
    assert predict(packed, machine("9.0", driver_cuda="12.4")).outcome == "native"
    told = predict(packed, machine("9.0"))
    assert any("ZSTD" in each for each in conditions(told))
    assert not any(
        "ZSTD" in each for each in conditions(predict(library("sm_90", cuda=13, compression="zstd"), machine()))
    )


@pytest.mark.parametrize(
    ("platform", "cuda", "capability", "known", "expected"),
    [
        ("sbsa", 12, "8.7", {"l4t": "36.4", "cpu": "aarch64"}, ("fails", 500)),
        ("sbsa", 12, "9.0", {"cpu": "aarch64"}, ("native", None)),
        ("sbsa", 13, "11.0", {"l4t": "38.2"}, ("native", None)),
        ("sbsa", 13, "8.7", {"l4t": "36.4"}, ("unknown", None)),
        ("l4t", 12, "8.7", {"l4t": "36.4"}, ("compatible", None)),
        ("l4t", 12, "9.0", {"cpu": "aarch64"}, ("fails", 500)),
    ],
)
def test_servers_and_jetsons(
    platform: str, cuda: int, capability: str, known: dict[str, Any], expected: tuple[str, int | None]
) -> None:
    code = library("sm_80 sm_90 sm_110", cuda=cuda, platform=platform, machine="aarch64")
    assert _told(predict(code, machine(capability, **known))) == expected


def test_what_is_not_known_becomes_a_condition() -> None:
    assert conditions(predict(library("sm_90"), machine())) == ("driver 525.60.13 or later (CUDA 12)",)
    assert conditions(predict(library("compute_90@8.7"), machine())) == (
        "driver 570.26 or later (CUDA 12.8), to compile its PTX (ISA 8.7)",
    )
    assert conditions(predict(library("sm_90"), machine(driver="570.26"))) == ()
    assert predict(library("sm_90", cuda=13), machine("11.0", l4t="38.2")).outcome == "fails"
    assert conditions(predict(library("sm_110", cuda=13), machine("11.0", l4t="38.2"))) == (
        "a driver of CUDA 13 or later",
    )
    windows = predict(library("compute_90@9.4", cuda=13, format="pe"), machine(driver="620.0", os="windows"))
    assert conditions(windows) == ("a driver of CUDA 13.4 or later, to compile its PTX (ISA 9.4)",)
    assert conditions(predict(library("compute_90@99.0"), machine())) == ("a driver that compiles PTX ISA 99.0",)


@pytest.mark.parametrize(
    ("code", "cuda", "driver", "expected"),
    [
        ("sm_90", 11, "452.38", ("fails", 35)),
        ("sm_90", 11, "522.6", ("native", None)),
        ("sm_90", 12, "527.41", ("fails", 35)),  # enough on Linux from 525.60.13 on
        ("sm_90", 12, "528.33", ("native", None)),
        ("sm_90", 13, "577.0", ("fails", 35)),
        ("sm_90", 13, "580.88", ("native", None)),
        ("compute_90@9.1", 13, "581.80", ("fails", 222)),
        ("compute_90@9.1", 13, "591.44", ("jit", None)),
    ],
)
def test_drivers_of_windows_have_floors_of_their_own(
    code: str, cuda: int, driver: str, expected: tuple[str, int | None]
) -> None:
    assert _told(predict(library(code, cuda=cuda, format="pe"), machine(driver=driver, os="windows"))) == expected


def test_what_cannot_be_told() -> None:
    assert predict(library("sm_90"), machine(None)).outcome == "unknown"


def test_objects_and_archives_are_judged_as_what_will_be_linked_from_them() -> None:
    """As `inspect` does: they run nowhere as they are, and that is a condition."""
    archive = library(objects=("sm_90", "sm_90"), type="relocatable", format="archive")
    served = predict(archive, machine())
    assert (served.outcome, "it is linked into a library or a program" in conditions(served)) == ("native", True)
    assert _told(predict(archive, machine("7.0", **DRIVER))) == ("fails", 209)


def test_switches() -> None:
    assert _told(predict(library("compute_80"), machine(jit="disabled", **DRIVER))) == ("fails", 223)
    assert _told(predict(library("sm_90"), machine(jit="forced", **DRIVER))) == ("fails", 209)


def test_rows_without_containers_are_judged_one_by_one() -> None:
    assert predict(library("sm_80 sm_90", containers=False), machine(**DRIVER)).outcome == "partial"
    assert predict(library("sm_90", containers=False), machine(**DRIVER)).outcome == "native"


CAPABILITIES = st.sampled_from(("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"))
WORDS = st.sampled_from(("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "compute_75", "compute_90"))
LISTS = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=5).map(tuple)
BETTER = ("native", "compatible", "jit", "partial", "fails")


@given(LISTS, CAPABILITIES, WORDS)
def test_an_entry_more_in_every_container_never_makes_it_worse(
    containers: tuple[str, ...], capability: str, more: str
) -> None:
    before = predict(library(*containers), machine(capability, **DRIVER))
    after = predict(library(*(f"{each} {more}" for each in containers)), machine(capability, **DRIVER))
    assert BETTER.index(after.outcome) <= BETTER.index(before.outcome)


@given(LISTS, LISTS, CAPABILITIES)
def test_objects_never_hurt_what_the_link_serves(
    linked: tuple[str, ...], objects: tuple[str, ...], capability: str
) -> None:
    on = machine(capability, **DRIVER)
    alone = predict(library(*linked), on)
    both = predict(library(linked=linked, objects=objects), on)
    if alone.outcome in BETTER[:4]:
        assert both.outcome == alone.outcome
    assert (both.outcome == "fails") == (both.predicted_error is not None and both.outcome != "partial")


@given(LISTS, CAPABILITIES)
def test_an_unknown_driver_promises_what_a_new_one_keeps(containers: tuple[str, ...], capability: str) -> None:
    assert (
        predict(library(*containers), machine(capability)).outcome
        == predict(library(*containers), machine(capability, **DRIVER)).outcome
    )


def test_what_no_wrapper_names_is_not_loaded_unless_the_library_does_so_itself() -> None:
    whole = library("sm_90", "sm_75")
    told = predict(
        replace(whole, registration=replace(whole.registration, wrappers=whole.registration.wrappers[:1])),
        machine(**DRIVER),
    )
    assert (told.outcome, told.containers) == ("native", Containers(native=1))
    stub = library("sm_75", registration=NOTHING)
    assert predict(stub, machine(**DRIVER)).outcome == "unknown"
    hidden = replace(stub, containers=(replace(stub.containers[0], section=".rodata"),))
    assert predict(hidden, machine(**DRIVER)).outcome == "fails"
    assert predict(replace(stub, format="fatbin"), machine(**DRIVER)).outcome == "fails"
    unresolved = Registration(wrappers=(Wrapper(version=1, container=None),), module_ids=(), containers=1, unnamed=(0,))
    assert predict(library("sm_75", registration=unresolved), machine(**DRIVER)).outcome == "fails"


@pytest.mark.parametrize(
    ("containers", "capability", "expected"),
    [
        # Some files are for one GPU each: no GPU could use them all.
        (("sm_80 sm_90a sm_100f",) * 16 + ("sm_90a", "sm_100f"), "9.0", "native"),
        (("sm_80 sm_90a sm_100f",) * 16 + ("sm_90a", "sm_100f"), "8.0", "native"),
        (("sm_70 sm_80 sm_90a",) * 16 + ("sm_70", "sm_80"), "9.0", "native"),
        # What the GPU misses is architecture-specific.
        (("sm_80 sm_90",) * 16 + ("sm_90a",), "8.0", "native"),
        # One list, and a file that was forgotten.
        (("sm_80 sm_90",) * 16 + ("sm_90",), "8.0", "partial"),
        (("sm_80 sm_90", "sm_90a"), "8.0", "partial"),
        # A few out of many do not make it run.
        (("sm_80 sm_90a",) * 30 + ("sm_70", "sm_120a"), "7.0", "fails"),
    ],
)
def test_what_lists_of_many_containers_tell(containers: tuple[str, ...], capability: str, expected: str) -> None:
    told = predict(library(*containers), machine(capability, **DRIVER))
    assert told.outcome == expected
    assert told.heuristic == (expected == "native")
    assert sum((told.containers.native, told.containers.none)) == len(containers)


@pytest.mark.parametrize(
    ("containers", "kept", "capability"),
    [
        (("sm_80 sm_90",) * 16 + ("sm_90a",), ("sm_80",) * 16 + ("",), "8.0"),
        (("sm_80 sm_90",) * 15 + ("sm_100f",) * 5, ("sm_90",) * 15 + ("",) * 5, "9.0"),
        (("sm_80 sm_90",) * 10 + ("sm_100",) * 8, ("sm_90",) * 10 + ("",) * 8, "9.0"),
    ],
)
def test_what_slim_emptied_decides_nothing(containers: tuple[str, ...], kept: tuple[str, ...], capability: str) -> None:
    """Those containers held nothing for the GPU before, either."""
    before, after = (predict(library(*each), machine(capability, **DRIVER)) for each in (containers, kept))
    assert (before.outcome, before.heuristic, before.containers) == ("native", True, after.containers)
    assert (after.outcome, after.heuristic) == ("native", True)
    assert predict(library(*kept), machine("7.5", **DRIVER)).outcome == "fails"
    assert predict(library(*kept[:3], ""), machine(capability, **DRIVER)).outcome == "partial", "too few to tell"


def test_a_cubin_or_two_beside_registered_code_do_not_make_it_run() -> None:
    many = library(*["sm_80"] * 20)
    own = replace(many.device_code[0], arch=Arch.parse("sm_90"), section=".rodata")
    assert predict(replace(many, device_code=(*many.device_code, own)), machine("9.0", **DRIVER)).outcome == "fails"
    few = library("sm_80")
    assert predict(replace(few, device_code=(*few.device_code, own)), machine("9.0", **DRIVER)).outcome == "partial"


def test_architecture_specific_files_make_a_gap_a_warning() -> None:
    assert predict(library("sm_80", "sm_90a"), machine("8.0", **DRIVER)).for_chosen_gpus
    assert not predict(library("sm_80", "sm_90"), machine("8.0", **DRIVER)).for_chosen_gpus
    assert not predict(library("sm_80", "sm_90a", "sm_90"), machine("8.0", **DRIVER)).for_chosen_gpus
