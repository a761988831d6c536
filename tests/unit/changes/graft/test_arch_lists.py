"""Lists of architectures in names of CUB's and Thrust's kernels."""

from __future__ import annotations

import pytest

from cuwheel.changes.graft import subject


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("_ZN3cub21CUB_300001_SM_800_9006detail11EmptyKernelIvEEvv", [("800", "900")]),
        ("_ZN3cub24_V_300200_SM_800_870_9006detail11EmptyKernelIvEEvv", [("800", "870", "900")]),
        ("_ZN3cub17CUB_200302_800_NS11EmptyKernelIvEEvv", [("800",)]),
        ("_ZN6thrust24THRUST_200302_800_900_NS8cuda_cub4coreEv", [("800", "900")]),
        ("_ZN3cub23CUB_300001_SM_1000_12006detail1kEv", [("1000", "1200")]),
        ("_ZN3cub99CUB_300001_SM_8006detail1kEv", []),
        ("_Z5plainPf", []),
    ],
)
def test_which_list_a_name_has(name: str, found: list[tuple[str, ...]]) -> None:
    assert [subject.listed_numbers(text) for text in subject.arch_lists_in([name])] == found
