from __future__ import annotations

import io
import os
import random
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.building import sources
from cuwheel.errors import UsageError
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_git", lambda *_: None)


def fill(folder: Path, *names: str, text: str = "x") -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_what_builds_and_environments_leave_behind_is_no_source(tmp_path: Path) -> None:
    fill(tmp_path, "pyproject.toml", "pkg/build/__init__.py", "pkg/dist/a.py", "setup.cfg")
    fill(tmp_path, "build/x.o", "dist/x.whl", ".git/HEAD", "pkg/__pycache__/a.pyc", "x.egg-info/PKG-INFO", "out/a.whl")
    fill(tmp_path, "env/pyvenv.cfg", "env/bin/python", "target/CACHEDIR.TAG", "target/x.so", ".tox/a")
    found = sources.survey_source(tmp_path, ".", [tmp_path / "out"])
    assert found.files == ("pkg/build/__init__.py", "pkg/dist/a.py", "pyproject.toml", "setup.cfg")


def test_results_of_an_earlier_build_are_no_source_wherever_they_went(tmp_path: Path) -> None:
    """A wheel that is built into another folder than the last one must not hold that one."""
    fill(tmp_path, "pyproject.toml", "pkg/build.json")
    fill(tmp_path, "pkg/first/x.whl", "second/x.whl", "second/SHA256SUMS")
    for place in ("pkg/first", "second"):
        (tmp_path / place / "build.json").write_text('{"schema": "cuwheel.build/1", "cuwheel": "0"}')
    assert sources.survey_source(tmp_path, ".", [tmp_path / "third"]).files == ("pkg/build.json", "pyproject.toml")


def test_links_that_lead_out_are_left_and_told(tmp_path: Path) -> None:
    folder = fill(tmp_path / "source", "pyproject.toml", "pkg/a.cu")
    fill(tmp_path, "secret")
    (folder / "in.cu").symlink_to("pkg/a.cu")
    (folder / "out.cu").symlink_to("../secret")
    (folder / "absolute").symlink_to(folder / "pkg")
    (folder / "folder").symlink_to("pkg")
    found = sources.survey_source(folder, ".", [])
    assert found.files == ("folder", "in.cu", "pkg/a.cu", "pyproject.toml")
    assert found.left_out == ("absolute", "out.cu")


def test_a_copy_is_the_same_and_hashes_the_same(tmp_path: Path) -> None:
    folder = fill(tmp_path / "source", "pyproject.toml", "pkg/a.cu", "run.sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "in.cu").symlink_to("pkg/a.cu")
    os.utime(folder / "pkg" / "a.cu", (1000, 1000))
    found = sources.survey_source(folder, ".", [])
    sources.copy_tree(found, tmp_path / "copy")
    again = sources.survey_source(tmp_path / "copy", ".", [])
    assert (again.files, again.sha256) == (found.files, found.sha256)
    assert (tmp_path / "copy" / "pkg" / "a.cu").stat().st_mtime == 1000
    assert os.access(tmp_path / "copy" / "run.sh", os.X_OK)


@systems.NO_MODES
@pytest.mark.parametrize("change", ["text", "name", "mode", "link"])
def test_the_hash_is_of_names_contents_and_run_bits(tmp_path: Path, change: str) -> None:
    folder = fill(tmp_path, "pyproject.toml", "a.cu", "b.cu")
    (folder / "l").symlink_to("a.cu")
    before = sources.survey_source(folder, ".", []).sha256
    os.utime(folder / "a.cu", (5, 5))
    assert sources.survey_source(folder, ".", []).sha256 == before
    if change == "text":
        (folder / "a.cu").write_text("y")
    elif change == "name":
        (folder / "a.cu").rename(folder / "c.cu")
    elif change == "mode":
        (folder / "a.cu").chmod(0o755)
    else:
        (folder / "l").unlink()
        (folder / "l").symlink_to("b.cu")
    assert sources.survey_source(folder, ".", []).sha256 != before


def test_no_room_for_a_copy_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(tmp_path / "source", "pyproject.toml")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "copy" / "pyproject.toml"))

    monkeypatch.setattr("shutil.copy2", full)
    with pytest.raises(UnreadableError, match="No space left") as caught:
        sources.copy_tree(sources.survey_source(folder, ".", []), tmp_path / "copy")
    assert "CUWHEEL_CACHE" in caught.value.hint


