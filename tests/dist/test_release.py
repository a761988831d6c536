"""The workflow that releases, played: every script of it runs, up to an upload by trusted publishing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel.delivery.workflows import problems
from cuwheel.version import __version__
from tests.dist.conftest import MINUTES, ROOT
from tests.integration import index_server, pretend_services
from tests.integration.pretend_services import Services
from tests.integration.workflow_player import Player, machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("tag", [f"v{__version__}", "v0.0.1", ""], ids=["tag", "another tag", "by hand"])
def test_the_release(tag: str, made: Path, tmp_path: Path) -> None:
    """Stood in for: installing MinGW, and `./run dist`, which is what the tests of this folder are about.

    The tests of the job `roads` are those of `test_roads`.
    """
    repository = tmp_path / "repository"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(repository)], check=True, timeout=MINUTES)
    (repository / "run").write_text(f'#!/bin/sh\n[ "$1" = dist ] && mkdir -p dist && cp {made}/cuwheel* dist/\n')
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, "commit", "-qam", "stand-in"], cwd=repository, check=True, timeout=MINUTES)
    python = tmp_path / "python"  # the job's own, as it is set up: what the jobs install goes there
    subprocess.run([sys.executable, "-m", "venv", str(python)], check=True, timeout=MINUTES)
    (python / "bin" / "sudo").write_text("#!/bin/sh\n")
    (python / "bin" / "sudo").chmod(0o755)
    (tmp_path / "runner").mkdir()
    (tmp_path / "served").mkdir()
    authority = index_server.make_authority(tmp_path)
    with pretend_services.serving(Services(tmp_path / "served"), authority.context()) as services:
        tokens = {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{services.url}/identity?x=1",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-runner",
        }
        player = Player(
            workflow=problems.load_yaml((ROOT / ".github" / "workflows" / "release.yml").read_text(), "release.yml"),
            repository=repository,
            scratch=tmp_path,
            environ=machine(UV_PUBLISH_URL=f"{services.url}/legacy/")
            | {"PATH": f"{python / 'bin'}{os.pathsep}{os.defpath}"},
            github={"ref_type": "tag" if tag else "branch", "ref_name": tag or "main", "event_name": "push"},
            id_tokens={**tokens, "SSL_CERT_FILE": str(authority.ca)},
        )
        ended = player.play("build", "systems", "publish")
    told = "\n".join(f"{each.job}, {each.step}: {each.status}\n{each.output[-2000:]}" for each in player.ran)
    if tag == "v0.0.1":
        assert ended == {"build": "failure", "systems": "skipped", "publish": "skipped"}, told
        return
    assert ended == {"build": "success", "systems": "success", "publish": "success" if tag else "skipped"}, told
    assert sorted(services.uploads) == (sorted(each.name for each in made.iterdir()) if tag else [])
    assert shutil.which("cuwheel", path=str(python / "bin"))
