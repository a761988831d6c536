"""The words that the tools which resolve take, made without starting one."""

from __future__ import annotations

import pytest

from cuwheel.network import resolver


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("win_amd64", "windows"),
        ("macosx_11_0_arm64", "aarch64-apple-darwin"),
        ("macosx_10_9_x86_64", "x86_64-apple-darwin"),
        ("manylinux_2_28_aarch64", "aarch64-manylinux_2_28"),
        ("manylinux2014_x86_64", "x86_64-manylinux_2_17"),
        ("manylinux1_x86_64", "x86_64-unknown-linux-gnu"),
        ("linux_aarch64", "aarch64-unknown-linux-gnu"),
    ],
)
def test_a_platform_as_uv_names_it(tag: str, name: str) -> None:
    assert resolver._uv_platform(tag) == name
