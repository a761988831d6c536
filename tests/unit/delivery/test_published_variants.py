"""`publish --variants`: variants, the document that installers read, a channel with them alone, and checks of all."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.changes.stamp import variants
from cuwheel.delivery import transaction
from cuwheel.wheel import variant
from cuwheel_core.errors import MalformedError
from tests.fixtures.variant_wheels import TAG, labelled, plain, says
from tests.unit.delivery.published import names, page, state

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit
DOCUMENT = "pkg-1.0-variants.json"
CU130, CU124 = "cu130_sm75_90_100", "cu124_sm60_75_90"


def wheels(folder: Path) -> list[Path]:
    return [plain(folder, "names-130.so", "1.0+cu130"), plain(folder, "names-124.so", "1.0+cu124")]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    cuwheel.publish(wheels(tmp_path / "dist"), to=tmp_path / "index", variants=True)
    return tmp_path / "index"


def labels(index: Path) -> set[str]:
    return set(json.loads((index / "files" / DOCUMENT).read_bytes())["variants"])


def problems(index: Path) -> list[str]:
    return [each.rule for each in api.publish_check(index).findings]


def test_variants_and_their_document_are_published(tmp_path: Path) -> None:
    answer = cuwheel.publish(wheels(tmp_path / "dist"), to=tmp_path / "index", variants=True)
    index = tmp_path / "index"
    assert {each.label: each.made_from for each in answer.variants} == {
        CU130: f"pkg-1.0+cu130-{TAG}.whl",
        CU124: f"pkg-1.0+cu124-{TAG}.whl",
    }
    assert {each.document for each in answer.variants} == {DOCUMENT}
    assert labels(index) == {CU130, CU124}
    assert problems(index) == []
    assert not [each for each in tmp_path.iterdir() if each.name not in ("dist", "index")]  # nothing is left beside


def test_the_channel_has_variants_their_document_and_one_plain_wheel(index: Path) -> None:
    """Versions with a label would outrank the variants."""
    listed = names(index, "variants/simple/pkg")
    assert listed == sorted([DOCUMENT, *(f"pkg-1.0-{TAG}{each}.whl" for each in ("", f"-{CU130}", f"-{CU124}"))])
    assert all(each["url"].startswith("../../../files/") for each in page(index, "variants/simple/pkg")["files"])
    assert [each for each in names(index, "cu130/simple/pkg") if CU130 in each] == []
    assert f"pkg-1.0+cu130-{TAG}.whl" in names(index, "simple/pkg")


def test_the_answer_says_where_each_wheel_stands(tmp_path: Path) -> None:
    answer = cuwheel.publish(plain(tmp_path, "names-130.so"), to=tmp_path / "index", variants=True)
    assert {each.file.removesuffix(".whl").rpartition("-")[2]: each.channels for each in answer.wheels} == {
        "manylinux_2_28_x86_64": ("cu130", "variants"),
        CU130: ("variants",),
    }


def test_find_prefers_a_plain_wheel_to_a_variant_that_is_no_better(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuwheel.network.resolver.public_index", lambda: "https://public.test/simple")
    monkeypatch.setattr("cuwheel.machine.fleet.system_here", lambda: "linux")  # where neither fits, names decide
    monkeypatch.setattr("cuwheel.machine.fleet.cpu_here", lambda: "x86_64")
    found = cuwheel.find("pkg", indexes=[str(index / "variants" / "simple")], on=["7.5"])
    assert found.candidates[0].file == f"pkg-1.0-{TAG}.whl"
    better = cuwheel.find("pkg", indexes=[str(index / "variants" / "simple")], on=["10.0"])  # only CUDA 13.0 has it
    assert better.candidates[0].file == f"pkg-1.0-{TAG}-{CU130}.whl"


def test_the_document_has_no_hash_as_it_changes(index: Path) -> None:
    found = next(each for each in page(index, "simple/pkg")["files"] if each["filename"] == DOCUMENT)
    assert found["hashes"] == {}
    assert found["size"] == (index / "files" / DOCUMENT).stat().st_size
    assert DOCUMENT not in (index / "SHA256SUMS").read_text()


def test_the_same_again_changes_nothing(tmp_path: Path, index: Path) -> None:
    before = state(index)
    answer = cuwheel.publish(wheels(tmp_path / "dist"), to=index, variants=True)
    assert state(index) == before
    assert answer.changes == ()


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    answer = cuwheel.publish(wheels(tmp_path / "dist"), to=tmp_path / "index", variants=True, dry_run=True)
    assert not (tmp_path / "index").exists()
    assert len(answer.variants) == 2
    assert f"files/{DOCUMENT}" in {each.path for each in answer.changes}


def test_the_document_grows_and_shrinks_with_the_variants(tmp_path: Path) -> None:
    index = tmp_path / "index"
    first, second = wheels(tmp_path / "dist")
    cuwheel.publish(first, to=index, variants=True)
    assert labels(index) == {CU130}
    cuwheel.publish(second, to=index, variants=True)
    assert labels(index) == {CU130, CU124}
    assert problems(index) == []
    cuwheel.publish(to=index, remove=[f"pkg-1.0-{TAG}-{CU130}.whl"])
    assert labels(index) == {CU124}
    assert problems(index) == []
    cuwheel.publish(to=index, remove=[f"pkg-1.0-{TAG}-{CU124}.whl"])
    assert not (index / "files" / DOCUMENT).exists()
    assert DOCUMENT not in names(index, "simple/pkg")
    assert not (index / "variants").exists()
    assert problems(index) == []


def test_variants_that_a_build_wrote_are_published_as_they_are(tmp_path: Path) -> None:
    given = wheels(tmp_path / "dist")
    variants.write_all(given, tmp_path / "dist")
    cuwheel.publish(tmp_path / "dist", to=tmp_path / "index")
    assert labels(tmp_path / "index") == {CU130, CU124}
    assert problems(tmp_path / "index") == []
    before = state(tmp_path / "index")
    cuwheel.publish(tmp_path / "dist", to=tmp_path / "index", variants=True)
    assert state(tmp_path / "index") == before


def test_a_wheel_without_a_label_is_the_plain_one(tmp_path: Path) -> None:
    index = tmp_path / "index"
    wheel = plain(tmp_path / "dist", "names-130.so")
    cuwheel.publish(wheel, to=index)
    assert not (index / "variants").exists()
    cuwheel.publish(wheel, to=index, variants=True)
    assert names(index, "variants/simple/pkg") == sorted([DOCUMENT, wheel.name, f"pkg-1.0-{TAG}-{CU130}.whl"])
    assert page(index, "cu130/simple/pkg")["versions"] == ["1.0"]
    assert problems(index) == []


def test_a_variant_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    wheel = labelled(plain(tmp_path, "names-130.so"), says("x", "120_real"), "x")
    answer = cuwheel.publish(wheel, to=tmp_path / "index")
    assert [each.rule for each in answer.findings] == ["variant-untrue"]
    assert not (tmp_path / "index").exists()


def test_what_no_value_names_is_said(tmp_path: Path) -> None:
    answer = cuwheel.publish(plain(tmp_path, "specific-130.so"), to=tmp_path / "index", variants=True)
    assert [each.rule for each in answer.findings] == ["variant-unsaid"]


def test_one_label_with_two_meanings_is_refused(tmp_path: Path, index: Path) -> None:
    before = state(index)
    wheel = plain(tmp_path, "names-130.so", tag=TAG.replace("310", "311"))
    with pytest.raises(MalformedError, match="are for different machines"):
        cuwheel.publish(labelled(wheel, says(CU130, "90_real"), CU130), to=index)
    assert state(index) == before


def test_with_files_elsewhere_so_is_the_document(tmp_path: Path) -> None:
    index = tmp_path / "index"
    cuwheel.publish(wheels(tmp_path / "dist"), to=index, variants=True, files_url="https://files.example.com/a")
    found = next(each for each in page(index, "simple/pkg")["files"] if each["filename"] == DOCUMENT)
    assert found["url"] == f"https://files.example.com/a/{DOCUMENT}"


def broken(index: Path, how: str) -> None:
    path = index / "files" / DOCUMENT
    document = variant.parse(path.read_bytes(), DOCUMENT)
    data = {
        "not JSON": b"{",
        "a label less": variant.encoded(variant.for_nvidia(document.variants[:1])),
        "a label more": variant.encoded(variant.for_nvidia([*document.variants, says("x", "90_real")])),
        "another meaning": path.read_bytes().replace(b"90_real", b"86_real"),
    }[how]
    before = path.stat().st_size
    path.write_bytes(data)
    for folder in ("simple", "variants/simple"):
        for file, field in (("index.json", '"size":{}'), ("index.html", 'data-size="{}"')):
            place = index / folder / "pkg" / file
            place.write_text(place.read_text().replace(field.format(before), field.format(len(data))))


@pytest.mark.parametrize("how", ["not JSON", "a label less", "a label more", "another meaning"])
def test_a_document_that_is_wrong_is_named(index: Path, how: str) -> None:
    broken(index, how)
    found = api.publish_check(index).findings
    assert "index-variants" in [each.rule for each in found]
    cuwheel.publish(index / "files", to=index)
    assert problems(index) == []


def test_a_document_that_is_missing_is_named_and_made_again(index: Path) -> None:
    (index / "files" / DOCUMENT).unlink()
    assert "index-link" in problems(index)
    cuwheel.publish(index / "files", to=index)
    assert problems(index) == []
    assert labels(index) == {CU130, CU124}


class _Stopped(BaseException):
    """As if the process had been killed."""


def test_interrupted_at_any_step_every_variant_that_is_linked_to_is_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = wheels(tmp_path / "dist")
    original, do, steps = tmp_path / "original", transaction._commit, 1
    cuwheel.publish(first, to=original, variants=True)
    for number in range(0, 100, 5):
        index = tmp_path / f"index-{number}"
        shutil.copytree(original, index)
        left = [number]

        def stopping(*given: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise _Stopped
            do(*given)

        with monkeypatch.context() as patched, contextlib.suppress(_Stopped):
            patched.setattr(transaction, "_commit", stopping)
            cuwheel.publish(second, to=index, variants=True)
        assert CU130 in labels(index)  # what was served before still is
        assert (index / "files" / f"pkg-1.0-{TAG}-{CU130}.whl").exists()
        cuwheel.publish(second, to=index, variants=True)
        assert labels(index) == {CU130, CU124}
        assert problems(index) == []
        if left[0] >= 0:
            break
        steps += 1
    assert 2 < steps < 20
