"""`check`, `catalogue add` and `trials run` with `--cluster`: the same answers as without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cuwheel_lab.measuring import journal
from tests.fixtures import manifest, wheels
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("distributed")


@pytest.mark.slow
def test_check_answers_as_it_does_here(tmp_path: Path) -> None:
    here = world.World(folder=tmp_path)
    library = (manifest.HERE / "bin" / "many-130.so").read_bytes()
    names = [str(wheels.wheel(tmp_path, {f"{each}/x.so": library}, name=each)) for each in ("one", "two")]
    words = ("check", *names, "--on", "h100,l40", "--json")
    alone = here.cuwheel(*words)
    told = here.cuwheel(*words, "--cluster", "local:2")
    assert (told.status, json.loads(told.stdout)) == (alone.status, json.loads(alone.stdout))


@pytest.mark.slow
def test_trials_of_many_machines_are_one_journal(tmp_path: Path) -> None:
    here = world.World(folder=tmp_path)
    (tmp_path / "program.py").write_text("import os, sys\nsys.exit(int(os.environ['WORD'] == 'bad'))\n")
    (tmp_path / "TRIALS.toml").write_text(
        'command = "python3 program.py"\nrepeats = 2\n[axes.word]\n'
        'good = { environment = { WORD = "good" } }\nbad = { environment = { WORD = "bad" } }\n'
    )
    told = here.cuwheel("lab", "trials", "run", "TRIALS.toml", "--cluster", "local:2", "--json")
    assert told.status == 1, told.all
    groups = {each["axes"]["word"]: (each["runs"], each["failures"]) for each in json.loads(told.stdout)["groups"]}
    assert groups == {"good": (2, 0), "bad": (2, 2)}
    lines = list(journal.read_lines(tmp_path / "cuwheel-trials"))
    starts = [line.start for line in lines if line.start]
    assert [each.trial for each in starts] == [1, 2, 3, 4]
    assert all(each.host.machine for each in starts)
    more = here.cuwheel(
        "lab", "trials", "run", "TRIALS.toml", "--cluster", "local:2", "--json", "--resume", "--repeats", "3"
    )
    assert json.loads(more.stdout)["runs"] == 6, more.all
