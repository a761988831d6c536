"""A short run of every fuzzer, and whether they would notice. A long run: python -m tests.fuzz --resume"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from cuwheel.support import process
from cuwheel_core.errors import CuwheelError, MalformedError
from tests.fuzz import harness
from tests.fuzz.readers import READERS, Reader

MINUTES = 0.1
ROOT = Path(__file__).parents[2]
needs_atheris = pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed here")


@pytest.mark.slow
@needs_atheris
@pytest.mark.parametrize("reader", READERS.values(), ids=lambda each: each.name)
def test_nothing_new_is_found(reader: Reader) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--reader", reader.name, "--minutes", str(MINUTES)]
    done = process.run(command, timeout=600, check=False, cwd=ROOT)
    assert done.status == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("reader", READERS.values(), ids=lambda each: each.name)
def test_seeds_are_read(reader: Reader, tmp_path: Path) -> None:
    """Where all are refused, most of what is made of them is, too."""
    made = importlib.import_module(reader.module).HARNESSES[reader.name](tmp_path)
    assert made.seeds
    refused = 0
    for seed in made.seeds:
        assert harness.problem_with(made, seed) is None
        try:
            made.read(seed)
        except CuwheelError:
            refused += 1
    assert refused < len(made.seeds)
    for each in reader.covers:
        importlib.import_module(each)


def _read(data: bytes) -> None:
    if b"bad" in data:
        raise MalformedError("x", "refused, as it should be")
    if b"worse" in data:
        raise IndexError("it was not looked for")


def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> harness.Run:
    monkeypatch.setenv("CUWHEEL_TEST_CACHE", str(tmp_path))
    state = tmp_path / "fuzz" / "x.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"inputs": 0, "seconds": 0.0, "commits": [], "findings": {}, "ended": []}))
    return harness.Run("x", harness.Harness([b""], _read), state, goal=10, seconds=60)


def test_a_finding_is_kept_in_its_smallest_form_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _run(tmp_path, monkeypatch)
    for data in (b"good", b"bad", b"somewhat worse than that", b"worse", b"good"):
        run.one(data)
    run.write()
    told = json.loads(run.state.read_text())
    assert told["inputs"] == 5
    ((place, kept),) = told["findings"].items()
    assert place.startswith("IndexError")
    assert Path(kept).read_bytes() == b"worse"
    assert "it was not looked for" in Path(kept).with_suffix(".txt").read_text()


def test_an_input_that_takes_too_long_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(tmp_path, monkeypatch)
    for _ in range(harness.SECONDS):
        run.tick(0, None)
    with pytest.raises(harness.HungError):
        run.tick(0, None)
    for number in range(3 * harness.SECONDS):
        run.inputs = number  # another one each time
        run.tick(0, None)


def test_a_reader_that_reads_in_circles_is_found() -> None:
    buffer = harness.CountingBuffer("x", bytes(100))

    def read(_data: bytes) -> None:
        while True:
            buffer.read(0, 1)

    found = harness.problem_with(harness.Harness([b""], read), b"")
    assert found is not None
    assert "reads of a file of 100 bytes" in found[1]


def test_coverage_is_of_the_functions_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUWHEEL_TEST_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sample_reader.py").write_text(
        "X = 1\n\ndef read(data):\n    if data:\n        return 1\n    return 2\n"
    )
    sample = importlib.import_module("sample_reader")
    corpus = harness.corpus_of("sample")
    corpus.mkdir(parents=True)
    (corpus / "one").write_bytes(b"")
    made = harness.Harness([b""], sample.read)
    assert harness.coverage(made, "sample", [sample]) == {"sample_reader": (2, 3)}
    (corpus / "two").write_bytes(b"x")
    assert harness.coverage(made, "sample", [sample]) == {"sample_reader": (3, 3)}
