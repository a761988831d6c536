from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest
from tests.fixtures.lab_files import CASE_4

from cuwheel.errors import ConfigurationError
from cuwheel_core.errors import UnreadableError
from cuwheel_lab.measuring import axes, matrix


def load(tmp_path: Path, text: str) -> matrix.Plan:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return matrix.load_matrix(path)


def test_the_matrix_of_case_4(tmp_path: Path) -> None:
    plan = load(tmp_path, CASE_4)
    assert plan.axes == ("toolkit", "cache", "features", "profile")
    assert len(plan.configurations) == 2 * 2 * 4 * 2 - 8 - 4 + 1
    by_name = {each.name: each for each in plan.configurations}
    flash = by_name["cuda-13.0, on, flash, release"]
    assert flash.command == ("cargo", "build", "--features", "cuda flash-attn", "--release")
    assert flash.environment == {"CUDA_COMPUTE_CAP": "120", "RUSTFLAGS": "-C debuginfo=0"}
    assert (flash.unset, flash.cache) == (("CC",), "on")
    assert flash.toolkit
    assert Path(flash.toolkit).parts[1:] == ("opt", "NVIDIA GPU", "cuda-13.0")
    assert "cuda-13.0, off, cpu, debug" not in by_name
    assert by_name["flash"].command == ("cargo", "build", "--features", "cuda flash-attn")
    assert (plan.clean, plan.timeout, plan.source) == (("cargo", "clean"), 1800.0, tmp_path.resolve())


def test_the_example_of_the_page(tmp_path: Path) -> None:
    lines = (Path(__file__).parents[3] / "docs" / "howto" / "replay.md").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("    command ="))
    shown = itertools.takewhile(lambda line: not line or line.startswith("    "), lines[start:])
    plan = load(tmp_path, "\n".join(line[4:] for line in shown))
    assert len(plan.configurations) == 2 * 2 * 3 * 2 - 2 * 2


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(
            tmp_path,
            """
command = "make {target} {nothing} 'unclosed"
directory = "no/such"
timeout = -1
copy = false
[axes]
empty = []
twice = ["a", "a"]
number = [3]
cache = ["maybe"]
[axes.target]
a = "x"
b = { wrods = "x" }
[axes.hidden]
c = "y"
[[exclude]]
target = "zzz"
[[include]]
nobody = "a"
[[include]]
""",
        )
    told = "\n".join(caught.value.problems)
    for part in (
        "unknown axis 'nothing'", "no closing quotation", "no such folder", "timeout", "a 'clean' command",
        "axes.empty", "twice", "axes.number.3", "cache", "did you mean 'words'", "words of 'hidden' go: {hidden}",
        "'target' has no value 'zzz'", "unknown axis 'nobody'", "names no axis",
    ):  # fmt: skip
        assert part in told, part


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("command = [", "not valid TOML"),
        ("axes = {}", "'command' is missing"),
        ('command = "x {a}"\n[axes]\na=["1"]\n[[exclude]]\na="1"', "everything is excluded"),
        ('command = "x {a}"\n[axes]\na=["1"]\n[[exclude]]\na={}', "'a' has no value {}"),
        ('command = ""\naxes = {}', "empty"),
        ('command = "x"\ncopy=true\nclean="y"\naxes={}', "cannot be used together"),
        ('command = "{a}{b}{c}"\n[axes]\n' + "\n".join(f"{n}={[str(i) for i in range(20)]}" for n in "abc"), "8000"),
        (f'command = "{"x" * 200_000}"\naxes = {{}}', "longer than 131,072"),
        (f'command = "{"{a}" * 9}"\n[axes]\na = ["{"x" * 30_000}"]', "with the words of its axes"),
    ],
)
def test_bad_files(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load(tmp_path, text)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        matrix.load_matrix(tmp_path / "nowhere.toml")


def test_one_command_without_axes_is_a_matrix_of_one(tmp_path: Path) -> None:
    (only,) = load(tmp_path, 'command = "make all"\naxes = {}').configurations
    assert (only.name, only.command) == ("the command", ("make", "all"))


def test_values_with_spaces_stay_one_word(tmp_path: Path) -> None:
    path = "C:/Program Files/x"
    plan = load(tmp_path, f"command = \"make X={{x}}\"\n[axes.x]\na = '''{shlex.quote(path)}'''")
    assert plan.configurations[0].command == ("make", f"X={path}")


def test_paths_of_windows_keep_their_backslashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the command, and in the words that stand in it; folders are named by their last part."""
    monkeypatch.setattr("os.name", "nt")
    filled = axes.filled(r"C:\src\build.bat {x} --out D:\out", {"x": r"'C:\Program Files\x' Y=a\b"})
    assert filled == (r"C:\src\build.bat", r"C:\Program Files\x", r"Y=a\b", "--out", r"D:\out")
    folders = ["C:\\CUDA\\v12.8\\", "D:\\CUDA\\v13.0"]
    ((_, named),) = axes.read_axes({"toolkit": folders}, "matrix", [], lambda _axis, given, _where: str(given))
    assert named == {"v12.8": folders[0], "v13.0": folders[1]}


def test_a_resumed_run_is_the_same_only_if_everything_is(tmp_path: Path) -> None:
    plan = load(tmp_path, CASE_4)
    again = load(tmp_path, CASE_4)
    prints = [matrix.fingerprint(plan, each) for each in plan.configurations]
    assert len(set(prints)) == len(prints)
    assert prints == [matrix.fingerprint(again, each) for each in again.configurations]
    other = load(tmp_path, CASE_4.replace("1800", "1801"))
    assert not set(prints) & {matrix.fingerprint(other, each) for each in other.configurations}
    names = [matrix.folder_name(plan, each) for each in plan.configurations]
    assert len(set(names)) == len(names)
    assert names[0] == "001-12.8-off-cpu-debug"
