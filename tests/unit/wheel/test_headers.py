"""The few bytes of a wheel's own words that change, and all those that do not."""

from __future__ import annotations

import pytest

from cuwheel.errors import UsageError
from cuwheel.wheel import edit

TAGS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b"Name: x\nRequires-Dist: a\n\nRequires-Dist: b\n",
            b"Name: x\nRequires-Dist: a\nRequires-Dist: n\n\nRequires-Dist: b\n",
        ),
        (b"Name: x\nVersion: 1\n\ntext\n", b"Name: x\nVersion: 1\nRequires-Dist: n\n\ntext\n"),
        (
            b"Name: x\r\nrequires-dist: a\r\nAuthor: y\r\n",
            b"Name: x\r\nrequires-dist: a\r\nRequires-Dist: n\r\nAuthor: y\r\n",
        ),
        (b"Requires-Dist: a\n  ; b\nAuthor: y", b"Requires-Dist: a\n  ; b\nRequires-Dist: n\nAuthor: y"),
        (b"Name: x\nVersion: 1", b"Name: x\nVersion: 1\nRequires-Dist: n\n"),
    ],
)
def test_requirements_go_behind_those_that_are_there(before: bytes, after: bytes) -> None:
    assert edit.changed_metadata(before, requires=["n"]) == after
    assert edit.changed_metadata(before) == before


def test_tags_are_changed_in_their_place() -> None:
    before = (
        b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: cp311-abi3-linux_x86_64\nTag: cp312-abi3-linux_x86_64\nBuild: 3\n"
    )
    tags = [f"cp{each}-abi3-{platform}" for each in (311, 312) for platform in TAGS]
    assert edit.tagged_wheel(before, tags, impure=True) == (
        b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        b"Tag: cp311-abi3-manylinux_2_17_x86_64\nTag: cp311-abi3-manylinux2014_x86_64\n"
        b"Tag: cp312-abi3-manylinux_2_17_x86_64\nTag: cp312-abi3-manylinux2014_x86_64\n"
        b"Build: 3\n"
    )


def test_several_old_tags_become_one_set() -> None:
    before = b"Tag: py3-none-linux_x86_64\r\nTag: py3-none-manylinux_2_28_x86_64\r\n"
    assert (
        edit.tagged_wheel(before, ["py3-none-manylinux_2_28_x86_64"], impure=False)
        == b"Tag: py3-none-manylinux_2_28_x86_64\r\n"
    )


def test_another_version_changes_its_line_alone() -> None:
    text = b"Metadata-Version: 2.1\r\nVersion: 1\r\n\r\nVersion: 2\r\n"
    assert (
        edit.changed_metadata(text, version="1+slim")
        == b"Metadata-Version: 2.1\r\nVersion: 1+slim\r\n\r\nVersion: 2\r\n"
    )


def test_a_requirement_nested_deep_is_kept_as_it_is() -> None:
    deep = b"Requires-Dist: a; " + b"(" * 5000 + b"python_version>'3'" + b")" * 5000 + b"\n"
    assert edit.changed_metadata(deep, version="2") == deep
    with pytest.raises(UsageError, match="more than 50 brackets"):
        edit.changed_metadata(b"Name: x\n", requires=["a; " + "(" * 5000])
