"""Compilers for another processor: which is taken, and what is made of Debian's packages."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.errors import NoHostCompilerError, ToolError, UnavailableError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.machine.world import World
from cuwheel.support import process
from cuwheel.support.process import Completed
from cuwheel.toolchains import archives, cross, provide, providers, workplace
from cuwheel.toolchains.providers import debian, index
from cuwheel.toolchains.request import ToolchainRequest
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import Archive, HostCompiler, Installed, Recipe, Wanted
from cuwheel.toolchains.workplace import Surroundings
from cuwheel_core.facts import toolkits, versions
from tests.fixtures import systems

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = systems.posix("builds nothing for other processors: nvcc's parts for arm64 are Linux's")
WANTED = Wanted(
    toolkit=toolkits.find_toolkit("13.2"),
    components=toolchain_parts.with_base([]),
    providers=("index",),
    cpu="x86_64",
    target="aarch64",
)
NAME = "aarch64-linux-gnu-g++"


def machine(root: Path, programs: dict[str, tuple[str, str, str]], glibc: str = "2.36", **environ: str) -> World:
    """A machine with these compilers: name → version, what it compiles for, and the glibc that it links with."""
    folder = root / "usr" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in programs:
        (folder / name).write_text("")
        (folder / name).chmod(0o755)

    def run(command: Sequence[str | Path], **_options: Any) -> Completed:
        name = Path(command[0]).name
        if name not in programs:
            raise ToolError([name], "is not there")
        version, target, library = programs[name]
        if "-E" in command:
            major, _, minor = library.partition(".")
            said = f"#define __GLIBC__ {major}\n#define __GLIBC_MINOR__ {minor}\n" if library else ""
        else:
            said = target if "-dumpmachine" in command else version
        return Completed(command=tuple(map(str, command)), status=0, stdout=said, stderr="", seconds=0)

    return World(
        environ={"PATH": "/usr/bin", **environ}, cwd=root, root=root, platform="linux", run=run, libc_version=glibc
    )


def test_one_of_the_machine_is_taken(tmp_path: Path) -> None:
    here = machine(tmp_path, {NAME: ("12.2.0", "aarch64-linux-gnu", "2.36")})
    found = cross.choose_compiler(here, WANTED, None)
    assert (found.kind, found.version, found.glibc) == ("gcc", "12.2.0", "2.36")
    assert found.path.endswith(f"/usr/bin/{NAME}")


@pytest.mark.parametrize(
    ("told", "wanted", "reason"),
    [
        (("12.2.0", "x86_64-linux-gnu", "2.36"), WANTED, "compiles for x86_64-linux-gnu, not for aarch64"),
        (("12.2.0", "aarch64-linux-gnu", ""), WANTED, "has no C library for aarch64"),
        (("17.1.0", "aarch64-linux-gnu", "2.36"), WANTED, "is gcc 17.1.0, but CUDA 13.2 accepts"),
        (("12.2.0", "aarch64-linux-gnu", "2.36"), replace(WANTED, glibc="2.35"), "links with glibc 2.36"),
    ],
)
def test_why_one_of_the_machine_is_not(tmp_path: Path, told: tuple[str, str, str], wanted: Wanted, reason: str) -> None:
    with pytest.raises(NoHostCompilerError, match=reason) as caught:
        cross.choose_compiler(machine(tmp_path, {NAME: told}), wanted, None)
    assert "apt install g++-aarch64-linux-gnu" in (caught.value.hint or "")


def test_variables_of_the_native_compiler_do_not_disturb(tmp_path: Path) -> None:
    programs = {"g++": ("12.2.0", "x86_64-linux-gnu", "2.36"), NAME: ("12.2.0", "aarch64-linux-gnu", "2.36")}
    assert cross.choose_compiler(machine(tmp_path, programs, CXX="g++"), WANTED, None).path.endswith(NAME)
    with pytest.raises(NoHostCompilerError, match="not for aarch64"):  # but one that was asked for by name does
        cross.choose_compiler(machine(tmp_path, programs), WANTED, "/usr/bin/g++")


def apt(row: Any, *_: object, **_options: object) -> list[Archive]:
    versions_of = {row.packages[0]: f"{row.gcc}.0-14cross1", row.packages[1]: f"{row.glibc}-8cross1"}
    return [
        Archive(kind="deb", name=name, version=versions_of.get(name, "1"), file=f"{name}.deb", sha256="0" * 64)
        for name in row.packages
    ]


@pytest.mark.parametrize(
    ("here", "asked", "glibc"), [("2.36", None, "2.36"), ("2.36", "2.35", "2.31"), ("2.31", None, "2.31")]
)
def test_the_suite_follows_the_glibc_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, asked: str | None, glibc: str
) -> None:
    monkeypatch.setattr(debian, "packages", apt)
    around = Surroundings(machine=machine(tmp_path, {}, glibc=here), store=Store(tmp_path))
    recipe = Recipe(provider="index", cuda="13.2", release="13.2.2", platform=WANTED.platform, components=())
    made = cross.complete(recipe, replace(WANTED, glibc=asked), around, None)
    found = workplace.compiler_of(made, tmp_path)
    assert found
    assert found.glibc == glibc
    assert found.path == str(tmp_path / "compiler" / "bin" / NAME)
    assert made.identity != recipe.identity


def test_none_is_an_error_that_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "packages", apt)
    around = Surroundings(machine=machine(tmp_path, {}, glibc="2.28"), store=Store(tmp_path))
    with pytest.raises(NoHostCompilerError, match=r"bookworm(?s:.*)bullseye(?s:.*)this machine has 2\.28"):
        cross.packages_for(WANTED, around, [])


def test_a_lower_glibc_than_there_is_takes_the_lowest() -> None:
    lowest = min((row.glibc for row in tables().toolchains.cross), key=versions.key)
    assert cross.reachable_glibc("linux", "x86_64", "aarch64", "2.17") == lowest
    assert cross.reachable_glibc("linux", "x86_64", "aarch64", "2.39") == "2.39"
    assert cross.reachable_glibc("linux", "x86_64", "aarch64", None) is None


def test_other_pairs_are_refused() -> None:
    with pytest.raises(UnavailableError, match="for x86_64 on aarch64 is not supported, only for aarch64 on x86_64"):
        cross.rows_for("aarch64", "x86_64")
    with pytest.raises(UnavailableError, match="on Windows"):
        cross.reachable_glibc("windows", "x86_64", "aarch64", None)


def test_programs_are_of_one_processor_and_libraries_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(requirements: Sequence[str], *, cpu: str | None = None, **_: object) -> tuple[Archive, ...]:
        names = ["nvidia-cuda-nvcc", "nvidia-cuda-runtime"] if "nvcc" in requirements[0] else ["nvidia-cuda-runtime"]
        return tuple(
            Archive(kind="wheel", name=name, version="1", file=f"{name}_{cpu}.whl", sha256="0" * 64) for name in names
        )

    monkeypatch.setattr(archives, "resolve_wheels", resolve)
    around = Surroundings(machine=machine(tmp_path, {}), store=Store(tmp_path))
    made = index.decide(WANTED, around)
    assert {each.name: each.file for each in made.archives} == {
        "nvidia-cuda-nvcc": "nvidia-cuda-nvcc_None.whl",
        "nvidia-cuda-runtime": "nvidia-cuda-runtime_aarch64.whl",
    }
    assert made.platform == "linux-x86_64-aarch64"
    installed = made.installed(folder=tmp_path, root=tmp_path, version="13.2.86", size=0)
    assert installed.target == "aarch64"


def test_providers_that_have_one_processor_say_so(tmp_path: Path) -> None:
    around = Surroundings(machine=machine(tmp_path, {}), store=Store(tmp_path))
    wanted = replace(WANTED, providers=("system", "conda"))
    with pytest.raises(
        UnavailableError, match=r"for aarch64:\n  - system: no toolkit was found.*\n  - conda: is not for"
    ):
        providers.decide(wanted, around, lambda _: None)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("asked", "taken"), [(None, "12.2.0"), ("2.36", "12.2.0"), ("2.35", "10.2.1")])
def test_which_compiler_is_taken_does_not_depend_on_what_was_built_before(
    asked: str | None, taken: str, order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that are installed and serve, the newer."""

    def installed(version: str, glibc: str) -> Installed:
        return Installed(
            identity=version,
            provider="index",
            cuda="13.2",
            release="13.2.2",
            version="13.2.86",
            platform="linux-x86_64-aarch64",
            components=tuple(row.name for row in WANTED.components),
            folder=str(tmp_path),
            root=str(tmp_path),
            size=0,
            host_compiler=HostCompiler(kind="gcc", version=version, path=NAME, found_via="", glibc=glibc),
        )

    both = (installed("12.2.0", "2.36"), installed("10.2.1", "2.31"))
    around = Surroundings(machine=machine(tmp_path, {}), store=Store(tmp_path))
    around.machine.cpu = "x86_64"
    monkeypatch.setattr(Surroundings, "here", lambda _store: around)
    monkeypatch.setattr(Store, "all", lambda _self: both[::order])
    request = ToolchainRequest("13.2", cpu="aarch64", glibc=asked, cache=tmp_path, providers=("index",))
    chosen = provide.decide(request).chosen
    assert isinstance(chosen, Installed)
    assert chosen.identity == taken


