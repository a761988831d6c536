"""Attestations that lie beside a wheel: carried into the index where they are about it, refused where not."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.delivery import signatures
from tests.unit.delivery import published
from tests.unit.delivery.published import cuda_wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_GITHUB = b"\x30\x82https://github.com/ann/foo/.github/workflows/wheels.yml@refs/tags/v1\x01"
_GITLAB = b"\x30https://gitlab.com/team/group/foo//.gitlab-ci.yml@refs/heads/main\x01"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def attestation(wheel: Path, certificate: bytes = _GITHUB, **changed: Any) -> dict[str, Any]:
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": wheel.name, "digest": {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}}],
        "predicateType": "https://example.org/attestations/publish/v1",
        "predicate": None,
        **changed,
    }
    return {
        "version": 1,
        "verification_material": {"certificate": _text(certificate), "transparency_entries": [{"logIndex": "1"}]},
        "envelope": {"statement": _text(json.dumps(statement).encode()), "signature": _text(b"signed")},
    }


def _beside(wheel: Path, value: object, suffix: str = ".publish.attestation") -> None:
    wheel.with_name(wheel.name + suffix).write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.mark.parametrize(
    ("certificate", "publisher"),
    [
        (_GITHUB, {"kind": "GitHub", "repository": "ann/foo", "workflow": "wheels.yml"}),
        (_GITLAB, {"kind": "GitLab", "repository": "team/group/foo", "workflow_filepath": ".gitlab-ci.yml"}),
    ],
)
def test_carried_into_the_index(tmp_path: Path, certificate: bytes, publisher: dict[str, str]) -> None:
    wheel, root = cuda_wheel(tmp_path / "dist"), tmp_path / "index"
    _beside(wheel, attestation(wheel, certificate))
    assert cuwheel.publish(wheel, to=root).succeeded
    file = root / "files" / f"{wheel.name}.provenance"
    (bundle,) = json.loads(file.read_text())["attestation_bundles"]
    assert bundle["publisher"] == publisher
    assert bundle["attestations"] == [attestation(wheel, certificate)]
    for page, up in (("simple/foo", "../../"), ("cu130/simple/foo", "../../../")):
        (row,) = published.page(root, page)["files"]
        assert row["provenance"] == f"{up}files/{wheel.name}.provenance"
        assert "data-provenance" not in published.anchors(root, page)[0][1]  # HTML may have https addresses alone
    assert f"{hashlib.sha256(file.read_bytes()).hexdigest()}  files/{file.name}\n" in (root / "SHA256SUMS").read_text()
    assert api.publish_check(root).findings == ()
    before = published.state(root)
    cuwheel.publish(root / "files", to=root)
    assert published.state(root) == before
    cuwheel.publish(cuda_wheel(tmp_path / "again"), to=root)  # without: what is known of it stays
    assert published.state(root) == before
    cuwheel.publish(to=root, remove=["foo==1.0"])
    assert not file.exists()


def test_linked_in_html_where_the_files_have_an_address(tmp_path: Path) -> None:
    wheel, root = cuda_wheel(tmp_path / "dist"), tmp_path / "index"
    _beside(wheel, attestation(wheel))
    cuwheel.publish(wheel, to=root, files_url="https://files.example.com/v1")
    address = f"https://files.example.com/v1/{wheel.name}.provenance"
    assert f'data-provenance="{address}"' in published.anchors(root, "simple/foo")[0][1]
    assert published.page(root, "simple/foo")["files"][0]["provenance"] == address


def test_a_whole_provenance_is_taken_as_it_is(tmp_path: Path) -> None:
    wheel, root = cuda_wheel(tmp_path / "dist"), tmp_path / "index"
    bundle = {"publisher": {"kind": "Own", "claims": {"a": 1}}, "attestations": [attestation(wheel, b"any")]}
    _beside(wheel, {"version": 1, "attestation_bundles": [bundle]}, ".provenance")
    assert cuwheel.publish(wheel, to=root).succeeded
    made = json.loads((root / "files" / f"{wheel.name}.provenance").read_text())
    assert made == {"version": 1, "attestation_bundles": [bundle]}


def _without(key: str) -> Callable[[Path], object]:
    return lambda wheel: {name: value for name, value in attestation(wheel).items() if name != key}


_WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "not JSON": (lambda _wheel: "{", "form of PEP 740"),
    "no envelope": (_without("envelope"), "form of PEP 740"),
    "a newer version": (lambda wheel: {**attestation(wheel), "version": 2}, "version 2"),
    "of another file": (lambda wheel: attestation(wheel, subject=[{"name": "x", "digest": {}}]), "about 'x'"),
    "of other content": (
        lambda wheel: attestation(wheel, subject=[{"name": wheel.name, "digest": {"sha256": "0" * 64}}]),
        "other content",
    ),
    "of two files": (lambda wheel: attestation(wheel, subject=[{"name": "x", "digest": {}}] * 2), "about one file"),
    "another statement": (lambda wheel: attestation(wheel, _type="https://example.com"), "in-toto"),
    "of nobody": (lambda wheel: attestation(wheel, b"nobody"), "GitHub, GitLab"),
    "not base64": (
        lambda wheel: {**attestation(wheel), "envelope": {"statement": "%", "signature": "%"}},
        "not base64",
    ),
}


@pytest.mark.parametrize("case", _WRONG)
def test_one_that_is_wrong_is_refused(case: str, tmp_path: Path) -> None:
    wheel, root = cuda_wheel(tmp_path / "dist"), tmp_path / "index"
    made, words = _WRONG[case]
    _beside(wheel, made(wheel))
    answer = cuwheel.publish(wheel, to=root)
    assert [each.rule for each in answer.findings] == ["attestation-wrong"]
    assert words in answer.findings[0].message
    assert published.state(root) == {}


@pytest.mark.parametrize("damage", ["gone", "other"])
def test_damaged_in_the_index_it_is_named(damage: str, tmp_path: Path) -> None:
    wheel, root = cuda_wheel(tmp_path / "dist"), tmp_path / "index"
    _beside(wheel, attestation(wheel))
    cuwheel.publish(wheel, to=root)
    file = root / "files" / f"{wheel.name}.provenance"
    file.unlink() if damage == "gone" else file.write_text("{}")
    assert "index-provenance" in {each.rule for each in api.publish_check(root).findings}


def test_a_machine_without_an_identity_says_so(tmp_path: Path) -> None:
    wheel = cuda_wheel(tmp_path / "dist")
    (told,) = signatures.make_attestations([wheel], {})
    assert (told.rule, told.severity) == ("attestation-no-identity", "warning")
    assert "ACTIONS_ID_TOKEN_REQUEST_URL is not set" in told.evidence
    assert cuwheel.publish(wheel, to=tmp_path / "index", attest=True).succeeded
