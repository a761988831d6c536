"""`ci watch` on real git repositories: which tag is the newest release, and what is no release."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel_core.errors import CuwheelError
from tests.integration import build_projects

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def _bare(folder: Path, *tags: str) -> str:
    (folder / "work").mkdir()
    (folder / "work" / "file").write_text("x")
    work = build_projects.in_git(folder / "work", "unversioned")
    for each in tags:
        subprocess.run(["git", "tag", each], cwd=work, check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, "tag", "-a", "-m", "annotated", "foo-v1.10.0"], cwd=work, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(folder / "foo.git")], check=True)
    return f"file://{folder / 'foo.git'}"


def test_the_newest_release_of_a_repository(tmp_path: Path) -> None:
    address = _bare(tmp_path, "v1.2", "1.9.1", "release/1.3", "v2.0rc1", "v2.0.dev3", "nightly-20260101", "v1.x")
    found = api.ci_watch(address, built="1.9.1").upstream
    assert found is not None
    assert (found.newest.version, found.newest.ref, found.new) == ("1.10.0", "foo-v1.10.0", True)
    same = api.ci_watch(address, built="1.10").upstream
    assert same is not None
    assert not same.new
    assert same.fingerprint == found.fingerprint


@pytest.mark.parametrize("address", ["file:///nowhere/foo.git", "https://127.0.0.1:9/foo.git"])
def test_one_that_cannot_be_asked_is_an_error_in_words(address: str) -> None:
    with pytest.raises(CuwheelError) as caught:
        api.ci_watch(address, built="1.0")
    assert "git" in caught.value.message
    assert "Traceback" not in caught.value.message
