"""requirements.txt as pip reads it, and what is wrong with one all at once."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from cuwheel.delivery import requirements_file
from cuwheel.errors import ConfigurationError
from cuwheel.support import files
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


def test_all_that_a_file_may_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "me:secret")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "more.txt").write_text("cupy-cuda12x>=13  # for arrays\n")
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    (tmp_path / "requirements.txt").write_text(
        "# ours\n-i https://${LOGIN}@wheels.example.com/simple\n--extra-index-url=https://more.example.com/simple\n"
        "-f wheels\n-r more.txt\n-c limits.txt\n--pre\n"
        "torch == 2.9.0 \\\n    --hash=sha256:" + "ab" * 32 + " \\\n    --hash=sha256:" + "cd" * 32 + "\n"
        "old ; python_version < '3.8'\nnew[fast] ; python_version >= '3.8'\nlocal @ https://a.example/local-1.0-py3-none-any.whl\n"
    )
    found = requirements_file.read_requirements(tmp_path / "requirements.txt", "3.12")
    assert [each.requirement for each in found.lines] == ["cupy-cuda12x>=13", "torch==2.9.0", "new[fast]", None]
    assert found.lines[1].hashes.count("--hash=sha256:") == 2
    assert found.indexes == ("https://me:secret@wheels.example.com/simple", "https://more.example.com/simple")
    assert (found.find_links, found.pre, found.no_index) == ((str(tmp_path / "wheels"),), True, False)
    assert found.options == (f"-c {shlex.quote(str(tmp_path / 'limits.txt'))}",)


def test_everything_that_is_wrong_at_once(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("-e .\ngit+https://a.example/x\n./folder\n--what\nfoo==\n")
    with pytest.raises(ConfigurationError) as caught:
        requirements_file.read_requirements(path, None)
    for number in range(1, 6):
        assert f"line {number}" in caught.value.message
    path.write_text("-r requirements.txt\n")
    with pytest.raises(ConfigurationError, match="name one another"):
        requirements_file.read_requirements(path, None)
    path.write_text("# nothing\n")
    with pytest.raises(ConfigurationError, match="asks for nothing"):
        requirements_file.read_requirements(path, None)
    with pytest.raises(UnreadableError):
        requirements_file.read_requirements(tmp_path / "missing.txt", None)


def test_work_grows_with_the_file_and_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("".join(f"package-{number}\n" for number in range(50_000)))
    with pytest.raises(ConfigurationError, match="more than 5,000") as caught:
        requirements_file.read_requirements(path, "3.12")
    assert "split the file" in caught.value.hint
    path.write_text("torch ; " + " or ".join(["python_version > '3'"] * 20_000) + "\n")
    with pytest.raises(ConfigurationError, match="is not a package"):
        requirements_file.read_requirements(path, "3.12")
    path.write_text("-f links" + "x" * 3_000_000 + "\n")
    with pytest.raises(ConfigurationError, match="an option of 3,000,008 letters"):
        requirements_file.read_requirements(path, "3.12")
    path.write_text("torch" + " " * 3_000_000 + "==2.9.0\n")  # blanks that no comment and no hash follows
    with pytest.raises(ConfigurationError, match="is not a package"):
        requirements_file.read_requirements(path, "3.12")


def test_files_that_name_others_count_together(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("torch\n" * 3000)
    (tmp_path / "requirements.txt").write_text("-r more.txt\n" * 2)
    with pytest.raises(ConfigurationError, match="more than 5,000"):
        requirements_file.read_requirements(tmp_path / "requirements.txt", "3.12")


def test_files_that_name_themselves_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, reads = tmp_path / "requirements.txt", []
    read = files.read_limited

    def noted(path: Path, limit: int, what: str) -> bytes:
        reads.append(path)
        return read(path, limit, what)

    monkeypatch.setattr(files, "read_limited", noted)
    (tmp_path / "link.txt").symlink_to(path)
    path.write_text("-r requirements.txt\n-r link.txt\n-f links" + "x" * 1000 + "\n")
    with pytest.raises(ConfigurationError, match="name one another"):
        requirements_file.read_requirements(path, "3.12")
    assert reads == [path]


def test_a_file_that_many_name_counts_each_time(tmp_path: Path) -> None:
    (tmp_path / "2.txt").write_text("# " + "x" * 100_000 + "\n")
    (tmp_path / "1.txt").write_text("-r 2.txt\n" * 20)
    path = tmp_path / "requirements.txt"
    path.write_text("-r 1.txt\n" * 20)
    with pytest.raises(ConfigurationError, match="more than 4 MiB"):
        requirements_file.read_requirements(path, "3.12")


def test_links_that_no_file_can_be_called_are_taken_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"-f links{'0' * 400}\nnumpy\n")
    found = requirements_file.read_requirements(path, "3.12")
    assert found.find_links == (f"links{'0' * 400}",)


def test_a_name_that_no_system_has_is_told(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_bytes(b"-r a\0b\n")
    with pytest.raises(UnreadableError, match="null"):
        requirements_file.read_requirements(file, "3.12")
