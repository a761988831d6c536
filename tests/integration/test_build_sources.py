"""Where a build's source comes from, what of it is built, and what is not built again."""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.fixtures import servers
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.build_world import World

DESCRIBE = "subprocess.check_output(['git', 'describe', '--tags', '--dirty'], text=True)"
VERSION = f"globals()['VERSION'] = {DESCRIBE}.strip().lstrip('v')"


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def only(here: World, source: Path | str, *words: str, status: int = 0, **options: Any) -> Any:
    told = here.build(source, *words, **options)
    assert told.status == status, told.all
    (job,) = told.document["jobs"]
    return job


def test_a_repository_is_built_with_its_history_and_without_what_it_ignores(here: World) -> None:
    """A version taken from git is right in the copy, and neither the index nor the folder of the original change."""
    source = projects.bare(here.folder / "source", before=VERSION)
    (source / ".gitignore").write_text("*.secret\n")
    projects.in_git(source, "v2.5")
    (source / "x.secret").write_text("no source")
    (source / "new.txt").write_text("not yet added")
    (source / "dist").mkdir()
    (source / "dist" / "earlier.whl").write_text("of an earlier build")
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*") if path.is_file()}
    job = only(here, source, "--keep")
    assert Path(job["wheel"]["path"]).name == "bare-2.5-py3-none-linux_x86_64.whl"
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*") if path.is_file()} == before
    (copy,) = (here.store / "builds").glob("*/src")
    assert (copy / "new.txt").exists()
    assert not (copy / "x.secret").exists()
    assert not (copy / "dist").exists()
    assert next(each["value"] for each in job["settings"] if each["name"] == "SOURCE_DATE_EPOCH") == "1577836800"


@pytest.mark.slow
def test_device_code_repeats_wherever_the_source_lies(here: World) -> None:
    """A kernel in an anonymous namespace is named after a path: the job's, and not the checkout's or the archive's."""
    source = projects.bare(here.folder / "one", in_cpp=True)
    first = device_code(only(here, source))
    assert first
    assert device_code(only(here, projects.sdist(source, here.folder / "sdists"), "--rebuild")) == first


def device_code(job: Any) -> bytes:
    with zipfile.ZipFile(job["wheel"]["path"]) as wheel:
        section = ELFFile(io.BytesIO(wheel.read("bare/kernel.so"))).get_section_by_name(".nv_fatbin")
    return bytes(section.data()) if section else b""


def test_what_is_done_is_not_done_again_and_what_changed_is(here: World) -> None:
    source = projects.bare(here.folder / "source")
    first = only(here, source)
    assert first["outcome"] == "built"
    shutil.rmtree(here.out)
    again = only(here, source, "--set", "naming=local")
    assert (again["outcome"], Path(again["wheel"]["path"]).name) == (
        "resumed",
        "bare-1.0+cu130-py3-none-linux_x86_64.whl",
    )
    (source / "kernel.ptx").write_text((source / "kernel.ptx").read_text().replace("mul.f32", "add.f32"))
    assert only(here, source)["outcome"] == "built"
    assert only(here, source)["outcome"] == "resumed"
    assert only(here, source, "--rebuild")["outcome"] == "built"


def test_the_next_build_of_a_version_has_its_label_and_compiles_nothing_again(here: World) -> None:
    source = projects.bare(here.folder / "source")
    only(here, source)
    again = only(here, source, "--set", "label=42.1", "--set", "naming=local")
    assert (again["outcome"], Path(again["wheel"]["path"]).name) == (
        "resumed",
        "bare-1.0+42.1.cu130-py3-none-linux_x86_64.whl",
    )
    plain = only(here, source, "--set", "label=43.1")
    assert Path(plain["wheel"]["path"]).name == "bare-1.0+43.1-py3-none-linux_x86_64.whl"
    told = here.build(source, "--set", "label=week 42")
    assert (told.status, "label: 'week 42' is not a label of a version" in told.stderr) == (2, True)


def test_a_result_that_was_changed_is_not_used(here: World) -> None:
    """The hash of what comes from the cache is checked."""
    source = projects.bare(here.folder / "source")
    only(here, source)
    (kept,) = here.store.glob("builds/*/wheel/*.whl")
    kept.write_bytes(kept.read_bytes() + b"more")
    assert only(here, source)["outcome"] == "built"


@contextlib.contextmanager
def index(folder: Path, *, sha256: str | None = None, python: str = "") -> Iterator[str]:
    """A package index of one source release on loopback. `python`: what it requires, as the index says."""
    source = projects.bare(folder / "source")
    if python:
        config = source / "pyproject.toml"
        said = config.read_text().replace('version = "1.0"', f'version = "1.0"\nrequires-python = "{python}"')
        config.write_text(said)
    path = projects.sdist(source, folder / "site" / "files")
    page = folder / "site" / "simple" / "bare" / "index.html"
    page.parent.mkdir(parents=True)
    digest = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    requires = f' data-requires-python="{html.escape(python)}"' if python else ""
    page.write_text(f'<a href="../../files/{path.name}#sha256={digest}"{requires}>{path.name}</a>')
    with servers.files_of(folder / "site") as url:
        yield f"{url}/simple"


