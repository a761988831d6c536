from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cuwheel.errors import NewerSchemaError
from cuwheel.proving import proof
from cuwheel.report import answer, terminal
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from tests.unit.proving import proofs

REFUSED = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def parsed(said: dict[str, Any]) -> proof.Proof:
    return proof.parse_proof(json.dumps(said).encode(), "proof.json")


def shown(said: dict[str, Any], *, verbose: bool = False) -> str:
    stream = io.StringIO()
    terminal.write(answer.document_of(parsed(said), verbose=verbose), stream)
    return stream.getvalue()


def test_a_sound_proof_is_read() -> None:
    found = parsed(proofs.proof(proofs.wheel(proofs.check())))
    assert found.succeeded
    assert found.findings == ()
    assert found.wheels[0].agreement == "agreed"
    assert "proven: 1 passed" in shown(proofs.proof(proofs.wheel(proofs.check())))


def test_what_hardware_contradicts_is_shown_first() -> None:
    lying = proofs.wheel(proofs.check("b", "failed", output=REFUSED), agreement="contradicted")
    text = shown(proofs.proof(proofs.wheel(proofs.check()), lying, succeeded=False))
    first, *rest = text.splitlines()
    assert first == "Predictions that hardware contradicts"
    assert "predicted to run (native), but b hit CUDA error 209" in " ".join(rest[:2])
    assert "not proven" in text


def test_a_proof_is_judged_by_its_checks_and_not_by_its_words() -> None:
    lying = proofs.wheel(proofs.check(outcome="failed", output=REFUSED))
    found = parsed(proofs.proof(lying))
    assert not found.succeeded
    assert [each.rule for each in found.findings] == ["proof-inconsistent"] * 2
    assert found.wheels[0].agreement == "contradicted"


def test_an_earlier_judgement_that_claimed_less_is_no_forgery() -> None:
    found = parsed(proofs.proof(proofs.wheel(proofs.check(), agreement="open")))
    assert found.succeeded
    assert [(each.rule, each.severity) for each in found.findings] == [("proof-inconsistent", "warning")]


def test_a_wheel_of_which_nothing_was_tried_is_not_proven() -> None:
    found = parsed(proofs.proof(proofs.wheel(agreement="open"), succeeded=False))
    assert not found.succeeded
    assert "not proven" in shown(proofs.proof(proofs.wheel(agreement="open"), succeeded=False))


def test_a_failure_foretold_is_no_success() -> None:
    found = parsed(proofs.proof(proofs.wheel(proofs.check(outcome="failed", output=REFUSED), outcome="fails")))
    assert found.wheels[0].agreement == "agreed"
    assert not found.succeeded


def test_an_empty_proof_proves_nothing() -> None:
    assert not parsed(proofs.proof(succeeded=False)).succeeded


def test_what_was_not_tried_is_said() -> None:
    said = proofs.wheel(proofs.check(outcome="skipped"), agreement="open")
    assert "what needs a GPU was not tried" in shown(proofs.proof(said))


def test_a_wheel_that_was_not_installed() -> None:
    said = {**proofs.wheel(agreement="none"), "problem": "it is for Python 3.8", "prediction": None}
    text = shown(proofs.proof(said, succeeded=False))
    assert "not installed  it is for Python 3.8" in text
    assert "not proven" in text


def test_terminals_are_not_attacked() -> None:
    evil = proofs.check("\x1b[2J\x1b]0;x\x07name", "failed", output="\x1b[31m\x9b5mtext\u202e")
    text = shown(
        proofs.proof({**proofs.wheel(evil, agreement="open"), "file": "a\x1b[1mb.whl"}, succeeded=False), verbose=True
    )
    assert "\x1b" not in text
    assert "\x9b" not in text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": "cuwheel.doctor/1"}, "schema"),
        ({"machine": None}, "machine"),
        ({"wheels": {}}, "wheels"),
        ({"seconds": "many"}, "seconds"),
        ({"unheard": 1}, "unknown key 'unheard'"),
        ({"wheels": [{**proofs.wheel(), "sha256": "AB" * 32}]}, "has no SHA-256"),
        ({"wheels": [{**proofs.wheel(), "agreement": "yes"}]}, "agreement"),
        ({"wheels": [{**proofs.wheel(), "prediction": {}}]}, "prediction"),
    ],
)
def test_what_is_no_proof_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(MalformedError, match=problem):
        parsed({**proofs.proof(proofs.wheel()), **change})


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"schema": 1}', b"[" * 99_999, b'{"a":' * 9999]
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        proof.parse_proof(data, "x")


def test_later_schemas_are_said() -> None:
    with pytest.raises(NewerSchemaError):
        parsed({**proofs.proof(), "schema": "cuwheel.proof/2"})
    with pytest.raises(CuwheelError):
        parsed({**proofs.proof(), "schema": "cuwheel.proof/²"})


def test_proofs_of_other_wheels(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    here = tmp_path / "foo-1.0-py3-none-any.whl"
    here.write_bytes(b"other bytes")
    path.write_text(json.dumps(proofs.proof(proofs.wheel(proofs.check()))))
    assert proof.read_proof(path).succeeded
    found = proof.read_proof(path, [here])
    assert not found.succeeded
    assert found.findings[0].rule == "proof-of-another"
    assert "another file with the same name" in found.findings[0].message


def test_missing_and_huge_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        proof.read_proof(tmp_path / "none.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(proof._LIMIT + 1)
    with pytest.raises(MalformedError, match="more than"):
        proof.read_proof(huge)


KEPT = sorted((Path(__file__).parents[3] / "docs" / "why" / "proofs").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_hardware_agreed_in_every_proof_that_is_kept(path: Path) -> None:
    found = proof.read_proof(path)
    assert {wheel.agreement for wheel in found.wheels} == {"agreed"}
    assert found.machine.gpus
    assert not [each for each in found.findings if each.severity == "error"]
