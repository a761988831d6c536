"""`find` against indexes on loopback: with facts files and without, by folder, by page, on several machines."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery import best_candidate, search_policy
from cuwheel.delivery.find_answer import Find, FoundFile
from cuwheel.delivery.request import FindRequest
from cuwheel.delivery.search_policy import Limits
from cuwheel.device_code import wheel_facts
from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.machine import fleet, probe
from cuwheel.machine.fleet import Machine, Refinement
from cuwheel.report import find as find_report
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.answer import to_json
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.verdicts.condition import condition
from tests.integration.index_server import Behaviour, clean_environment, serving
from tests.integration.install_world import wheel
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bin"
LINUX = Refinement(os="linux", cpu="x86_64", glibc="2.36", python="3.11", driver="580.65.06")
TAG = "py3-none-manylinux_2_28_x86_64"
NATIVE = "plain-130.so"  # 8.0, 9.0 and PTX for 9.0


def _wheel(folder: Path, version: str, fixture: str | None, tag: str = TAG, requires: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo-{version}-{tag}.whl"
    info = f"demo-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if fixture:
            archive.write(FIXTURES / fixture, "demo/libdemo.so")
        archive.writestr("demo/__init__.py", "")
        wanted = f"Requires-Dist: {requires}\n" if requires else ""
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n{wanted}")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def _served(wheels: list[Path], *, facts: bool, kind: str = "json", **keys: Any) -> Behaviour:
    files, rows = {}, []
    for each in wheels:
        body = each.read_bytes()
        digest = hashlib.sha256(body).hexdigest()
        files[f"/files/{each.name}"] = body
        row = {"filename": each.name, "url": f"../../files/{each.name}", "hashes": {"sha256": digest}, **keys}
        if facts:
            with WheelFile(each) as wheel:
                told = wheel_facts.encoded(wheel_facts.of_wheel(wheel))
            files[f"/files/{each.name}{wheel_facts.SUFFIX}"] = told
            row["_facts"] = {"sha256": hashlib.sha256(told).hexdigest()}
        rows.append(row)
    if kind == "json":
        page = json.dumps({"meta": {"api-version": "1.1"}, "name": "demo", "files": rows}).encode()
    else:
        links = (f'<a href="{row["url"]}#sha256={row["hashes"]["sha256"]}">x</a>' for row in rows)
        page = "".join(links).encode()
    headers = {"ETag": hashlib.sha256(page).hexdigest()}
    made = Behaviour(files={"/simple/demo/": page, **files}, headers=headers)
    made.headers["Content-Type"] = "application/vnd.pypi.simple.v1+json" if kind == "json" else "text/html"
    return made


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    found = clean_environment(monkeypatch, tmp_path)
    found(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    return found


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """3.0 has nothing for old GPUs, 2.0 is for another processor, 1.0 has no device code."""
    return [
        _wheel(tmp_path / "dist", "3.0", NATIVE),
        _wheel(tmp_path / "dist", "2.0", NATIVE, "py3-none-manylinux_2_28_aarch64"),
        _wheel(tmp_path / "dist", "1.0", None, "py3-none-any"),
    ]


def _find(wanted: str = "demo", **fields: Any) -> Find:
    return api.find(wanted, **{"on": ["h100"], "refine": LINUX, **fields})


def _outcomes(answer: Find) -> dict[str, str]:
    return {each.version: each.outcome for each in answer.candidates}


def _chosen(answer: Find) -> str | None:
    return next((each.version for each in answer.candidates if each.chosen), None)


@pytest.mark.parametrize("kind", ["json", "html"])
def test_facts_files_are_enough(wheels: list[Path], kind: str) -> None:
    behaviour = _served(wheels, facts=True, kind=kind)
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
    assert _chosen(answer) == "3.0"
    assert _outcomes(answer) == {"3.0": "native", "2.0": "fails", "1.0": "unknown"}
    assert [each.known_from for each in answer.candidates[:2]] == ["facts file", "facts file"]
    assert not [path for _, path, _ in behaviour.asked if path.endswith(".whl")], "no wheel was read"
    jsonschema.validate(json.loads(to_json(answer)), json.loads((SCHEMAS / "find-1.json").read_text()))


def test_without_facts_wheels_are_read_and_remembered(wheels: list[Path]) -> None:
    behaviour = _served(wheels, facts=False)
    with serving(behaviour) as url:
        first = _find(indexes=[f"{url}/simple"])
        behaviour.asked.clear()
        again = _find(indexes=[f"{url}/simple"])
    assert _chosen(first) == _chosen(again) == "3.0"
    assert (first.candidates[0].known_from, again.candidates[0].known_from) == ("wheel", "cache")
    assert not [path for _, path, _ in behaviour.asked if path.endswith("3.0-" + TAG + ".whl")]
    assert [path for _, path, _ in behaviour.asked].count("/simple/demo/") == 1
    older = next(each for each in first.candidates if each.version == "1.0")
    assert older.reasons == ("not looked into: 3.0 runs",)


def test_an_old_gpu_gets_the_newest_release_with_code_for_it(tmp_path: Path) -> None:
    made = [_wheel(tmp_path / "dist", "2.0", NATIVE), _wheel(tmp_path / "dist", "1.5", "all-124.so")]
    folder = str(made[0].parent)
    answer = _find(on=["8.0"], find_links=[folder], no_index=True)
    assert _chosen(answer) == "2.0"
    old = _find(on=["7.5"], find_links=[folder], no_index=True)
    assert old.candidates[-1].version == "2.0"
    assert old.candidates[-1].predicted_error is not None
    assert old.candidates[-1].predicted_error.code == 209
    assert "no code for" in old.candidates[-1].reasons[0]


def test_every_gpu_of_the_machine_counts(wheels: list[Path]) -> None:
    answer = _find(on=["h100", "gtx 1080 ti"], find_links=[str(wheels[0].parent)], no_index=True)
    first = next(each for each in answer.candidates if each.version == "3.0")
    assert first.outcome == "fails"
    assert first.reasons[0].startswith("gtx 1080 ti: ")


def test_nothing_runs(wheels: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["find", "demo>=2", "--find-links", str(wheels[0].parent), "--no-index", "--on", "gtx 1080 ti"]
    options = ["--set", "python=3.11,os=linux,cpu=x86_64"]
    assert main([*words, *options]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("No release of demo runs on the GeForce GTX 1080 Ti")
    assert "no code for the" in shown
    assert main([*words, *options, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "cuwheel.find/1"
    assert [each["chosen"] for each in told["candidates"]] == [False, False]
    unknown = ["find", "demo<1", "--find-links", str(wheels[0].parent), "--no-index", "--on", "h100"]
    assert main(unknown) == UnknownNameError.exit_code


def test_without_a_gpu_the_question_comes_back_and_no_list_of_what_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in ("1.0", "2.0"):
        _wheel(tmp_path / "dist", version, "names-130.so", "py3-none-any")  # needs no library of CUDA
    nowhere = next(each.profile for each in MACHINES if not each.profile.gpus)
    monkeypatch.setattr(probe, "probe", lambda _env, **_: nowhere)
    words = ["find", "demo", "--find-links", str(tmp_path / "dist"), "--no-index"]
    assert main(words) == EXIT_UNKNOWN
    shown = capsys.readouterr().out
    assert shown.startswith("demo: cannot tell, this machine has no GPU that cuwheel can see\n  Name one: cuwheel find")
    assert "The others" not in shown
    assert main([*words, "--verbose"]) == EXIT_UNKNOWN
    assert "The others" in capsys.readouterr().out


def test_ptx_can_be_compiled_ahead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest has PTX that is too new for the driver, the other some that the driver compiles."""
    folder = tmp_path / "dist"
    _wheel(folder, "2.0", "plain-134.so"), _wheel(folder, "1.0", "ptx-130.so")
    words = ["find", "demo", "--find-links", str(folder), "--no-index", "--on", "rtx 5090", "--driver", "580.65.06"]
    assert main([*words, "--set", "python=3.11,os=linux,cpu=x86_64"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "compiled before the first start, less than a second of one core: cuwheel install demo==1.0" in shown
    context = f"--find-links {folder} --no-index --on 'rtx 5090' --driver 580.65.06"
    assert f"{context} --set python=3.11 --set os=linux --set cpu=x86_64 --compile" in shown
    assert "2.0 runs once its PTX is compiled for this GPU, less than a second of one core: cuwheel graft" in shown
    assert "cuwheel graft demo==2.0 --compile sm_120 -o OUT" in shown
    native = _find(on=["h100"], find_links=[str(folder)], no_index=True)
    assert [(each.version, each.compiling is None) for each in native.candidates] == [("2.0", True), ("1.0", True)]


@pytest.mark.parametrize(
    ("damage", "version"),
    [
        (lambda told: told[:-9], "3.0"),
        (lambda told: told.replace(b"cuwheel.facts/1", b"cuwheel.facts/9"), "3.0"),
        (lambda told: told.replace(b"demo-3.0", b"demo-9.9"), "3.0"),
        (lambda told: b"[" * 10_000 + told, "3.0"),
    ],
)
def test_facts_that_cannot_be_relied_on_are_passed_over(
    wheels: list[Path], damage: Callable[[bytes], bytes], version: str
) -> None:
    behaviour = _served(wheels[:1], facts=True, kind="html")
    name = f"/files/{wheels[0].name}{wheel_facts.SUFFIX}"
    behaviour.files[name] = damage(behaviour.files[name])
    with serving(behaviour) as url:
        answer = _find(indexes=[f"{url}/simple"])
    assert (_chosen(answer), answer.candidates[0].known_from) == (version, "wheel")


def test_a_budget_bounds_what_is_read(wheels: list[Path]) -> None:
    with serving(_served(wheels[:1], facts=False)) as url:
        answer = _find(indexes=[f"{url}/simple"], budget=1000)
    assert _chosen(answer) is None
    assert "--budget" in answer.candidates[0].reasons[0]
    assert answer.downloaded <= 1000


def test_a_budget_holds_for_all_that_one_search_reads(tmp_path: Path) -> None:
    """`install` looks for several packages, and tries fallbacks: all of it together may not cost more."""
    made = [_wheel(tmp_path / "dist", version, NATIVE) for version in ("3.0", "2.0")]
    with serving(_served(made, facts=False)) as url:
        alone = _find("demo==3.0", indexes=[f"{url}/simple"]).downloaded
        shutil.rmtree(tmp_path / "cuwheel-cache")
        asked = FindRequest("demo", on=["h100"], refine=LINUX, indexes=[f"{url}/simple"], budget=2 * alone)
        with best_candidate.search_for(asked, None) as search:
            first, second = (best_candidate.find(search, Requirement(f"demo=={each}")) for each in ("3.0", "2.0"))
    assert first.downloaded == alone
    assert search.budget.used <= 2 * alone
    assert first.taken
    assert "--budget" in second.rulings[0].reasons[0]


def test_withdrawn_files_and_pythons_that_are_refused(wheels: list[Path]) -> None:
    with serving(_served(wheels[:1], facts=True, yanked="wrong results")) as url:
        answer = _find(indexes=[f"{url}/simple"])
        assert answer.candidates[0].reasons == ("withdrawn by its publisher: wrong results",)
        assert _chosen(_find("demo==3.0", indexes=[f"{url}/simple"])) == "3.0"
    with serving(_served(wheels[:1], facts=True, **{"requires-python": ">=3.12"})) as url:
        answer = _find(indexes=[f"{url}/simple"])
        assert answer.candidates[0].reasons == ("it requires Python >=3.12, and this is 3.11",)


def test_a_login_and_the_configuration_of_pip(wheels: list[Path], given: Callable[..., None]) -> None:
    behaviour = _served(wheels[:1], facts=True)
    behaviour.login = "user:secret"
    with serving(behaviour) as url:
        given(PIP_INDEX_URL=f"{url}/simple".replace("://", "://user:secret@"))
        answer = _find()
    assert _chosen(answer) == "3.0"
    assert "secret" not in to_json(answer)


def test_variants_local_versions_and_sources(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    _wheel(dist, "1.0+cu130", NATIVE)
    _wheel(dist, "1.0", None)
    _wheel(dist, "1.1", NATIVE, f"{TAG}-cu13_sm90")
    (dist / "demo-2.0.tar.gz").write_bytes(b"")
    answer = _find(find_links=[str(dist)], no_index=True)
    assert _chosen(answer) == "1.1"
    assert answer.candidates[-1].kind == "source"
    assert _chosen(_find("demo==1.0", find_links=[str(dist)], no_index=True)) == "1.0+cu130"


def test_another_torch_would_replace_the_installed_one(tmp_path: Path) -> None:
    env = tmp_path / "env"
    torch = env / "lib/python3.11/site-packages/torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.8.0'\ncuda = '12.8'\n")
    dist = tmp_path / "dist"
    _wheel(dist, "2.0", NATIVE, requires="torch==2.9.0")
    _wheel(dist, "1.0", NATIVE, requires="torch>=2.5")
    answer = _find(find_links=[str(dist)], no_index=True, env=env)
    assert _chosen(answer) == "1.0"
    assert "it requires torch==2.9.0, and torch 2.8.0 is installed" in answer.candidates[1].reasons
    planned = _find(find_links=[str(dist)], no_index=True, env=env, refine=replace(LINUX, torch="2.7.1"))
    assert "it requires torch==2.9.0, and torch 2.7.1 is asked for" in planned.candidates[1].reasons


def test_fifty_releases_fit_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for minor in range(50):
        _wheel(tmp_path / "dist", f"1.{minor}", NATIVE if minor < 10 else None, "py3-none-win_amd64")
    assert (
        main(
            ["find", "demo", "--find-links", str(tmp_path / "dist"), "--no-index", "--on", "h100", "--set", "os=linux"]
        )
        == 1
    )
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 24
    assert "1.49 … 1.0 (50)" in shown


def test_few_wheels_are_read_where_none_can_be_better(tmp_path: Path) -> None:
    made = [_wheel(tmp_path / "dist", f"1.{minor}", None, "py3-none-any") for minor in range(12)]
    for on, most in ((["h100"], 4), ([Machine(name="no GPU", capability=None)], 1)):
        behaviour = _served(made, facts=False)
        with serving(behaviour) as url:
            answer = _find(indexes=[f"{url}/simple"], on=on)
        assert _chosen(answer) == "1.11"
        assert len({path for _, path, _ in behaviour.asked if path.endswith(".whl")}) <= most
        shutil.rmtree(tmp_path / "cuwheel-cache")


def test_code_in_an_older_release_is_found_behind_one_without(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    _wheel(dist, "2.0", None, "py3-none-any")
    _wheel(dist, "1.0", NATIVE)
    assert _chosen(_find(find_links=[str(dist)], no_index=True)) == "1.0"


@pytest.mark.parametrize("facts", [True, False])
def test_an_index_that_lists_more_than_anybody_reads(facts: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """Wheels without end, none of which is there: so many are asked for, and the rest say why they are not."""
    monkeypatch.setattr(best_candidate, "_MOST_FACTS", 20)
    monkeypatch.setattr(search_policy, "LIMITS", Limits(read=10))
    told = {"_facts": {"sha256": "ab" * 32}} if facts else {}
    names = [f"demo-1.{number}-{TAG}.whl" for number in range(200)]
    rows = [{"filename": each, "url": each, "hashes": {"sha256": "cd" * 32}, **told} for each in names]
    page = json.dumps({"meta": {"api-version": "1.1"}, "name": "demo", "files": rows}).encode()
    behaviour = Behaviour(files={"/simple/demo/": page})
    behaviour.headers["Content-Type"] = "application/vnd.pypi.simple.v1+json"
    with serving(behaviour) as url:
        found = api.find("demo", indexes=[f"{url}/simple"], on=["h100"], refine=LINUX)
    wheels = {path for _, path, _ in behaviour.asked if path.endswith(".whl")}
    assert len(wheels) == 10
    assert len({path for _, path, _ in behaviour.asked}) <= 1 + 10 + 20 + 3
    reasons = [each.reasons[0] for each in found.candidates]
    assert len(reasons) == 200
    assert sum("name a version to ask about this one" in each for each in reasons) == 190


def test_pre_releases_that_are_passed_over_are_named(wheels: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = wheels[0].parent
    for version in ("3.1rc1", "3.1rc2", "2.9b1", "3.2.dev5"):
        _wheel(folder, version, NATIVE)
    _wheel(folder, "3.3rc1", NATIVE, "py3-none-win_amd64")
    place: Any = {"find_links": [str(folder)], "no_index": True}
    answer = _find(**place)
    assert (_chosen(answer), answer.previews) == ("3.0", ("3.2.dev5", "3.1rc2", "3.1rc1"))
    assert not {each.version for each in answer.candidates} & set(answer.previews)
    every = _find(pre=True, **place)
    assert (_chosen(every), every.previews) == ("3.2.dev5", ())
    assert _chosen(_find("demo>=3.1rc1", **place)) == "3.2.dev5"
    words = ["find", "demo", "--find-links", str(folder), "--no-index", "--on", "h100", "--driver", "580.65.06"]
    words += ["--set", "python=3.11,os=linux,cpu=x86_64"]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "passed over, since they are pre-releases: 3.2.dev5, 3.1rc2, 3.1rc1 (--pre takes them, too)" in shown
    assert main([*words, "--pre"]) == 0
    assert "cuwheel install demo==3.2.dev5" in capsys.readouterr().out


def test_without_a_python_the_wheel_is_for_the_one_of_the_environment(
    tmp_path: Path, given: Callable[..., None]
) -> None:
    """Somebody who names a GPU alone installs into this environment."""
    own, other = (tmp_path / name / "lib" / f"python{name}" / "site-packages" for name in ("3.10", "3.12"))
    for folder in (own, other):
        folder.mkdir(parents=True)
    for name in ("cp310", "cp312"):
        _wheel(tmp_path / "dist", "1.0", NATIVE, f"{name}-{name}-manylinux_2_28_{fleet.cpu_here()}")
    _wheel(tmp_path / "dist", "2.0", NATIVE, f"cp312-cp312-manylinux_2_28_{fleet.cpu_here()}")
    place: Any = {"refine": None, "find_links": [str(tmp_path / "dist")], "no_index": True}
    given(VIRTUAL_ENV=tmp_path / "3.10")
    (taken,) = (each for each in _find(**place).candidates if each.chosen)
    assert (taken.version, "cp310" in taken.file) == ("1.0", True)
    assert any("Python 3.10" in each for each in taken.conditions), "nobody said so"
    given(VIRTUAL_ENV=tmp_path / "3.12")
    assert _chosen(_find(**place)) == "2.0"
    given(VIRTUAL_ENV=tmp_path / "3.10")
    assert _chosen(_find(**{**place, "refine": Refinement(python="3.12")})) == "2.0"


def test_wheels_for_other_systems_say_which(tmp_path: Path) -> None:
    _wheel(tmp_path / "dist", "1.0", NATIVE)
    others = {"macosx_11_0_arm64": "macOS", "musllinux_1_2_x86_64": "Linux with musl", "android_21_arm64": "Android"}
    for number, tag in enumerate(others):
        _wheel(tmp_path / "dist", f"2.{number}", NATIVE, f"py3-none-{tag}")
    answer = _find(find_links=[str(tmp_path / "dist")], no_index=True)
    told = [each.reasons for each in answer.candidates if not each.chosen]
    assert told == [(f"the operating system is linux, not {name}",) for name in reversed(others.values())]


def test_every_condition_is_shown_and_many_are_counted() -> None:
    told = (f"for lib{number}.so.{number} alone" for number in range(9))
    requires = tuple(condition("variable-set", setting=each.split()[1], detail=each) for each in told)
    listed: Any = {"file": "demo-1.0-py3-none-any.whl", "url": "", "sha256": None, "size": None, "kind": "wheel"}
    chosen = FoundFile(**listed, version="1.0", index="", outcome="native", chosen=True, requires=requires)
    answer = Find(name="demo", machines=(), candidates=(chosen,), downloaded=0)
    for verbose in (False, True):
        document = find_report.document(answer, verbose=verbose)
        shown = " ".join(str(row.value) for block in document.blocks for row in getattr(block, "rows", ()))
        assert all(f"lib{number}.so.{number}" in shown for number in range(9))
        assert ("and 3 more: lib6.so.6" in shown) is not verbose


def test_conditions_are_the_same_in_whatever_order_machines_are_named(tmp_path: Path) -> None:
    _wheel(tmp_path / "dist", "1.0", NATIVE)
    place: Any = {"find_links": [str(tmp_path / "dist")], "no_index": True, "refine": replace(LINUX, driver=None)}
    one, other = (_find(on=on, **place).candidates[0].conditions for on in (["h100", "a100"], ["a100", "h100"]))
    assert one == other
    assert one


def test_wheels_for_another_system_have_to_be_asked_for(tmp_path: Path) -> None:
    """Somebody who names a GPU alone installs on a machine like this one."""
    dist = tmp_path / "dist"
    _wheel(dist, "2.0", NATIVE, "py3-none-win_amd64")
    _wheel(dist, "1.0", NATIVE, f"py3-none-manylinux_2_28_{fleet.cpu_here()}")
    place: Any = {"find_links": [str(dist)], "no_index": True}
    here = _find(refine=None, **place)
    assert _chosen(here) == "1.0"
    assert here.candidates[-1].reasons[0] == "the operating system is linux, not windows"
    assert any("Linux" in each for each in here.candidates[0].conditions), "nobody said so"
    assert _chosen(_find("demo>1", refine=None, **place)) is None
    windows = _find(refine=Refinement(os="windows", cpu="x86_64"), **place)
    assert [each.version for each in windows.candidates if each.known_from] == ["2.0"]


def test_what_requires_another_torch_than_the_one_asked_about_fails(tmp_path: Path) -> None:
    wheel(tmp_path / "dist", "demo", "1.0", library="plain-124.so", requires="torch>=2.10")
    asked = replace(LINUX, driver="580.65.06", torch="2.9.0", torch_cuda="12.8")
    answer = _find(refine=asked, find_links=[str(tmp_path / "dist")], no_index=True)
    assert not answer.succeeded
    (candidate,) = answer.candidates
    assert (candidate.outcome, candidate.reasons) == (
        "fails",
        ("it requires torch>=2.10, and torch 2.9.0 is asked for",),
    )


def test_a_torch_that_it_brings_along_must_run_too(tmp_path: Path) -> None:
    """As `install` decides: 2.0 has code for the GPU, and the only torch that it goes with has none."""
    dist = tmp_path / "dist"
    for version, library in (("2.8.0", "plain-124.so"), ("2.9.0", "plain-130.so")):
        wheel(dist, "torch", version, library=library)
    wheel(dist, "demo", "2.0", library="plain-124.so", requires="torch==2.9.0")
    wheel(dist, "demo", "1.0", library="plain-124.so", requires="torch==2.8.0")
    place: Any = {"find_links": [str(dist)], "no_index": True}
    old = replace(LINUX, driver="550.54.14")
    answer = _find(refine=old, **place)
    assert _chosen(answer) == "1.0"
    assert [each.version for each in answer.candidates] == ["1.0", "2.0"]
    assert answer.candidates[1].reasons == ("it does not go with torch 2.8.0, which runs there",)
    assert _chosen(_find(**place)) == "2.0"
    for each in dist.glob("torch-2.8.0*"):
        each.unlink()
    assert _chosen(_find(refine=old, **place)) == "2.0", "nothing better is known"
