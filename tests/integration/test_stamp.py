"""Stamped wheels in the hands of real installers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.stamp import guard, stamp
from cuwheel.device_code.description import Description
from cuwheel.device_code.survey import survey
from cuwheel.network import venvs
from tests.unit.changes.slim.packages import FOO, make_wheel

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    **FOO,
    "foo/__init__.py": f"{guard.CALL}\ncheck()\n".encode(),
    "foo-1.0.data/scripts/foo-tool": b"#!python\nimport foo; print('tool')\n",
    "foo-1.0.data/data/share/foo/text": b"text",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("env")
    venvs.make(folder, venvs.find_python(), pip=True)
    return folder


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.parametrize("naming", ["local", "suffix"])
def test_stamped_wheels_install_run_and_say_what_they_are(
    tmp_path: Path, environment: Path, naming: str, installer: str
) -> None:
    wheel = make_wheel(tmp_path, FILES, version="1.0")
    wish = stamp.StampOptions(
        name=stamp.suffixed_name("foo", "13.0") if naming == "suffix" else None,
        version=stamp.local_version("1.0", "13.0") if naming == "local" else None,
        description=Description(cuda="13.0", archs=("sm_90",)),
        guard=guard.guard_for(survey(wheel, detail="containers"), "foo"),
    )
    made = stamp.stamp(wheel, tmp_path / "out", wish)
    python = venvs.interpreter(environment)
    name = wish.name or "foo"
    if installer == "uv":
        venvs.install(python, [made], index=False)
    else:
        subprocess.run([python, "-m", "pip", "install", "--no-index", "--quiet", made], check=True)
    try:
        assert venvs.conflicts(python) == ()
        assert survey(name, env=environment).description == wish.description
        done = subprocess.run([python, environment / "bin" / "foo-tool"], capture_output=True, text=True, check=True)
        assert done.stdout == "tool\n"
        ask = f"import importlib.metadata as m; print(m.version({name!r}))"
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == (wish.version or "1.0")
    finally:
        done = subprocess.run(
            [python, "-m", "pip", "uninstall", "-y", name], capture_output=True, text=True, check=True
        )
    left = [path for path in environment.rglob("*") if "foo" in path.name and path.is_file()]
    assert left == [], "RECORD lists everything, so that it can be removed"
