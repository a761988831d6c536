"""`catalogue` of an index on loopback, and `find` that asks it instead of reading wheels."""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery import catalogue, cataloguing, judging
from cuwheel.device_code import wheel_facts
from cuwheel.errors import NetworkError, NewerSchemaError, UsageError
from cuwheel.facts import torch
from cuwheel.machine.fleet import Machine
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.answer import to_json
from cuwheel.verdicts import torch_releases
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.support import buffer
from cuwheel_core.support.buffer import MemoryBuffer
from tests.integration.index_server import clean_environment, serving
from tests.integration.test_find import FIXTURES, LINUX, NATIVE, TAG, _served, _wheel
from tests.lint.test_docs import ROOT, generator

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.index_server import Behaviour

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    for module in ("cataloguing", "catalogue"):  # the former takes the name along when it is imported: so before
        monkeypatch.setattr(f"cuwheel.delivery.{module}.SHIPPED", tmp_path / "none")


@pytest.fixture
def index(tmp_path: Path) -> Behaviour:
    wheels = [_wheel(tmp_path / "dist", each, NATIVE) for each in ("1.0", "1.0.1", "1.1", "2.0")]
    return _served(wheels, facts=False)


def test_the_newest_and_the_oldest_of_each_minor_release_are_added_once(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        first = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        again = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    assert [(each.version, each.outcome) for each in first.rows] == [
        ("2.0", "added"),
        ("1.1", "added"),
        ("1.0.1", "added"),
        ("1.0", "added"),
    ]
    assert {each.outcome for each in again.rows} == {"known"}
    assert again.wheels == 4
    assert first.succeeded
    jsonschema.validate(json.loads(to_json(first)), json.loads((SCHEMAS / "catalogue-1.json").read_text()))


def test_releases_that_begin_with_zeros_are_minor_ones_each(tmp_path: Path) -> None:
    wheels = [_wheel(tmp_path / "dist", each, NATIVE) for each in ("0.0.8", "0.0.9", "0.0.9.post1", "0.1.0", "0.1.1")]
    with serving(_served(wheels, facts=False)) as address:
        found = api.catalogue(["demo"], to=tmp_path / "catalogue", indexes=[f"{address}/simple"])
    assert [each.version for each in found.rows] == ["0.1.1", "0.1.0", "0.0.9.post1", "0.0.9", "0.0.8"]


def test_builds_for_several_cudas_are_held_each(tmp_path: Path) -> None:
    versions = ["1.0.0+cu126", "1.0.1+cu126", "1.0.1+cu130", "1.0.1"]
    wheels = [_wheel(tmp_path / "dist", each, NATIVE) for each in versions]
    with serving(_served(wheels, facts=False)) as address:
        found = api.catalogue(["demo"], to=tmp_path / "catalogue", indexes=[f"{address}/simple"])
    assert {each.version for each in found.rows} == set(versions)


def test_find_asks_the_catalogue_and_reads_no_wheel(
    index: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "another"))
        found = api.find("demo==2.0", on=["h100"], refine=LINUX, indexes=[f"{address}/simple"], catalogues=[str(to)])
    assert found.downloaded == 0
    assert [(each.version, each.outcome, each.known_from) for each in found.candidates] == [
        ("2.0", "native", "catalogue")
    ]


def test_wheels_for_other_pythons_are_known_by_their_release(tmp_path: Path) -> None:
    """One wheel of a release is held, and whoever has another Python asks about another file."""
    tags = [f"cp{each}-cp{each}-manylinux_2_28_x86_64" for each in ("311", "312", "313")]
    tags.append("cp313-cp313t-manylinux_2_28_x86_64")
    behaviour = _served([_wheel(tmp_path / "dist", "1.0", NATIVE, each) for each in tags], facts=False)
    to = tmp_path / "catalogue"
    with serving(behaviour) as address:
        added = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        found = api.find("demo", on=["h100"], refine=LINUX, indexes=[f"{address}/simple"], catalogues=[str(to)])
    assert [each.file for each in added.rows] == ["demo-1.0-cp313-cp313-manylinux_2_28_x86_64.whl"]
    assert found.downloaded == 0
    chosen = found.candidates[0]
    assert (chosen.file, chosen.known_from) == ("demo-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", "catalogue")
    assert (chosen.chosen, chosen.outcome) == (True, "native")


