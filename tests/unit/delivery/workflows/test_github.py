"""The workflow for GitHub: what follows from the configuration, what is said of one that differs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.building import config
from cuwheel.delivery.request import CiRequest
from cuwheel.delivery.workflows import problems, rendering
from cuwheel.delivery.workflows.rendering import MATRIX_KEYS
from cuwheel.errors import ConfigurationError, UsageError
from cuwheel.facts import services as facts
from cuwheel_core.errors import CuwheelError, MalformedError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit
_FILE = ".github/workflows/wheels.yml"
_EVERYTHING = {
    "gpu_runner": ["self-hosted", "gpu"],
    "watch": "foo",
    "index": "https://wheels.example.com",
    "cpus": ["x86_64", "aarch64"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "foo"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n'
    )
    (tmp_path / "kernel.cu").touch()
    return tmp_path


def _rendered(**ci: Any) -> dict[str, Any]:
    return problems.load_yaml(rendering.render("github", config.find_configuration(None, None, {"ci": ci}).table), "x")


@pytest.mark.parametrize("publish", ["pages", "release", "public", "none"])
@pytest.mark.parametrize("upstream", ["", "ann/foo", "https://git.example.com/foo.git"])
def test_every_reference_exists_and_none_is_in_a_script(publish: str, upstream: str) -> None:
    made = _rendered(**_EVERYTHING, publish=publish, upstream=upstream, windows=True, image="a/{cpu}_{cuda}:1")
    assert list(problems.wrong_references(made, MATRIX_KEYS)) == []
    assert list(problems.expressions_in_scripts(made)) == []


def test_every_action_is_pinned_to_a_commit_of_the_table() -> None:
    known = {f"{each.name}@{each.commit}": each.version for each in facts.workflow_actions().values()}
    for publish in ("pages", "release", "public"):
        text = rendering.render(
            "github", config.find_configuration(None, None, {"ci": {**_EVERYTHING, "publish": publish}}).table
        )
        used = re.findall(r"uses: ([\w-]+/[\w-]+)(?:/\w+)?@(\w+) # (\S+)", text)
        assert len(used) == text.count("uses:") > 10
        assert all(known[f"{name}@{commit}"] == version for name, commit, version in used)
    assert all(re.fullmatch(r"[0-9a-f]{40}", each.commit) for each in facts.workflow_actions().values())


def test_rights_are_minimal_and_every_job_has_a_limit() -> None:
    made = _rendered(**_EVERYTHING, publish="release")
    assert made["permissions"] == {}
    assert all("permissions" in job and job["timeout-minutes"] > 0 for job in made["jobs"].values())
    rights = {name: job["permissions"] for name, job in made["jobs"].items()}
    assert rights["plan"] == rights["build"] == {"contents": "read"}
    assert rights["prove"] == {}
    assert rights["publish"] == {
        "contents": "write", "pages": "write", "id-token": "write", "attestations": "write"
    }  # fmt: skip
    assert rights["watch"] == {"contents": "read", "issues": "write"}


def test_jobs_follow_from_the_configuration() -> None:
    assert list(_rendered()["jobs"]) == ["plan", "build", "publish"]
    assert list(_rendered(**_EVERYTHING)["jobs"]) == ["plan", "build", "prove", "publish", "watch"]
    assert list(_rendered(publish="none")["jobs"]) == ["plan", "build"]
    assert "schedule" not in _rendered(schedule="")["on"]


def test_builds_without_a_tag_have_a_version_of_their_own() -> None:
    """Else the second weekly build of a version is refused by the index that has the first."""
    steps = _rendered()["jobs"]["build"]["steps"]
    (build,) = [each for each in steps if "cuwheel" in each.get("run", "") and "LABEL" in each.get("env", {})]
    assert '--set "label=$LABEL"' in build["run"]
    assert build["env"]["LABEL"] == "${{ needs.plan.outputs.label }}"
    plan = _rendered()["jobs"]["plan"]
    assert plan["outputs"]["label"] == "${{ steps.label.outputs.label }}"
    pipeline = rendering.render(
        "gitlab", config.find_configuration(None, None, {"cuda": ["13.0"], "for_": ["h100"]}).table
    )
    assert 'if [ -z "$CI_COMMIT_TAG" ]; then set -- "$@" --set "label=$CI_PIPELINE_IID"; fi' in pipeline


def test_what_the_build_needs_is_installed() -> None:
    def installed(**settings: Any) -> str:
        text = rendering.render("github", config.find_configuration(None, None, settings).table)
        return str(problems.load_yaml(text, "x")["env"]["CUWHEEL"])

    assert installed().startswith("cuwheel[build]==")
    assert installed(cache=True).startswith("cuwheel[build,cache]==")
    assert installed(ci={"install": "ci/c-1-py3-none-any.whl[build]"}) == "ci/c-1-py3-none-any.whl[build]"
    assert installed(ci={"install": "cuwheel[build] @ https://a.example/c.whl"}).endswith("c.whl")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cpus", ["riscv"]), ("gpu-runner", ["a\nb"]), ("gpu-runner", ["${{ x }}"]),
        ("image", "a:latest"),
        ("image", "a"), ("upstream", "x; rm"), ("upstream", "http://a/b"),
        ("package", "a b"), ("image", "a/{python}:1"),
        ("watch", "$(x)"), ("watch", "foo"), ("schedule", "hourly"),
        ("retention-days", 0), ("retention-days", 91), ("timeout-minutes", 400), ("python", "2"), ("cuwheel", "a b"),
        ("install", "a b"), ("install", "../x.whl"), ("install", "/x.whl"), ("install", "a;b.whl"), ("install", "http://a/x.whl"),
        ("index", "http://a"), ("publish", "ftp"),
    ],
)  # fmt: skip
def test_what_a_configuration_may_not_say(key: str, value: object, project: Path) -> None:
    """All of it goes into a file that a service runs with rights of its own."""
    text = (project / "pyproject.toml").read_text()
    told = repr(value).replace("'", '"').replace("\\\\n", "\\n")
    (project / "pyproject.toml").write_text(f"{text}[tool.cuwheel.ci]\n{key} = {told}\n")
    with pytest.raises(ConfigurationError, match=key):
        cuwheel.ci("github", source=project)


def test_written_renewed_and_left_alone(project: Path) -> None:
    shown = cuwheel.ci("github", source=project)
    assert shown.changed
    assert not (project / _FILE).exists()
    assert cuwheel.ci("github", source=project, write=True).written
    assert (project / _FILE).read_text() == shown.text
    assert not cuwheel.ci("github", source=project, write=True).written
    text = (project / _FILE).read_text()
    mine = "\n  own:\n    runs-on: x # my job\n    steps: []\n"
    (project / _FILE).write_text(text.replace("timeout-minutes: 15", "timeout-minutes: 20") + mine)
    config_file = project / "pyproject.toml"
    config_file.write_text(config_file.read_text() + '[tool.cuwheel.ci]\ngpu-runner = ["gpu"]\n')
    answer = cuwheel.ci("github", source=project, write=True)
    states = {each.name: each.state for each in answer.blocks}
    assert states == {
        "triggers": "same", "plan": "edited", "build": "renewed", "prove": "added", "publish": "renewed"
    }  # fmt: skip
    assert [each.rule for each in answer.findings] == ["ci-edited"]
    made = (project / _FILE).read_text()
    assert "timeout-minutes: 20" in made
    assert made.endswith(mine)
    assert list(problems.load_yaml(made, "x")["jobs"]) == ["plan", "build", "prove", "publish", "own"]


def test_a_project_without_cuda_code_is_told(project: Path) -> None:
    cuwheel.ci("github", source=project, write=True)
    (project / "kernel.cu").unlink()
    written = cuwheel.ci("github", source=project)
    assert [(each.rule, each.severity) for each in written.findings] == [("ci-no-cuda", "warning")]
    checked = api.ci_check(CiRequest("github", source=project))
    errors = [each.rule for each in checked.findings if each.severity == "error"]
    assert (checked.succeeded, errors) == (False, ["ci-no-cuda"])
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(f"{text}[tool.cuwheel.gate]\ndevice-code = false\n")
    assert api.ci_check(CiRequest("github", source=project)).succeeded  # a wrapper of the driver's API
    (project / "pyproject.toml").write_text(f'{text}[tool.cuwheel.ci]\nupstream = "ann/foo"\n')
    assert cuwheel.ci("github", source=project).findings == ()  # the source of others is not here


def test_a_workflow_of_somebody_else_is_not_written_over(project: Path) -> None:
    (project / ".github" / "workflows").mkdir(parents=True)
    (project / _FILE).write_text("name: mine\n")
    with pytest.raises(UsageError, match="not written by cuwheel"):
        cuwheel.ci("github", source=project, write=True)
    assert (project / _FILE).read_text() == "name: mine\n"


def test_what_differs_is_said_in_words(project: Path) -> None:
    request = CiRequest("github", source=project)
    assert [each.rule for each in api.ci_check(request).findings] == ["ci-missing"]
    cuwheel.ci("github", source=project, write=True)
    assert api.ci_check(request).succeeded
    text = (project / _FILE).read_text()
    pinned = facts.workflow_actions()["actions/setup-python"].commit
    text = text.replace(pinned, "v4", 1).replace("timeout-minutes: 15", "timeout-minutes: 99")
    text = text.replace("cuwheel verify dist/*.whl", "echo ${{ matrix.nothing }}").replace(
        "  workflow_dispatch:", "  issues:"
    )
    (project / _FILE).write_text(text)
    answer = api.ci_check(request)
    assert not answer.succeeded
    rules = {each.rule: each for each in answer.findings}
    assert {"ci-differs", "ci-reference", "ci-injection", "ci-action-unpinned"} <= rules.keys()
    told = "\n".join(rules["ci-differs"].evidence)
    for words in (
        "workflow_dispatch does not start it",
        "the job plan: the time limit: 99; it should be: 15",
        "it uses actions/setup-python at v4",
        "'Try the wheels without a GPU': it runs something else: echo",
    ):
        assert words in told
    assert any("matrix.nothing" in each for each in rules["ci-reference"].evidence)


_NO_WORKFLOWS = (
    "", "- a", "a: [", "\x00", "a: &a [*a]\n", "x" * (1 << 21), "jobs: 3\non: 4", "jobs: {a: 1}", "? [1]\n: 2\n",
    "jobs: {build: {steps: [1], strategy: 3, needs: 7, env: {X: '${{ matrix.a }}'}}}", "on: [1, {}]\njobs: []",
    "jobs: {build: {steps: {a: 1}, needs: {a: 1}, if: 3, outputs: 1}, plan: {needs: [[1]]}}",
)  # fmt: skip


@pytest.mark.parametrize("text", _NO_WORKFLOWS, ids=range(len(_NO_WORKFLOWS)))
def test_what_is_no_workflow(text: str, project: Path) -> None:
    (project / "other.yml").write_text(text)
    try:
        answer = api.ci_check(CiRequest("github", source=project, file=project / "other.yml"))
    except CuwheelError:
        return
    assert not answer.succeeded


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("matrix.a", ""), ("matrix.b", "matrix does not have it"), ("needs.plan.outputs.x", ""),
        ("needs.plan.outputs.y", "does not hand it on"), ("needs.other.outputs.x", "does not need it"),
        ("steps.one.outputs.x", ""), ("steps.two.outputs.x", "has this id"), ("inputs.cuda", ""),
        ("inputs.rocm", "has this input"), ("'matrix.b' == matrix.a", ""),
    ],
)  # fmt: skip
def test_references(expression: str, problem: str) -> None:
    build = {
        "needs": ["plan"],
        "strategy": {"matrix": {"a": [1], "include": [{"c": 1}]}},
        "steps": [{"id": "one", "name": "x", "run": "true", "env": {"X": f"${{{{ {expression} }}}}"}}],
    }
    jobs = {"plan": {"outputs": {"x": "1"}, "steps": []}, "other": {"steps": []}, "build": build}
    told = list(problems.wrong_references({"on": {"workflow_dispatch": {"inputs": {"cuda": {}}}}, "jobs": jobs}, ()))
    assert [problem in each for each in told] == ([True] if problem else [])


@pytest.mark.parametrize("link", [".github", ".github/workflows", _FILE])
def test_nothing_is_written_through_a_link(project: Path, tmp_path_factory: pytest.TempPathFactory, link: str) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(elsewhere / "file" if link == _FILE else elsewhere)
    with pytest.raises(MalformedError, match="is a link"):
        cuwheel.ci("github", source=project, write=True)
    assert list(elsewhere.rglob("*")) == []


@pytest.mark.parametrize(
    ("machines", "cuda", "ci", "said"),
    [
        ('"h100"', "12.6", "", ()),
        ('"orin"', "13.2", "", ()),
        ('"h100", "gh200"', "13.2", 'cpus = ["x86_64", "aarch64"]', ()),
        ('"all"', "13.2", "", ()),
        ('"orin"', "12.6", "", ("orin is a Jetson, and arm64 runners are servers",)),
        ('"orin"', "13.0", "", ("orin is a Jetson, and arm64 runners are servers: it is not known to run what",)),
        ('"thor"', "13.0", "", ()),
        ('"xavier"', "12.6", "", ("xavier is a Jetson, and arm64 runners are servers",)),
        ('"h100", "orin"', "13.2", "", ("orin has aarch64, and the jobs build for x86_64",)),
        ('"orin"', "13.2", 'cpus = ["x86_64", "aarch64"]', ("no machine has x86_64",)),
        ('"orin"', "13.2", 'cpus = ["x86_64"]', ("orin has aarch64", "no machine has x86_64")),
    ],
)
def test_runners_are_of_the_machines_processor_or_there_is_none(
    machines: str, cuda: str, ci: str, said: tuple[str, ...], project: Path
) -> None:
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "foo"\n[tool.cuwheel]\nfor = [{machines}]\ncuda = ["{cuda}"]\n[tool.cuwheel.ci]\n{ci}\n'
    )
    written = cuwheel.ci("github", source=project, write=True)
    checked = api.ci_check(CiRequest("github", source=project))
    for answer, severity in ((written, "warning"), (checked, "error")):
        told = [each for each in answer.findings if each.rule == "ci-no-runner"]
        assert [each.severity for each in told] == [severity] * len(said)
        assert all(each.message.startswith(words) for each, words in zip(told, said, strict=True))
    assert checked.succeeded == (not said)
    if machines == '"orin"' and not ci:
        plan = problems.load_yaml(written.text, "x")["jobs"]["plan"]
        assert plan["runs-on"] == facts.linux_runners()["aarch64"]
        assert "--cpu aarch64 " in plan["steps"][-1]["run"]
        runners = facts.linux_runners()
        (project / _FILE).write_text(written.text.replace(runners["aarch64"], runners["x86_64"]))
        (other,) = [
            each for each in api.ci_check(CiRequest("github", source=project)).findings if each.rule == "ci-differs"
        ]
        assert f"the runner: {runners['x86_64']}; it should be: {runners['aarch64']}" in other.evidence[0]
