from __future__ import annotations

from typing import Any

import pytest

from cuwheel.verdicts import wheel_tags
from tests.unit.verdicts.subjects import machine

LINUX = {"os": "linux", "cpu": "x86_64", "glibc": "2.28", "python": "3.11.9"}


@pytest.mark.parametrize(
    ("tag", "changes", "fits"),
    [
        ("py3-none-any", {}, True),
        ("cp311-cp311-manylinux_2_28_x86_64", {}, True),
        ("cp311-cp311-manylinux_2_34_x86_64", {}, False),
        ("cp311-cp311-manylinux2014_x86_64", {}, True),
        ("cp311-cp311-manylinux1_x86_64", {}, True),
        ("cp311-cp311-manylinux_2_28_aarch64", {}, False),
        ("cp311-cp311-manylinux_2_28_aarch64", {"cpu": "aarch64"}, True),
        ("cp312-cp312-manylinux_2_28_x86_64", {}, False),
        ("cp39-abi3-manylinux_2_28_x86_64", {}, True),
        ("cp312-abi3-manylinux_2_28_x86_64", {}, False),
        ("py3-none-manylinux_2_24_x86_64", {"python": "3.14.0"}, True),
        ("py2-none-any", {}, False),
        ("cp311-cp311-linux_x86_64", {}, True),
        ("cp311-cp311-win_amd64", {}, False),
        ("cp311-cp311-win_amd64", {"os": "windows", "glibc": None}, True),
        ("cp311-cp311-macosx_11_0_arm64", {}, False),
        ("cp311-cp311-musllinux_1_2_x86_64", {}, False),
        ("cp313-cp313t-manylinux_2_28_x86_64", {"python": "3.13.1"}, False),
        ("cp313-cp313t-manylinux_2_28_x86_64", {"python": "3.13.1", "free_threaded": True}, True),
        ("cp314-cp314t-manylinux_2_28_x86_64", {"python": "3.13.1", "free_threaded": True}, False),
        ("cp313-cp313-manylinux_2_28_x86_64", {"python": "3.13.1", "free_threaded": True}, False),
        ("cp39-abi3-manylinux_2_28_x86_64", {"python": "3.13.1", "free_threaded": True}, False),
        ("py3-none-manylinux_2_28_x86_64", {"python": "3.13.1", "free_threaded": True}, True),
    ],
)
def test_tags(tag: str, changes: dict[str, Any], fits: bool) -> None:  # noqa: FBT001
    (fit,) = wheel_tags.fits_on_machine((tag,), machine(**{**LINUX, **changes}))
    assert (not fit.problems) == fits


def test_the_best_of_several_tags_counts() -> None:
    found = wheel_tags.fits_on_machine(
        ("cp310-cp310-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_x86_64"), machine(**LINUX)
    )
    assert found[0].tag.startswith("cp311")
    assert found[0].problems == ()


def test_what_is_not_known_is_one_condition() -> None:
    def said(tag: str) -> str:
        asked = wheel_tags.tag_condition((tag,), machine())
        return asked.text if asked else ""

    assert said("cp311-cp311-manylinux_2_24_x86_64") == (
        "Python 3.11, Linux, x86_64, glibc 2.24 or later (tag cp311-cp311-manylinux_2_24_x86_64)"
    )
    assert said("py3-none-any") == ""
    assert "Python 3.9 or later" in said("cp39-abi3-win_amd64")
    assert "without the GIL" in said("cp314-cp314t-win_amd64")