def archive(path: Path, members: dict[str, Any]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, what in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                info.size = len(what)
                file.addfile(info, io.BytesIO(what))
            else:
                info.type, info.linkname = what
                file.addfile(info)
    return path


@systems.NO_LINKS
def test_an_sdist_is_unpacked_once(tmp_path: Path) -> None:
    path = archive(tmp_path / "x-1.0.tar.gz", {"x-1.0/pyproject.toml": b"", "x-1.0/l": (tarfile.SYMTYPE, "a.cu")})
    found = sources.obtain_source(str(path), tmp_path / "cache")
    assert found.files == ("l", "pyproject.toml")
    assert found.folder == sources.obtain_source(str(path), tmp_path / "cache").folder


def test_two_builds_may_unpack_the_same_sdist_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "a.tar.gz", {"a-1/pyproject.toml": b""})
    only_folder, seen = sources._only_folder, []

    def other_is_first(place: Path, source: Path) -> Path:
        monkeypatch.setattr(sources, "_only_folder", only_folder)
        seen.append(sources.unpack_source(source, tmp_path / "cache"))
        return only_folder(place, source)

    monkeypatch.setattr(sources, "_only_folder", other_is_first)
    assert [sources.unpack_source(path, tmp_path / "cache")] == seen
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [seen[0].parent.name]


def test_a_zip_is_a_source_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x-1.0.zip", "w") as file:
        file.writestr("x-1.0/setup.py", "")
    assert sources.obtain_source(str(tmp_path / "x-1.0.zip"), tmp_path / "cache").files == ("setup.py",)


@pytest.mark.parametrize(
    "members",
    [
        {"../out": b"x"},
        {"/etc/x": b"x"},
        {"x/l": (tarfile.SYMTYPE, "../../out")},
        {"x/l": (tarfile.SYMTYPE, "/etc")},
        pytest.param({"x/d": (tarfile.SYMTYPE, "."), "x/d/f": b"x"}, marks=systems.NO_LINKS),
        {"x/p": (tarfile.FIFOTYPE, "")},
        {"x/h": (tarfile.LNKTYPE, "nowhere")},
        {"a/f": b"", "b/f": b""},
        {"f": b""},
    ],
)
def test_archives_that_are_no_sources_leave_nothing(tmp_path: Path, members: dict[str, Any]) -> None:
    path = archive(tmp_path / "x-1.0.tar.gz", members)
    with pytest.raises(MalformedError):
        sources.obtain_source(str(path), tmp_path / "cache")
    assert list((tmp_path / "cache" / "sources").iterdir()) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08\x00garbage", b"no archive"])
def test_what_is_no_archive_is_said_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(MalformedError):
        sources.obtain_source(str(tmp_path / "x.tar.gz"), tmp_path / "cache")


@pytest.mark.parametrize("mode", ["gz", "xz"])
def test_an_archive_that_is_damaged_in_its_midst(tmp_path: Path, mode: str) -> None:
    """Where it begins well, only the reading finds it."""
    path = tmp_path / f"x-1.0.tar.{mode}"
    with tarfile.open(path, "w:xz" if mode == "xz" else "w:gz") as file:
        info = tarfile.TarInfo("x-1.0/a.cu")
        info.size = 300_000
        file.addfile(info, io.BytesIO(bytes(random.Random(1).choices(b"abcdef", k=info.size))))  # noqa: S311
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 5000] = b"\xff" * 5000
    path.write_bytes(data)
    with pytest.raises(MalformedError, match="cannot be unpacked"):
        sources.obtain_source(str(path), tmp_path / "cache")


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        sources.obtain_source(str(tmp_path / "nowhere"), tmp_path)
    (tmp_path / "x-1-py3-none-any.whl").touch()
    with pytest.raises(UsageError, match="already built"):
        sources.obtain_source(str(tmp_path / "x-1-py3-none-any.whl"), tmp_path)
    with pytest.raises(CuwheelError, match="--offline"):
        sources.obtain_source("demo==1.0", tmp_path, offline=True)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[build-system]\nbuild-backend = "scikit_build_core.build"'}, "scikit-build-core"),
        ({"pyproject.toml": '[build-system]\nbuild-backend = "maturin"'}, "cargo"),
        ({"setup.py": "from torch.utils.cpp_extension import CUDAExtension"}, "torch"),
        ({"pyproject.toml": "", "CMakeLists.txt": "", "setup.py": ""}, "cmake"),
        ({"setup.py": "subprocess.run(['cmake', '..'])"}, "cmake"),
        ({"setup.py": "subprocess.run(['cargo', 'build'])", "crate/Cargo.toml": ""}, "cargo"),
        (
            {"pyproject.toml": '[build-system]\nbuild-backend = "setuptools.build_meta"', "setup.py": "nvcc"},
            "setuptools",
        ),
        ({"setup.py": "run nvcc"}, "setuptools"),
        ({"pyproject.toml": '[build-system]\nbuild-backend = "hatchling.build"'}, "other"),
    ],
)
def test_how_a_project_is_built_is_read_from_its_files(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        fill(tmp_path, name, text=text)
    found = sources.read_project(tmp_path, list(files))
    assert found.backend == expected
    assert found.evidence
    assert sources.read_project(tmp_path, list(files), "other").backend == "other"


def test_names_come_from_wherever_they_are_written(tmp_path: Path) -> None:
    folder = fill(tmp_path / "thing-1.2", "setup.py", text="setup(\n    name = 'legacy')")
    assert sources.read_project(folder, ["setup.py"]).name == "legacy"
    (folder / "setup.py").write_text("setup()")
    assert sources.read_project(folder, ["setup.py"]).name == "thing"
    other = "NAME = 'by_variable'\nname = 'nvcc.exe'\nsetuptools.setup(name=NAME)"
    (folder / "setup.py").write_text(other)
    assert sources.read_project(folder, ["setup.py"]).name == "by_variable"
    (folder / "setup.py").write_text("setup(name=[1]); print 'of Python 2'")
    assert sources.read_project(folder, ["setup.py"]).name == "thing"
    fill(folder, "setup.cfg", text="[metadata]\nname = configured\n")
    assert sources.read_project(folder, ["setup.py"]).name == "configured"
    fill(folder, "PKG-INFO", text="Metadata-Version: 2.1\nName: released\nVersion: 1.2\n\nName: prose\n")
    packed = sources.read_project(folder, ["setup.py"])
    assert (packed.name, packed.version) == ("released", "1.2")
    fill(folder, "pyproject.toml", text='[project]\nname = "modern"\nversion = "3"\nrequires-python = ">=3.9"')
    found = sources.read_project(folder, ["setup.py", "pyproject.toml"])
    assert (found.name, found.version, found.requires_python) == ("modern", "3", ">=3.9")


def test_what_is_no_python_project_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match="not a Python project"):
        sources.read_project(tmp_path, ["README.md"])
    fill(tmp_path, "pyproject.toml", text="[[[")
    with pytest.raises(MalformedError, match="TOML"):
        sources.read_project(tmp_path, ["pyproject.toml"])


