"""Which symbols an extension takes from torch: libraries made by g++ that imitate two releases of libc10."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from cuwheel import api
from cuwheel.cli import main
from cuwheel.device_code import torch_symbols, wheel_facts
from cuwheel.device_code.survey import survey
from cuwheel.facts.torch import SymbolTable
from cuwheel.machine.fleet import Refinement
from cuwheel.network import venvs
from cuwheel.verdicts import torch_releases
from cuwheel.wheel.file import WheelFile
from tests.fixtures.cache import UnavailableError
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state
from tests.oracle.packages import Published, wheel

BOTH = "namespace c10 { struct Tensor { virtual ~Tensor(); }; Tensor::~Tensor() {} int size(Tensor&) { return 1; } }"
NEW = BOTH + "namespace c10 { void check(int, unsigned) {} }"
OLD = BOTH + "namespace c10 { void check(int, int) {} }"
FOR_BESIDE = "namespace c10 { int size(void*) { return 1; } }"
EXTENSION = """
namespace c10 {
struct Tensor { virtual ~Tensor(); };
int size(Tensor&);
void check(int, unsigned);
__attribute__((weak)) void may_be_missing();
}
namespace at { int mine(); }
namespace other { int elsewhere(); }
extern "C" int aoti_torch_delete(void*);
struct Own : c10::Tensor { };
int use() {
    Own it;
    c10::check(1, 2);
    if (c10::may_be_missing) c10::may_be_missing();
    return c10::size(it) + at::mine() + aoti_torch_delete(&it);
}
"""
BESIDE = "namespace c10 { int size(void*); } namespace at { int mine() { return c10::size(nullptr); } }"
TAKEN = ["_ZN3c104sizeERNS_6TensorE", "_ZN3c105checkEij", "_ZN3c106TensorD2Ev", "_ZTIN3c106TensorE"]


def _compiled(folder: Path, name: str, source: str, *more: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(made), f"-Wl,-soname,{name}", *more]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True, timeout=600)
    return made


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of two libraries, one of which defines something in torch's namespaces for the other."""
    folder = tmp_path_factory.mktemp("extension")
    made = folder / "ext-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_compiled(folder, "_C.so", EXTENSION), "ext/_C.so")
        archive.write(_compiled(folder, "libbeside.so", BESIDE), "ext/libbeside.so")
        archive.writestr("ext-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ext\nVersion: 1.0\n")
        archive.writestr("ext-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n")
        archive.writestr("ext-1.0.dist-info/RECORD", "")
    return made