def test_of_several_builds_of_a_release_the_latest_is_held(tmp_path: Path) -> None:
    """As it is the one that installers take: of the others nobody asks."""
    tags = [f"{build}cp312-cp312-manylinux_2_28_x86_64" for build in ("", "1_5-", "2-", "10_1-")]
    behaviour = _served([_wheel(tmp_path / "dist", "1.0", NATIVE, each) for each in tags], facts=False)
    to = tmp_path / "catalogue"
    with serving(behaviour) as address:
        added = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        found = api.find("demo", on=["h100"], refine=LINUX, indexes=[f"{address}/simple"], catalogues=[str(to)])
    assert [each.file for each in added.rows] == ["demo-1.0-10_1-cp312-cp312-manylinux_2_28_x86_64.whl"]
    assert (found.downloaded, found.candidates[0].file) == (0, added.rows[0].file)


def test_patches_between_two_that_fail_are_not_read(tmp_path: Path) -> None:
    """The catalogue holds the first and the last patch of each minor release; those between were built alike."""
    dist = tmp_path / "dist"
    held = [_wheel(dist, "1.0.1", "plain-124.so"), *(_wheel(dist, each, NATIVE) for each in ("1.1.0", "1.1.2"))]
    rest = [_wheel(dist, "1.0.0", "plain-124.so"), _wheel(dist, "1.1.1", NATIVE)]
    to = tmp_path / "catalogue"
    with serving(_served(held, facts=False)) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    with serving(_served([*held, *rest], facts=False)) as address:
        place: Any = {"on": ["gtx 1080 ti"], "refine": LINUX, "indexes": [f"{address}/simple"], "catalogues": [str(to)]}
        found, alone = (api.find(wanted, **place) for wanted in ("demo", "demo>=1.1.1"))
    assert [(each.version, each.outcome) for each in found.candidates if each.chosen] == [("1.0.1", "native")]
    assert found.downloaded == 0
    reasons = {each.version: each.reasons[0] for each in found.candidates}
    assert reasons["1.1.1"] == "not looked into: neither 1.1.0 nor 1.1.2 runs"
    assert alone.downloaded > 0  # where nothing else tells, it could have been that one


def test_a_patch_is_read_before_an_older_minor_release_is_taken(tmp_path: Path) -> None:
    """The catalogue holds the last patch of each minor release: of one that fails, the patch before may run."""
    dist = tmp_path / "dist"
    held = [_wheel(dist, "1.0.1", "plain-124.so"), _wheel(dist, "1.1.1", NATIVE)]
    before = _wheel(dist, "1.1.0", "plain-124.so")
    to = tmp_path / "catalogue"
    with serving(_served(held, facts=False)) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    with serving(_served([*held, before], facts=False)) as address:
        place: Any = {"on": ["gtx 1080 ti"], "refine": LINUX, "indexes": [f"{address}/simple"], "catalogues": [str(to)]}
        found = api.find("demo", **place)
    assert [(each.version, each.known_from) for each in found.candidates if each.chosen] == [("1.1.0", "wheel")]


def test_wheels_for_other_systems_are_not_read(tmp_path: Path) -> None:
    """Where a GPU alone is named, the system is this machine's."""
    dist = tmp_path / "dist"
    held = [_wheel(dist, "1.0", "plain-124.so"), _wheel(dist, "1.1", "names-130.so")]
    others = [_wheel(dist, version, NATIVE, "py3-none-win_amd64") for version in ("1.0", "1.1")]
    to = tmp_path / "catalogue"
    with serving(_served([*held, *others], facts=False)) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        found = api.find("demo", on=["gtx 1080"], indexes=[f"{address}/simple"], catalogues=[str(to)])
    assert found.downloaded == 0
    assert [(each.file, each.outcome) for each in found.candidates if each.chosen] == [(held[0].name, "native")]
    assert {
        each.file: each.reasons[0] for each in found.candidates if each.kind == "wheel" and not each.known_from
    } == {each.name: "the operating system is linux, not windows" for each in others}


