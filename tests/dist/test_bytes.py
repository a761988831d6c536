"""The same bytes wherever, by whomever and whenever it is made."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dist.conftest import MINUTES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHER = "nobody"


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own folder, which every other run closes again to other users."""
    with tempfile.TemporaryDirectory(prefix="else where ") as folder:
        yield Path(folder)


def test_on_another_path_by_another_user_on_another_day(made: Path, place: Path) -> None:
    """A copy of what git would check out, and of what was compiled before; its files are of another day."""
    tree = place / "a checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    names = [os.fsdecode(each) for each in listed.split(b"\0") if each]
    names += [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("prebuilt/*")]
    past = time.time() - 400 * 24 * 3600
    for name in filter(lambda each: (ROOT / each).is_file(), names):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
        os.utime(target, (past, past))
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    site = Path(sys.executable).parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    environ |= {
        "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}",
        "PYTHONPATH": f"{tree / 'src'}:{tree / 'core' / 'src'}:{site}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
    }
    python, user = _another_user(place, environ)
    words = [python, str(tree / "release" / "dist.py"), str(place / "out")]
    done = subprocess.run(
        words,
        env=environ,
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=MINUTES,
        umask=0o077,
        user=user,
    )
    assert done.returncode == 0, done.stderr
    ours = {each.name: each.read_bytes() for each in made.iterdir()}
    theirs = {each.name: each.read_bytes() for each in (place / "out").iterdir()}
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def _another_user(place: Path, environ: dict[str, str]) -> tuple[str, int | None]:
    """A Python that somebody else may run, and who that is; as this user where there is none, or we are not root."""
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    if os.geteuid() != 0 or not Path(python).exists():
        return sys.executable, None
    user = pwd.getpwnam(_OTHER)
    subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(place)], check=True)
    environ |= {"HOME": str(place), "UV_CACHE_DIR": str(place / "uv"), "UV_PYTHON": python}
    return python, user.pw_uid
