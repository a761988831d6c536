"""The example of several libraries: built, repaired, and installed where only the index's packages of CUDA are.

No LD_LIBRARY_PATH, no toolkit and no driver: what is found is what the wheel's own search paths lead to.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.device_code.survey import survey
from cuwheel.device_code.target import wheel_of
from cuwheel.errors import ToolError
from cuwheel.network import venvs
from cuwheel.support import process
from tests.fixtures import compiled
from tests.fixtures.wheels import wheel
from tests.integration.build_world import World, toolkit

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="builds for x86-64 Linux"
)
BIN = Path(__file__).parents[1] / "fixtures" / "bin"
MINUTE = 60.0


def bare_environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "CUDA", "NV"))}


def environment(folder: Path, requirements: Sequence[str | Path]) -> Path:
    """A fresh one with these and what they require, from the index; skipped where that has them not."""
    python = venvs.make(folder, venvs.find_python())
    try:
        venvs.install(python, requirements)
    except ToolError as error:
        pytest.skip(f"the index does not have them: {error.message.splitlines()[-1]}")
    return python


def places(library: Path) -> dict[str, str]:
    """Soname → the file that the loader takes, as ldd tells; all that are needed, of needed ones too."""
    told = process.run(["ldd", library], timeout=MINUTE, env=bare_environ()).stdout
    return dict(re.findall(r"(\S+) => (.+?)(?: \(0x|$)", told, re.MULTILINE))


def of_nvidia(found: dict[str, str]) -> dict[str, str]:
    return {soname: place for soname, place in found.items() if re.match(r"lib(cu|nv)", soname)}


def test_a_library_of_nvcc_finds_the_indexs_runtime(tmp_path: Path) -> None:
    original = wheel(
        tmp_path / "dist", {"pkg/__init__.py": b"", "pkg/a/libplain.so": (BIN / "plain-130.so").read_bytes()}
    )
    made = api.repair(original, output=tmp_path / "to", requires=True).wheels[0].output
    assert made
    # The fixture says that it is for one Python; what matters is where it finds things.
    renamed = Path(made).with_name(Path(made).name.replace("cp311-cp311", "py3-none"))
    Path(made).rename(renamed)
    python = environment(tmp_path / "env", [renamed])
    library = next((tmp_path / "env").glob("lib/python3*/site-packages/pkg/a/libplain.so"))
    site = library.parents[2]
    assert of_nvidia(places(library)) == {"libcudart.so.13": f"{library.parent}/../../nvidia/cu13/lib/libcudart.so.13"}
    assert (site / "nvidia/cu13/lib/libcudart.so.13").is_file()
    code = f"import ctypes; ctypes.CDLL({str(library)!r}); print('loaded')"
    assert process.run([python, "-c", code], timeout=MINUTE, env=bare_environ()).stdout == "loaded\n"


def built(tmp_path: Path, components: Sequence[str]) -> Path:
    world = World(folder=tmp_path)
    world.link(toolkit("13.0", *components))
    project = world.project("several_libraries")
    settings = project / "pyproject.toml"
    told = ", ".join(f'"{each}"' for each in components)
    settings.write_text(
        re.sub(r"^components = .*$", f"components = [{told}]", settings.read_text(), flags=re.MULTILINE)
    )
    done = world.build(project, "--for", "h100")
    assert done.status == 0, done.all
    (made,) = world.out.glob("*.whl")
    return made


def check_example(made: Path, folder: Path) -> dict[str, str]:
    """Installed apart, every library of it finds NVIDIA's in the environment; the versions that they tell."""
    assert "-manylinux" in made.name
    assert made.stat().st_size < 100_000
    for library in survey(str(made)).libraries:
        assert not re.match(r"lib(cu|nv)", Path(library.path).name)
        assert all(each.startswith("$ORIGIN") for each in (*library.rpath, *library.runpath))
    python = environment(folder, [made])
    libraries = sorted(folder.glob("lib/python3*/site-packages/several_libraries/lib/*.so"))
    for each in libraries:
        found = places(each)
        assert "not found" not in found.values(), found
        assert of_nvidia(found)
        assert all(Path(place).resolve().is_relative_to(folder.resolve()) for place in of_nvidia(found).values())
    assert venvs.conflicts(python) == ()
    told = process.run([python, "-m", "several_libraries"], timeout=MINUTE, env=bare_environ(), cwd=folder).stdout
    return dict(line.split() for line in told.splitlines())


@pytest.mark.slow
def test_the_example_with_the_runtime_alone(tmp_path: Path) -> None:
    versions = check_example(built(tmp_path, []), tmp_path / "env")
    assert versions.keys() == {"cudart"}
    assert versions["cudart"].startswith("13.")


