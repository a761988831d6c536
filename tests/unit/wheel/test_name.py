from __future__ import annotations

import pytest

from cuwheel_core.wheel.tags import WheelName, plain_name

TAGS = "cp311.cp312-abi3-manylinux_2_28_x86_64"


def test_parts_of_a_name() -> None:
    found = WheelName.parse(f"torch-2.11.0+cu130-1-{TAGS}.whl")
    assert found is not None
    assert (found.name, found.version, found.build, found.variant) == ("torch", "2.11.0+cu130", "1", None)
    assert found.tags == ("cp311-abi3-manylinux_2_28_x86_64", "cp312-abi3-manylinux_2_28_x86_64")


@pytest.mark.parametrize(
    ("name", "build", "variant"),
    [
        (f"a-1-{TAGS}.whl", None, None),
        (f"a-1-2build-{TAGS}.whl", "2build", None),
        (f"a-1-{TAGS}-cu13.whl", None, "cu13"),
        (f"a-1-2-{TAGS}-cu13.whl", "2", "cu13"),
        ("a-1-py3-none-any.whl", None, None),
        ("a-1-py3-none-linux_x86_64.linux_aarch64.whl", None, None),
    ],
)
def test_a_name_is_written_as_it_was_read(name: str, build: str | None, variant: str | None) -> None:
    found = WheelName.parse(name)
    assert found is not None
    assert (found.build, found.variant, str(found)) == (build, variant, name)


@pytest.mark.parametrize(
    "name",
    [
        "torch.whl",
        "",
        ".whl",
        "a-1-py3-none.whl",
        "a-1-py3-none-any.zip",
        "a--py3-none-any.whl",
        f"a-1-2-3-{TAGS}-x.whl",
    ],
)
def test_what_is_no_name_of_a_wheel(name: str) -> None:
    assert WheelName.parse(name) is None


def test_the_name_without_a_label() -> None:
    assert plain_name(f"a-1-{TAGS}-cu13.whl") == f"a-1-{TAGS}.whl"
    for name in (f"a-1-2build-{TAGS}.whl", "a-1.tar.gz", ""):
        assert plain_name(name) == name