def test_a_wheel_for_any_platform_may_hold_libraries(tmp_path: Path) -> None:
    tags = ("py3-none-any", "py3-none-macosx_11_0_arm64", "py3-none-win_amd64")
    wheels = [_wheel(tmp_path / "dist", f"{number}.0", NATIVE, tag) for number, tag in enumerate(tags)]
    with serving(_served(wheels, facts=False)) as address:
        found = api.catalogue(["demo"], to=tmp_path / "catalogue", indexes=[f"{address}/simple"])
    assert [each.file for each in found.rows] == [wheels[0].name]


def test_wheels_for_other_systems_are_not_taken(tmp_path: Path) -> None:
    """Not the newest for Windows before one for Linux that runs, nor where there is none for Linux."""
    dist = tmp_path / "dist"
    newest, older = _wheel(dist, "1.1", NATIVE, "py3-none-win_amd64"), _wheel(dist, "1.0", NATIVE)
    for wheels, taken in (([newest, older], [older.name]), ([newest], [])):
        with serving(_served(wheels, facts=False)) as address:
            found = api.find("demo", on=["h100"], indexes=[f"{address}/simple"])
        assert [each.file for each in found.candidates if each.chosen] == taken


def test_only_a_library_of_others_runs(tmp_path: Path) -> None:
    """A package whose own code has nothing for a GPU does not serve it because a library that was put into it does."""
    dist = tmp_path / "dist"
    good, bad = _wheel(dist, "1.0", "plain-124.so"), _wheel(dist, "1.1", NATIVE)
    for each in (good, bad):
        with zipfile.ZipFile(each, "a") as archive:
            archive.write(FIXTURES / "plain-124.so", "demo.libs/libothers.so.12")
    to = tmp_path / "catalogue"
    with serving(_served([good, bad], facts=False)) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
        found = api.find("demo", on=["gtx 1080 ti"], refine=LINUX, indexes=[f"{address}/simple"])
    assert [(each.version, each.outcome) for each in found.candidates] == [("1.0", "native"), ("1.1", "partial")]
    listed = api.catalogue_list(to, on=["gtx 1080 ti", "h100"]).projects[0].newest
    assert [(each.machine, each.version) for each in listed] == [("gtx 1080 ti", "1.0"), ("h100", "1.1")]


