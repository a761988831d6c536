"""What was really built, published and installed: an example for two CUDA versions, and bitsandbytes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel import api
from tests.fixtures import servers
from tests.integration import build_world as world
from tests.integration import index_server
from tests.integration.build_world import World
from tests.integration.test_build_examples import CALLS, the_wheels
from tests.oracle import packages
from tests.unit.delivery import published

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_an_example_for_two_cuda_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built, published, and installed by name and by channel, with hashes required: what was asked for comes."""
    here = World(folder=tmp_path)
    here.with_toolkits("13.0", "13.4")
    told = here.build(here.project("scikit_kernel"), "--cuda", "13.0,13.4", before=world.confined())
    assert told.status == 0, told.all
    index_server.clean_environment(monkeypatch, tmp_path)
    root = tmp_path / "index"
    answer = cuwheel.publish(the_wheels(told.document), to=root)
    assert answer.channels == ("cu130", "cu134")
    assert api.publish_check(root).findings == ()
    with servers.files_of(root) as url:
        for number, (place, channel, version) in enumerate([
            (url, "", "1.0+cu134"), (url, "cu130/", "1.0+cu130"), (root.as_uri(), "cu134/", "1.0+cu134"),
        ]):  # fmt: skip
            files = published.page(root, "simple/scikit-kernel")["files"]
            (sha256,) = [each["hashes"]["sha256"] for each in files if f"-{version}-" in each["filename"]]
            required = tmp_path / "required.txt"
            required.write_text(f"scikit-kernel=={version} --hash=sha256:{sha256}\n")
            target = tmp_path / str(number)
            for tool in (["-m", "pip", "install", "--no-cache-dir"], ["-m", "uv", "pip", "install", "--no-cache"]):
                words = ["--index-url", f"{place}/{channel}simple", "--target", str(target), "--no-deps"]
                command = [sys.executable, *tool, *words]
                subprocess.run([*command, "--require-hashes", "-r", str(required)], check=True, timeout=600)
            ran = subprocess.run([sys.executable, "-c", CALLS["scikit_kernel"]], env={"PYTHONPATH": str(target)},
                                 capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
            assert ran.stdout.startswith("1"), ran.stderr


@pytest.mark.download
def test_bitsandbytes_is_in_the_channel_of_each_of_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package,) = [
        each
        for each in packages.published()
        if str(each).startswith("bitsandbytes-0.50") and "manylinux-x86" in str(each)
    ]
    made = packages.wheel(package)
    index_server.clean_environment(monkeypatch, tmp_path)
    root = tmp_path / "index"
    answer = cuwheel.publish(made, to=root)
    assert answer.channels == ("cu118", "cu121", "cu124", "cu126", "cu128", "cu130", "cu132")
    assert api.publish_check(root).findings == ()
    with servers.files_of(root) as url:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-cache-dir",
            "--no-deps",
            "--target",
            str(tmp_path / "target"),
        ]
        subprocess.run([*command, "--index-url", f"{url}/cu128/simple", "bitsandbytes"], check=True, timeout=300)
    assert (tmp_path / "target" / "bitsandbytes" / "libbitsandbytes_cuda128.so").exists()
