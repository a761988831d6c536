"""Builds inside of a container, by an engine that is stood in for: it runs commands here, and sees no more than a real
one would: the folders that it was told to show, the variables that it was given, and the system."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import cache
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from tests.integration.build_world import World

ENGINE = """\
#!{python}
import json, os, sys
from pathlib import Path

words = sys.argv[1:]
with Path({log!r}).open("a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] != "run":
    sys.exit(0)
shown, environ, place, at = [], {{"PATH": "/usr/bin:/bin"}}, "/", 1
while words[at].startswith("-"):
    if words[at] in ("--rm", "--init"):
        at += 1
        continue
    name, value = words[at], words[at + 1]
    at += 2
    if name == "--volume":
        outside, inside = value.split(":")[:2]
        assert outside == inside and Path(outside).exists(), value
        shown.append(outside)
    elif name == "--env":
        environ.update([value.split("=", 1)])
    elif name == "--workdir":
        place = value
image, command = words[at], words[at + 1:]

def seen(path):
    return any(path == each or path.startswith(each + "/") for each in (*shown, "/usr", "/bin", "/opt", "/tmp/none"))

hidden = [word for word in (place, *command) if word.startswith("/") and Path(word).exists() and not seen(word)]
if hidden and place != "/":
    sys.exit(f"the container does not see {{hidden}}")
os.chdir(place)
try:
    os.execvpe(command[0], command, environ)
except OSError as error:
    sys.exit(f"{{command[0]}}: {{error}}")
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A machine with an engine; the archives of a toolkit are in its cache."""
    tmp_path = tmp_path_factory.mktemp("machine")
    world.toolkit("13.0")
    made = world.World(folder=tmp_path)
    made.store.mkdir()
    (made.store / "downloads").symlink_to(cache.folder() / "store" / "downloads")
    programs = tmp_path / "programs"
    programs.mkdir()
    engine = programs / "docker"
    engine.write_text(ENGINE.format(python=sys.executable, log=str(tmp_path / "calls")))
    engine.chmod(0o755)
    made.environ["PATH"] = f"{programs}:{world.bare()['PATH']}"
    return made


def calls(here: World) -> list[list[str]]:
    return [json.loads(line) for line in (here.folder / "calls").read_text().splitlines()]


def build(here: World, source: Path, *words: str) -> Any:
    return here.build(source, *words, provider="container=registry.example/manylinux_2_28_x86_64")


@pytest.mark.slow
def test_everything_of_the_build_runs_inside(here: World) -> None:
    leak = "assert not {'HTTP_TEST', 'SSH_AUTH_SOCK', 'LD_PRELOAD'} & set(os.environ), os.environ"
    source = projects.bare(here.folder / "one", before=leak, settings='before = ["echo {cuda} >told.txt"]')
    here.environ["HTTP_TEST"] = "leaked"
    told = build(here, source)
    assert told.status == 0, told.all
    (job,) = told.document["jobs"]
    assert (job["outcome"], job["tools"]["provider"], job["record"]) == ("built", "container", "")
    assert world.architectures(Path(job["wheel"]["path"])) == {"sm_90"}
    ran = [words for words in calls(here) if words[0] == "run"]
    assert all("--rm" in words for words in ran)
    inside = [words[words.index("registry.example/manylinux_2_28_x86_64") + 1 :] for words in ran]
    assert any(words[:2] == ["sh", "-ec"] for words in inside)
    assert any("build_wheel" in words for words in inside)
    folders = {words[at + 1].split(":")[0] for words in ran for at, word in enumerate(words) if word == "--volume"}
    assert str(source) not in folders
    assert str(Path.home()) not in folders


def test_what_cannot_be_had_inside_is_said_before(here: World) -> None:
    source = projects.bare(here.folder / "two")
    told = build(here, source, "--set", "force-archs=true")
    assert told.status == 2
    assert "container" in told.stderr
    config = source / "pyproject.toml"
    config.write_text(config.read_text().replace('cuda = "13.0"', 'cuda = "13.0"\npython = "3.7"'))
    told = build(here, source)
    assert told.status == 1, told.all
    assert "has no Python 3.7" in told.document["jobs"][0]["failure"]["what"]
