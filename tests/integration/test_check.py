"""`check` and `doctor` on real files: the fixtures as packages, and wheels from the index."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from msgspec.structs import replace

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery.catalogue import SHIPPED, CatalogueReader
from cuwheel.device_code import wheel_facts
from cuwheel.machine import probe
from cuwheel.machine.fleet import Refinement, machines_named
from cuwheel.report import html
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.answer import to_json
from cuwheel.verdicts import examination
from cuwheel.verdicts.judge import judge_all
from tests.fixtures.cache import UnavailableError
from tests.integration.index_server import clean_environment
from tests.oracle.packages import Published, published, wheel
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.contents import Survey

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bin"
LINUX = Refinement(os="linux", cpu="x86_64", glibc="2.36", python="3.11", driver="580.65.06")


def _wheel(folder: Path, name: str, files: dict[str, str], tag: str = "py3-none-manylinux_2_28_x86_64") -> Path:
    """A wheel that holds fixtures: its paths → their names."""
    path = folder / f"{name}-1.0-{tag}.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, fixture in files.items():
            archive.write(FIXTURES / fixture, inside)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "".join(f"{inside},,\n" for inside in files))
    return path


def _outcomes(target: Path | str, on: Sequence[str], refine: Refinement = LINUX) -> dict[str, tuple[str, int | None]]:
    answer = api.check(target, on=on, refine=refine)
    return {
        each.machine: (each.outcome, each.predicted_error.code if each.predicted_error else None)
        for each in answer.verdicts
    }


@pytest.mark.parametrize(
    ("fixture", "expected"),
    [
        (
            "plain-130.so",
            {"9.0": ("native", None), "8.9": ("compatible", None), "10.0": ("jit", None), "7.5": ("fails", 209)},
        ),
        (
            "rdc-130.so",
            {"9.0": ("native", None), "8.0": ("native", None), "10.0": ("jit", None), "7.5": ("fails", 500)},
        ),
        ("many-130.so", {"9.0": ("native", None), "8.0": ("partial", 209), "7.0": ("fails", 209)}),
        ("bare-130.fatbin", {"9.0": ("native", None), "8.6": ("compatible", None), "7.5": ("fails", 209)}),
        ("hidden-130.so", {"8.0": ("native", None), "7.5": ("fails", 209)}),
        ("program-130", {"9.0": ("native", None), "8.0": ("fails", 209)}),
        ("lto-130.so", {"9.0": ("native", None), "8.0": ("fails", 500)}),
    ],
)
def test_fixtures(fixture: str, expected: dict[str, tuple[str, int | None]]) -> None:
    assert _outcomes(FIXTURES / fixture, list(expected)) == expected


def test_ptx_of_a_newer_toolkit() -> None:
    old = replace(LINUX, driver="580.65.06")
    assert _outcomes(FIXTURES / "plain-134.so", ["10.0"], old)["10.0"] in {
        ("fails", 222),
        ("native", None),
        ("jit", None),
    }


def test_json_is_valid_and_exit_status_says_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _wheel(tmp_path, "pkg", {"pkg/libpkg.so": "plain-130.so"})
    assert main(["check", str(path), "--on", "h100,t4", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((SCHEMAS / "check-1.json").read_text()))
    assert answer["schema"] == "cuwheel.check/1"
    good, bad = answer["verdicts"]
    assert (good["machine"], good["outcome"], good["predicted_error"]) == ("h100", "native", None)
    assert (bad["machine"], bad["outcome"]) == ("t4", "fails")
    assert bad["predicted_error"] == {"code": 209, "name": "cudaErrorNoKernelImageForDevice"}
    assert bad["libraries"][0]["containers"] == {"native": 0, "compatible": 0, "jit": 0, "none": 1}
    assert {"rule", "severity", "message", "evidence", "fix", "fixes", "says", "subject", "about"} == set(
        bad["findings"][0]
    )
    assert good["conditions"]
    assert main(["check", str(path), "--on", "h100"]) == 0


def test_text_fits_a_terminal_and_says_what_json_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wheels = [
        _wheel(tmp_path, "one", {"one/libone.so": "plain-130.so"}),
        _wheel(tmp_path, "two", {"two/libtwo.so": "rdc-130.so"}),
    ]
    main(["check", *map(str, wheels), "--on", "h100,t4,orin"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("native", "fails error 209", "fails error 500", "wheel-tag-mismatch", "no-code-for-gpu"):
        assert word in shown
    main(["check", str(wheels[0]), "--on", "h100", "--verbose"])
    assert "sm_90 × 1" in capsys.readouterr().out


def test_a_page_with_the_matrix(tmp_path: Path) -> None:
    path = _wheel(tmp_path, "pkg", {"pkg/libpkg.so": "plain-130.so"})
    answer = api.check(path, on=["h100", "t4", "b200"], refine=LINUX)
    html.save(answer, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for look, word in (("good", "native"), ("bad", "fails"), ("fair", "jit")):
        assert f'<td class="{look}" data-label="pkg 1.0"><b>{word}</b>' in page


def test_a_fleet_file_from_the_guide(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "howto" / "check.md").read_text()
    example = guide.split("```toml\n")[1].split("```")[0]
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(example)
    answer = api.check(FIXTURES / "plain-130.so", on=[fleet])
    assert len(answer.verdicts) == len(answer.machines) >= 3


def test_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = next(each for each in MACHINES if each.name == "a healthy H200")
    monkeypatch.setattr(probe, "probe", lambda _env, **_: healthy.profile)
    (verdict,) = api.check(FIXTURES / "plain-130.so").verdicts
    assert (verdict.machine, verdict.outcome) == ("this machine", "fails")
    assert [each.rule for each in verdict.findings] == ["needed-library-missing"]
    with_cuda = dataclasses.replace(
        healthy, folders=(("/site/nvidia/cu13/lib", "site-packages", ("libcudart.so.13",)),)
    )
    monkeypatch.setattr(probe, "probe", lambda _env, **_: with_cuda.profile)
    (verdict,) = api.check(FIXTURES / "plain-130.so").verdicts
    assert (verdict.outcome, verdict.conditions) == ("native", ())


def _install(env: Path, name: str, files: dict[str, str]) -> None:
    site = env / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(_wheel(env, name, files)) as archive:
        archive.extractall(site)


def test_doctor_looks_at_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "fits", {"fits/libfits.so": "plain-130.so"})
    _install(tmp_path, "host_only", {"host_only/libhost.so": "amd.so"})
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    assert [each[:2] for each in examination.distributions_with_device_code([site])] == [("fits", site)]
    turing = dataclasses.replace(
        next(each for each in MACHINES if each.name == "a healthy H200"), gpus=(("Tesla T4", "7.5"),)
    )
    monkeypatch.setattr(probe, "probe", lambda _env, **_: turing.profile)
    found = [each for each in api.doctor(env=tmp_path).findings if each.rule == "no-code-for-gpu"]
    assert [each.message[:9] for each in found] == ["fits 1.0:"]
    nothing = dataclasses.replace(turing, gpus=()).profile
    monkeypatch.setattr(probe, "probe", lambda _env, **_: nothing)
    assert "no-code-for-gpu" not in {each.rule for each in api.doctor(env=tmp_path).findings}


def _download(name: str) -> Path:
    try:
        return wheel(next(each for each in published() if str(each) == name))
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.download
def test_bitsandbytes_from_the_index() -> None:
    x86 = _download("bitsandbytes-0.50.2-manylinux-x86_64")
    known = replace(LINUX, torch_cuda="12.8", driver="570.86.10")
    assert _outcomes(x86, ["h100", "l40", "p100", "12.1"], known) == {
        "h100": ("native", None),
        "l40": ("native", None),
        "p100": ("fails", 500),
        "12.1": ("fails", 100),  # of which that driver does not know
    }
    assert _outcomes(x86, ["12.1"], replace(known, driver="580.65.06")) == {"12.1": ("compatible", None)}
    arm = _download("bitsandbytes-0.50.2-manylinux-aarch64")
    jetpack_6 = Refinement(os="linux", cpu="aarch64", l4t="36.4.3", torch_cuda="12.6")
    answer: Any = api.check(arm, on=["orin"], refine=jetpack_6)
    (verdict,) = answer.verdicts
    assert (verdict.outcome, verdict.predicted_error.code) == ("fails", 500)
    assert verdict.findings[0].rule == "sbsa-on-l4t"
    assert to_json(answer)


def test_the_advised_second_name_of_a_library_counts(tmp_path: Path) -> None:
    """bitsandbytes up to 0.49 loads the library of torch's own CUDA: what `check` advises must help."""
    packages = tmp_path / "lib/python3.11/site-packages"
    own, info = packages / "bitsandbytes", packages / "bitsandbytes-0.49.0.dist-info"
    for folder in (own, info, packages / "torch", packages / "other-1.0.dist-info"):
        folder.mkdir(parents=True)
    (packages / "torch/version.py").write_text("__version__ = '2.5.1'\ncuda = '12.4'\n")
    shutil.copy(FIXTURES / "plain-124.so", own / "libbitsandbytes_cuda126.so")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bitsandbytes\nVersion: 0.49.0\n")
    (info / "RECORD").write_text("bitsandbytes/libbitsandbytes_cuda126.so,,\nbitsandbytes-0.49.0.dist-info/RECORD,,\n")
    others = packages / "other-1.0.dist-info/RECORD"

    def outcome() -> tuple[str, str]:
        (verdict,) = api.check("bitsandbytes", env=tmp_path, on=["h100"]).verdicts
        return verdict.outcome, "\n".join(each.fix or "" for each in verdict.findings)

    advice = "ln -s libbitsandbytes_cuda126.so libbitsandbytes_cuda124.so"
    before = outcome()
    assert before[0] == "fails"
    assert advice in before[1]
    second = own / "libbitsandbytes_cuda124.so"
    for give in (
        lambda: second.symlink_to("libbitsandbytes_cuda126.so"),
        lambda: shutil.copy(FIXTURES / "plain-124.so", second),
    ):
        give()
        assert outcome()[0] == "native"
        others.write_text("bitsandbytes/libbitsandbytes_cuda124.so,,\n")
        assert outcome() == before, "another distribution's file"
        others.write_text("")
        second.unlink()
    (own / "libbitsandbytes_cuda126.so.1").symlink_to("libbitsandbytes_cuda126.so")
    assert len(api.inspect("bitsandbytes", env=tmp_path).libraries) == 1, "one library, whatever its version"


