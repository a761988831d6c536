"""The page of an index: what is written for what is new, and that nothing in it can be taken for code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.delivery import page, page_verdicts, update
from cuwheel.delivery.simple_api import Hashes, Project, PublishedFile
from cuwheel.device_code import wheel_facts
from cuwheel.device_code.description import Description
from cuwheel.wheel.file import WheelFile
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from cuwheel.device_code.wheel_facts import WheelFacts

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> WheelFacts:
    parts = Wheel(tag="cp311-cp311-manylinux_2_28_x86_64", headers=["Requires-Python: >=3.11.2"])
    parts.files = {"subject/lib.so": (BIN / "plain-130.so").read_bytes()}
    with WheelFile(parts.write(tmp_path_factory.mktemp("wheel"))) as wheel:
        return wheel_facts.of_wheel(wheel)


def listed(file: str, **fields: Any) -> PublishedFile:
    return PublishedFile(filename=file, url=f"../../files/{file}", hashes=Hashes("0" * 64), **fields)


def value_of(script: bytes) -> Any:
    text = script.decode().rpartition("\ncuwheel(")[2] if script.startswith(b"//") else script.decode()[8:]
    assert text.endswith(");\n")
    return json.loads(f"[{text[:-3]}]")[2]


def test_what_is_new_is_written_and_nothing_else(facts: WheelFacts) -> None:
    files = [listed(f"subject-1.{number}-cp311-cp311-manylinux_2_28_x86_64.whl") for number in range(1000)]
    project = Project(name="subject", files=(listed(facts.file), *files))
    made = {**page.same_for_all(), **page.page_files([facts], [project], ["subject", "other"])}
    wheels = [path for path in made if path.startswith("page/wheels/")]
    assert sorted(wheels) == sorted(page.paths_of_wheel(facts.file))
    assert [path for path in made if path.startswith("page/projects/")] == [page.project_path("subject")]
    assert len(made[page.project_path("subject")]) < 100 * 1001
    assert b'href="simple/other/index.html"' in made["index.html"]
    assert made == {**page.same_for_all(), **page.page_files([facts], [project], ["other", "subject"])}


def test_releases_are_in_order_and_labels_make_none_of_their_own() -> None:
    names = ["1.9", "1.10", "1.10+cu126", "1.10+cu130", "1.10rc1"]
    project = update.project_page("a", [listed(f"a-{each}-py3-none-any.whl") for each in names])
    releases = value_of(page.project_script(project))["releases"]
    assert [release for release, _ in releases] == ["1.10", "1.10rc1", "1.9"]
    assert [row["file"].split("-")[1] for row in releases[0][1]] == ["1.10+cu130", "1.10+cu126", "1.10"]


def test_files_that_lie_elsewhere_keep_their_address() -> None:
    there = replace(listed("a-1-py3-none-any.whl"), url="https://files.example.com/a-1-py3-none-any.whl")
    ((_, rows),) = value_of(page.project_script(Project(name="a", files=(there,))))["releases"]
    assert rows == [{"file": there.filename, "url": there.url}]


def test_yanked_files_and_the_torch_of_a_channel_are_told() -> None:
    first = listed("a-1-py3-none-any.whl", yanked="broken", channels=("cu130", "cu130/torch2.11"))
    variants = PublishedFile(filename="a-1-variants.json", url="x", hashes=Hashes())
    ((_, rows),) = value_of(page.project_script(Project(name="a", files=(first, variants))))["releases"]
    assert [(row["yanked"], row["torch"]) for row in rows] == [("broken", "2.11")]


def test_what_somebody_wrote_cannot_end_a_script_or_a_tag(facts: WheelFacts) -> None:
    told = replace(facts, name=EVIL, version=EVIL, requires_dist=(EVIL,), requires_python=EVIL, tags=(EVIL,))
    told = replace(told, description=Description(cuda=EVIL, archs=(EVIL,), requires=(EVIL,)))
    libraries = [replace(each, path=EVIL, soname=EVIL, needed=(EVIL,)) for each in told.libraries]
    told = replace(told, libraries=tuple(libraries))
    made = page.page_files(
        [told], [Project(name="subject", files=(listed(facts.file, yanked=EVIL),))], ["subject", EVIL]
    )
    for path, data in made.items():
        text = data.decode()
        if path in ("page/page.js", "page/page.css"):
            continue
        assert "<script>alert" not in text
        assert "<img" not in text
        assert not path.endswith(".js") or "<" not in text
        assert "\u2028" not in text


def test_a_python_that_the_metadata_excludes_is_told(facts: WheelFacts) -> None:
    value = value_of(page.wheel_script(facts))
    assert value["excluded"] == ["3.8", "3.9", "3.10"]
    there = value["places"]["linux-x86_64"]
    assert there["refused"]["3.12"] == "Python is 3.12, not 3.11"
    assert "3.11" not in there["refused"]
    assert value["refused"]["windows-x86_64"] == "the operating system is windows, not linux"


def test_a_script_is_small(facts: WheelFacts) -> None:
    assert len(page.wheel_script(facts)) < 40_000


def test_every_capability_has_steps_for_every_torch(facts: WheelFacts) -> None:
    told = page_verdicts.verdicts_of_wheel(facts)
    for place in page_verdicts.PLACES:
        if place.key in told.refused:
            continue
        there = told.places[place.key]
        assert set(there.torch) == {"", *page_verdicts.torch_cudas()}
        for table in there.tables:
            assert set(table) == {str(each) for each in page_verdicts.capabilities(place)}


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        (["jax[cuda12]; extra == 'cuda12'", "jax[cuda13]; extra == 'cuda13'"], {"12": "cuda12", "13": "cuda13"}),
        (["jax-cuda12-plugin; extra == 'cuda12-local'", "pytest; extra == 'dev'"], {}),
        (["nvidia-cublas-cu12; sys_platform == 'linux' and extra == 'cuda'"], {"12": "cuda"}),
        (["nvidia-cublas-cu12; extra == 'gpu'", "cupy-cuda13x; extra == 'gpu'"], {}),
        (["cuda-toolkit; extra == 'cu128'"], {"12": "cu128"}),
        (["torch", "no requirement ;;"], {}),
    ],
)
def test_the_extras_that_bring_cuda_are_known_by_its_major(requires: list[str], expected: dict[str, str]) -> None:
    assert page.cuda_extras(requires) == expected