def elsewhere(url: str) -> dict[str, str]:
    return {"UV_DEFAULT_INDEX": url, "PIP_INDEX_URL": url, "UV_NO_CACHE": "1", "PIP_CONFIG_FILE": "/dev/null"}


def test_a_release_of_the_index_is_built_and_kept(here: World) -> None:
    with index(here.folder) as url:
        assert only(here, "bare==1.0", env=elsewhere(url))["outcome"] == "built"
    assert only(here, "bare==1.0", "--offline", "--rebuild")["outcome"] == "built"


def test_a_release_for_another_python_is_refused_for_that_reason(here: World) -> None:
    """It is on the index, whatever it requires: "no source release" would send its user elsewhere."""
    with index(here.folder, python=">=3.38") as url:
        told = here.build("bare==1.0", env=elsewhere(url))
    assert told.status == 2, told.all
    assert "does not support Python" in told.stderr
    assert "requires-python is >=3.38" in told.stderr
    assert "--python 3.38" in told.stderr


def test_an_old_release_says_its_python_in_what_was_packed(here: World) -> None:
    """One of setup.py alone has no other place to say it."""
    source = projects.bare(here.folder / "source")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: bare\nVersion: 1.0\nRequires-Python: <3.9\n")
    told = here.build(projects.sdist(source, here.folder / "packed"))
    assert told.status == 2, told.all
    assert "requires-python is <3.9" in told.stderr
    assert "--python 3.8" in told.stderr


def test_a_release_that_was_published_a_moment_ago_is_found(here: World) -> None:
    """uv keeps the page of an index for ten minutes."""
    with index(here.folder) as url:
        around = {**elsewhere(url), "UV_NO_CACHE": "0", "UV_CACHE_DIR": str(here.folder / "of-uv")}
        page = here.folder / "site" / "simple" / "bare" / "index.html"
        published = page.read_text()
        page.write_text(published.replace("-1.0.tar.gz", "-0.9.tar.gz"))
        told = here.build("bare==1.0", env=around)
        assert (told.status, "no source release on your index" in told.stderr) == (3, True), told.all
        page.write_text(published)
        assert only(here, "bare==1.0", env=around)["outcome"] == "built"


def test_a_release_with_the_wrong_hash_is_refused(here: World) -> None:
    with index(here.folder, sha256="0" * 64) as url:
        told = here.build("bare==1.0", env=elsewhere(url))
    assert told.status not in (0, 1, 70), told.all
    assert "hint:" in told.stderr
    assert world.wheels(here.folder) == []
    assert here.left_behind() == []


def test_commands_before_packaging_run_in_the_copy_and_see_the_plan(here: World) -> None:
    settings = """before = ["echo {archs.cmake} {cuda_digits} $CUDACXX >made.txt", "test -n \\"$VIRTUAL_ENV\\""]"""
    check = "assert Path('made.txt').read_text().split()[:2] == ['90-real', '130']"
    source = projects.bare(here.folder / "source", settings=settings, before=check)
    assert only(here, source)["outcome"] == "built"
    assert not (source / "made.txt").exists()
    failing = projects.bare(here.folder / "failing", settings='before = ["echo about to fail; false"]')
    job = only(here, failing, status=1)
    assert (job["outcome"], job["failure"]["phase"]) == ("failed", "before")
    assert "about to fail" in job["failure"]["output"]


def test_a_compiler_cache_of_its_own_hits_the_second_time(here: World) -> None:
    source = projects.bare(here.folder / "source", in_cpp=True)
    first = only(here, source, "--set", "cache=true")
    assert [each["rule"] for each in first["findings"]] == ["runs-on-condition"]  # the driver, which nobody named
    assert first["calls"]["hits"] == 0
    assert first["calls"]["misses"] > 0
    second = only(here, source, "--set", "cache=true", "--rebuild")
    assert (second["calls"]["misses"], second["calls"]["hits"]) == (0, first["calls"]["misses"])
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if _runs(each, "sccache", here.store)]


def _runs(path: Path, name: str, store: Path) -> bool:
    try:
        mine = str(store).encode() in path.with_name("environ").read_bytes()
        return mine and name.encode() in path.read_bytes()
    except OSError:
        return False


def test_a_dry_run_does_nothing(here: World) -> None:
    source = projects.bare(here.folder / "source")
    told = here.build(source, "--dry-run", "--cuda", "13.0,13.4", "--set", "naming=local")
    assert told.status == 0, told.all
    assert [job["outcome"] for job in told.document["jobs"]] == ["planned", "planned"]
    assert {each["name"] for each in told.document["jobs"][0]["settings"]} >= {"CUDA_HOME", "KERNEL_ARCHS"}
    assert not here.out.exists()
    assert not (here.store / "builds").exists()


def test_wheels_that_would_overwrite_each_other_are_refused_before_anything_is_done(here: World) -> None:
    told = here.build(projects.bare(here.folder / "source"), "--cuda", "13.0,13.4", "--set", "naming=none")
    assert told.status == 2
    assert "--set naming=local" in told.stderr