@pytest.mark.download
def test_the_example_with_what_case_5_links_with(tmp_path: Path) -> None:
    made = built(tmp_path, ["cublas", "cusolver", "cudnn"])
    told = api.repair(made, dry_run=True, libraries=[toolkit("13.0", "cublas", "cusolver", "cudnn") / "root"]).wheels[0]
    assert told.outcome == "unchanged"
    assert told.bundled > 10_000 * made.stat().st_size  # a gigabyte
    assert made.name.endswith("manylinux_2_27_x86_64.whl")  # what cuBLAS itself needs
    versions = check_example(made, tmp_path / "env")
    assert {name: version.split(".")[0] for name, version in versions.items()} == {
        "cudart": "13",
        "cublas": "13",
        "cusolver": "12",
        "cudnn": "9",
    }


@pytest.mark.download
def test_jaxmg_of_the_index(tmp_path: Path) -> None:
    """Case 5's own wheel: two CUDA majors in one, its search paths right, one of its tags too low."""
    wheel = wheel_of("jaxmg==1.1.1", platform="manylinux_2_28_x86_64")
    answer = api.repair(wheel, output=tmp_path, dry_run=True)
    (told,) = answer.wheels
    assert told.tags == ("manylinux_2_28_x86_64",)
    assert [each.rule for each in told.findings] == ["tag-too-low"]
    assert not any(each.changes for each in told.paths)
    kept = {each.soname for each in told.libraries if each.fate == "kept-out" and not each.indirect}
    assert {"libcusolver.so.11", "libcusolver.so.12", "libcusolverMp.so.0", "libcuda.so.1"} <= kept
    assert not [each for each in told.libraries if each.fate in ("grafted", "missing")]


_CALLER = """\
int cusolverGetProperty(int, int *);
int cusolverMgCreate(void **);
int cublasGetProperty(int, int *);
int cudaRuntimeGetVersion(int *);
int versions(int *runtime, int *cublas, int *cusolver) {
    return cudaRuntimeGetVersion(runtime) || cublasGetProperty(0, cublas) || cusolverGetProperty(0, cusolver);
}
void *never(void) { return cusolverMgCreate; }
"""


@pytest.mark.download
def test_cuda_12_whose_packages_have_a_folder_each(tmp_path: Path) -> None:
    """What case 5 ships: linked with CUDA 12's cuSOLVER, which is libcusolver.so.11, deep in the package."""
    if (compiler := compiled.compiler()) is None:
        pytest.skip("needs a C compiler")
    names = ("libcusolver.so.11", "libcusolverMg.so.11", "libcublas.so.12", "libcudart.so.12")
    environment(tmp_path / "build", ["nvidia-cusolver-cu12==11.7.3.90", "nvidia-cuda-runtime-cu12==12.8.90"])
    site = next((tmp_path / "build").glob("lib/python3*/site-packages"))
    source, library = tmp_path / "caller.c", tmp_path / "libcaller.so"
    source.write_text(_CALLER)
    found = [next(site.glob(f"nvidia/*/lib/{each}")) for each in names]
    command: list[str | Path] = [compiler, "-shared", "-fPIC", source, "-o", library, "-Wl,--no-as-needed", *found]
    process.run([*command, *(f"-Wl,-rpath,{each.parent}" for each in found)], timeout=MINUTE)
    original = wheel(tmp_path / "dist", {"pkg/__init__.py": b"", "pkg/a/b/libcaller.so": library.read_bytes()})
    folders = [each.parent for each in found]
    (done,) = api.repair(original, output=tmp_path / "to", libraries=folders, requires=True, cuda="12.8").wheels
    (cublas,) = (each.name.split("-")[1] for each in site.glob("nvidia_cublas_cu12-*.dist-info"))
    assert done.requires == (
        f"nvidia-cublas-cu12>={'.'.join(cublas.split('.')[:2])},<13",
        "nvidia-cuda-runtime-cu12>=12.8,<13",
        "nvidia-cusolver-cu12>=11.7,<12",
    )
    assert done.bundled > 400_000_000
    assert done.output
    made = Path(done.output).rename(tmp_path / Path(done.output).name.replace("cp311-cp311", "py3-none"))
    (tmp_path / "build").rename(tmp_path / "gone")
    python = environment(tmp_path / "env", [made])
    (installed,) = (tmp_path / "env").glob("lib/python3*/site-packages/pkg/a/b/libcaller.so")
    places_ = of_nvidia(places(installed))
    assert set(names) <= places_.keys()
    assert all(Path(each).resolve().is_relative_to((tmp_path / "env").resolve()) for each in places_.values()), places_
    code = (
        "import ctypes; told = [ctypes.c_int() for _ in range(3)]; "
        f"print(ctypes.CDLL({str(installed)!r}).versions(*map(ctypes.byref, told)), *(each.value for each in told))"
    )
    told = process.run([python, "-c", code], timeout=MINUTE, env=bare_environ()).stdout.split()
    assert told[0] == "0"
    assert [told[1][:2], *told[2:]] == ["12", "12", "11"]
