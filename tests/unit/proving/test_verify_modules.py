from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.proving import checks
from cuwheel.wheel.file import WheelFile
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["subject/__init__.py", "subject/deep/__init__.py"], ("subject",)),
        (["other/__init__.py", "subject/__init__.py"], ("subject", "other")),
        (["subject.py", "tests/__init__.py", "docs/conf.py"], ("subject",)),
        (["_subject.abi3.so", "subject/__init__.py"], ("subject", "_subject")),
        (["native.cpython-311-x86_64-linux-gnu.so"], ("native",)),
        (["libsubject.so", "subject/__init__.py"], ("subject",)),
        (["nvidia/cublas/__init__.py", "nvidia/cublas/lib/libcublas.so.12"], ("nvidia.cublas",)),
        (["google/cloud/thing/__init__.py"], ("google.cloud.thing",)),
        (["subject/module.py"], ("subject.module",)),
        (["subject-1.0.data/purelib/subject/__init__.py"], ("subject",)),
        (["subject-1.0.data/scripts/tool.py"], ()),
        (["not-a-name/__init__.py", "1st/__init__.py"], ()),
        (["subject/data.txt"], ()),
    ],
)
def test_what_a_person_would_import(tmp_path: Path, files: list[str], expected: tuple[str, ...]) -> None:
    path = Wheel(files=dict.fromkeys(files, "")).write(tmp_path)
    with WheelFile(path) as wheel:
        assert checks.modules_of_wheel(wheel) == expected


def test_top_level_txt_chooses_but_does_not_invent(tmp_path: Path) -> None:
    files = ["subject/__init__.py", "helper/__init__.py", "subject-1.0.dist-info/top_level.txt"]
    for text, expected in (("subject\n", ("subject",)), ("gone\n", ("subject", "helper"))):
        path = Wheel(files={**dict.fromkeys(files, ""), files[2]: text}).write(tmp_path)
        with WheelFile(path) as wheel:
            assert checks.modules_of_wheel(wheel) == expected
