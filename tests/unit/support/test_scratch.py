from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuwheel.support import scratch
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_that_is_kept_stays_for_good(tmp_path: Path) -> None:
    with scratch.folder(tmp_path, "x-", keep=True) as made:
        (made / "file").touch()
    with scratch.folder(tmp_path, "x-"):
        pass
    assert [each.name for each in tmp_path.iterdir()] == [made.name]
    assert (made / "file").exists()


@systems.LINUX_PATHS
def test_one_that_was_to_be_kept_goes_where_the_run_was_killed(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with scratch.folder(tmp_path, "x-", keep=True):
            os._exit(9)  # as SIGKILL: nothing is cleared away
    os.waitpid(child, 0)
    assert any(each.is_dir() for each in tmp_path.iterdir())
    told: list[str] = []
    with scratch.folder(tmp_path, "x-", told.append):
        pass
    assert list(tmp_path.iterdir()) == []
    assert len(told) == 1
