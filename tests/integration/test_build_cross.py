"""The examples, built for arm64 on x86-64 for real, and loaded by qemu where it is installed."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from cuwheel import api
from cuwheel.machine import fleet
from cuwheel.support import process
from tests.integration import build_world as world
from tests.integration.build_world import World

pytestmark = [
    pytest.mark.download,  # 8 MB of arm64 libraries, 54 MB of Debian's compiler, 166 MB of the older one; a Python
    pytest.mark.skipif(fleet.cpu_here() != "x86_64", reason="arm64 is compiled for on x86-64"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the compiler is of Debian's packages"),
]
UNNAMED = re.compile(rb"(_GLOBAL__N__)[0-9a-f]{8}(?=_)")
LOADS = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    int (*version)(void) = (int (*)(void)) dlsym(library, words[2]);
    return version ? !printf("%d\n", version()) : 2;
}
"""


def qemu() -> str | None:
    return shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


def loaded(toolkit: Path, wheel: Path, folder: Path) -> str:
    """What its library says of itself in a process of the other processor."""
    compiler = toolkit / "compiler"
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)
    (library,) = folder.rglob("libscikit_kernel.so")
    (folder / "loads.c").write_text(LOADS)
    gcc = compiler / "bin" / "aarch64-linux-gnu-gcc"
    process.run([gcc, folder / "loads.c", "-o", folder / "loads", "-ldl"], timeout=world.MINUTES)
    root = compiler / "usr" / "aarch64-linux-gnu"
    words = [str(qemu()), "-L", *map(str, (root, folder / "loads", library)), "scikit_kernel_version"]
    return process.run(words, timeout=world.MINUTES).stdout.strip()


@pytest.mark.parametrize(("glibc", "compiler"), [(None, "12.2.0"), ("2.31", "10.2.1")])
def test_a_library_for_every_python(tmp_path: Path, glibc: str | None, compiler: str) -> None:
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64", glibc=glibc)
    ceiling = ["--set", f"gate.glibc={glibc}"] if glibc else []
    told = here.build(here.project("scikit_kernel"), "--cpu", "aarch64", "--for", "gh200,9.0", *ceiling)
    assert told.status == 0, told.all
    (job,) = told.document["jobs"]
    wheel = Path(job["wheel"]["path"])
    assert wheel.name.startswith("scikit_kernel-1.0+cu130-py3-none-manylinux")
    assert wheel.name.endswith("_aarch64.whl")
    (library,) = api.inspect(wheel).libraries
    assert library.machine == "aarch64"
    assert {row.arch for row in library.device_code} == {"sm_90"}
    assert job["tools"]["host_compiler"]["version"] == compiler
    (verdict,) = api.check(wheel, on=["gh200"]).verdicts
    assert verdict.outcome == "native"
    if glibc:
        assert library.glibc
        assert [int(each) for each in library.glibc.split(".")] <= [2, 31]
    if qemu():
        assert loaded(Path(job["tools"]["root"]).parent, wheel, tmp_path / "loaded") == "1"


def test_an_extension_module(tmp_path: Path) -> None:
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64")
    told = here.build(here.project("setuptools_nvcc"), "--cpu", "aarch64", "--for", "gh200", "--cuda", "13.0")
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    assert wheel.name.startswith("setuptools_nvcc-1.0+cu130-cp310-abi3-manylinux_2_")
    (library,) = api.inspect(wheel).libraries
    assert (library.machine, library.path) == ("aarch64", "setuptools_nvcc/_kernel.abi3.so")


MODULE = """
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
python_add_library(_own MODULE own.c WITH_SOABI)
install(TARGETS _own LIBRARY DESTINATION scikit_kernel)
"""
OWN = """
#include <Python.h>
static struct PyModuleDef own = {PyModuleDef_HEAD_INIT, "_own"};
PyMODINIT_FUNC PyInit__own(void) { return PyModule_Create(&own); }
"""


def test_a_module_of_cmake_has_the_other_processors_suffix(tmp_path: Path) -> None:
    """CMake asks no interpreter for it while it compiles for another processor; this one is imported, and says it."""
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64")
    source = here.project("scikit_kernel")
    lists, project = source / "CMakeLists.txt", source / "pyproject.toml"
    lists.write_text(lists.read_text().replace("LANGUAGES CXX", "LANGUAGES C CXX") + MODULE)
    (source / "own.c").write_text(OWN)
    project.write_text(
        re.sub(r"wheel\.py-api.*", "", project.read_text()).replace('"version 1"', '"aarch64-linux-gnu.so"')
    )
    calls = "import scikit_kernel._own; print(scikit_kernel._own.__file__)"
    project.write_text(
        re.sub(r'python = "import scikit_kernel; print\(.version.*', f'python = "{calls}"', project.read_text())
    )
    told = here.build(source, "--cpu", "aarch64", "--for", "gh200")
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    with zipfile.ZipFile(wheel) as opened:
        (module,) = (each for each in opened.namelist() if "/_own" in each)
    assert module.endswith("-aarch64-linux-gnu.so")
    if qemu() and module.startswith("scikit_kernel/_own.cpython-311-"):
        told = here.cuwheel("verify", wheel, "--config", project, "--json")
        assert told.status == 0, told.all


