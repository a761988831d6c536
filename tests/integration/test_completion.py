"""What the Tab key offers, asked of the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.command import call

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
# What bash calls when Tab is pressed behind these words.
_BASH = """
source ./completion
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_shtab_cuwheel cuwheel "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
_FISH = "source ./completion; complete -C (string join ' ' -- $argv)"
_TRIED = (
    ("che", "check"),
    ("check --max-s", "--max-size"),
    ("check a.w", "a.whl"),
    ("slim a.whl -o fol", "folder"),
    ("toolchain inst", "install"),
    ("record rep", "replay"),
    ("record replay --dry", "--dry-run"),
    ("lookup g", "gpu"),
)


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_shell_offers_verbs_actions_options_and_files(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    (tmp_path / "completion").write_text(call("completion", shell).stdout)
    (tmp_path / "a.whl").touch()
    (tmp_path / "folder").mkdir()
    wrong = []
    for typed, wanted in _TRIED:
        words = ["cuwheel", *typed.split(" ")]
        command = (
            ["bash", "-c", _BASH, "bash", *words] if shell == "bash" else ["fish", "--no-config", "-c", _FISH, *words]
        )
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        offered = [line.partition("\t")[0].rstrip("/") for line in done.stdout.splitlines()]
        if wanted not in offered:
            wrong.append(f"{typed}: {offered} {done.stderr[-300:]}")
    assert not wrong, "\n".join(wrong)