@pytest.mark.parametrize("value", ["2", "{}", '"setuptools"', "true"])
def test_requirements_of_a_build_that_are_no_list(tmp_path: Path, value: str) -> None:
    fill(tmp_path, "pyproject.toml", text=f"[build-system]\nrequires = {value}\n")
    assert sources.read_project(tmp_path, ["pyproject.toml"]).requires == ()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a/b.cu": ""}, True),
        ({"setup.py": "from torch.utils.cpp_extension import CUDAExtension"}, True),
        ({"CMakeLists.txt": "project(x LANGUAGES CXX CUDA)"}, True),
        ({"crate/build.rs": 'Command::new("nvcc")'}, True),
        ({"setup.py": "setup()", "pkg/__init__.py": "print(1)"}, False),
        ({"pyproject.toml": '[tool.cuwheel]\ncuda = "13.0"', "cuwheel.toml": "cuda = '13.0'"}, False),
        ({"README.md": "needs CUDA"}, False),
    ],
)
def test_whether_there_is_anything_for_cuda(tmp_path: Path, files: dict[str, str], expected: bool) -> None:  # noqa: FBT001
    for name, text in files.items():
        fill(tmp_path, name, text=text)
    assert sources.mentions_cuda(tmp_path, list(files)) is expected


def test_where_scikit_build_core_builds_is_the_projects_choice_where_it_made_one(tmp_path: Path) -> None:
    text = '[build-system]\nbuild-backend = "scikit_build_core.build"\n'
    fill(tmp_path, "pyproject.toml", text=text)
    assert sources.read_project(tmp_path, ["pyproject.toml"]).build_dir
    fill(tmp_path, "pyproject.toml", text=text + '[tool.scikit-build]\nbuild-dir = "build"\n')
    assert not sources.read_project(tmp_path, ["pyproject.toml"]).build_dir


def test_links_in_a_circle_and_to_nowhere_are_copied_as_they_are(tmp_path: Path) -> None:
    folder = fill(tmp_path / "source", "pyproject.toml")
    (folder / "circle").symlink_to("circle")
    (folder / "nowhere").symlink_to("gone")
    found = sources.survey_source(folder, ".", [])
    sources.copy_tree(found, tmp_path / "copy")
    assert found.files == ("circle", "nowhere", "pyproject.toml")
    assert (tmp_path / "copy" / "circle").readlink().name == "circle"


@systems.NO_MODES
def test_a_copy_of_what_may_not_be_written_can_be(tmp_path: Path) -> None:
    folder = fill(tmp_path / "source", "pyproject.toml", "run.sh")
    (folder / "run.sh").chmod(0o555)
    found = sources.survey_source(folder, ".", [])
    sources.copy_tree(found, tmp_path / "copy")
    assert (tmp_path / "copy" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert sources.survey_source(tmp_path / "copy", ".", []).sha256 == found.sha256


def test_a_source_that_holds_more_than_sources_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_LARGE", 100)
    fill(tmp_path, "pyproject.toml")
    assert not list(sources.source_findings(sources.survey_source(tmp_path, ".", [])))
    fill(tmp_path, "data/train.bin", text="x" * 200)
    (told,) = sources.source_findings(sources.survey_source(tmp_path, ".", []))
    assert told.rule == "large-source"
    assert told.evidence[0].startswith("data/train.bin: 200")
