"""Facts files: verdicts from one are those from its wheel, and what somebody else wrote into one does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import cuwheel
from cuwheel.device_code import wheel_facts
from cuwheel.device_code.description import Description, Tools, encoded
from cuwheel.device_code.survey import survey
from cuwheel.errors import NewerSchemaError, UsageError
from cuwheel.machine.fleet import Machine, Refinement
from cuwheel.verdicts import judge
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from tests.fixtures.small_wheel import Wheel
from tests.fixtures.variant_wheels import labelled, says
from tests.unit.device_code import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.device_code.wheel_facts import WheelFacts

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
DRIVERS = (None, "450.80.02", "550.54.14", "616.00")
SYSTEMS: tuple[Mapping[str, Any], ...] = (
    {"jit": "disabled"},
    {"jit": "forced"},
    {"os": "linux", "cpu": "x86_64", "glibc": "2.17", "glibcxx": "3.4.19", "python": "3.11", "libraries": ()},
    {"os": "windows", "cpu": "x86_64", "python": "3.13"},
    {"os": "linux", "cpu": "aarch64", "l4t": "36.4", "torch": "2.8.0", "torch_cuda": "12.6", "torch_cxx11_abi": False},
)


def machines() -> list[Machine]:
    known = gpus.current_capabilities()
    driven = [Machine(name=each, capability=each, driver=DRIVERS[at % 4]) for at, each in enumerate(known)]
    all_drivers = [
        Machine(name=f"9.0 {driver}", capability=Capability.parse("9.0"), driver=driver) for driver in DRIVERS
    ]
    others = [
        Machine(name=f"{each} {number}", capability=each, **system)
        for each in (None, Capability(8, 7), Capability(9, 0), Capability(99, 0))
        for number, system in enumerate(SYSTEMS)
    ]
    return [*driven, *all_drivers, *others]


def facts_of(path: Path) -> WheelFacts:
    with WheelFile(path) as wheel:
        return wheel_facts.of_wheel(wheel)


def must_agree(path: Path) -> WheelFacts:
    """Every verdict from the facts is the one from the wheel; gives the facts as they were read back."""
    facts = wheel_facts.parse(wheel_facts.encoded(facts_of(path)), "facts")
    asked = machines()
    from_wheel = judge.judge_all(survey(path, detail="containers"), asked)
    from_facts = judge.judge_all(wheel_facts.survey(facts, target=str(path)), asked)
    assert from_facts == from_wheel
    return facts


def packed(folder: Path, files: Mapping[str, str | bytes], **parts: Any) -> Path:
    tag = parts.pop("tag", "cp311-cp311-manylinux_2_17_x86_64")
    return Wheel(name="subject", tag=tag, files=dict(files), **parts).write(folder)


@pytest.mark.parametrize("file", sorted(each.name for each in BIN.iterdir()))
def test_every_fixture_gets_the_same_verdicts(tmp_path: Path, file: str) -> None:
    must_agree(packed(tmp_path, {f"subject/{file}": (BIN / file).read_bytes()}))


def test_a_variant_gets_the_same_verdicts(tmp_path: Path) -> None:
    wheel = packed(tmp_path, {"subject/lib.so": (BIN / "names-130.so").read_bytes()})
    made = labelled(wheel, says("x", "90_real", "120_real"), "x")
    assert must_agree(made).variant == says("x", "90_real", "120_real")


def test_libraries_together_get_the_same_verdicts(tmp_path: Path) -> None:
    """With Python that loads some, and requirements that bring what they need."""
    files: dict[str, str | bytes] = {f"subject/{each.name}": each.read_bytes() for each in BIN.iterdir()}
    files["subject/__init__.py"] = (
        "import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'plain-130.so'))\n"
        "try:\n    ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'rdc-124.so'))\nexcept OSError:\n    pass\n"
    )
    facts = must_agree(packed(tmp_path, files, requires=["torch>=2", "nvidia-cuda-runtime"]))
    assert facts.imported == ("subject/plain-130.so",)
    assert facts.python_loads


def test_inspecting_a_wheel_reads_none_of_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown does not depend on it, and PyTorch's takes as long as all of its libraries."""
    files: dict[str, str | bytes] = {f"subject/{each.name}": each.read_bytes() for each in BIN.iterdir()}
    wheel = packed(tmp_path, files | {"subject/__init__.py": "from subject import plain"})
    parsed: list[str | None] = []
    monkeypatch.setattr("cuwheel.device_code.python_loads.parse", parsed.append)
    cuwheel.inspect(wheel)
    assert not parsed
    cuwheel.check(wheel, on=["h100"])
    assert parsed


