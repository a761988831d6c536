"""What a team met that needed a wheel for its own mix of versions: each happens on purpose, and `build` avoids each.

The avoidance is switched off where it can be: by letting the caller's variables in (`pass-through`), or by setting them
in the configuration. Then the failure is the documented one, and its cause is named.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.toolchains.toolchain import apply_settings
from tests.fixtures import cache
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from tests.integration.build_world import World

# As bitsandbytes' CMakeLists says it.
ASKS_FOR_ITS_VERSION = """\
cmake_minimum_required(VERSION 3.22)
project(asking LANGUAGES CXX CUDA)
string(REGEX MATCH "^[0-9]+.[0-9]+" FOUND "${CMAKE_CUDA_COMPILER_VERSION}")
string(REPLACE "." "" FOUND "${FOUND}")
if(NOT "$ENV{WANTED}" STREQUAL "${FOUND}")
    message(FATAL_ERROR "You've specified CUDA version $ENV{WANTED} however the CUDA compiler found is ${FOUND}."
        " Ensure the desired CUDA compiler is the first one available on your PATH.")
endif()
add_library(asking SHARED kernel.cu)
install(TARGETS asking LIBRARY DESTINATION asking)
"""
ASKING = """\
[build-system]
requires = ["scikit-build-core>=0.10"]
build-backend = "scikit_build_core.build"

[project]
name = "asking"
version = "1.0"

[tool.scikit-build]
wheel.py-api = "py3"

[tool.cuwheel]
for = ["h100"]
cuda = ["13.0"]

[tool.cuwheel.environment]
WANTED = "{cuda_digits}"
"""
# A kernel that starts a kernel: linked by nvlink, with the toolkit's libcudadevrt.
NESTED = """\
__global__ void child(float *x) { x[threadIdx.x] *= 2; }
__global__ void parent(float *x) { child<<<1, 1>>>(x); }
extern "C" int run(float *x) { parent<<<1, 1>>>(x); return 0; }
"""


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path)


def failed(document: Any) -> tuple[str, list[str]]:
    """What a build's only job says of its end, and the causes that are named."""
    (job,) = document["jobs"]
    assert job["outcome"] == "failed", job
    return job["failure"]["output"], [cause["id"] for cause in job["failure"]["causes"]]


def asking(folder: Path, environment: str = "") -> Path:
    place = folder / "asking"
    place.mkdir()
    (place / "CMakeLists.txt").write_text(ASKS_FOR_ITS_VERSION)
    (place / "kernel.cu").write_text(world.KERNEL)
    (place / "pyproject.toml").write_text(ASKING + environment)
    return place


def led_astray(version: str) -> dict[str, str]:
    """The variables of somebody whose shell is set up for another toolkit."""
    made = api.toolchain(version, providers=["index"], cache=cache.folder() / "store")
    return apply_settings(made.settings, world.bare())


def test_a_wrong_nvcc_first_on_path(here: World) -> None:
    """PATH, CUDA_HOME, CUDACXX: all of them name 13.4, and 13.0 was asked for."""
    here.with_toolkits("13.0")
    astray = led_astray("13.4")
    assert "13.4" in str(shutil.which("nvcc", path=astray["PATH"]))
    told = here.build(asking(here.folder), env=astray)
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    assert api.inspect(wheel).libraries[0].toolkits == ("13.0",)


def test_a_wrong_nvcc_that_the_configuration_insists_on(here: World) -> None:
    """Then CMake picks it up, and says what the team read."""
    here.with_toolkits("13.0")
    root = led_astray("13.4")["CUDA_HOME"]
    told = here.build(asking(here.folder, f'CUDACXX = "{root}/bin/nvcc"\n'))
    assert told.status == 1, told.all
    output, causes = failed(told.document)
    assert causes[:1] == ["wrong-nvcc-picked-up"], output
    assert "You've specified CUDA version 130 however the CUDA compiler found is 134" in told.all
    assert world.wheels(here.out) == []


def test_a_wrong_nvcc_that_nobody_asks_about(here: World) -> None:
    """A build system with a compiler of its own choice: it compiles, and the gate sees by whom."""
    here.with_toolkits("13.0")
    other = led_astray("13.4")["CUDA_HOME"]
    source = projects.bare(here.folder / "source", in_cpp=True)
    backend = source / "own_backend.py"
    backend.write_text(backend.read_text().replace('os.environ["CUDACXX"]', f'"{other}/bin/nvcc"'))
    told = here.build(source)
    assert told.status == 1, told.all
    (job,) = told.document["jobs"]
    assert job["outcome"] == "refused"
    assert any("13.4" in json.dumps(each) for each in job["findings"]), job["findings"]


