"""Written workflows are played: every script of them really runs, up to an index and its page."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.delivery.workflows import problems
from tests.fixtures import cargo, manifest
from tests.integration import build_projects, build_world, index_server, pipeline_player, pretend_services
from tests.integration.pretend_services import JOB_TOKEN, OWN_TOKEN, Services
from tests.integration.workflow_player import Player, machine
from tests.unit.delivery import published

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration
_ADDRESS = "https://wheels.example.com"  # of the index; the files are played with that of the test's server
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    folder = tmp_path / "served"
    (folder / "pages").mkdir(parents=True)
    with pretend_services.serving(Services(folder)) as found:
        yield found


def _configured(folder: Path, **settings: object) -> Path:
    """A repository that has nothing but a configuration."""
    folder.mkdir(exist_ok=True)
    rows = [f"{name.replace('_', '-')} = {_toml(value)}" for name, value in settings.items()]
    text = '[project]\nname = "foo"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n[tool.cuwheel.ci]\n'
    (folder / "pyproject.toml").write_text(text + "\n".join(rows))
    return folder


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def _player(repository: Path, tmp_path: Path, services: Services, **more: Any) -> Player:
    api.ci("github", source=repository, write=True)
    text = (repository / ".github" / "workflows" / "wheels.yml").read_text()
    environ = {**machine(), **services.gh(tmp_path / "tools"), **more.pop("environ", {})}
    overrides = {"CUWHEEL": "cuwheel[build]", **more.pop("overrides", {})}
    return Player(
        workflow=problems.load_yaml(text.replace(_ADDRESS, f"{services.url}/pages"), "wheels.yml"),
        repository=repository,
        scratch=tmp_path,
        environ={**environ, "PATH": f"{tmp_path / 'tools'}:{environ['PATH']}"},
        overrides=overrides,
        pages=services.pages,
        pages_url=f"{services.url}/pages",
        **more,
    )


def _all_good(player: Player, *chosen: str) -> None:
    jobs = player.play(*chosen)
    told = "\n".join(f"{each.job}, {each.step}: {each.status}\n{each.output}" for each in player.ran)
    assert jobs == dict.fromkeys(chosen or player.workflow["jobs"], "success"), told


def _pipeline(repository: Path, services: Services) -> dict[str, Any]:
    api.ci("gitlab", source=repository, write=True)
    text = (repository / ".gitlab-ci.yml").read_text()
    return problems.load_yaml(text.replace(_ADDRESS, f"{services.url}/pages"), ".gitlab-ci.yml")


def _gitlab(repository: Path, tmp_path: Path, services: Services, *jobs: str, event: str = "web", **more: str) -> None:
    environ = machine(
        CUWHEEL="cuwheel[build]", CI_PAGES_URL=f"{services.url}/pages", CI_PIPELINE_SOURCE=event, CI_PIPELINE_ID="41",
        CI_PIPELINE_IID="7",
        CI_API_V4_URL=f"{services.url}/api/v4", CI_PROJECT_ID="7", CI_JOB_TOKEN=JOB_TOKEN, CUWHEEL_TOKEN=OWN_TOKEN,
        CI_DEFAULT_BRANCH="main", CI_PROJECT_DIR=".", **more,
    )  # fmt: skip
    ran = pipeline_player.play(_pipeline(repository, services), repository, tmp_path, environ, jobs)
    told = "\n".join(f"{each.job}: {each.status}\n{each.output}" for each in ran)
    assert ran, "no job was started"
    assert [each.status for each in ran] == [0] * len(ran), told
    if (public := tmp_path / "artefacts" / "public").exists():
        shutil.rmtree(services.pages)
        public.rename(services.pages)


def _project(tmp_path: Path, *cudas: str) -> Path:
    """Which packs libraries that were compiled before, and is proven on a machine with a GPU."""
    repository = tmp_path / "repository"
    build_projects.prebuilt(repository)
    for cuda in cudas:
        digits = cuda.replace(".", "")
        shutil.copy(manifest.HERE / "bin" / f"plain-{digits}.so", repository / f"kernel{digits}.so")
    project = repository / "pyproject.toml"
    text = project.read_text().replace("gate = {", "gate = { enabled = false,")
    text = text.replace('cuda = "13.0"', f'cuda = {_toml(list(cudas))}\npython = ["{_PYTHON}"]')
    project.write_text(f'{text}\n[tool.cuwheel.ci]\ngpu-runner = ["self-hosted", "gpu"]\n')
    return repository


@pytest.mark.parametrize("cudas", [("13.0",), pytest.param(("13.0", "13.4"), marks=pytest.mark.slow)])
def test_github_from_the_plan_up_to_an_index_and_its_page(
    tmp_path: Path, services: Services, cudas: tuple[str, ...]
) -> None:
    repository = _project(tmp_path, *cudas)
    world = build_world.World(folder=tmp_path).with_toolkits(*cudas)
    inputs = {"cuda": ",".join(cudas), "machines": "h100", "ref": ""}
    overrides = {"CUWHEEL_CACHE": str(world.store)}
    player = _player(repository, tmp_path, services, inputs=inputs, overrides=overrides)
    _all_good(player)
    steps = {(each.job, each.step) for each in player.ran}
    written = {
        (name, step["name"]) for name, job in player.workflow["jobs"].items() for step in job["steps"] if "run" in step
    }
    assert steps == written
    index = services.pages
    assert published.page(index, "simple")["projects"][0]["name"] == "bare"
    versions = [f"1.0+7.1.cu{each.replace('.', '')}" for each in cudas] if len(cudas) > 1 else ["1.0+7.1"]
    assert [each.split("-")[1] for each in published.names(index, "simple/bare")] == versions
    assert (index / "index.html").exists()
    assert api.publish_check(index).findings == ()
    assert {each.name for each in (tmp_path / "artefacts").glob("proof-*/*")} == {"proof.json"}


def test_the_matrix_is_made_where_its_pythons_are_absent(tmp_path: Path, services: Services) -> None:
    """A runner of the Plan job has the Python of cuwheel on its PATH, and no other."""
    repository = _project(tmp_path, "13.0")
    project = repository / "pyproject.toml"
    project.write_text(project.read_text().replace(f'["{_PYTHON}"]', f'["3.7", "{_PYTHON}"]'))
    world = build_world.World(folder=tmp_path).with_toolkits("13.0")
    player = _player(repository, tmp_path, services, overrides={"CUWHEEL_CACHE": str(world.store)})
    _all_good(player, "plan")
    (step,) = [each for each in player.ran if each.step == "Plan the wheels"]
    assert "Python 3.7 is not on this machine" not in step.output  # it is in plan.json alone
    matrix = (tmp_path / f"outputs-{player.ran.index(step)}").read_text()
    assert '"python": "3.7"' in matrix.replace('":"', '": "')


@pytest.mark.slow
def test_gitlab_up_to_an_index_and_its_page(tmp_path: Path, services: Services) -> None:
    repository = _project(tmp_path, "13.0")
    world = build_world.World(folder=tmp_path).with_toolkits("13.0")
    _gitlab(repository, tmp_path, services, CUWHEEL_CACHE=str(world.store))
    assert published.names(services.pages, "simple/bare")
    assert (services.pages / "index.html").exists()
    assert api.publish_check(services.pages).findings == ()


@pytest.mark.parametrize(
    ("ref", "labelled"),
    [("refs/tags/v1.0", False), ("v1.0", False), ("refs/heads/main", True), ("topic", True), ("HEAD", True)],
)
@pytest.mark.parametrize("upstream", ["", "ann/bare"])
def test_what_no_tag_names_is_labelled(ref: str, labelled: bool, upstream: str, tmp_path: Path) -> None:  # noqa: FBT001
    """A branch or commit that is named by hand too: the index may have that version already."""
    repository = _configured(tmp_path / "repository", **({"upstream": upstream} if upstream else {}))
    source = build_projects.in_git(_configured(tmp_path / ("upstream" if upstream else "source")), "v1.0")
    subprocess.run(["git", "branch", "topic"], cwd=source, check=True)
    api.ci("github", source=repository, write=True)
    text = (repository / ".github" / "workflows" / "wheels.yml").read_text()
    steps = problems.load_yaml(text, "wheels.yml")["jobs"]["plan"]["steps"]
    (step,) = [each for each in steps if each.get("id") == "label"]
    assert step["env"]["REF"] == "${{ inputs.ref || github.ref }}"
    environ = machine(REF=ref, LABEL="42.1", GITHUB_OUTPUT=str(tmp_path / "output"))
    where = tmp_path if upstream else source
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=where, env=environ, check=True)
    assert (tmp_path / "output").read_text() == ("label=42.1\n" if labelled else "label=\n")
    if upstream:
        api.ci("gitlab", source=repository, write=True)
        jobs = problems.load_yaml((repository / ".gitlab-ci.yml").read_text(), "x")
        (build,) = [job for name, job in jobs.items() if name.startswith("build-")]
        (line,) = [each for each in build["script"] if "label=" in each]
        told = subprocess.run(
            ["sh", "-c", f'set -- build\n{line}\necho "$@"'],
            cwd=where, env=machine(REF=ref, CI_PIPELINE_IID="7"), check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert told.stdout.strip() == ("build --set label=7" if labelled else "build")


def _artefact(tmp_path: Path, version: str) -> Path:
    """What the build of a version left."""
    shutil.rmtree(tmp_path / "artefacts", ignore_errors=True)
    return published.wheel(tmp_path / "artefacts" / "wheels-cu130-cp311-x86_64", version)


@pytest.mark.slow
def test_github_files_in_releases_and_the_index_over_them(tmp_path: Path, services: Services) -> None:
    """The second release brings along what the first one had."""
    repository = _configured(tmp_path / "repository", publish="release")
    for version in ("1.0", "1.1"):
        _artefact(tmp_path, version)
        github = {
            "ref_type": "tag",
            "ref_name": f"v{version}",
            "event_name": "push",
            "server_url": f"{services.url}/github",
        }
        _all_good(_player(repository, tmp_path, services, github=github), "publish")
        assert not (services.pages / "files").exists()
    links = {each["url"] for each in published.page(services.pages, "simple/foo")["files"]}
    where = f"{services.url}/github/ann/foo/releases/download"
    assert links == {f"{where}/v{each}/foo-{each}-py3-none-any.whl" for each in ("1.0", "1.1")}
    assert api.publish_check(f"{services.url}/pages").findings == ()


@pytest.mark.slow
def test_gitlab_files_in_packages_and_the_index_over_them(tmp_path: Path, services: Services) -> None:
    repository = _configured(tmp_path / "repository", publish="release")
    for version in ("1.0", "1.1"):
        shutil.rmtree(tmp_path / "artefacts", ignore_errors=True)
        published.wheel(tmp_path / "artefacts" / "dist", version)
        _gitlab(repository, tmp_path, services, "pages", event="push", CI_COMMIT_TAG=f"v{version}")
    assert published.names(services.pages) == ["foo-1.0-py3-none-any.whl", "foo-1.1-py3-none-any.whl"]
    assert api.publish_check(f"{services.url}/pages").findings == ()


@pytest.mark.parametrize("service", [pytest.param("github", marks=pytest.mark.slow), "gitlab"])
def test_the_public_index_by_trusted_publishing(service: str, tmp_path: Path) -> None:
    """Really by uv: it asks for the job's identity, exchanges it for a token, and uploads with that."""
    repository = _configured(tmp_path / "repository", publish="public")
    authority = index_server.make_authority(tmp_path)
    (tmp_path / "served" / "pages").mkdir(parents=True)
    with pretend_services.serving(Services(tmp_path / "served"), authority.context()) as services:
        environ = {"SSL_CERT_FILE": str(authority.ca), "UV_PUBLISH_URL": f"{services.url}/legacy/"}
        if service == "github":
            _artefact(tmp_path, "1.0")
            asked = f"{services.url}/identity?x=1"
            tokens = {"ACTIONS_ID_TOKEN_REQUEST_URL": asked, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-runner"}
            github = {"ref_type": "tag", "ref_name": "v1.0", "event_name": "push"}
            player = _player(repository, tmp_path, services, github=github, id_tokens=tokens, environ=environ)
            _all_good(player, "publish")
            player.github["ref_type"] = "branch"
            assert player.play("publish") == {"publish": "skipped"}
        else:
            published.wheel(tmp_path / "artefacts" / "dist", "1.0")
            token = {"PYPI_ID_TOKEN": pretend_services.ID_TOKEN, "CI_COMMIT_TAG": "v1.0"}
            _gitlab(repository, tmp_path, services, "publish", event="push", **token, **environ)
        assert services.uploads == ["foo-1.0-py3-none-any.whl"]


def _upstream(folder: Path, *tags: str) -> str:
    """A bare repository with these tags."""
    work = build_projects.in_git(_configured(folder / "work"), tags[0])
    for each in tags[1:]:
        subprocess.run(["git", "tag", each], cwd=work, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(folder / "foo.git")], check=True)
    return f"file://{folder / 'foo.git'}"


