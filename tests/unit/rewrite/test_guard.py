from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.inspection.values import Cudart, Distribution, Registration, Survey, Wrapper
from cuwheel.rewrite import guard
from cuwheel.rewrite.guard import Run, Wish
from tests.unit.compat.libraries import code, library

if TYPE_CHECKING:
    from cuwheel.inspection.values import Library


def registered(*containers: str, isa: str = "9.0", **changes: Any) -> Library:
    """Each a list of architectures."""
    rows = [
        [code(arch, compression="none", ptx_isa=isa if arch.startswith("compute") else None) for arch in each.split()]
        for each in containers
    ]
    wrappers = tuple(Wrapper(version=1, container=index) for index in range(len(rows)))
    registration = Registration(wrappers=wrappers, module_ids=(), containers=len(rows), unnamed=())
    return library(*rows, registration=registration, **changes)


def runs(*libraries: Library) -> list[tuple[int, int, int]]:
    return [(each.first, each.last, each.driver) for each in wish(*libraries).runs]


def wish(*libraries: Library) -> Wish:
    said = Distribution(name="foo", version="1.0", tags=("py3-none-any",), requires=())
    found = Survey(target="foo.whl", kind="wheel", size=1, distribution=said, libraries=libraries, findings=())
    return guard.of(found, "foo")


@pytest.mark.parametrize(
    ("archs", "served"),
    [
        ("sm_89 sm_90", [(89, 99, 0)]),
        ("sm_80", [(80, 89, 0)]),
        ("sm_90a", [(90, 90, 0)]),
        ("sm_90a sm_120", [(90, 90, 0), (120, 129, 0)]),
        ("sm_120a", [(120, 120, 0)]),
        ("compute_90a", [(90, 90, 13000)]),
        ("compute_90", [(90, 9999, 13000)]),
        ("sm_80 compute_90", [(80, 89, 0), (90, 9999, 13000)]),
        ("sm_80 sm_120 compute_120", [(80, 89, 0), (120, 129, 0), (130, 9999, 13000)]),
    ],
)
def test_runs_follow_the_rules_of_architectures(archs: str, served: list[tuple[int, int, int]]) -> None:
    assert runs(registered(archs)) == served


def test_family_code_serves_its_family_and_nothing_later() -> None:
    assert [each[:2] for each in runs(registered("sm_100f"))] == [(100, 100), (103, 103), (107, 107)]
    assert [each[:2] for each in runs(registered("sm_120f"))] == [(120, 121)]


@pytest.mark.parametrize(("isa", "driver"), [("8.4", 12040), ("8.7", 12080), ("9.0", 13000), ("9.1", 13010)])
def test_ptx_needs_the_driver_of_its_toolkit(isa: str, driver: int) -> None:
    assert runs(registered("compute_80", isa=isa)) == [(80, 9999, driver)]


def test_cuda_majors_need_their_drivers_and_minors_do_not() -> None:
    cudart = Cudart(linkage="static", major=12, evidence="")
    made = registered("sm_90", cudart=cudart, toolkits=("12.8",))
    assert runs(made) == [(90, 99, 12000)]


def test_partly_served_is_let_through() -> None:
    """A package may have kernels for one architecture alone, and know when to use them."""
    assert runs(registered("sm_80", "sm_90a")) == [(80, 90, 0)]


def test_every_library_must_serve() -> None:
    assert runs(registered("sm_80 sm_90"), registered("sm_90", path="lib/b.so")) == [(90, 99, 0)]


def test_unknown_ptx_needs_no_driver_that_is_not_known() -> None:
    assert runs(registered("compute_80", isa="99.0")) == [(80, 9999, 0)]


def test_words_name_capabilities_and_cuda() -> None:
    assert (
        wish(registered("sm_89 sm_90", toolkits=("13.0",))).built_for
        == "GPUs of compute capability 8.9, 9.0 (CUDA 13.0)"
    )
    assert wish(registered("sm_80 compute_80")).built_for.endswith("12.1 and later")
    assert wish(registered("sm_90a")).wheel == "foo 1.0"


@pytest.mark.parametrize(
    "message", ["", 'a "quoted" one', "two\nlines", "naïve – ok", "it's \\ {x}", "\u2028 \U0001f600"]
)
def test_any_message_makes_a_sound_module(message: str) -> None:
    text = guard.source(
        Wish(package="foo", message=message, wheel="x", built_for="y", runs=(Run(first=1, last=2, driver=3),))
    )
    assert text.isascii() or message == ""
    names: dict[str, Any] = {}
    exec(compile(ast.parse(text, feature_version=(3, 8)), "guard", "exec"), names)  # noqa: S102 - that is the test
    assert (names["INSTEAD"], names["RUNS"]) == (message, ((1, 2, 3),))
    assert callable(names["check"])
    assert "# >>> data" not in text


def test_a_guard_that_nobody_calls_is_told() -> None:
    told = guard.uncalled("import os\n", "foo")
    assert told is not None
    assert told.severity == "warning"
    assert guard.uncalled(f"{guard.CALL}\ncheck()\n", "foo") is None