def source(arch: int, body: str) -> bytes:
    """A relocatable object that is PTX alone."""
    text = f".version 9.0\n.target sm_{arch}\n{body}".encode()
    return build.container(build.entry(build.PTX, arch, text, isa=(9, 0)))


@pytest.mark.parametrize(("wants", "error"), [("helper", 300), ("vprintf", None)])
def test_objects_that_need_one_another_get_the_same_verdicts(tmp_path: Path, wants: str, error: int | None) -> None:
    """Whether a link succeeds goes by their names, of which the facts keep only those that decide."""
    unwanted = "".join(f".visible .func brought{number}() {{ ret; }}\n" for number in range(100))
    kernels = "".join(f".visible .entry kernel{number}(.param .u64 out) {{ ret; }}\n" for number in range(100))
    objects = (
        source(80, f".extern .func {wants}(.param .b64 p);\n{kernels}"),
        source(120, f".visible .func helper(.param .b64 p) {{ ret; }}\n{unwanted}"),
    )
    file = build.library(build.container(), relocatable=b"".join(objects))
    file.sections[-2].data += build.wrapper()  # of a container that nobody finds: so all count as registered
    facts = must_agree(packed(tmp_path, {"subject/lib.so": file.build()}))
    assert len(wheel_facts.encoded(facts)) < 2000
    (verdict,) = judge.judge_all(wheel_facts.survey(facts), [Machine(name="h100", capability=Capability.parse("9.0"))])
    assert (verdict.predicted_error.code if verdict.predicted_error else None) == error


def test_containers_that_are_alike_are_counted(tmp_path: Path) -> None:
    """Of these one is registered, as the library that is built here has a single wrapper."""
    code = build.container(build.entry(build.CUBIN, 90, build.cubin({"k": (8, 0, 0)}, sm=90))) * 500
    facts = must_agree(packed(tmp_path, {"subject/lib.so": build.library(code).build()}))
    assert [each.count for each in facts.libraries[0].containers] == [1, 499]
    assert len(wheel_facts.encoded(facts)) < 1500


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    path = packed(tmp_path, {"subject/lib.so": (BIN / "plain-130.so").read_bytes()}, headers=["Requires-Python: >=3.9"])
    first, second = wheel_facts.encoded(facts_of(path)), wheel_facts.encoded(facts_of(path))
    assert first == second
    assert wheel_facts.parse(first, "x").requires_python == ">=3.9"


def test_the_description_of_a_built_wheel_is_kept(tmp_path: Path) -> None:
    described = Description(cuda="13.0", archs=("sm_90",))
    path = packed(tmp_path, {"subject-1.0.dist-info/cuwheel.json": encoded(described)})
    assert facts_of(path).description == described


@pytest.mark.parametrize(
    ("arm64", "l4t", "outcome", "conditions"),
    [
        ("sbsa", None, "native", ["JetPack 7.2", "what CUDA 13.0 built for servers"]),
        ("sbsa", "39.2", "native", ["what CUDA 13.0 built for servers"]),
        ("l4t", "39.2", "native", []),
        (None, "39.2", "native", []),
    ],
)
def test_what_a_wheel_for_arm64_was_built_with_is_known_by_its_description(
    tmp_path: Path, arm64: Any, l4t: str | None, outcome: str, conditions: list[str]
) -> None:
    """Nothing in the library itself tells servers from Jetson where it has no search path."""
    library = (BIN / "aarch64-130.so").read_bytes().replace(b"targets/sbsa-linux", b"targets/some-linux")
    tools = Tools(provider="index", release="13.0.2", nvcc="13.0.88", platform="linux-x86_64-aarch64", arm64=arm64)
    described = encoded(Description(cuda="13.0", archs=("sm_87",), toolchain=tools))
    files = {"subject/lib.so": library, "subject-1.0.dist-info/cuwheel.json": described}
    path = packed(tmp_path, files, tag="py3-none-manylinux_2_34_aarch64")
    refine = Refinement(l4t=l4t, driver_cuda="13.2")
    (verdict,) = cuwheel.check(path, on=["orin"], refine=refine).verdicts
    assert verdict.outcome == outcome
    told = [each for each in verdict.conditions if "Jet" in each]
    assert len(told) == len(conditions)
    assert all(each.startswith(words) for each, words in zip(told, conditions, strict=True))
    assert [each.platform and each.platform.name for each in facts_of(path).libraries] == [arm64]


