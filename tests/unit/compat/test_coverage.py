from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.compat import coverage
from tests.unit.compat.libraries import code, library

if TYPE_CHECKING:
    from cuwheel.inspection.values import Library


def _words(subject: Library) -> str:
    reach = coverage.of(subject)
    assert reach
    return coverage.words(reach)


@pytest.mark.parametrize(
    ("archs", "words"),
    [
        (["sm_90"], "runs natively on 9.0; no newer GPU (there is no PTX for it)"),
        (["sm_75", "sm_80", "sm_90", "compute_90"], "runs natively on 7.5 to 9.0; newer GPUs through PTX"),
        (["sm_80", "sm_90"], "runs natively on 8.0 to 9.0; no newer GPU"),
        (["sm_90a", "compute_90a"], "runs natively on 9.0; no newer GPU"),
        (["sm_100f"], "runs natively on 10.0 to 10.7; no newer GPU"),
        (
            ["sm_120", "compute_75"],
            "runs natively on 12.0, 12.1; 7.5 to 11.0 through PTX compiled by the driver; newer",
        ),
        (["compute_120a"], "12.0 through PTX"),
    ],
)
def test_one_container_in_words(archs: list[str], words: str) -> None:
    assert words in _words(library([code(arch) for arch in archs]))


def test_every_container_must_serve() -> None:
    both = library([code("sm_80"), code("sm_90")], [code("sm_90")])
    reach = coverage.of(both)
    assert reach
    assert reach.native == ("9.0",)
    assert reach.partial == ("8.0", "8.6", "8.7", "8.8", "8.9")
    assert "only part of it serves 8.0 to 8.9" in coverage.words(reach)


def test_relocatable_code_is_the_fallback_if_all_of_it_fits() -> None:
    linked = [code("sm_90")]
    fitting = [code("sm_90", linked=False), code("compute_90", linked=False)]
    whole = coverage.of(library(linked, fitting, fitting))
    assert whole
    assert whole.native == ("9.0",)
    assert "12.0" in whole.jit
    assert whole.future
    torn = coverage.of(library(linked, fitting, [code("sm_90", linked=False)]))
    assert torn
    assert "12.0" not in torn.jit
    assert not torn.future


def test_no_device_code_no_coverage() -> None:
    assert coverage.of(library()) is None
    assert coverage.of(library([])) is None
    assert coverage.of(library([code("lto_90")])) is None


def test_cubins_without_a_container_count() -> None:
    loose = library(device_code=(code("sm_90"),))
    assert coverage.of(loose) == coverage.of(library([code("sm_90")]))
