from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.errors import NoHostCompilerError, ToolError
from cuwheel.machine.world import World
from cuwheel.support.process import Completed
from cuwheel.toolchains import toolchain
from cuwheel_core.facts.toolkits import find_toolkit
from tests.unit.machine.fake import FakeMachine

if TYPE_CHECKING:
    from collections.abc import Sequence

GCC = "{name} (Debian {version}) {version}\nCopyright"
CLANG = "Debian clang version {version}\nTarget: x86_64"


def machine(root: Path, programs: dict[str, str], **environ: str) -> World:
    """A machine with these compilers: name → version, and what it prints when asked again."""
    folder = root / "usr" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in programs:
        path = folder / name
        path.write_text("")
        path.chmod(0o755)

    def run(command: Sequence[str | Path], **_options: Any) -> Completed:
        name = Path(command[0]).name
        if name not in programs:
            raise ToolError([name], "is not there")
        version, _, again = programs[name].partition(" then ")
        text = (CLANG if "clang" in name else GCC).format(name=name, version=version)
        said = text if "--version" in command else again or version
        return Completed(command=tuple(map(str, command)), status=0, stdout=said, stderr="", seconds=0)

    return World(environ={"PATH": "/usr/bin", **environ}, cwd=root, root=root, platform="linux", run=run)


@pytest.mark.parametrize(
    ("cuda", "programs", "chosen"),
    [
        ("12.2", {"g++-13": "13.2.0", "g++-12": "12.3.0", "g++-11": "11.4.0"}, "g++-12"),
        ("11.8", {"g++-13": "13.2.0", "g++-12": "12.3.0", "g++-11": "11.4.0"}, "g++-11"),
        ("13.0", {"g++-13": "13.2.0", "clang++-19": "19.1.0"}, "g++-13"),
        ("12.2", {"g++-13": "13.2.0", "clang++-15": "15.0.7"}, "clang++-15"),
    ],
)
def test_the_newest_that_fits(tmp_path: Path, cuda: str, programs: dict[str, str], chosen: str) -> None:
    found = toolchain.choose_host_compiler(machine(tmp_path, programs), find_toolkit(cuda))
    assert found.path == f"/usr/bin/{chosen}"
    assert f"PATH: {chosen}" in found.found_via


def test_what_somebody_chose_comes_first(tmp_path: Path) -> None:
    programs = {"g++-12": "12.3.0", "g++-10": "10.2.1"}
    toolkit = find_toolkit("12.2")
    found = toolchain.choose_host_compiler(machine(tmp_path, programs, NVCC_CCBIN="/usr/bin/g++-10"), toolkit)
    assert found.version == "10.2.1"
    assert toolchain.choose_host_compiler(machine(tmp_path, programs), toolkit, "/usr/bin/g++-10").version == "10.2.1"


def test_none_fits_and_how_to_get_one(tmp_path: Path) -> None:
    programs = {"g++-13": "13.2.0", "clang++-19": "19.1.0"}
    with pytest.raises(NoHostCompilerError) as caught:
        toolchain.choose_host_compiler(machine(tmp_path, programs), find_toolkit("11.8"))
    told = caught.value
    assert "/usr/bin/g++-13 is gcc 13.2.0, but CUDA 11.8 accepts up to 11" in told.message
    assert "clang 19.1.0" in told.message
    for command in ("apt install g++-11", "dnf install gcc-toolset-11-gcc-c++", "conda install -c conda-forge gxx=11"):
        assert command in told.hint


def test_a_compiler_that_was_named_and_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(NoHostCompilerError, match=r"/usr/bin/g\+\+-13 is not a compiler that nvcc 12\.2 accepts"):
        toolchain.choose_host_compiler(machine(tmp_path, {"g++-13": "13.2.0"}), find_toolkit("12.2"), "/usr/bin/g++-13")


def test_c_alone_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(NoHostCompilerError, match=r"has no C\+\+ compiler"):
        toolchain.choose_host_compiler(machine(tmp_path, {"gcc-12": "12.3.0"}), find_toolkit("12.2"))


def test_one_that_changes_its_mind(tmp_path: Path) -> None:
    with pytest.raises(NoHostCompilerError, match="reports 14 when asked again"):
        toolchain.choose_host_compiler(machine(tmp_path, {"g++-12": "12.3.0 then 14"}), find_toolkit("12.2"))


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(NoHostCompilerError, match="no compiler was found"):
        toolchain.choose_host_compiler(machine(tmp_path, {}), find_toolkit("12.2"))


def test_on_windows_it_is_visual_studios(tmp_path: Path) -> None:
    """Refused versions are named, from the table; gcc is not taken there, nor is cl.exe elsewhere."""
    studio = "C:\\Program Files\\Microsoft Visual Studio\\2022\\BuildTools\\VC\\Tools\\MSVC"
    places = {each: f"{studio}\\{each}.1\\bin\\Hostx64\\x64\\cl.exe" for each in ("14.16", "14.44", "14.50")}
    windows = FakeMachine(tmp_path, platform="win32")
    for toolset, path in places.items():
        windows.program(path, f"Compiler Version 19.{toolset[3:]}.35215 for x64")
    windows.program("C:\\msys64\\g++.exe", "g++ (Rev1) 13.2.0\n")
    windows.environ["PATH"] += ";C:\\msys64"
    chosen = toolchain.choose_host_compiler(windows.world, find_toolkit("13.0"))
    assert (chosen.kind, chosen.version, chosen.path) == ("msvc", "19.44.35215", places["14.44"])
    windows.environ["NVCC_CCBIN"] = places["14.50"]
    assert toolchain.choose_host_compiler(windows.world, find_toolkit("13.2")).version == "19.50.35215"
    with pytest.raises(NoHostCompilerError) as caught:
        toolchain.choose_host_compiler(windows.world, find_toolkit("11.8"), wanted=places["14.44"])
    assert "is MSVC 19.44.35215, but CUDA 11.8 accepts 19.10 to 19.39" in caught.value.message
    assert "accepts (MSVC 19.10 to 19.39)" in caught.value.message
    assert "Visual Studio" in caught.value.hint
