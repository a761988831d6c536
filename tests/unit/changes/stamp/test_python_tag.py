from __future__ import annotations

import pytest

from cuwheel.changes.stamp import stamp
from cuwheel.errors import UsageError


@pytest.mark.parametrize("tag", ["py3", "py3-cp311", "py3-none-any", "../x-none", ""])
def test_what_is_no_tag(tag: str) -> None:
    with pytest.raises(UsageError, match="not a Python and an ABI"):
        stamp.tag_parts(tag)


def test_modules_of_one_python_serve_no_other() -> None:
    stamp.tag_must_fit(["foo/libfoo.so"], "py3-none")
    stamp.tag_must_fit(["foo/_ops.abi3.so"], "cp310-abi3")
    with pytest.raises(UsageError, match=r"_ops\.abi3"):
        stamp.tag_must_fit(["foo/_ops.abi3.so"], "py3-none")
    with pytest.raises(UsageError, match=r"_C\.cpython-311"):
        stamp.tag_must_fit(["foo/_C.cpython-311-x86_64-linux-gnu.so"], "py3-none")
