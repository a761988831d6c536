from __future__ import annotations

import pytest

from cuwheel.errors import UsageError
from cuwheel.stamping import retag

WHEEL = b"""\
Wheel-Version: 1.0
Root-Is-Purelib: false
Tag: cp311-cp311-linux_x86_64
Tag: cp311-cp311-manylinux_2_28_x86_64
"""


def test_the_file_name_keeps_its_build_number_and_platform() -> None:
    assert retag.file_name("foo-1.0-cp311-cp311-linux_x86_64.whl", "py3-none") == "foo-1.0-py3-none-linux_x86_64.whl"
    assert retag.file_name("foo-1.0-2-cp311-cp311-any.whl", "py3-none") == "foo-1.0-2-py3-none-any.whl"


def test_every_platform_gets_the_tag() -> None:
    told = retag.wheel_file(WHEEL, "py2.py3-none").decode().splitlines()
    assert [line for line in told if line.startswith("Tag")] == [
        "Tag: py2-none-linux_x86_64",
        "Tag: py3-none-linux_x86_64",
        "Tag: py2-none-manylinux_2_28_x86_64",
        "Tag: py3-none-manylinux_2_28_x86_64",
    ]
    assert told[:2] == ["Wheel-Version: 1.0", "Root-Is-Purelib: false"]


@pytest.mark.parametrize("tag", ["py3", "py3-cp311", "py3-none-any", "../x-none", ""])
def test_what_is_no_tag(tag: str) -> None:
    with pytest.raises(UsageError, match="not a Python and an ABI"):
        retag.parts(tag)


def test_modules_of_one_python_serve_no_other() -> None:
    retag.must_fit(["foo/libfoo.so"], "py3-none")
    retag.must_fit(["foo/_ops.abi3.so"], "cp310-abi3")
    with pytest.raises(UsageError, match=r"_ops\.abi3"):
        retag.must_fit(["foo/_ops.abi3.so"], "py3-none")
    with pytest.raises(UsageError, match=r"_C\.cpython-311"):
        retag.must_fit(["foo/_C.cpython-311-x86_64-linux-gnu.so"], "py3-none")
