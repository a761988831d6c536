"""Proofs that were damaged or made up: an error with a name, or a proof that says nothing untrue of itself."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.device_code import description
from cuwheel.proving import proof
from cuwheel.report import answer, terminal
from cuwheel_core.errors import CuwheelError
from tests.unit.proving import proofs

WHOLE = proofs.proof(proofs.wheel(proofs.check(), proofs.check("b", "failed"), agreement="open"), succeeded=False)
TEXT = json.dumps(WHOLE).encode()
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found += places(each, (*path, key))
    return found


def read(data: bytes) -> None:
    try:
        found = proof.parse_proof(data, "proof.json")
    except CuwheelError:
        return
    stream = io.StringIO()
    terminal.write(answer.document_of(found, verbose=True), stream)
    text = stream.getvalue()
    assert "\x1b" not in text
    bad = [each for wheel in found.wheels for each in wheel.checks if each.outcome not in ("passed", "skipped")]
    if bad or any(each.agreement == "contradicted" for each in found.wheels):
        assert not found.succeeded


@given(st.sampled_from(places(WHOLE)), ANY)
@settings(max_examples=300, deadline=None)
def test_any_value_in_any_place(path: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(WHOLE)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    read(json.dumps(changed).encode())


@given(st.sampled_from(places(WHOLE)))
@settings(max_examples=80, deadline=None)
def test_anything_missing(path: tuple[Any, ...]) -> None:
    changed = copy.deepcopy(WHOLE)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    read(json.dumps(changed).encode())


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 255), st.integers(0, len(TEXT)))
@settings(max_examples=200, deadline=None)
def test_any_byte_and_any_end(at: int, byte: int, end: int) -> None:
    read(TEXT[:at] + bytes([byte]) + TEXT[at + 1 :])
    read(TEXT[:end])


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes(data: bytes) -> None:
    read(data)
    with contextlib.suppress(CuwheelError):
        description.parse(data, "x")
