"""Paths of another machine: told by their looks, joined by that machine's rules."""

from __future__ import annotations

import pytest

from cuwheel.support import quoting


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("/build", "a.cu", "/build/a.cu"),
        ("/build", "/usr/bin/nvcc", "/usr/bin/nvcc"),
        ("/build", "C:oddly named", "/build/C:oddly named"),
        ("C:\\work", "C:\\Program Files\\CUDA\\bin\\nvcc.exe", "C:\\Program Files\\CUDA\\bin\\nvcc.exe"),
        ("C:\\work", "C:/Program Files/CUDA/bin/nvcc.exe", "C:/Program Files/CUDA/bin/nvcc.exe"),
        ("C:\\work", "sub\\nvcc.exe", "C:\\work\\sub\\nvcc.exe"),
        ("C:\\work", "\\tools\\nvcc.exe", "C:\\tools\\nvcc.exe"),
        ("C:/work", "a b.cu", "C:/work\\a b.cu"),
        ("\\\\server\\share\\work", "a.cu", "\\\\server\\share\\work\\a.cu"),
        ("C:\\work", "\\\\server\\share\\nvcc.exe", "\\\\server\\share\\nvcc.exe"),
        ("C:\\work", "\\\\?\\C:\\long\\nvcc.exe", "\\\\?\\C:\\long\\nvcc.exe"),
        ("D:\\", "ä\\b.obj", "D:\\ä\\b.obj"),
        ("/build", "", "/build"),
    ],
)
def test_joined_as_the_machine_would(folder: str, path: str, expected: str) -> None:
    assert quoting.join_foreign_paths(folder, path) == expected


@pytest.mark.parametrize("path", ["C:\\x", "c:/x", "\\\\server\\share", "\\\\?\\C:\\x"])
def test_only_windows_has_such_paths(path: str) -> None:
    assert quoting.is_of_windows(path)


@pytest.mark.parametrize("path", ["/usr", "x", "x/y", "C:x", "a:b", "\\x", ""])
def test_either_system_may_have_such_paths(path: str) -> None:
    assert not quoting.is_of_windows(path)
