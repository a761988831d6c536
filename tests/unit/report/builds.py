"""Answers of builds, made up: as much of everything as a report has to show."""

from __future__ import annotations

from typing import Any

from cuwheel.building.answer import (
    ArchBytes,
    Build,
    Calls,
    Failure,
    Job,
    LibraryBytes,
    Listed,
    Phase,
    Piece,
    Source,
    Span,
    Tools,
    Wheel,
)
from cuwheel.support.cause import Cause, Evidence
from cuwheel.toolchains.toolchain import Archive, HostCompiler, Setting
from cuwheel.verdicts.planning.plan import Served
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.support.finding import Finding, Fix

EVIL = "src/<script>document.title='owned'</script>\"onload=\"x.cu"
_SUM = "a1b2c3d4" * 8


def span(number: int, began: float, took: float, **changes: Any) -> Span:
    values: dict[str, Any] = {
        "number": number,
        "tool": "nvcc",
        "name": "nvcc",
        "file": f"csrc/kernel_{number}.cu",
        "began": began,
        "ended": began + took,
        "state": "succeeded",
        "pieces": (
            Piece(name="cudafe++", arch="compute_90", seconds=took * 0.2),
            Piece(name="cicc", arch="compute_90", seconds=took * 0.5),
            Piece(name="ptxas", arch="sm_90", seconds=took * 0.3),
        ),
    }
    return Span(**values | changes)


SPANS = (
    span(1, 4.0, 6.0),
    span(2, 4.2, 9.0, file=EVIL),
    span(3, 10.5, 3.0, cache_hit=True, pieces=()),
    span(4, 13.5, 1.5, tool="compiler", name="g++", file="csrc/host.cpp", pieces=()),
    span(5, 15.1, 0.4, tool="linker", name="g++", file="libdemo.so", pieces=()),
)


def tools(cuda: str = "13.0") -> Tools:
    return Tools(
        cuda=cuda,
        nvcc=f"{cuda}.88",
        root=f"/store/cuda-{cuda}",
        provider="index",
        identity="f" * 64,
        host_compiler=HostCompiler(kind="gcc", version="12.2.0", path="/usr/bin/g++", found_via="PATH"),
        archives=(Archive(kind="wheel", name="nvidia-cuda-nvcc", version="13.0.88", file="n.whl", sha256=_SUM),),
        others={"cmake": "3.25.1", "ninja": "1.11"},
    )


def wheel(name: str = "demo-1.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl", size: int = 7_200_000) -> Wheel:
    return Wheel(
        path=f"/out/{name}",
        size=size,
        sha256=_SUM,
        name="demo",
        version="1.0+cu130",
        tags=("cp312-cp312-manylinux_2_28_x86_64",),
        libraries=(
            LibraryBytes(
                path="demo/libdemo.so",
                size=7_000_000,
                archs=(
                    ArchBytes(arch=Arch.parse("sm_89"), bytes=2_100_000, count=4, planned=True),
                    ArchBytes(arch=Arch.parse("sm_90"), bytes=2_500_000, count=4, planned=True),
                    ArchBytes(arch=Arch.parse("sm_75"), bytes=67_900, count=1, planned=False),
                ),
            ),
            LibraryBytes(path="demo/_host.so", size=90_000, archs=()),
        ),
    )


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {
        "id": "cu130-cp312",
        "cuda": "13.0",
        "python": "3.12",
        "archs": ("sm_89", "sm_90"),
        "ptx": (),
        "outcome": "built",
        "coverage": (
            Served(machine="h100", count=1, capability=Capability.parse("9.0"), how="native", by=Arch.parse("sm_90")),
        ),
        "backend": "scikit-build-core",
        "commands": ("cmake -S . -B build", "python -m build --wheel"),
        "settings": (Setting(name="CUDA_HOME", value="/store/cuda-13.0"), Setting(name="MAX_JOBS", value="2")),
        "tools": tools(),
        "phases": (
            Phase(name="source", began=0.0, seconds=0.5),
            Phase(name="environment", began=0.5, seconds=3.2),
            Phase(name="build", began=3.7, seconds=12.0),
            Phase(name="gate", began=15.7, seconds=0.3),
        ),
        "seconds": 16.0,
        "calls": Calls(total=5, compiled=4, seconds=19.9, hits=1, misses=3, spans=SPANS),
        "wheel": wheel(),
        "listed": (
            Listed(
                library="demo/libdemo.so",
                archs=(Arch.parse("sm_75"),),
                containers=1,
                bytes=67_900,
                origin="libcudadevrt.a of the toolkit",
            ),
        ),
        "log": "/out/logs/cu130-cp312.log",
        "record": "/jobs/1/record",
    }
    return Job(**values | changes)


FAILED = job(
    id="cu134-cp312",
    cuda="13.4",
    outcome="failed",
    wheel=None,
    listed=(),
    tools=tools("13.4"),
    calls=Calls(total=1, compiled=1, failed=1, seconds=1.0, spans=(span(1, 4.0, 1.0, state="failed"),)),
    failure=Failure(
        what="call 1, nvcc csrc/kernel_1.cu: exit status 1",
        phase="build",
        call=1,
        command="/store/cuda-13.4/bin/nvcc -c csrc/kernel_1.cu -o kernel_1.o",
        cwd="/jobs/2/src",
        status=1,
        output="line one\ncsrc/kernel_1.cu(3): error: identifier \x1b[31mfoo\x1b[0m is undefined\n",
        replay="cuwheel record replay /jobs/2/record 1",
        causes=(
            Cause(
                id="host-compiler-too-new",
                confidence=0.9,
                title="the host compiler is too new",
                evidence=(Evidence(line=2, text="x"),),
                fixes=(Fix(text="install an older one"),),
            ),
        ),
    ),
)
REFUSED = job(
    id="cu130-cp310",
    python="3.10",
    outcome="refused",
    wheel=wheel("demo-1.0+cu130-cp310-cp310-linux_x86_64.whl"),
    findings=(
        Finding(
            rule="architecture-not-planned",
            severity="error",
            message="demo/libdemo.so: sm_75 in its container, not planned",
            evidence=("call 3 (nvcc add.cu) asks for sm_75",),
            fix="force-archs = true",
        ),
        Finding(rule="allow-without-effect", severity="note", message="nothing needs it"),
    ),
)


def build(*jobs: Job, **changes: Any) -> Build:
    values: dict[str, Any] = {
        "cuwheel": "0.1.0",
        "source": Source(asked=".", name="demo", version="1.0", sha256="0" * 64, files=41, commit="c" * 40),
        "configuration": ("pyproject.toml",),
        "began": "2026-01-01T00:00:00Z",
        "seconds": 125.0,
        "output": "/out",
        "jobs": jobs,
        "written": ("/out/SHA256SUMS", "/out/build.html", "/out/build.json"),
    }
    return Build(**values | changes)
