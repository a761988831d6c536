"""What a checkout installs: its own distributions together, and never one of the same name from an index."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.small_wheel import Wheel
from tests.integration.install_world import environment_with_pip

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
MINUTES = 300.0
_SLOW = pytest.mark.slow
_TOOLS = ("pip", pytest.param("uv", marks=_SLOW))
_OURS = ("cuwheel_core", "cuwheel", "cuwheel_lab")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with_pip(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of other people, by the names of ours: of this version, and of a later one."""
    folder = tmp_path_factory.mktemp("strangers")
    (version,) = re.findall(r'^version = "(.+)\+checkout"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for name in _OURS:
        for each in (version, "99.0"):
            Wheel(name=name, version=each).write(folder)
    return folder


def _asked(tool: str, python: Path, strangers: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A dry run: it resolves, and says what it would install."""
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--python", str(python)]
    command = [*(pip if tool == "pip" else uv), "--dry-run", "--find-links", str(strangers), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=MINUTES)


@pytest.mark.parametrize("tool", _TOOLS)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((".",), "from a checkout: pip install ./core ."),
        pytest.param(("./lab",), "from a checkout: pip install ./core . ./lab", marks=_SLOW),
        pytest.param(("./core", ".[lab]"), "from a checkout: pip install ./core . ./lab", marks=_SLOW),
    ],
    ids=["cuwheel", "lab", "extra"],
)
def test_what_is_missing_is_asked_for_and_taken_from_nobody_else(
    tool: str, words: tuple[str, ...], sentence: str, python: Path, strangers: Path
) -> None:
    done = _asked(tool, python, strangers, *words)
    assert done.returncode != 0, done.stdout
    told = " ".join(done.stderr.split())
    assert sentence in told or "pip.install.core.and.this.together" in told  # pip 26.3 leaves markers out


@pytest.mark.parametrize("tool", _TOOLS)
@pytest.mark.parametrize(
    "words",
    [("./core", "."), pytest.param((".", "./core"), marks=_SLOW), pytest.param(("./lab", ".", "./core"), marks=_SLOW)],
    ids=" ".join,
)
def test_what_is_named_together_is_installed(tool: str, words: tuple[str, ...], python: Path, strangers: Path) -> None:
    done = _asked(tool, python, strangers, *words)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    line = next(each for each in told.splitlines() if each.startswith("Would install"))
    ours = re.findall(r"^ \+ (cuwheel.*)", told, re.MULTILINE) or re.findall(r"cuwheel\S*", line)
    assert len(ours) == len(words), told
    assert [each for each in ours if not each.endswith("+checkout") and f" @ {ROOT.as_uri()}" not in each] == []
