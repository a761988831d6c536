"""Wheels and trials that go to workers by their GPU. The GPUs are pretended: a driver that says what it is told to."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.cli import main
from tests.integration import pretend
from tests.integration.cluster_world import ROOT, World, wait_for
from tests.unit.changes.slim.packages import FOO, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("distributed")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A worker with an H100 and one with an L40, as far as programs can tell."""
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    made = World(folder=tmp_path)
    try:
        made.scheduler()
        monkeypatch.setenv("CUWHEEL_CLUSTER", str(made.certificates))
        for name, capability in (("hopper", "9.0"), ("ada", "8.9")):
            environ = {
                key: value
                for key, value in pretend.environ(capability, nvml=False).items()
                if key.startswith(("FAKE", "LD_"))
            }
            environ |= {"CUWHEEL_CACHE": str(tmp_path / name), "CUDA_VISIBLE_DEVICES": "0"}
            made.worker(name, "--tag", f"gpu:{capability}", env=environ)
        wait_for(lambda: all("works for" in made.said(name) for name in ("hopper", "ada")), 60)
        yield made
    finally:
        made.end()


@pytest.mark.slow
def test_a_wheel_is_tried_on_every_gpu_and_a_proof_comes_back_from_each(
    fleet: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has code for 7.5, 9.0 and 10.0 alone: on the L40 it must fail, and as predicted."""
    wheel = make_wheel(tmp_path / "wheels", FOO)
    words = [
        "verify",
        str(wheel),
        "--pass-env",
        "FAKE_CUDA_GPUS,FAKE_CUDA_DRIVER",
        "--cluster",
        fleet.address,
        "-o",
        str(tmp_path / "proofs"),
        "--json",
    ]
    status = main(words)
    told = capsys.readouterr()
    assert told.out, told.err
    found = {each["gpu"]: each for each in json.loads(told.out)["proofs"]}
    assert {gpu: each["worker"] for gpu, each in found.items()} == {"9.0": "hopper", "8.9": "ada"}
    proofs = {gpu: each["proof"] for gpu, each in found.items()}
    assert {gpu: each["machine"]["gpus"][0]["capability"] for gpu, each in proofs.items()} == {
        "9.0": "9.0",
        "8.9": "8.9",
    }
    outcomes = {gpu: each["wheels"][0]["prediction"]["outcome"] for gpu, each in proofs.items()}
    assert outcomes == {"9.0": "native", "8.9": "fails"}
    assert status == 1
    assert sorted(each.name for each in (tmp_path / "proofs").iterdir()) == ["proof-8.9.json", "proof-9.0.json"]
    assert main([*words[:4], "--cluster", fleet.address, "--on", "h100", "-o", str(tmp_path / "one")]) == 0
    assert "proven on 1 of 1 kinds of GPU" in capsys.readouterr().out
    assert main(["verify", "--read", str(tmp_path / "one" / "proof-9.0.json"), str(wheel)]) == 0
    assert main([*words[:4], "--cluster", fleet.address, "--on", "a100", "-o", str(tmp_path / "none")]) == 1
    assert "hopper: it has no gpu:8.0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_trials_go_to_the_gpus_that_their_file_names(
    fleet: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trials" / "TRIALS.toml"
    file.parent.mkdir()
    file.write_text('command = "sh -c \'test $FAKE_CUDA_GPUS = 9.0\'"\non = ["h100", "l40"]\nrepeats = 2\n')
    folder = tmp_path / "journal"
    main(["lab", "trials", "run", str(file), "--cluster", fleet.address, "-o", str(folder), "--json"])
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["groups"], said.err
    assert {each["axes"]["on"]: (each["runs"], each["failures"]) for each in told["groups"]} == {
        "h100": (2, 0),
        "l40": (2, 2),
    }


@pytest.mark.download
def test_workers_of_dask_cuda_offer_each_its_own_gpu(tmp_path: Path) -> None:
    """Real `dask scheduler` and `dask cuda worker`, which cuwheel did not start, with a driver that is none."""
    ran = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
    python = tmp_path / "venv" / "bin" / "python"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    ran([uv, "venv", "--quiet", tmp_path / "venv"])
    ran([uv, "pip", "install", "--quiet", "--python", python, "dask-cuda", "cuda-bindings", "-e", f"{ROOT}[cluster]"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"insecure+tcp://127.0.0.1:{free.getsockname()[1]}"
    dask = python.parent / "dask"
    plain = address.removeprefix("insecure+")
    environ = pretend.environ("9.0,8.9") | {"CUWHEEL_CACHE": str(tmp_path / "cache")}
    client = {key: value for key, value in environ.items() if key != "LD_LIBRARY_PATH"}
    with contextlib.ExitStack() as stack:
        for number, (words, variables) in enumerate(
            [
                (["scheduler", "--host", "127.0.0.1", "--port", plain.rpartition(":")[2], "--no-dashboard"], client),
                (["cuda", "worker", plain, "--local-directory", str(tmp_path / "work")], environ),
            ]
        ):
            log = stack.enter_context((tmp_path / f"{number}.log").open("wb"))
            child = subprocess.Popen([dask, *words], env=variables, stdout=log, stderr=log, cwd=tmp_path)
            stack.callback(child.wait, 60)
            stack.callback(child.terminate)
        status = [str(python), "-m", "cuwheel", "cluster", "status", address, "--json"]

        def seen() -> set[str]:
            answer = subprocess.run(status, env=client, capture_output=True, text=True, check=False).stdout
            workers = json.loads(answer)["workers"] if answer else []
            return {tag for each in workers for tag in each["tags"]}

        wait_for(lambda: seen() == {"gpu:9.0", "gpu:8.9"}, 120)
        words = ["verify", str(make_wheel(tmp_path / "wheels", FOO)), "--pass-env", "FAKE_CUDA_GPUS,FAKE_CUDA_DRIVER"]
        told = subprocess.run(
            [python, "-m", "cuwheel", *words, "--cluster", address, "-o", tmp_path / "proofs", "--json"],
            env=client,
            capture_output=True,
            text=True,
            check=False,
        )
    proofs = {each["gpu"]: each["proof"] for each in json.loads(told.stdout)["proofs"]}
    assert {gpu: each["machine"]["gpus"][0]["capability"] for gpu, each in proofs.items()} == {
        "9.0": "9.0",
        "8.9": "8.9",
    }