def _environment(folder: Path, source: str, version: str) -> Path:
    packages = folder / f"lib/python3.{sys.version_info[1]}/site-packages"
    _compiled(packages / "torch/lib", "libc10.so", source)
    _compiled(packages / "torch/lib", "libtorch_cpu.so", 'extern "C" int aoti_torch_delete(void*) { return 0; }')
    (packages / "torch/version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def test_what_is_taken_from_torch_and_nothing_else(extension: Path) -> None:
    found = {each.path: each.torch_symbols for each in survey(extension).libraries}
    assert sorted(set(found["ext/_C.so"]) - {"aoti_torch_delete"}) == TAKEN
    assert "aoti_torch_delete" in found["ext/_C.so"]
    assert found["ext/libbeside.so"] == ("_ZN3c104sizeEPv",)


def test_the_torch_that_has_them_all_and_the_one_that_does_not(
    extension: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits = _environment(tmp_path / "new", NEW + FOR_BESIDE, "2.9.0")
    breaks = _environment(tmp_path / "old", OLD + FOR_BESIDE, "2.8.0")
    good, bad = (api.check(extension, env=env).verdicts[0] for env in (fits, breaks))
    assert "torch-symbols-missing" not in {each.rule for each in good.findings}
    (missing,) = [each for each in bad.findings if each.rule == "torch-symbols-missing"]
    assert bad.outcome == "fails"
    assert missing.evidence == ("ext/_C.so: c10::check(int, unsigned int)",)
    assert main(["check", str(extension), "--env", str(breaks), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["outcome"] == "fails"


def test_a_facts_file_tells_the_same(extension: Path, tmp_path: Path) -> None:
    facts = tmp_path / f"{extension.name}{wheel_facts.SUFFIX}"
    with WheelFile(extension) as opened:
        facts.write_bytes(wheel_facts.encoded(wheel_facts.of_wheel(opened)))
    for source, version in ((NEW, "2.9.0"), (OLD + FOR_BESIDE, "2.8.0")):
        env = _environment(tmp_path / version, source, version)
        told, expected = (api.check(each, env=env).verdicts[0] for each in (facts, extension))
        assert replace(told, target="") == replace(expected, target="")
        assert told.outcome == "fails"


def test_torch_that_is_asked_for_and_not_installed(
    extension: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By the table of releases: 2.8 has another `check`, 2.9 all of them, and of 2.10 nothing is known."""
    both = dict.fromkeys([*TAKEN, "aoti_torch_delete", "_ZN3c104sizeEPv"], 0b11)
    table = SymbolTable("2026-11-16", ("2.8.0", "2.9.1"), {**both, "_ZN3c105checkEij": 0b10})
    monkeypatch.setattr("cuwheel.facts.torch.own_symbols", lambda: table)
    clean_environment(monkeypatch, tmp_path)
    found = {
        version: api.find(
            "ext",
            on=["h100"],
            refine=Refinement(torch=version, os="linux", cpu="x86_64", glibc="2.36"),
            find_links=[str(extension.parent)],
            no_index=True,
        ).candidates[0]
        for version in ("2.8", "2.9", "2.10")
    }
    assert [each.outcome for each in found.values()] == ["fails", "unknown", "unknown"]
    assert {each.torch for each in found.values()} == {("2.9",)}
    assert "a symbol that torch 2.8 does not have" in found["2.8"].reasons[0]
    arguments = [
        "find",
        "ext",
        "--no-index",
        "--find-links",
        str(extension.parent),
        "--on",
        "h100",
        "--set",
        "torch=2.9",
    ]
    assert main(arguments) == 0
    assert ["torch", "2.9"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_library_that_nobody_knows_does_not_bring_symbols_of_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`check` cannot exclude it; of several releases `find` takes one that does not depend on it."""
    monkeypatch.setattr("cuwheel.facts.torch.own_symbols", lambda: SymbolTable("", ("2.8.0", "2.9.1"), {"_ZN3c10x": 3}))
    clean_environment(monkeypatch, tmp_path)
    folder = tmp_path / "dist"
    folder.mkdir()
    for version, source in (("1.0", "int nothing;"), ("1.1", EXTENSION)):
        unknown = _compiled(tmp_path / version, "libsomebody.so.1", "namespace at { int mine() { return 1; } }")
        made = _compiled(tmp_path / version, "_C.so", source, "-xnone", "-Wl,--no-as-needed", str(unknown))
        with zipfile.ZipFile(folder / f"ext-{version}-py3-none-linux_x86_64.whl", "w") as archive:
            archive.write(made, "ext/_C.so")
            archive.writestr(
                f"ext-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: ext\nVersion: {version}\n"
            )
            archive.writestr(f"ext-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n")
    refine = Refinement(torch="2.9", os="linux", cpu="x86_64", glibc="2.36")
    found = api.find("ext", on=["h100"], refine=refine, find_links=[str(folder)], no_index=True).candidates
    assert [(each.version, each.outcome, each.chosen) for each in found] == [
        ("1.0", "unknown", True),
        ("1.1", "fails", False),
    ]
    assert "symbols that torch 2.9 does not have" in found[1].reasons[0]


def test_an_environment_without_torch_has_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "torch/lib").mkdir(parents=True)
    (tmp_path / "torch/lib/libc10.so").write_bytes(b"\x7fELF, and no more")
    assert torch_symbols.exported(tmp_path / "torch", "2.9", ["_ZN3c105checkEij"]) is None


@pytest.mark.download
def test_real_torch(tmp_path: Path) -> None:
    """torchvision 0.29 uses the stable interface; 0.28 has a symbol that torch 2.14 renamed."""
    try:
        torch, *extensions = [
            wheel(Published(name=name, version=version, platform="manylinux_2_28_x86_64"))
            for name, version in (("torch", "2.14.1"), ("torchvision", "0.28.0"), ("torchvision", "0.29.1"))
        ]
    except UnavailableError as error:
        pytest.skip(str(error))
    with zipfile.ZipFile(torch) as archive:
        for name in archive.namelist():
            if Path(name).name in ("libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda.so"):
                archive.extract(name, tmp_path)
    missing = []
    for each in extensions:
        read = survey(each)
        taken = {name for library in read.libraries for name in library.torch_symbols}
        found = torch_symbols.exported(tmp_path / "torch", "2.14.1", taken)
        assert found is not None
        assert found == torch_releases.torch_exports("2.14.1", read, taken)
        missing.append(sorted(taken - found.names))
    assert missing == [["_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"], []]


def test_install_refuses_an_extension_of_another_torch(extension: Path, tmp_path: Path) -> None:
    venvs.make(tmp_path / "env", venvs.find_python())
    env = _environment(tmp_path / "env", OLD, "2.8.0")
    before = state(env)
    told = api.install("ext", env=env, find_links=[str(extension.parent)], no_index=True, on=["h100"])
    assert not told.succeeded
    assert "c10::check(int, unsigned int)" in " ".join(told.candidates[0].reasons)
    assert state(env) == before