def test_the_list_fits_the_screen(index: Behaviour, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    assert main(["catalogue", "list", str(to)]) == 0
    shown = capsys.readouterr().out
    assert "  demo     2.0     8.0 to 9.0, 10.0 to 12.0 jit\n" in shown
    assert " ".join(shown.split()).startswith(f"Catalogue in {to}: 4 wheels of 1 package, as of ")
    assert max(len(line) for line in shown.splitlines() if str(to) not in line) <= 80  # a path is never broken


def test_the_newest_release_for_each_machine_is_listed(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    found = api.catalogue_list(to, on=["h100", "v100"])
    assert [(each.machine, each.version) for each in found.projects[0].newest] == [("h100", "2.0"), ("v100", None)]
    assert found.projects[0].versions == ("2.0", "1.1", "1.0.1", "1.0")
    generations = api.catalogue_list(to).projects[0].newest
    assert {each.machine: each.version for each in generations}["9.0"] == "2.0"


def test_a_budget_that_is_spent_is_said_and_what_came_stays(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        found = api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"], budget=100)
    assert {each.outcome for each in found.rows} == {"over-budget"}
    assert not found.succeeded


def test_a_package_that_is_not_there_does_not_stop_the_others(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        found = api.catalogue(["absent", "demo"], to=to, indexes=[f"{address}/simple"])
    assert [each.outcome for each in found.rows] == ["failed", *["added"] * 4]


def test_damaged_catalogues_are_refused_with_words(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    held = to / "packs" / "demo.zst"
    digest = catalogue.CatalogueReader(to).contents.wheels[0].sha256
    held.write_bytes(b"not zstd")
    with pytest.raises(MalformedError, match="damaged"):
        catalogue.CatalogueReader(to).facts(digest)
    listed = to / catalogue.LIST
    listed.write_text(listed.read_text().replace("catalogue-list/1", "catalogue-list/9"))
    with pytest.raises(NewerSchemaError):
        _ = catalogue.CatalogueReader(to).contents
    listed.write_text("[]")
    with pytest.raises(MalformedError, match="is not a catalogue"):
        _ = catalogue.CatalogueReader(to).contents


def test_facts_of_another_wheel_are_not_believed(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as address:
        api.catalogue(["demo"], to=to, indexes=[f"{address}/simple"])
    held = to / "packs" / "demo.zst"
    first, second, *_ = catalogue.unpacked(held.read_bytes(), "").splitlines()
    digest = second[:64].decode()
    held.write_bytes(buffer.zstd_compressed(first + b"\n" + second[:65] + first[65:] + b"\n"))
    assert catalogue.CatalogueReader(to).facts(digest) is None
    assert catalogue.CatalogueReader(to).facts(hashlib.sha256(b"").hexdigest()) is None


def test_what_add_and_list_take_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["catalogue", "add", "torch"]) == 2
    assert main(["catalogue", "list", "--to", "x"]) == 2
    assert main(["catalogue", "list", "a", "b"]) == 2
    assert "hint" in capsys.readouterr().err
    with pytest.raises(UsageError):
        api.catalogue([], to=tmp_path)


def test_a_damaged_pack_is_told_and_read_anew(index: Behaviour, tmp_path: Path) -> None:
    to = tmp_path / "catalogue"
    with serving(index) as url:
        api.catalogue(["demo"], to=to, indexes=[f"{url}/simple"], days=0)
        held = catalogue.CatalogueReader(to)
        (to / "packs" / "demo.zst").write_bytes(b"no zstd")
        with pytest.raises(MalformedError):
            catalogue.CatalogueReader(to).facts(held.contents.wheels[0].sha256)
        mended = api.catalogue(["demo"], to=to, indexes=[f"{url}/simple"], days=0)
    assert {each.outcome for each in mended.rows} == {"added"}


def test_what_stops_it_leaves_what_was_read(index: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "catalogue"
    real = judging.facts_of
    read: list[str] = []

    def stopped(candidate: Any, *rest: Any) -> Any:
        read.append(candidate.file)
        if len(read) > 1:
            raise KeyboardInterrupt
        return real(candidate, *rest)

    monkeypatch.setattr(judging, "facts_of", stopped)
    monkeypatch.setattr(cataloguing, "_AT_ONCE", 1)
    with serving(index) as url, pytest.raises(KeyboardInterrupt):
        api.catalogue(["demo"], to=to, indexes=[f"{url}/simple"], days=0)
    assert [each.file for each in catalogue.CatalogueReader(to).contents.wheels] == read[:1]


def test_the_list_is_for_the_machines_own_system(tmp_path: Path) -> None:
    """A catalogue holds wheels for several systems; a machine of which nothing is said is Linux on x86-64."""
    dist = tmp_path / "dist"
    made = [_wheel(dist, "1.0", NATIVE), _wheel(dist, "2.0", NATIVE, "py3-none-win_amd64")]
    with serving(_served(made, facts=False)) as url:
        for platform in ("manylinux_2_28_x86_64", "win_amd64"):
            api.catalogue(["demo"], to=tmp_path / "facts", indexes=[f"{url}/simple"], days=0, platform=platform)
    windows = Machine(name="w", capability="9.0", os="windows", cpu="x86_64")  # type: ignore[arg-type]
    (project,) = api.catalogue_list(tmp_path / "facts", on=["h100", windows]).projects
    assert [each.version for each in project.newest] == ["1.0", None], "what is in 2.0 is a library of Linux"


@pytest.mark.parametrize(
    "problem", [NetworkError("http://example.com", "the line broke"), UnreadableError("/tmp", "full")]
)
def test_half_a_wheel_does_not_pass_for_a_whole_one(tmp_path: Path, problem: CuwheelError) -> None:
    """A line that breaks says nothing about what was not read, wherever it breaks."""

    class Breaking(MemoryBuffer):
        reads = 0
        last = 0

        def read(self, offset: int, count: int) -> bytes:
            Breaking.reads += 1
            if Breaking.reads == Breaking.last:
                raise problem
            return super().read(offset, count)

    path = _wheel(tmp_path, "1.0", NATIVE)

    def facts(*, breaks_at: int) -> wheel_facts.WheelFacts:
        Breaking.reads, Breaking.last = 0, breaks_at
        with WheelFile(path, Breaking(path.name, path.read_bytes())) as wheel:
            return wheel_facts.of_wheel(wheel, sha256="0" * 64)

    whole = facts(breaks_at=0)
    assert any(each.device_code for each in whole.libraries)
    reads = Breaking.reads
    assert reads > 5
    for place in range(1, reads + 1):
        with pytest.raises(type(problem)):
            facts(breaks_at=place)


def test_other_libraries_are_not_read_on_after_the_line_broke(tmp_path: Path) -> None:
    """Nor after Ctrl-C: whoever reads the large one stops at its next piece."""

    class Breaking(MemoryBuffer):
        heads = reads = 0

        def read(self, offset: int, count: int) -> bytes:
            Breaking.heads += offset < small
            Breaking.reads += offset > small
            time.sleep(0.005)
            if offset < small and Breaking.heads > heads:
                raise NetworkError("http://example.com", "the line broke")
            return super().read(offset, count)

    heads = 1 << 30
    path = tmp_path / f"demo-1.0-{TAG}.whl"
    code = (FIXTURES / NATIVE).read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=0) as archive:
        archive.writestr("demo/small.so", code)
        small = archive.start_dir
        archive.writestr("demo/large.so", code + bytes(16 << 20))
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    with WheelFile(path, Breaking(path.name, path.read_bytes())) as wheel:
        wheel_facts.of_wheel(wheel, sha256="0" * 64)
        whole, heads = Breaking.reads, Breaking.heads + 3
        Breaking.reads = 0
        with pytest.raises(NetworkError):
            wheel_facts.of_wheel(wheel, sha256="0" * 64)
    assert 0 < Breaking.reads < whole / 2


def test_the_page_says_what_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    page = (ROOT / "docs" / "why" / "catalogue-contents.md").read_text()
    held = catalogue.CatalogueReader(catalogue.SHIPPED).contents
    names = {each.name for each in held.wheels}
    assert f"up to {held.date}:\n{len(held.wheels)} wheels of {len(names)} packages" in page, "./run docs"
    assert {line.split(" | ")[0].strip("| ") for line in page.splitlines() if line.startswith("| ")} >= names


@pytest.mark.slow
def test_the_page_says_the_last_release_for_each_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    page = ROOT / "docs" / "why" / "catalogue-contents.md"
    assert page.read_text() == generator().catalogue_contents(), "./run docs"


def test_what_ships_goes_with_the_torch_that_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wheel's metadata pins is the truth: its symbols must say the same."""
    monkeypatch.undo()
    held = catalogue.CatalogueReader(catalogue.SHIPPED)
    known = {versions.minor(each) for each in torch.own_symbols().releases}
    checked = 0
    for each in held.contents.wheels:
        facts = held.facts(each.sha256)
        assert facts is not None
        survey = wheel_facts.survey(facts)
        specs = [spec for wanted in torch_releases.torch_requirements(survey) for spec in wanted.specifier]
        pins = {spec.version for spec in specs if spec.operator == "=="}
        if facts.torch_symbols and len(pins) == 1 and (pinned := versions.minor(pins.pop())) in known:
            assert torch_releases.fitting_torch_releases(survey) == (pinned,), each.file
            checked += 1
    assert checked > 20


def test_the_catalogue_that_ships_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    held = catalogue.CatalogueReader(catalogue.SHIPPED)
    assert len({each.name for each in held.contents.wheels}) >= 60
    for each in held.contents.wheels:
        facts = held.facts(each.sha256)
        assert facts is not None, each.file
        assert not [found for found in facts.findings if found.rule == "library-unreadable"], each.file
    found = api.catalogue_list(on=["gtx 1080 ti", "h100"])
    newest = {each.machine: each.version for row in found.projects if row.name == "bitsandbytes" for each in row.newest}
    assert newest["gtx 1080 ti"]
    assert newest["h100"]
