"""GitLab's pipeline and cibuildwheel's tables: what is in them, and how they are written and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.building import config
from cuwheel.cli import frame
from cuwheel.delivery.request import CiRequest
from cuwheel.delivery.workflows import problems, rendering
from cuwheel.errors import UsageError
from cuwheel.support import codec

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.delivery.request import Service

pytestmark = pytest.mark.unit
_PROJECT = """\
[tool.cuwheel]
for = ["h100", "l40"]
cuda = ["13.0", "13.4"]
python = ["3.11"]
components = ["cublas"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(_PROJECT)
    (tmp_path / "kernel.cu").touch()
    return tmp_path


def _pipeline(*, cached: Any = False, **ci: Any) -> dict[str, Any]:
    said = {"cuda": ("13.0", "13.4"), "python": ("3.11",), "cache": cached, "ci": ci}
    table = config.find_configuration(None, None, said).table
    return problems.load_yaml(rendering.render("gitlab", table), "x")


def test_a_job_for_each_wheel_and_stages_as_configured() -> None:
    made = _pipeline(gpu_runner=["gpu"], cpus=["x86_64", "aarch64"])
    builds = [name for name in made if name.startswith("build-")]
    assert builds == [f"build-cu{cuda}-cp311-{cpu}" for cuda in ("130", "134") for cpu in ("x86_64", "aarch64")]
    assert made["stages"] == ["build", "prove", "publish"]
    assert made["prove"]["tags"] == ["gpu"]
    assert "--set naming=local" in made[builds[0]]["script"][0]
    assert _pipeline(publish="none")["stages"] == ["build"]
    words = _pipeline(cached=True, cpus=["x86_64", "aarch64"])[builds[0]]["script"][0].partition("set -- ")[2].split()
    assert frame.understood(words)[1].set == ["naming=local", "cache=true"]  # options that there are
    assert all("timeout" in job for job in made.values() if isinstance(job, dict) and "stage" in job)


def test_the_tables_of_cibuildwheel(project: Path) -> None:
    assert cuwheel.ci("cibuildwheel", source=project, write=True).written
    text = (project / "pyproject.toml").read_text()
    assert text.startswith(_PROJECT)
    linux = codec.parse_toml(text.encode())["tool"]["cibuildwheel"]["linux"]
    assert "toolchain install 13.0 --with cublas" in linux["before-all"][2]
    for where in ("--locked {project}/ci/cuda-13.0;", "--locked {project}/cuwheel.lock"):
        assert where in linux["before-all"][2]
    assert linux["environment"]["CUDAARCHS"] == "89-real;90-real"
    assert linux["environment"]["CMAKE_ARGS"] == "-DCMAKE_CUDA_ARCHITECTURES=89-real;90-real"
    assert linux["repair-wheel-command"][0].startswith("/opt/cuwheel/bin/cuwheel repair {wheel}")
    assert "cuwheel verify {wheel}" in linux["test-command"]
    assert not cuwheel.ci("cibuildwheel", source=project, write=True).changed
    assert api.ci_check(CiRequest("cibuildwheel", source=project)).succeeded


def test_cibuildwheel_has_the_variables_of_the_configuration(project: Path) -> None:
    """A build system with a variable of its own finds its architectures there too."""
    with (project / "pyproject.toml").open("a") as file:
        file.write(
            "[tool.cuwheel.environment]\nOWN_ARCHS = '{archs.cmake}'\nWHERE = '{nvcc} {cuda_digits} {jobs}'\n"
            "CMAKE_ARGS = '-DX=1'\nPRICE = '\"$5\"'\n"
        )
    made = codec.parse_toml(cuwheel.ci("cibuildwheel", source=project, cuda="13.4").text.encode())
    found = made["tool"]["cibuildwheel"]["linux"]["environment"]
    assert found["OWN_ARCHS"] == found["CUDAARCHS"]
    assert found["WHERE"] == "/opt/cuda/bin/nvcc 134 $(nproc)"
    assert found["CMAKE_ARGS"] == f"-DCMAKE_CUDA_ARCHITECTURES={found['OWN_ARCHS']} -DX=1"
    assert found["PRICE"] == r"\"\$5\""


def test_cibuildwheel_repairs_as_the_configuration_says(project: Path) -> None:
    def commands(repair: str) -> list[str]:
        (project / "pyproject.toml").write_text(f"{_PROJECT}[tool.cuwheel.repair]\n{repair}\n")
        made = codec.parse_toml(cuwheel.ci("cibuildwheel", source=project, cuda="13.4").text.encode())
        return list(made["tool"]["cibuildwheel"]["linux"]["repair-wheel-command"])

    said = commands("policy = 'manylinux_2_28'\nexclude = ['libmpi.so.*', 'libucp.so.0']\nrequires = true")[0]
    assert said.endswith(
        " --policy manylinux_2_28 --exclude 'libmpi.so.*' --exclude libucp.so.0 --requires --cuda 13.4"
    )
    assert commands("enabled = false")[0] == "cp {wheel} {dest_dir}"
    assert commands("")[0] == "/opt/cuwheel/bin/cuwheel repair {wheel} --output {dest_dir}"


@pytest.mark.parametrize(("cuda", "provider"), [("12.8", "redist,conda"), ("13.0", "index")])
def test_cibuildwheel_names_a_provider_that_has_the_version_and_a_folder_of_its_own(
    project: Path, cuda: str, provider: str
) -> None:
    text = cuwheel.ci("cibuildwheel", source=project, cuda=cuda).text
    assert f"toolchain install {cuda} --with cublas --provider {provider} --lock" in text
    assert f"toolchain fetch {cuda} --with cublas --locked --to ci/cuda-{cuda}\n" in text
    assert f"--locked {{project}}/ci/cuda-{cuda};" in text


def test_tables_of_somebody_else_are_left_alone_and_compared(project: Path) -> None:
    own = _PROJECT + '[tool.cibuildwheel]\nbuild = ["cp310-*"]\n'
    (project / "pyproject.toml").write_text(own)
    with pytest.raises(UsageError, match="already"):
        cuwheel.ci("cibuildwheel", source=project, write=True)
    (told,) = [each for each in api.ci_check(CiRequest("cibuildwheel", source=project)).findings if each.evidence]
    assert "tool.cibuildwheel.build is ['cp310-*'] and should be ['cp311-manylinux_*']" in told.evidence


@pytest.mark.parametrize("service", ["gitlab", "cibuildwheel"])
def test_both_need_a_cuda_version(service: Service, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no CUDA version"):
        cuwheel.ci(service, source=tmp_path)


def test_what_differs_in_a_pipeline_is_said_in_words(project: Path) -> None:
    request = CiRequest("gitlab", source=project)
    cuwheel.ci("gitlab", source=project, write=True)
    assert api.ci_check(request).succeeded
    file = project / ".gitlab-ci.yml"
    file.write_text(file.read_text().replace("stage: publish", "stage: build").replace("timeout: 350", "timeout: 3"))
    (told,) = [each for each in api.ci_check(request).findings if each.rule == "ci-differs"]
    assert "pages: the stage: build; it should be: publish" in told.evidence
    assert cuwheel.ci("gitlab", source=project, write=True).findings[0].rule == "ci-edited"


def test_further_cuda_versions_have_files_of_their_own(project: Path) -> None:
    answer = cuwheel.ci("cibuildwheel", source=project, cuda="13.4", write=True)
    assert answer.file == "ci/cibuildwheel-cu134.toml"
    assert "toolchain install 13.4" in (project / answer.file).read_text()
    assert (project / "pyproject.toml").read_text() == _PROJECT
    assert api.ci_check(CiRequest("cibuildwheel", source=project, cuda="13.4")).findings == ()
    with pytest.raises(UsageError, match="belongs to cibuildwheel"):
        cuwheel.ci("github", source=project, cuda="13.4")


def test_gitlab_watches_and_builds_the_source_of_others() -> None:
    watched = {"watch": "https://git.example.com/foo", "index": "https://wheels.example.com", "package": "foo-cu13"}
    made = _pipeline(upstream="ann/foo", **watched)
    assert made["variables"]["UPSTREAM"] == "$CI_SERVER_URL/ann/foo.git"
    assert "--built https://wheels.example.com --name foo-cu13" in made["watch"]["script"][0]
    assert _pipeline(publish="public")["publish"]["id_tokens"] == {"PYPI_ID_TOKEN": {"aud": "pypi"}}
    image = "registry.example/{cpu}_{cuda}:2026.06.30"
    assert _pipeline(image=image)["build-cu130-cp311-x86_64"]["image"] == "registry.example/x86_64_13_0:2026.06.30"
