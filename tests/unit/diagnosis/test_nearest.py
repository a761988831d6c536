from __future__ import annotations

import io
import time

import pytest

from cuwheel import api
from cuwheel.diagnosis import text
from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.explain import nearest_causes


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("the gpu's memory was exhausted while out of memory: CUDA tried to allocate", "gpu-out-of-memory"),
        ("submodule of cutlass headers missing in the third_party folder", "source-dependency-missing"),
        ("host compiler gcc version newer than nvcc supports, unsupported", "host-compiler-too-new"),
    ],
)
def test_causes_that_speak_in_the_words_of_a_log(log: str, cause: str) -> None:
    assert cause in nearest_causes(text.parse(log))


def test_nothing_for_logs_that_do_not_speak_of_cuda() -> None:
    assert nearest_causes(text.parse("npm ERR! unable to resolve dependency tree, required version missing")) == ()
    assert nearest_causes(text.parse("")) == ()


def test_told_only_where_there_is_no_cause() -> None:
    unknown = api.explain(io.BytesIO(b"CUDA frobnication failed: the flux capacitor is missing"))
    known = api.explain(io.BytesIO(b"nvcc fatal   : Unsupported gpu architecture 'compute_120'"))
    assert not unknown.causes
    assert not unknown.succeeded
    assert {each.id for each in unknown.similar} <= knowledge().causes.keys()
    assert 0 < len(unknown.similar) <= 3
    assert known.causes
    assert not known.similar


@pytest.mark.parametrize("word", ["error: it failed", "went well"])
def test_a_hostile_log_does_not_hold_it_up(word: str) -> None:
    lines = "".join(f"cuda {word} number{'x' * (index % 97)}y{index}\n" for index in range(50_000))
    log = text.parse(f"cuda {word} " * 100_000 + "\n" + lines)
    began = time.process_time()
    nearest_causes(log)
    assert time.process_time() - began < 5
