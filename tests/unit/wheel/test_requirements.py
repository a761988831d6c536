from __future__ import annotations

import pytest

from cuwheel.wheel.requirements import brought, parse


def test_what_an_installer_brings_is_what_holds_on_the_machine() -> None:
    requires = (
        "torch (==2.4.0)",
        "nvidia-cublas-cu12==12.4.5.8; platform_system == 'Linux' and platform_machine == 'x86_64'",
        "pywin32; sys_platform == 'win32'",
        "triton==3.0.0; python_version < '3.13'",
        'cupy-cuda12x; extra == "cuda"',
        "Numpy>=2",
        "not a requirement",
    )
    assert brought(requires, python="3.12.4") == {
        "torch": "2.4.0",
        "nvidia-cublas-cu12": "12.4.5.8",
        "triton": "3.0.0",
        "numpy": None,
    }
    assert "pywin32" in brought(requires, system="windows", cpu="amd64")
    assert "nvidia-cublas-cu12" not in brought(requires, cpu="aarch64")
    assert "triton" not in brought(requires, python="3.13.1")


@pytest.mark.parametrize("text", ["", "a;", "((((", "a; " + "(" * 5000 + "os_name == 'posix'", "\0"])
def test_what_is_no_requirement(text: str) -> None:
    assert parse(text) is None