def _shipped(name: str, version: str) -> Survey:
    """A real wheel, by the facts that the shipped catalogue has of it."""
    catalogue = CatalogueReader(SHIPPED)
    releases = [each for each in catalogue.contents.wheels if (each.name, each.version) == (name, version)]
    listed = next(each for each in releases if each.file.endswith("x86_64.whl"))  # not for Windows, not for Arm
    facts = catalogue.facts(listed.sha256)
    assert facts is not None
    return wheel_facts.survey(facts)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        # cuSPARSELt is only linked, and has kernels from 8.0 on; up to 2.4 for 8.x alone.
        ("torch", "2.2.2", {"t4": ("partial", "native"), "a100": ("native", "native")}),
        ("torch", "2.3.1", {"t4": ("partial", "native"), "h100": ("partial", "native")}),
        (
            "torch",
            "2.5.1",
            {
                "gtx 1080 ti": ("partial", "compatible"),
                "v100": ("partial", "native"),
                "t4": ("partial", "native"),
                "a100": ("native", "native"),
                "h100": ("native", "native"),
                "rtx 5090": ("fails", "fails"),
            },
        ),
        ("torch", "2.8.0", {"t4": ("native", "native"), "h100": ("native", "native")}),
        # Its own code is for chosen GPUs; the general kernels are in a library of the package that it requires.
        ("cuequivariance-ops-torch-cu12", "0.13.0", {"a100": ("partial", "partial")}),
        # Among its data are cubins for one GPU each, which say nothing.
        ("onnxruntime-gpu", "1.20.2", {"t4": ("native", "native"), "a100": ("native", "native")}),
        # On a T4 attention is missing, on an H100 nothing.
        ("vllm", "0.11.0", {"t4": ("partial", "fails"), "h100": ("jit", "jit")}),
        ("cudf-cu12", "26.8.1", {"a100": ("jit", "jit"), "h100": ("jit", "jit")}),
    ],
)
def test_the_library_that_matters_decides(name: str, version: str, expected: dict[str, tuple[str, str]]) -> None:
    machines = machines_named(list(expected))
    verdicts = judge_all(_shipped(name, version), machines)
    assert {each.machine: (each.outcome, each.main) for each in verdicts} == expected
    old = [replace(each, driver="535.104.05") for each in machines if name == "cudf-cu12"]
    assert all(each.outcome == "jit" for each in judge_all(_shipped(name, version), old)), "its shim is nvJitLink's"


