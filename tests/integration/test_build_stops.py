"""What made a build stop is shown, whoever said it: a compiler, or the build system. Probes may fail."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.build_world import World

BACKEND = """\
import subprocess

def build_wheel(folder, config_settings=None, metadata_directory=None):
    for command in {commands!r}:
        subprocess.check_call(["sh", "-c", command])
"""
PYPROJECT = """\
[build-system]
requires = [{requires}]
build-backend = "{backend}"
{path}
[project]
name = "stops"
version = "1.0"

[tool.cuwheel]
for = ["h100"]
cuda = ["13.0"]
"""
PROBES = """\
cmake_minimum_required(VERSION 3.18)
project(stops LANGUAGES CXX)
include(CheckCXXSourceCompiles)
execute_process(COMMAND ld --push-state --no-such-option --pop-state RESULT_VARIABLE ignored)
check_cxx_source_compiles("#error no\\nint main() {}" HAS_THE_THING)
"""
CMAKE = ("cmake -S . -B out -G Ninja", "cmake --build out")
CASES: dict[str, tuple[tuple[str, ...], dict[str, str], str, str]] = {
    "CMake's own message": (
        CMAKE,
        {"CMakeLists.txt": PROBES + 'if(NOT HAS_THE_THING)\n  message(FATAL_ERROR "stops needs the thing")\nendif()\n'},
        "stops needs the thing",
        "",
    ),
    "a package that CMake does not find": (
        CMAKE,
        {"CMakeLists.txt": PROBES + "find_package(NoSuchThing REQUIRED)\n"},
        "CMake Error at CMakeLists.txt:6 (find_package):",
        "",
    ),
    "ninja, a script": (
        CMAKE,
        {
            "CMakeLists.txt": PROBES
            + "add_custom_command(OUTPUT g.h COMMAND sh ${CMAKE_SOURCE_DIR}/g.sh)\n"
            + "add_custom_target(g ALL DEPENDS g.h)\n",
            "g.sh": "echo the table is empty >&2; exit 3\n",
        },
        "FAILED: ",
        "the table is empty",
    ),
    "ninja, a compiler": (
        CMAKE,
        {"CMakeLists.txt": PROBES + "add_library(x SHARED x.cpp)\n", "x.cpp": "#include <nope.h>\n"},
        "call ",
        "nope.h",
    ),
    "make, a script": (
        ("make",),
        {"Makefile": "all: g.h\ng.h:\n\tsh g.sh\n", "g.sh": "echo the table is empty >&2; exit 3\n"},
        "make: *** [Makefile:3: g.h] Error 3",
        "the table is empty",
    ),
    "make, a compiler": (
        ("make",),
        {"Makefile": "all: x.o\nx.o: x.cpp\n\tc++ -c x.cpp -o x.o\n", "x.cpp": "#include <nope.h>\n"},
        "call ",
        "nope.h",
    ),
}


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def failure(here: World, source: Path) -> Any:
    told = here.build(source)
    assert told.status == 1, told.all
    (job,) = told.document["jobs"]
    return job["failure"]


def project(here: World, files: dict[str, str], *, requires: str = "", backend: str = "own", path: str = "") -> Path:
    source = here.folder / "stops"
    source.mkdir()
    told = PYPROJECT.format(requires=requires, backend=backend, path=path)
    for name, text in {"pyproject.toml": told, "kernel.cu": world.KERNEL, **files}.items():
        (source / name).write_text(textwrap.dedent(text))
    return source


@pytest.mark.parametrize(("commands", "files", "what", "output"), CASES.values(), ids=CASES)
def test_what_made_it_stop(
    here: World, commands: tuple[str, ...], files: dict[str, str], what: str, output: str
) -> None:
    for tool in {command.split()[0] for command in commands} | ({"ninja"} if "Ninja" in str(commands) else set()):
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")
    files = {**files, "own.py": BACKEND.format(commands=commands)}
    told = failure(here, project(here, files, path='backend-path = ["."]'))
    assert what in told["what"]
    assert output in told["output"]
    assert (told["call"] is not None) == what.startswith("call")


def test_setuptools(here: World) -> None:
    raising = project(here, {"setup.py": 'raise RuntimeError("stops needs STOPS_ARCHS")\n'},
                      requires='"setuptools>=77"', backend="setuptools.build_meta")  # fmt: skip
    assert "RuntimeError: stops needs STOPS_ARCHS" in failure(here, raising)["what"]
    (raising / "setup.py").write_text(
        "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('x', ['x.c'])], py_modules=[])\n"
    )
    (raising / "x.c").write_text("#include <nope.h>\n")
    told = failure(here, raising)
    assert told["what"].startswith("call ")
    assert "nope.h" in told["output"]


def test_scikit_build_core(here: World) -> None:
    text = PROBES + 'message(FATAL_ERROR "stops needs the thing")\n'
    source = project(
        here, {"CMakeLists.txt": text}, requires='"scikit-build-core>=0.10"', backend="scikit_build_core.build"
    )
    told = failure(here, source)
    assert "stops needs the thing" in told["what"]
    assert told["call"] is None
