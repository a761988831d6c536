"""Facts files that were damaged or made up: an error with a name, or verdicts and a document of them."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.device_code import wheel_facts
from cuwheel.machine.fleet import Machine
from cuwheel.report import terminal
from cuwheel.report.answer import document_of
from cuwheel.report.inspect import answer_of
from cuwheel.verdicts import judge
from cuwheel.verdicts.verdict import Check, targets_of
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts.arch import Capability
from tests.fixtures.small_wheel import Wheel
from tests.property.test_proof_hostile import ANY, places

BIN = Path(__file__).parents[1] / "fixtures" / "bin"
MACHINES = [
    Machine(
        name="a",
        capability=Capability.parse("9.0"),
        driver="580.65.06",
        os="linux",
        cpu="x86_64",
        glibc="2.28",
        python="3.12",
    ),
    Machine(name="b", capability=Capability.parse("8.7"), l4t="36.4", torch="2.8.0", torch_cuda="12.6", libraries=()),
    Machine(name="c", capability=None),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    files: dict[str, str | bytes] = {
        f"bitsandbytes/libbitsandbytes_cuda{each.stem[-3:]}{each.suffix}": each.read_bytes()
        for each in (BIN / "rdc-130.so", BIN / "plain-124.so")
    }
    files["bitsandbytes/aarch64.so"] = (BIN / "aarch64-130.so").read_bytes()
    parts = Wheel(
        name="bitsandbytes", version="0.50.0", tag="cp311-cp311-linux_x86_64", files=files, requires=["torch"]
    )
    with WheelFile(parts.write(tmp_path_factory.mktemp("wheel"))) as wheel:
        made: dict[str, Any] = json.loads(wheel_facts.encoded(wheel_facts.of_wheel(wheel)))
    return made


def read(data: bytes) -> None:
    try:
        facts = wheel_facts.parse(data, "facts")
    except CuwheelError:
        return
    assert wheel_facts.parse(wheel_facts.encoded(facts), "again") == facts
    found = wheel_facts.survey(facts)
    verdicts = judge.judge_all(found, MACHINES)
    stream = io.StringIO()
    check = Check(targets=targets_of([found]), machines=tuple(MACHINES), verdicts=verdicts)
    for answer in (check, answer_of(found, entries=False)):
        terminal.write(document_of(answer, verbose=True), stream)
    assert "\x1b" not in stream.getvalue()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_value_in_any_place(whole: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(whole)))
    changed = copy.deepcopy(whole)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    kind = type(inner[path[-1]])
    same = {str: st.text(max_size=30), int: st.integers(), bool: st.booleans()}.get(kind, ANY)
    inner[path[-1]] = data.draw(ANY | same)
    read(json.dumps(changed).encode())


@given(st.integers(0, 1 << 30), st.binary(max_size=4), st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_bytes_changed(whole: dict[str, Any], offset: int, piece: bytes, removed: int) -> None:
    text = json.dumps(whole).encode()
    at = offset % len(text)
    read(text[:at] + piece + text[at + removed :])