@pytest.mark.download
@pytest.mark.slow
class TestNvlinkOlderThanItsArchives:
    def astray(self) -> dict[str, str]:
        """A newer toolkit's libraries before the toolkit's own, by a variable that nvcc heeds."""
        newer = world.toolkit("13.0") / "root" / "lib"
        return {"NVCC_APPEND_FLAGS": f"-L{newer}"}

    def source(self, here: World, settings: str = "") -> Path:
        return world.tiny(here.folder, kernel=NESTED, options='"-rdc=true", ', settings=settings)

    def test_avoided(self, here: World) -> None:
        here.with_toolkits("12.4", provider="debian")
        told = here.build(self.source(here), "--cuda", "12.4", provider="debian", env=self.astray())
        assert told.status == 0, told.all
        (wheel,) = world.wheels(here.out)
        assert "sm_90" in world.architectures(wheel)

    def test_not_avoided(self, here: World) -> None:
        here.with_toolkits("12.4", provider="debian")
        source = self.source(here, 'pass-through = ["NVCC_APPEND_FLAGS"]')
        told = here.build(source, "--cuda", "12.4", provider="debian", env=self.astray())
        assert told.status == 1, told.all
        output, causes = failed(told.document)
        assert "Uncompress failed" in output
        assert causes[:1] == ["nvlink-uncompress-failed"]


def gcc_11() -> Path:
    """Debian's, unpacked without root beside the system's newer one."""
    names = ("g++-11", "gcc-11", "cpp-11", "gcc-11-base", "libgcc-11-dev", "libstdc++-11-dev")
    try:
        top = cache.made("toolkits/gcc-11", lambda target: cache.unpack_debian(target, "bookworm", names))
    except cache.UnavailableError as error:
        pytest.skip(str(error))
    return top / "usr" / "bin" / "g++-11"


def too_new() -> str:
    """A GCC on this machine that CUDA 11.8 does not take."""
    found = next((path for n in range(12, 20) if (path := shutil.which(f"g++-{n}"))), None)
    if found is None:
        pytest.skip("this machine has no GCC later than 11")
    return found


@pytest.mark.download
@pytest.mark.slow
class TestHostCompilerTooNew:
    def test_none_that_fits_is_here(self, here: World) -> None:
        """Said before anything is built, with the command that installs one."""
        too_new()
        here.with_toolkits("11.8", provider="debian", host_compiler="")
        told = here.build(world.tiny(here.folder), "--cuda", "11.8", provider="debian")
        assert told.status == 12, told.all
        assert "but CUDA 11.8 accepts up to 11" in told.stderr
        assert "apt install g++-11" in told.stderr
        assert world.wheels(here.out) == []

    def test_one_that_fits_is_chosen(self, here: World) -> None:
        """Though `g++` is the newer one, and the caller's variables name that too."""
        newer, older = too_new(), gcc_11()
        here.with_toolkits("11.8", provider="debian", host_compiler="")
        wrong = {"CXX": newer, "CUDAHOSTCXX": newer, "NVCC_CCBIN": newer}
        wrong["PATH"] = f"{world.bare()['PATH']}:{older.parent}"
        told = here.build(world.tiny(here.folder), "--cuda", "11.8", provider="debian", env=wrong)
        assert told.status == 0, told.all
        (job,) = told.document["jobs"]
        assert job["tools"]["host_compiler"]["version"].startswith("11.")
        assert api.inspect(Path(job["wheel"]["path"])).libraries[0].toolkits == ("11.8",)

    def test_not_avoided(self, here: World) -> None:
        """A configuration that insists on the newer one gets what the team got."""
        newer, older = too_new(), gcc_11()
        here.with_toolkits("11.8", provider="debian", host_compiler="")
        source = world.tiny(here.folder, environment=f'NVCC_PREPEND_FLAGS = "-ccbin {newer}"')
        told = here.build(source, "--cuda", "11.8", "--host-compiler", older, provider="debian")
        assert told.status == 1, told.all
        output, causes = failed(told.document)
        assert "unsupported GNU version! gcc versions later than 11 are not supported!" in output
        assert causes[:1] == ["host-compiler-too-new"]
