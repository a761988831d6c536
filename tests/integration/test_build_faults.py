"""What goes wrong on real machines: a clear error, nothing half-done left, and the next run works."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import cache
from tests.integration import build_projects as projects
from tests.integration import build_world as world
from tests.integration import toolchain_site as site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.command import Told
    from tests.integration.build_world import World


# Says its version when asked; hangs when there is something to compile.
HANGS = """\
#!/bin/sh
for word; do
    case $word in -E | -c) echo $$ >"{mark}"; exec sleep 3600 ;; esac
done
exec {real} "$@"
"""
BACKEND = """\
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    {}
"""


@pytest.fixture
def empty(tmp_path: Path) -> World:
    """A machine that never had a toolkit."""
    return world.World(folder=tmp_path)


@pytest.fixture
def here(empty: World) -> World:
    return empty.with_toolkits("13.0")


def only(told: Told) -> Any:
    (job,) = told.document["jobs"]
    return job


def assert_clean(here: World) -> None:
    """No wheel, and nothing that could be taken for one."""
    assert world.wheels(here.out) == []
    assert here.left_behind() == []


def assert_works(here: World, source: Path, *words: str) -> None:
    told = here.build(source, *words)
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    assert "sm_90" in world.architectures(wheel)
    assert here.left_behind() == []


def test_no_network_and_no_toolkit(empty: World) -> None:
    source = projects.bare(empty.folder / "source")
    nowhere = dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX_URL"), "https://index.example/simple/")
    nowhere |= {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
    told = empty.build(source, provider="index,redist", before=world.confined(network=False), env=nowhere)
    assert told.status in (9, 11), told.all
    assert "hint:" in told.stderr
    assert "Traceback" not in told.all
    assert_clean(empty)
    empty.with_toolkits("13.0")
    assert_works(empty, source)


@pytest.mark.slow
def test_no_network_and_all_that_is_needed(here: World) -> None:
    """The toolkit is installed and the backend was downloaded before: --offline asks nobody."""
    source = world.tiny(here.folder)
    assert_works(here, source)
    shutil.rmtree(here.out)
    told = here.build(source, "--offline", before=world.confined(network=False))
    assert told.status == 0, told.all
    assert len(world.wheels(here.out)) == 1


@pytest.mark.slow
def test_no_network_and_a_backend_that_nobody_has(here: World) -> None:
    source = world.tiny(here.folder)
    config = source / "pyproject.toml"
    good = config.read_text()
    config.write_text(good.replace('"setuptools>=77"', '"setuptools>=77", "cuwheel-no-such-package"'))
    told = here.build(source, before=world.confined(network=False))
    assert told.status == 1, told.all
    assert "cuwheel-no-such-package" in only(told)["failure"]["what"]
    assert_clean(here)
    config.write_text(good)
    assert_works(here, source)


def test_no_room_to_build(here: World) -> None:
    """The folder where jobs are built holds a megabyte."""
    source = projects.bare(here.folder / "source")
    (source / "table.bin").write_bytes(bytes(2_000_000))
    builds = here.store / "builds"
    builds.mkdir(parents=True)
    told = here.build(source, before=world.confined(small=(builds, "1m")))
    assert told.status not in (0, 70), told.all
    assert "No space left on device" in told.all
    assert "Traceback" not in told.all
    assert_clean(here)
    assert_works(here, source)


@pytest.mark.slow
def test_no_room_for_the_wheel(here: World) -> None:
    """It was built, and where it should go there is none."""
    source = world.tiny(here.folder)
    here.out.mkdir()
    told = here.build(source, before=world.confined(small=(here.out, "64k")))
    assert told.status not in (0, 70), told.all
    assert "No space left on device" in told.all
    assert "Traceback" not in told.all
    assert_clean(here)
    assert_works(here, source)


@pytest.mark.slow
def test_no_room_for_the_toolkit(empty: World) -> None:
    source = world.tiny(empty.folder)
    toolchains = empty.store / "toolchains"
    toolchains.mkdir(parents=True)
    (empty.store / "downloads").symlink_to(cache.folder() / "store" / "downloads")
    world.toolkit("13.0")
    told = empty.build(source, before=world.confined(small=(toolchains, "30m")))
    assert told.status == 4, told.all
    assert "No space left on device" in told.stderr
    assert "hint:" in told.stderr
    assert_clean(empty)
    assert_works(empty, source)


@pytest.mark.slow
def test_killed_in_the_middle_of_a_download(empty: World) -> None:
    """A mirror that stops in the middle; the next run goes on from there, with one that does not."""
    source = world.tiny(empty.folder)
    shared = world.toolkit("13.0")
    parts = site.real_parts(shared / "root")
    mirror = cache.made(f"redist-{shared.name[-12:]}", lambda folder: site.write_site(folder, "13.0.2", parts))
    stopping = site.Behaviour(cut=1_000_000, stall=60)
    with site.serving(mirror, stopping) as url:
        child = empty.start("build", source, "--provider", f"redist={url}", "--output", empty.out)

        def on_the_disk() -> Iterator[bool]:
            """What the server has sent may still be on its way."""
            while True:
                sizes = []
                for part in (empty.store / "downloads").rglob("*.part"):
                    with contextlib.suppress(FileNotFoundError):  # whole, under its name
                        sizes.append(part.stat().st_size)
                yield stopping.reached.is_set() and any(sizes)

        world.kill_when(child, on_the_disk())
    assert list((empty.store / "toolchains").glob("*/cuwheel-toolchain.json")) == []
    willing = site.Behaviour()
    with site.serving(mirror, willing) as url:
        told = empty.build(source, provider=f"redist={url}")
    assert told.status == 0, told.all
    assert len(world.wheels(empty.out)) == 1
    assert any(wanted.startswith("bytes=") for _, wanted in willing.asked), "what had come was fetched again"
    assert empty.left_behind() == []


@pytest.mark.slow
def test_killed_in_the_middle_of_unpacking(empty: World) -> None:
    source = world.tiny(empty.folder)
    world.toolkit("13.0")
    empty.store.mkdir(parents=True)
    (empty.store / "downloads").symlink_to(cache.folder() / "store" / "downloads")
    child = empty.start("build", source, "--provider", "index", "--output", empty.out)
    toolchains = empty.store / "toolchains"

    def unpacking() -> Iterator[bool]:
        while True:
            yield any(toolchains.glob(".making-*/**/cicc"))

    world.kill_when(child, unpacking())
    assert list(toolchains.glob("*/cuwheel-toolchain.json")) == []
    assert list(toolchains.glob(".making-*")) != [], "it was killed too late to prove anything"
    assert_works(empty, source)


def test_killed_in_the_middle_of_building(here: World) -> None:
    """What it had started is ended by the next run, which does not take the half for the whole."""
    mark = here.folder / "compiling"
    waits = f'Path("{mark}").write_text(str(os.getpid())); subprocess.run(["sleep", "300"])'
    source = projects.bare(here.folder / "source", before=waits)
    child = here.start("build", source, "--output", here.out)

    def compiling() -> Iterator[bool]:
        while True:
            yield mark.exists() and mark.read_text() != ""

    world.kill_when(child, compiling())
    left = int(mark.read_text())
    assert world.wheels(here.out) == []
    backend = source / "own_backend.py"
    backend.write_text(backend.read_text().replace(waits, "pass"))
    assert_works(here, source)
    assert world.gone(left)


@pytest.mark.slow
def test_a_compiler_that_hangs(here: World) -> None:
    """It says its version, and then nothing more; all that it started is gone afterwards."""
    real = shutil.which("g++") or pytest.skip("there is no g++")
    mark = here.folder / "hanging"
    fake = here.folder / "g++-12"
    fake.write_text(HANGS.format(mark=mark, real=real))
    fake.chmod(0o755)
    source = world.tiny(here.folder)
    told = here.build(source, "--host-compiler", fake, "--set", "timeout=30")
    assert told.status == 1, told.all
    assert "longer than 30 s" in only(told)["failure"]["what"]
    assert told.seconds < 600
    assert_clean(here)
    assert world.gone(int(mark.read_text()))
    assert_works(here, source)


def test_a_source_without_cuda(here: World) -> None:
    source = here.folder / "plain"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools>=77"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "plain"\nversion = "1.0"\n[tool.setuptools]\npy-modules = ["plain"]\n'
    )
    (source / "plain.py").write_text("")
    told = here.build(source, "--for", "h100", "--cuda", "13.0")
    assert told.status not in (0, 70), told.all
    assert "CUDA" in told.all
    assert_clean(here)


def test_a_source_that_is_none(here: World) -> None:
    (here.folder / "nothing").mkdir()
    told = here.build(here.folder / "nothing", "--for", "h100", "--cuda", "13.0")
    assert told.status == 5, told.all
    assert "neither pyproject.toml nor setup.py" in told.stderr
    assert_clean(here)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 'odd-1.0-py3-none-any.whl'", "wrote 0"),
        (
            "Path(folder, 'odd-1.0-py3-none-any.whl').write_text('no zip'); return 'odd-1.0-py3-none-any.whl'",
            "not a zip",
        ),
        ("raise SystemExit('no idea')", ""),
        ("import os; os._exit(0)", ""),
    ],
    ids=["no wheel", "no zip", "gives up", "just ends"],
)
def test_a_backend_that_writes_no_wheel(here: World, body: str, said: str) -> None:
    source = here.folder / "odd"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "odd_backend"\nbackend-path = ["."]\n'
        '[project]\nname = "odd"\nversion = "1.0"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n'
    )
    (source / "odd_backend.py").write_text(BACKEND.format(body))
    (source / "kernel.cu").write_text(world.KERNEL)
    told = here.build(source)
    assert told.status == 1, told.all
    job = only(told)
    assert job["outcome"] == "failed"
    assert said in job["failure"]["what"]
    assert job["failure"]["what"]
    assert_clean(here)


def test_the_reason_knows_the_source_and_the_toolkit_of_the_build(here: World) -> None:
    """What the log alone does not tell: that the module is the project's own, and that no part of the toolkit lacks."""
    source = here.project("scikit_kernel")
    (source / "build_helpers.py").touch()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "odd_backend"\nbackend-path = ["back"]\n'
        '[project]\nname = "odd"\nversion = "1.0"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n'
    )
    (source / "back").mkdir()
    (source / "back" / "odd_backend.py").write_text(BACKEND.format("import build_helpers"))
    (cause,) = only(here.build(source))["failure"]["causes"]
    assert cause["fix"][0].startswith("build_helpers is in the source itself")
    (source / "x.cpp").write_text("#include <cuda_runtime.h>\n")
    program = "import os; raise SystemExit(os.WEXITSTATUS(os.system(os.environ['CXX'] + ' -c x.cpp')))"
    (source / "back" / "odd_backend.py").write_text(BACKEND.format(program))
    cause, *_ = only(here.build(source))["failure"]["causes"]
    assert cause["id"] == "cuda-headers-missing"
    assert "--with cud" not in "".join(cause["fix"])


def test_a_wrong_hash(empty: World) -> None:
    """An archive that is not what the manifest says: not unpacked, not kept; the next mirror is as good as new."""
    mirror = empty.folder / "mirror"
    site.write_site(mirror, "13.0.2", site.tiny_parts("13.0.88"))
    archive = next(mirror.rglob("cuda_nvcc*.tar.xz"))
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    archive.write_bytes(data)
    source = projects.bare(empty.folder / "source")
    told = empty.build(source, provider=f"redist={mirror}")
    assert told.status in (5, 9), told.all
    assert hashlib.sha256(data).hexdigest()[:8] in told.stderr or "sha256" in told.stderr
    assert list((empty.store / "toolchains").glob("*")) == []
    assert_clean(empty)
    empty.with_toolkits("13.0")
    assert_works(empty, source)