def test_check_and_inspect_take_a_facts_file(tmp_path: Path) -> None:
    described = encoded(Description(cuda="13.0", archs=("sm_90",)))
    files = {"subject/lib.so": (BIN / "plain-130.so").read_bytes(), "subject-1.0.dist-info/cuwheel.json": described}
    path = packed(tmp_path, files)
    file = path.with_name(path.name + wheel_facts.SUFFIX)
    file.write_bytes(wheel_facts.encoded(facts_of(path)))
    told, expected = cuwheel.check(file, on=["h100", "p100"]), cuwheel.check(path, on=["h100", "p100"])
    assert [replace(each, target="") for each in told.verdicts] == [
        replace(each, target="") for each in expected.verdicts
    ]
    assert told.targets[0].name == expected.targets[0].name
    shown, whole = cuwheel.inspect(file), cuwheel.inspect(path)
    assert shown.coverage == whole.coverage
    assert shown.description == whole.description
    assert shown.findings == whole.findings
    with pytest.raises(UsageError, match="not its bytes"):
        cuwheel.inspect(file, entries=True)


def test_a_newer_schema_is_told_as_such() -> None:
    with pytest.raises(NewerSchemaError):
        wheel_facts.parse(b'{"schema": "cuwheel.facts/2", "anything": []}', "x")


def test_fields_of_a_later_release_are_left_alone(tmp_path: Path) -> None:
    data = json.loads(wheel_facts.encoded(facts_of(packed(tmp_path, {"subject/a.py": ""}))))
    assert wheel_facts.parse(json.dumps({**data, "later": 1}).encode(), "x").name == "subject"


GOOD: dict[str, Any] = {
    "schema": "cuwheel.facts/1",
    "file": "a-1-py3-none-any.whl",
    "sha256": "0" * 64,
    "size": 1,
    "name": "a",
    "version": "1",
}
LIBRARY = {"path": "a.so", "machine": "x86_64", "size": 1}
ROW = {"arch": "sm_90", "count": 1, "bytes": 1, "real_bytes": 1}


def with_library(**parts: object) -> dict[str, Any]:
    return {**GOOD, "libraries": [{**LIBRARY, **parts}]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        {"schema": "cuwheel.machine/1"},
        {**GOOD, "sha256": "../../x"},
        {**GOOD, "size": -1},
        {**GOOD, "tags": "cp311"},
        with_library(glibc="2.x"),
        with_library(toolkits=["9" * 5000]),
        with_library(device_code=[ROW], containers=[{"code": [1]}]),
        with_library(device_code=[ROW], containers=[{"code": [-1]}]),
        with_library(device_code=[ROW], containers=[{"code": [0], "count": 1 << 40}]),
        with_library(device_code=[ROW], containers=[{"code": [0], "count": 1 << 20}] * 2),
        with_library(stray_wrappers=1 << 40),
        {**GOOD, "libraries": [LIBRARY, LIBRARY]},
        {**with_library(torch_symbols=[1]), "torch_symbols": ["_ZN3c104SizeE"]},
    ],
    ids=lambda data: str(data)[-40:],
)
def test_what_is_wrong_is_refused_in_words(data: bytes | dict[str, Any]) -> None:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(MalformedError, match="is not a facts file"):
        wheel_facts.parse(text, "x")


def test_the_plainest_file_is_read() -> None:
    facts = wheel_facts.parse(json.dumps(with_library(device_code=[ROW], containers=[{"code": [0]}])).encode(), "x")
    (verdict,) = judge.judge_all(wheel_facts.survey(facts), [Machine(name="m", capability=Capability.parse("9.0"))])
    assert verdict.outcome == "native"
