"""No index and no network: every verb that needs one says so, quickly and in the same words."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration import index_server as site

if TYPE_CHECKING:
    from pathlib import Path

VERBS = {
    "inspect": ("inspect", "demo-cuda==1.0"),
    "check": ("check", "demo-cuda==1.0", "--on", "h100"),
    "slim": ("slim", "demo-cuda==1.0", "--for", "h100", "-o", "out"),
    "verify": ("verify", "demo-cuda==1.0", "--static"),
    "toolchain install": ("toolchain", "install", "13.0", "--provider", "index"),
    "toolchain fetch": ("toolchain", "fetch", "13.0", "--provider", "index", "--to", "kit"),
    "build NAME": ("build", "demo-cuda==1.0", "--for", "h100", "--cuda", "13.0", "-o", "out"),
    "build": ("build", "source", "--for", "h100", "--cuda", "13.0", "--provider", "index", "-o", "out"),
}
SECONDS = 10  # of a machine that does nothing else; the limit of the test is for one that does


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_said_quickly_and_in_these_words(verb: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "kernel.cu").write_text("__global__ void kernel() {}\n")
    (source / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\n[build-system]\nrequires = ["setuptools"]\n'
        'build-backend = "setuptools.build_meta"\n'
    )
    nobody = f"http://127.0.0.1:{site.unused_port()}/simple"
    own = {"HOME": str(tmp_path), "CUWHEEL_CACHE": str(tmp_path / "cuwheel"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    strangers = ("PIP_", "UV_", "CUWHEEL_")
    environ = {name: value for name, value in os.environ.items() if not name.upper().startswith(strangers)}
    environ |= {**own, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": nobody, "UV_DEFAULT_INDEX": nobody}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cuwheel", *VERBS[verb]], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    took = time.monotonic() - began
    assert done.returncode in (1, 9, 11), done.stderr
    assert "index not reachable: " in " ".join((done.stdout + done.stderr).split())
    assert took < SECONDS * (1 + os.getloadavg()[0])