@pytest.mark.download
def test_chosen_libraries_and_loose_cubins_from_the_index() -> None:
    chosen = _fetched("torch-memory-saver", "0.0.10")
    known = replace(LINUX, driver="550.54.14")
    for cuda, outcome in (("12.8", "unknown"), ("13.0", "fails")):
        found = _outcomes(chosen, ["h100"], replace(known, torch_cuda=cuda))
        assert found["h100"][0] == outcome, f"its library for CUDA {cuda} alone is loaded"
    cubins = _fetched("flashinfer-cubin", "0.5.3")
    assert _outcomes(cubins, ["b200", "h100"]) == {"b200": ("native", None), "h100": ("fails", 209)}


def _fetched(name: str, version: str) -> Path:
    try:
        return wheel(Published(name=name, version=version, platform="manylinux-x86_64"))
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("on", "refine", "taken"),
    [
        ("h100", Refinement(), "py3-none-manylinux_2_28_x86_64"),
        ("h100", Refinement(python="3.14"), "cp314-cp314-manylinux_2_28_x86_64"),
        ("h100", Refinement(os="windows"), "py3-none-win_amd64"),
        ("orin", Refinement(), "py3-none-manylinux_2_28_aarch64"),
        ("orin,h100", Refinement(), "py3-none-manylinux_2_28_x86_64"),
    ],
)
def test_a_release_is_judged_by_the_wheel_that_the_machines_would_take(
    on: str, refine: Refinement, taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tag in (
        "py3-none-manylinux_2_28_x86_64",
        "cp314-cp314-manylinux_2_28_x86_64",
        "py3-none-manylinux_2_28_aarch64",
        "py3-none-win_amd64",
    ):
        _wheel(tmp_path, "subject", {"subject/libplain.so": "plain-130.so"}, tag)
    clean_environment(monkeypatch, tmp_path)(PIP_NO_INDEX="1", PIP_FIND_LINKS=tmp_path)
    answer = api.check("subject==1.0", on=[on], refine=refine)
    assert Path(answer.targets[0].target).name == f"subject-1.0-{taken}.whl"


def test_a_release_without_a_wheel_for_the_machines_is_judged_by_that_of_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wheel(tmp_path, "subject", {"subject/libplain.so": "plain-130.so"})
    clean_environment(monkeypatch, tmp_path)(PIP_NO_INDEX="1", PIP_FIND_LINKS=tmp_path)
    (verdict,) = api.check("subject==1.0", on=["orin"]).verdicts
    assert verdict.outcome == "fails"
    assert "the processor is aarch64, not x86_64" in repr(verdict.findings)
