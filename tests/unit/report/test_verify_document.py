"""What `verify` says to people: what was foreseen otherwise first, a first line that is true, output of what failed."""

from __future__ import annotations

import io
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from cuwheel.proving.outcomes import Check, Installation, Kit, Result, Verified, Verify
from cuwheel.report import html, terminal
from cuwheel.report.answer import SCHEMAS, document_of
from cuwheel.support.answer import to_json
from cuwheel_core.support.finding import Finding, Fix

CHECK = Check(name="run", kind="python", text="", origin="configuration", gpu=True, timeout=1, memory=1)
PASSED = Result(name="import x", kind="import", origin="wheel", outcome="passed", seconds=1.25, version="1.0")
CRASHED = Result(
    name="run",
    kind="python",
    origin="configuration",
    outcome="crashed",
    signal="SIGSEGV",
    problem="ended by SIGSEGV",
    output="\n".join(f"line {number}" for number in range(40)),
)
SKIPPED = replace(
    CRASHED, name="elsewhere", outcome="skipped", problem="needs a GPU, but this machine has none", output=""
)
WRONG = Finding(
    rule="record-hash",
    severity="error",
    message="the hash is wrong",
    evidence=("a", "b", "c", "d"),
    fixes=(Fix(text="f"),),
)


def answer(*results: Result, findings: tuple[Finding, ...] = (), **more: Any) -> Verify:
    tried = Installation(python="3.11.7", outcome="passed", packages=("x==1.0", "y==2"), checks=results)
    tried = replace(tried, **more)
    wheel = Verified(
        target="x.whl",
        file="x-1.0-py3-none-any.whl",
        name="x",
        version="1.0",
        size=1234,
        sha256="00",
        findings=findings,
        installations=(tried,),
    )
    return Verify(wheels=(wheel,))


def shown(given: Verify, monkeypatch: pytest.MonkeyPatch, *, verbose: bool = False) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    terminal.write(document_of(given, verbose=verbose), stream)
    return stream.getvalue()


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    given = answer(PASSED, SKIPPED)
    text = shown(given, monkeypatch)
    assert given.succeeded
    assert "RECORD, tags, metadata and licences are fine" in text
    assert "with 1 other package; no GPU" in text
    assert "needs a GPU, but this machine has none" in " ".join(text.split())
    assert text.startswith("x 1.0: verified: 1 skipped, 1 passed\n")


def test_a_failure_shows_the_end_of_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    given = answer(PASSED, CRASHED, findings=(WRONG,))
    text = shown(given, monkeypatch)
    assert not given.succeeded
    assert "line 39" in text
    assert "line 2\n" not in text
    assert "because c" in text
    assert "because d" not in text
    assert text.startswith("x 1.0: not verified: 1 error, 1 crashed, 1 passed\n")
    long = shown(given, monkeypatch, verbose=True)
    assert "line 2\n" in long
    assert "because d" in long


def test_what_was_foreseen_otherwise_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    against = Finding(rule="prediction-contradicted", severity="error", message="foreseen and not so")
    given = answer(PASSED, contradictions=(against,))
    assert not given.succeeded
    assert shown(given, monkeypatch).startswith("Predicted otherwise")
    better = answer(PASSED, contradictions=(replace(against, severity="warning"),))
    assert better.succeeded
    assert shown(better, monkeypatch).startswith("Predicted otherwise")


@pytest.mark.parametrize(
    ("more", "text", "succeeded"),
    [
        ({"outcome": "failed", "problem": "no such package"}, "Python 3.11.7: not installed", False),
        ({"outcome": "skipped", "problem": "its tags do not allow it"}, "Python 3.11.7: skipped", True),
        ({"stub": True}, "libcuda is a stub that answers 'no device'", True),
        ({"gpus": ("9.0",)}, "GPUs of 9.0", True),
        ({"folder": "/somewhere/env"}, "kept: /somewhere/env", True),
        ({"findings": (WRONG,)}, "the hash is wrong", False),
        ({"outcome": "planned", "planned": (CHECK,), "requirements": ("x.whl", "y")}, "would install x.whl, y", True),
    ],
)
def test_environments(more: dict[str, Any], text: str, succeeded: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    given = answer(**more)
    assert text in " ".join(shown(given, monkeypatch).split())
    assert given.succeeded == succeeded


def test_a_kit_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(answer(), kit=Kit(path="/a/kit.pyz", size=5000, sha256="00", checks=3))
    text = shown(given, monkeypatch)
    assert "python3 kit.pyz" in text
    assert text.startswith("x 1.0: packed: nothing was installed here\n")


def test_json_fits_its_schema_and_the_page_is_whole() -> None:
    given = answer(PASSED, CRASHED, findings=(WRONG,), planned=(CHECK,))
    schema = msgspec.json.decode((SCHEMAS / "verify-1.json").read_bytes())
    jsonschema.validate(msgspec.json.decode(to_json(given)), schema)
    assert "ended by SIGSEGV" in html.page(document_of(given, verbose=True))