_WATCH = {"watch": "https://git.example.com/foo.git", "index": _ADDRESS}
_GIT = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://git.example.com/"}


@pytest.fixture
def watched(tmp_path: Path, services: Services) -> dict[str, str]:
    """1.0 is in the index, 1.1 is upstream's newest; git is told where the address leads."""
    api.publish(published.wheel(tmp_path / "built", "1.0"), to=tmp_path / "index")
    shutil.copytree(tmp_path / "index", services.pages, dirs_exist_ok=True)
    address = _upstream(tmp_path, "v1.0", "v1.1", "v1.2rc1", "nightly")
    return {**_GIT, "GIT_CONFIG_KEY_0": f"url.{address.removesuffix('foo.git')}.insteadOf"}


@pytest.mark.slow
def test_a_new_release_upstream_opens_an_issue_once(
    tmp_path: Path, services: Services, watched: dict[str, str]
) -> None:
    repository = _configured(tmp_path / "repository", **_WATCH)
    player = _player(repository, tmp_path, services, github={"event_name": "schedule"}, environ=watched)
    _all_good(player, "watch")
    _all_good(player, "watch")
    issues = (services.github / "issues.json").read_text()
    assert issues.count("is out") == issues.count("foo.git 1.1 is out") == issues.count("fingerprint: ") == 1
    for _ in range(2):
        _gitlab(repository, tmp_path, services, "watch", event="schedule", **watched)
    assert [each["title"] for each in services.issues] == ["https://git.example.com/foo.git 1.1 is out"]
    assert services.issues[0]["description"].removeprefix("fingerprint: ") in issues
    player.github["event_name"] = "workflow_dispatch"
    assert player.play("watch") == {"watch": "skipped"}


