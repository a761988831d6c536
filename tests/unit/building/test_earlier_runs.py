"""What a build on a cluster remembers: answers that hold as long as their files do, and how long each task took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.building.values import Built, Problem
from cuwheel.clusters.task import Done, Task
from cuwheel.support import codec

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("distributed")

from cuwheel.building.on_cluster import SHARE_FUNCTION, EarlierRuns, MadeShare

KIND = ("x86_64", "glibc 2.36")
TASK = Task(id="foo cu130 sm_90", function=SHARE_FUNCTION, parameters="{}")


def share(folder: Path, problem: Problem | None = None) -> Done:
    (folder / "sm_90.whl").write_bytes(b"wheel")
    text = codec.encode(MadeShare(name="sm_90", built=Built(key="k", problem=problem))).decode()
    return Done(task=TASK, text=text, files={"sm_90.whl": folder / "sm_90.whl"}, worker="w", began=1.0, ended=3.5)


def test_an_answer_holds_for_its_kind_of_workers_as_long_as_its_files_do(tmp_path: Path) -> None:
    noted = EarlierRuns(tmp_path / "kept", KIND).note(share(tmp_path))
    later = EarlierRuns(tmp_path / "kept", KIND)
    found = later.answer(TASK)
    assert found is not None
    assert (found.cached, found.worker, found.files) == (True, "w", noted.files)
    assert later.timed(TASK).seconds == 2.5
    assert later.answer(replace(TASK, fresh=True)) is None
    assert later.answer(replace(TASK, parameters="[]")) is None
    assert EarlierRuns(tmp_path / "kept", ("aarch64", "")).answer(TASK) is None
    nobody_there = EarlierRuns(tmp_path / "kept", ())
    nobody_there.note(share(tmp_path))
    assert nobody_there.answer(TASK) is None
    found.files["sm_90.whl"].write_bytes(b"other")
    assert later.answer(TASK) is None


def test_a_build_that_failed_is_no_answer_but_its_log_stays(tmp_path: Path) -> None:
    earlier = EarlierRuns(tmp_path / "kept", KIND)
    noted = earlier.note(share(tmp_path, Problem(phase="build", what="it failed")))
    assert noted.files["sm_90.whl"].read_bytes() == b"wheel"
    assert earlier.answer(TASK) is None