class TestPython:
    """One of another processor, of a suite whose packages have all below usr, or not."""

    def brought(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[str], *lacking: str
    ) -> tuple[Path, list[str]]:
        row = next(each for each in tables().toolchains.emulated if each.suite == "trixie")
        asked = []

        def packages(row: Any, cpu: str, *_: object, **_options: object) -> list[Archive]:
            asked.append(cpu)
            kept = [each for each in row.packages if each not in lacking]
            return [Archive(kind="deb", name=each, version="1", file=each, sha256="0" * 64) for each in kept]

        def unpack(archive: Archive, _path: Path, root: Path) -> None:
            assert archive.kind == "compiler", "as it is: not where a toolkit has it"
            for name in names:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("")

        monkeypatch.setattr(debian, "packages", packages)
        monkeypatch.setattr(archives, "obtain_archives", lambda found, _: [tmp_path for _ in found])
        monkeypatch.setattr(archives, "unpack", unpack)
        around = Surroundings(machine=machine(tmp_path, {}), store=Store(tmp_path / "store"))
        made = cross.python_root(row, around)
        assert cross.python_root(row, around) == made
        return made, asked

    def test_it_is_made_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root, asked = self.brought(tmp_path, monkeypatch, ["usr/bin/python3.13", "usr/lib/ld-linux-aarch64.so.1"])
        assert asked == ["aarch64"]
        assert root == tmp_path / "store" / "roots" / "python3.13-aarch64"
        assert (root / "lib" / "ld-linux-aarch64.so.1").is_file(), "where programs of that processor look for it"

    def test_folders_of_older_suites_stay(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root, _ = self.brought(tmp_path, monkeypatch, ["usr/bin/python3.9", "lib/ld-linux-aarch64.so.1"])
        assert not (root / "lib").is_symlink()

    def test_half_of_it_is_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UnavailableError, match=r"Debian trixie has no python3\.13"):
            self.brought(tmp_path, monkeypatch, ["usr/bin/x"], "python3.13")
        assert not list((tmp_path / "store" / "roots").iterdir())