@pytest.mark.slow
@pytest.mark.parametrize("upstream", ["", "https://git.example.com/foo.git"])
def test_a_new_release_upstream_starts_a_build(
    upstream: str, tmp_path: Path, services: Services, watched: dict[str, str]
) -> None:
    """Of its tag, where that is the source that is built."""
    more = {"upstream": upstream} if upstream else {}
    repository = _configured(tmp_path / "repository", rebuild=True, **_WATCH, **more)
    _all_good(_player(repository, tmp_path, services, github={"event_name": "schedule"}, environ=watched), "watch")
    started = (services.github / "runs.json").read_text()
    assert ('"field": "ref=v1.1"' in started) == bool(upstream)
    _gitlab(repository, tmp_path, services, "watch", event="schedule", **watched)
    assert services.pipelines == [{"ref": "main", **({"variables[REF]": "v1.1"} if upstream else {})}]


@pytest.mark.slow
@pytest.mark.parametrize("upstream", ["ann/bare", "https://git.example.com/bare.git"])
def test_a_farm_builds_the_source_of_others(upstream: str, tmp_path: Path, services: Services) -> None:
    """This repository has the configuration alone, and the source has none."""
    source = _project(tmp_path, "13.0").rename(tmp_path / "bare")
    text = (source / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(text[: text.index("[tool.cuwheel]")])
    build_projects.in_git(source, "v1.0")
    repository = tmp_path / "repository"
    repository.mkdir()
    settings = f'[tool.cuwheel.ci]\nupstream = "{upstream}"\ngpu-runner = ["gpu"]\n'
    (repository / "pyproject.toml").write_text(
        text[text.index("[tool.cuwheel]") : text.index("[tool.cuwheel.ci]")] + settings
    )
    world = build_world.World(folder=tmp_path).with_toolkits("13.0")
    git = {**_GIT, "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/.insteadOf"}
    for place in (tmp_path, tmp_path / "ann"):
        place.mkdir(exist_ok=True)
        (place / "bare.git").symlink_to(source)
    overrides = {"CUWHEEL_CACHE": str(world.store)}
    inputs = {"ref": "v1.0"}
    player = _player(repository, tmp_path, services, overrides=overrides, environ=git, inputs=inputs)
    player.repositories["ann/bare"] = source
    _all_good(player)
    assert published.names(services.pages, "simple/bare")
    shutil.rmtree(tmp_path / "artefacts")
    _gitlab(repository, tmp_path, services, **git, **overrides, REF="v1.0", CI_SERVER_URL="https://git.example.com")
    assert api.publish_check(services.pages).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        "scikit_kernel",
        "setuptools_nvcc",
        "several_libraries",
        pytest.param("cargo_kernel", marks=cargo.needed),
        pytest.param("torch_extension", marks=pytest.mark.download),
    ],
)
def test_the_workflow_of_an_example(example: str, tmp_path: Path, services: Services) -> None:
    """As it lies in the repository, on a clean copy."""
    repository = tmp_path / "repository"
    shutil.copytree(
        build_world.EXAMPLES / example, repository, ignore=shutil.ignore_patterns("target", "build", "__pycache__")
    )
    written = (repository / ".github" / "workflows" / "wheels.yml").read_text()
    parts = ("cublas", "cusolver") if example == "several_libraries" else ()
    world = build_world.World(folder=tmp_path)
    world.link(build_world.toolkit("13.0", *parts))
    overrides = {"CUWHEEL_CACHE": str(world.store)}
    if example == "cargo_kernel":
        overrides["PATH"] = f"{Path(str(cargo.find())).parent}:{machine()['PATH']}"
    player = _player(repository, tmp_path, services, overrides=overrides)
    assert (repository / ".github" / "workflows" / "wheels.yml").read_text() == written
    _all_good(player)
    (name,) = published.names(services.pages, f"simple/{example.replace('_', '-')}")
    assert ".cu130-" in name, "behind the label of the run"
    assert (services.pages / "index.html").exists()
    assert api.publish_check(services.pages).findings == ()
