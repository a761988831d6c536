from __future__ import annotations

import pytest

from cuwheel.wheel.requirements import brought, parse
from cuwheel_core.errors import MalformedError
from cuwheel_core.wheel import metadata


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
    asked = ("a; platform_machine == 'AMD64'", "b; platform_machine == 'x86_64'")  # as Python says it there
    assert (brought(asked, system="windows"), brought(asked)) == ({"a": None}, {"b": None})
    assert "triton" not in brought(requires, python="3.13.1")


@pytest.mark.parametrize("text", ["", "a;", "((((", "a; " + "(" * 5000 + "os_name == 'posix'", "\0"])
def test_what_is_no_requirement(text: str) -> None:
    assert parse(text) is None


def test_a_requirement_is_parsed_once() -> None:
    text = "torch>=2; " + " or ".join(["python_version > '3'"] * 400)
    before = parse.cache_info().misses
    assert all(parse(text) is parse(text) for _ in range(20))
    assert parse.cache_info().misses == before + 1
    assert parse("torch>=2; " + " or ".join(["python_version > '3'"] * 20_000)) is None


@pytest.mark.parametrize(
    ("requires", "words"),
    [(["a>=1"] * 50_000, "50,000 requirements, of at most 5,000"), (["a" * 9000] * 200, "1,800,000 characters")],
)
def test_metadata_that_keeps_its_readers_busy(requires: list[str], words: str) -> None:
    text = "Name: demo\nVersion: 1.0\n" + "".join(f"Requires-Dist: {each}\n" for each in requires)
    with pytest.raises(MalformedError, match=f"demo: .*{words}") as caught:
        metadata.from_texts(text, "")
    assert "made to keep its readers busy" in caught.value.hint