def test_unpacked_programs_find_what_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, final = tmp_path / "scratch", tmp_path / "final"
    script = "/* GNU ld script */\nGROUP ( /usr/aarch64-linux-gnu/lib/libc.so.6 )\n"
    for name, text in {
        "usr/aarch64-linux-gnu/lib/libc.so": script,
        "usr/bin/aarch64-linux-gnu-g++-12": "",
        "usr/bin/aarch64-linux-gnu-ld": "",
        "usr/lib/x86_64-linux-gnu/libisl.so.23": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    asked: list[Path] = []
    monkeypatch.setattr(process, "run", lambda command, **_: asked.append(command[0]))
    workplace.arrange_compiler(root, final)
    assert "GROUP ( libc.so.6 )" in (root / "usr/aarch64-linux-gnu/lib/libc.so").read_text()
    names = {each.name for each in (root / "bin").iterdir()}
    assert names == {NAME, f"{NAME}-12", "aarch64-linux-gnu-ld"}
    text = (root / "bin" / NAME).read_text()
    assert f"'{final}/usr/bin/{NAME}-12' \"$@\"" in text
    assert f"LD_LIBRARY_PATH='{final}/usr/lib/x86_64-linux-gnu'" in text
    assert (root / "bin" / NAME).stat().st_mode & stat.S_IXUSR
    assert asked == [root / "usr" / "bin" / f"{NAME}-12"]