def test_a_compiler_that_is_called_by_name_is_found_out(tmp_path: Path) -> None:
    """It compiles for this machine, whatever the build is for."""
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64")
    source = here.project("scikit_kernel")
    project = source / "pyproject.toml"
    call = 'before = ["echo | gcc -shared -x c - -o src/scikit_kernel/libother.so"]\n'
    project.write_text(project.read_text().replace("[tool.cuwheel]\n", f"[tool.cuwheel]\n{call}"))
    told = here.build(source, "--cpu", "aarch64", "--for", "gh200")
    assert told.status == 1, told.all
    (job,) = told.document["jobs"]
    assert job["outcome"] == "refused", job["failure"]
    assert "wrong-processor" in {each["rule"] for each in job["findings"]}
    assert world.wheels(here.out) == []


@pytest.mark.skipif(qemu() is None, reason="it is loaded by qemu-aarch64")
def test_it_is_verified_under_qemu(tmp_path: Path) -> None:
    """With Debian's Python, that comes along. Its own check without a GPU is run there, and the others wait for one."""
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64")
    source = here.project("scikit_kernel")
    told = here.build(source, "--cpu", "aarch64", "--for", "gh200")
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    project = source / "pyproject.toml"
    words = ("verify", wheel, "--config", project, "--json")
    told = here.cuwheel(*words)
    assert told.status == 0, told.all
    (installation,) = told.document["wheels"][0]["installations"]
    assert installation["emulator"].startswith("qemu-aarch64")
    assert installation["python"].startswith("3.11.")
    outcomes = {each["name"]: each["outcome"] for each in installation["checks"]}
    assert outcomes["the library loads where there is no GPU"] == "passed"
    assert outcomes["the sum of the first thousand squares"] == "skipped"
    assert not any(each["rule"] == "library-does-not-load" for each in installation["findings"])
    project.write_text(project.read_text().replace('"version 1"', '"version 2"'))
    # With the root file system that is there now, as with that of a board.
    told = here.cuwheel(*words, "--sysroot", here.store / "roots" / "python3.11-aarch64")
    assert told.status == 1, "what the library said of itself came from the library"


def device_code(wheel: Path) -> dict[str, list[bytes]]:
    """Of each architecture, header and all."""
    (library,) = api.inspect(wheel, entries=True).libraries
    with zipfile.ZipFile(wheel) as opened:
        data = opened.read(library.path)
    found: dict[str, list[bytes]] = {}
    for each in library.entries:
        entry = data[each.offset : each.offset + each.header_size + each.bytes]
        found.setdefault(str(each.arch), []).append(entry)
    return found


@pytest.mark.parametrize("is_named", [True, False])
def test_what_is_grafted_in_is_what_a_build_with_it_has(tmp_path: Path, *, is_named: bool) -> None:
    """Byte for byte; but a namespace without a name is called after the folder of the build, a hash of eight digits."""
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64")
    source = here.project("scikit_kernel")
    for each in source.rglob("*.cu"):
        named = each.read_text().replace("namespace {", "namespace kernels {") + "\n"
        each.write_text(
            named.replace("}  // namespace\n", "}\nusing namespace kernels;\n") if is_named else each.read_text()
        )
    made = {}
    for machines in ("8.0,9.0", "8.0,8.7,9.0"):
        words = ("--cpu", "aarch64", "--for", machines, "--set", "plan.native=true")
        told = here.build(source, *words)
        assert told.status == 0, told.all
        made[machines] = tmp_path / machines / Path(told.document["jobs"][0]["wheel"]["path"]).name
        shutil.move(here.out, tmp_path / machines)
    base, whole = made.values()
    told = here.cuwheel("graft", base, "--add", "sm_87", "--source", source, "-o", tmp_path / "more", "--json")
    assert told.status == 0, told.all
    assert "graft-not-for-l4t" in told.stdout, "CUDA 13.0 is older than what an Orin shares with servers"
    (more,) = (tmp_path / "more").glob("*.whl")
    grafted, built = device_code(more), device_code(whole)
    assert list(grafted) == ["sm_80", "sm_87", "sm_90"]
    if not is_named:
        assert grafted["sm_87"] != built["sm_87"]
        grafted, built = (
            {arch: [UNNAMED.sub(rb"\1", each) for each in entries] for arch, entries in found.items()}
            for found in (grafted, built)
        )
    assert grafted == built


def test_with_the_libraries_of_a_toolkit_that_is_here(tmp_path: Path) -> None:
    """Of JetPack 7 as a board has it: its nvcc does not run here, its headers and libraries are linked with."""
    shared = world.toolkit("13.0", cpu="aarch64") / "root"
    root = tmp_path / "usr" / "local" / "cuda-13.0"
    target = root / "targets" / "sbsa-linux"
    for name in ("include", "lib"):
        shutil.copytree(shared / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("libnvvm*"))
        (root / name).symlink_to(target / name)
    (root / "bin").mkdir()
    (root / "bin" / "nvcc").write_bytes(b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + (183).to_bytes(2, "little"))
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    here = World(folder=tmp_path).with_toolkits("13.0", cpu="aarch64")
    words = ("--cpu", "aarch64", "--for", "gh200", "--cuda", "13.0")
    told = here.build(here.project("scikit_kernel"), *words, provider=f"system={root}")
    assert told.status == 0, told.all
    (job,) = told.document["jobs"]
    assert job["tools"]["provider"] == "system"
    made = Path(job["tools"]["root"])
    assert (made / "lib").resolve() == target / "lib"
    (wheel,) = world.wheels(here.out)
    (library,) = api.inspect(wheel).libraries
    assert library.machine == "aarch64"
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before, "nothing of the user's is touched"
    if qemu():
        compiler = world.toolkit("13.0", cpu="aarch64")
        assert loaded(compiler, wheel, tmp_path / "loaded") == "1"
