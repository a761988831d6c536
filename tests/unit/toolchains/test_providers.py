from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.errors import ToolError, UnavailableError, UsageError
from cuwheel.facts import toolchain_parts
from cuwheel.machine.world import World
from cuwheel.network import venvs
from cuwheel.support import process
from cuwheel.support.process import Completed
from cuwheel.toolchains import archives, provide, providers
from cuwheel.toolchains.providers import index, redist, system
from cuwheel.toolchains.request import ToolchainRequest
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import Archive, Wanted, processors_of
from cuwheel.toolchains.workplace import Surroundings
from cuwheel_core.errors import MalformedError, UnknownNameError
from cuwheel_core.facts import toolkits
from tests.fixtures import systems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REQUEST = Wanted(
    toolkit=toolkits.find_toolkit("12.4"), components=toolchain_parts.with_base([]), providers=("redist",), cpu="x86_64"
)
NEW = replace(REQUEST, toolkit=toolkits.find_toolkit("13.0"))


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    root = tmp_path / "machine"
    root.mkdir()
    machine = World(environ={"PATH": "/usr/bin"}, cwd=root, root=root, cpu="x86_64", platform="linux")
    return Surroundings(machine=machine, store=Store(tmp_path / "store"))


def completed(stdout: str) -> Completed:
    return Completed(command=("x",), status=0, stdout=stdout, stderr="", seconds=0)


def entry(path: str, sha256: str = "a" * 64, size: object = "12") -> dict[str, object]:
    return {"relative_path": path, "sha256": sha256, "md5": "x", "size": size}


def mirror(folder: Path, release: str, **parts: Any) -> str:
    told = {name: {"name": name, "version": "1.2.3", **platforms} for name, platforms in parts.items()}
    folder.mkdir(exist_ok=True)
    (folder / f"redistrib_{release}.json").write_text(json.dumps({"release_date": "x", **told}))
    return str(folder)


def whole(**more: Any) -> dict[str, Any]:
    names = ("cuda_nvcc", "cuda_cudart", "cuda_cccl")
    return {name: {"linux-x86_64": entry(f"{name}/x/{name}.tar.xz")} for name in names} | more


class TestRedist:
    def test_the_newest_patch_of_the_place(self, tmp_path: Path, around: Surroundings) -> None:
        for release in ("12.4.0", "12.4.10", "12.4.9", "12.5.1"):
            place = mirror(tmp_path / "m", release, **whole())
        found = redist.decide(replace(REQUEST, redist_url=place), around)
        assert found.release == "12.4.10"
        assert [each.name for each in found.archives] == ["cuda_cccl", "cuda_cudart", "cuda_nvcc"]
        assert found.archives[0].size == 12
        exact = redist.decide(replace(REQUEST, redist_url=place, exact="12.4.0"), around)
        assert exact.release == "12.4.0"

    def test_arm64_is_called_otherwise(self, tmp_path: Path, around: Surroundings) -> None:
        parts = {
            name: {"linux-sbsa": entry(f"{name}.tar.xz"), "linux-aarch64": entry(f"t-{name}.tar.xz")}
            for name in whole()
        }
        place = mirror(tmp_path / "m", "12.4.1", **parts)
        request = replace(REQUEST, redist_url=place, cpu="aarch64")
        assert not redist.decide(request, around).archives[0].file.startswith("t-")
        release = around.machine.root / "etc" / "nv_tegra_release"
        release.parent.mkdir()
        release.write_text("R36")
        assert redist.decide(request, around).archives[0].file.startswith("t-")

    @pytest.mark.parametrize(
        "bad",
        [
            entry("../../etc/passwd"),
            entry("/etc/passwd"),
            entry("https://evil/x"),
            entry("x", sha256="short"),
            entry(""),
            {},
            None,
            ["relative_path"],
        ],
    )
    def test_a_manifest_cannot_lead_elsewhere(self, tmp_path: Path, around: Surroundings, bad: object) -> None:
        place = mirror(tmp_path / "m", "12.4.1", **whole(cuda_nvcc={"linux-x86_64": bad}))
        with pytest.raises(MalformedError, match="no usable entry for cuda_nvcc"):
            redist.decide(replace(REQUEST, redist_url=place), around)

    @pytest.mark.parametrize("text", ["", "[]", "{", "null"])
    def test_what_is_no_manifest(self, tmp_path: Path, around: Surroundings, text: str) -> None:
        place = mirror(tmp_path / "m", "12.4.1")
        (tmp_path / "m" / "redistrib_12.4.1.json").write_text(text)
        with pytest.raises(MalformedError, match="is not a manifest"):
            redist.decide(replace(REQUEST, redist_url=place), around)

    @pytest.mark.parametrize("part", [None, 1, "linux-x86_64", ["linux-x86_64"]])
    def test_a_part_of_the_manifest_that_is_no_table(self, tmp_path: Path, around: Surroundings, part: object) -> None:
        place = mirror(tmp_path / "m", "12.4.1", **whole())
        path = tmp_path / "m" / "redistrib_12.4.1.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "cuda_nvcc": part}))
        with pytest.raises(UnavailableError, match="cuda_nvcc"):
            redist.decide(replace(REQUEST, redist_url=place), around)

    def test_a_platform_that_is_not_there(self, tmp_path: Path, around: Surroundings) -> None:
        place = mirror(tmp_path / "m", "12.4.1", **whole())
        with pytest.raises(UnavailableError, match=r"cuda_nvcc 1\.2\.3 is not available for linux-sbsa"):
            redist.decide(replace(REQUEST, redist_url=place, cpu="aarch64"), around)

    def test_libraries_with_releases_of_their_own_come_from_the_index(
        self, tmp_path: Path, around: Surroundings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        def resolve(requirements: Sequence[str], **_options: Any) -> tuple[Archive, ...]:
            asked.extend(requirements)
            return (Archive(kind="wheel", name="nvidia-nccl-cu12", version="2", file="n.whl", sha256="b" * 64),)

        monkeypatch.setattr(archives, "resolve_wheels", resolve)
        place = mirror(tmp_path / "m", "12.4.1", **whole())
        request = replace(REQUEST, redist_url=place, components=toolchain_parts.with_base(["nccl"]))
        assert redist.decide(request, around).archives[-1].name == "nvidia-nccl-cu12"
        assert asked == ["nvidia-nccl-cu12"]


class TestIndex:
    def test_no_nvcc_before_13(self, around: Surroundings) -> None:
        with pytest.raises(UnavailableError, match=r"no nvcc before 13\.0"):
            index.decide(REQUEST, around)

    def test_one_release_for_all(self, around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def resolve(requirements: Sequence[str], **_options: Any) -> tuple[Archive, ...]:
            asked.extend(requirements)
            names = (("nvidia-nvvm", "13.0.88"), ("cuda-toolkit", "13.0.3.0"), ("nvidia-cuda-nvcc", "13.0.88"))
            return tuple(
                Archive(kind="wheel", name=name, version=version, file="f", sha256="") for name, version in names
            )

        monkeypatch.setattr(archives, "resolve_wheels", resolve)
        request = replace(NEW, components=toolchain_parts.with_base(["cudnn"]))
        found = index.decide(request, around)
        assert asked == ["cuda-toolkit[nvcc,cudart,cccl,nvvm,crt,cublas]==13.0.*", "nvidia-cudnn-cu13"]
        assert found.release == "13.0.3.0"
        assert [each.name for each in found.archives] == ["nvidia-cuda-nvcc", "nvidia-nvvm"]
        index.decide(replace(NEW, exact="13.0.2"), around)
        assert asked[-1].endswith("==13.0.2.*")

    def test_the_release_of_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def resolve(requirements: Sequence[str], **_options: Any) -> tuple[Archive, ...]:
            asked.extend(requirements)
            if "13.0.99" in requirements[1]:
                raise UnavailableError("no such version")
            return (Archive(kind="wheel", name="cuda-toolkit", version="13.0.3.0", file="f", sha256=""),)

        monkeypatch.setattr(archives, "resolve_wheels", resolve)
        assert index.release_with("13.0.88") == "13.0.3"
        assert asked == ["cuda-toolkit[nvcc]==13.0.*", "nvidia-cuda-nvcc==13.0.88.*"]
        assert index.release_with("13.0.99") is None
        assert index.release_with("12.8.93") is None  # the index has no such nvcc at all


class TestResolver:
    PIP = json.dumps(
        {
            "install": [
                {
                    "metadata": {"name": "nvidia-nvvm", "version": "13.0.88"},
                    "download_info": {
                        "url": "https://x/a/nvidia_nvvm-13.0.88-py3-none-any.whl#sha256=1",
                        "archive_info": {"hashes": {"sha256": "A" * 64}},
                    },
                }
            ]
        }
    )
    UV = f"""
lock-version = "1.0"
[[packages]]
name = "nvidia-nvvm"
version = "13.0.88"
wheels = [
  {{ url = "https://x/nvidia_nvvm-13.0.88-py3-none-win_amd64.whl", hashes = {{ sha256 = "{"b" * 64}" }} }},
  {{ url = "https://x/nvidia_nvvm-13.0.88-py3-none-any.whl", size = 7, hashes = {{ sha256 = "{"a" * 64}" }} }},
]
"""

    @systems.LINUX_PATHS
    def test_pip_then_uv(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[list[str]] = []

        def run(command: Sequence[str | Path], **_options: Any) -> Completed:
            words = [str(word) for word in command]
            calls.append(words)
            if "install" in words:
                if fails:
                    raise ToolError(words, "failed with status 1", "ERROR: No matching distribution")
                return completed(self.PIP)
            return completed(self.UV)

        monkeypatch.setattr(process, "run", run)
        monkeypatch.setattr(venvs, "pip", lambda: ["pip"])
        monkeypatch.setattr(venvs, "uv", lambda: "uv")
        fails = False
        (by_pip,) = archives.resolve_wheels(["nvidia-nvvm"], offline=True)
        assert "--no-index" in calls[0]
        fails = True
        (by_uv,) = archives.resolve_wheels(["nvidia-nvvm"], dependencies=False)
        assert "--no-deps" in calls[-1]
        assert replace(by_uv, size=None) == replace(by_pip, url=by_uv.url)
        assert by_pip.sha256 == "a" * 64
        assert "#" not in by_pip.url

    def test_neither(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(venvs, "pip", lambda: None)
        monkeypatch.setattr(venvs, "uv", lambda: None)
        with pytest.raises(UnavailableError, match="neither pip nor uv was found"):
            archives.resolve_wheels(["x"])

    def test_addresses_of_what_a_lock_only_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        named = Archive(kind="wheel", name="a", version="1", file="a.whl", sha256="a" * 64)
        changed = replace(named, name="b", sha256="b" * 64)
        monkeypatch.setattr(
            archives,
            "resolve_wheels",
            lambda *_, **__: (replace(named, url="https://x/a"), replace(changed, sha256="c" * 64, url="https://x/b")),
        )
        assert [each.url for each in archives.with_addresses([named, changed])] == ["https://x/a", ""]
        assert archives.with_addresses([named], offline=True) == (named,)


class TestSystem:
    @pytest.fixture
    def root(self, around: Surroundings) -> Path:
        root = around.machine.root / "usr" / "local" / "cuda-13.0"
        for name in ("bin/nvcc", "include/cuda_runtime.h", "lib64/libcudart.so"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")
        around.machine.run = lambda *_, **__: completed("release 13.0, V13.0.88")
        return root

    def test_what_is_missing_is_named(self, root: Path) -> None:
        components = toolchain_parts.with_base(["cublas", "nvtx"])
        assert list(system.missing(root, components)) == ["cublas_v2.h", "libcublas.so", "nvtx3/nvToolsExt.h"]
        assert list(system.missing(root, toolchain_parts.with_base([]))) == []

    def test_another_version_is_not_taken(self, root: Path, around: Surroundings) -> None:
        assert root.is_dir()
        with pytest.raises(UnavailableError, match=r"/usr/local/cuda-13\.0 is 13\.0\.88"):
            system.decide(REQUEST, around)

    def test_none(self, around: Surroundings) -> None:
        with pytest.raises(UnavailableError, match="no toolkit was found on this machine"):
            system.decide(REQUEST, around)

    def test_the_folder_that_was_named_and_no_other(self, root: Path, around: Surroundings) -> None:
        found = system.decide(replace(NEW, folder="/usr/local/cuda-13.0"), around)
        assert found.place == "/usr/local/cuda-13.0"
        (root.parent / "empty").mkdir()
        with pytest.raises(UnavailableError, match="/usr/local/empty is no CUDA toolkit"):
            system.decide(replace(NEW, folder="/usr/local/empty"), around)

    def test_a_toolkit_copied_from_a_jetson(self, root: Path, around: Surroundings) -> None:
        head = b"\x7fELF" + bytes(14) + (183).to_bytes(2, "little")
        (root / "bin" / "nvcc").write_bytes(head)
        assert system.decide(replace(NEW, cpu="aarch64"), around).place == "/usr/local/cuda-13.0"
        with pytest.raises(UnavailableError, match="has an nvcc for aarch64: to compile for aarch64 here, add --cpu"):
            system.decide(NEW, around)


@systems.posix("builds nothing for other processors: nvcc's parts for arm64 are Linux's")
class TestJetPack:
    """A toolkit of a board or of an SDK on this machine, of CUDA 12.6, laid out as theirs are."""

    ROOT = "/usr/local/cuda-12.6"

    def board(self, around: Surroundings, *targets: str, programs: int = 183) -> Wanted:
        root = around.machine.root / self.ROOT[1:]
        for target in targets:
            for name in ("include/cuda.h", "include/cuda_runtime.h", "lib/libcudart.so"):
                (root / "targets" / target / name).parent.mkdir(parents=True, exist_ok=True)
                (root / "targets" / target / name).write_text("#define CUDA_VERSION 12060\n")
        (root / "bin").mkdir()
        (root / "bin" / "nvcc").write_bytes(b"\x7fELF" + bytes(14) + programs.to_bytes(2, "little"))
        around.machine.run = lambda *_, **__: completed("release 12.6, V12.6.68" if programs == 62 else "")
        return replace(
            REQUEST, toolkit=toolkits.find_toolkit("12.6"), target="aarch64", folder=self.ROOT, providers=("system",)
        )

    @pytest.fixture
    def mirrored(self, tmp_path: Path) -> str:
        return mirror(tmp_path / "mirror", "12.6.3", **whole())

    def test_libraries_of_the_board_and_programs_for_this_machine(self, around: Surroundings, mirrored: str) -> None:
        wanted = replace(self.board(around, "aarch64-linux"), l4t=True, redist_url=mirrored)
        found = system.decide(wanted, around)
        assert found.place.endswith(f"{self.ROOT}/targets/aarch64-linux")
        assert found.platform == "linux-x86_64-aarch64-l4t"
        assert [each.name for each in found.archives] == ["cuda_nvcc"], "no library of this processor"
        assert processors_of(found.platform) == ("x86_64", "aarch64")

    def test_programs_that_run_here_are_used(self, around: Surroundings) -> None:
        found = system.decide(replace(self.board(around, "aarch64-linux", programs=62), l4t=True), around)
        assert found.archives == ()
        assert "its own programs" in found.found_via

    @pytest.mark.parametrize(
        ("targets", "l4t", "taken"),
        [
            (("aarch64-linux", "sbsa-linux"), True, "aarch64-linux"),
            (("aarch64-linux", "sbsa-linux"), False, "sbsa-linux"),
            (("aarch64-linux", "sbsa-linux"), None, "sbsa-linux"),
            (("aarch64-linux",), None, "aarch64-linux"),
        ],
    )
    def test_the_target_is_that_of_the_machines(
        self,
        targets: Sequence[str],
        l4t: bool | None,  # noqa: FBT001
        taken: str,
        around: Surroundings,
    ) -> None:
        found = system.decide(replace(self.board(around, *targets, programs=62), l4t=l4t), around)
        assert found.place.endswith(f"targets/{taken}")
        assert found.platform.endswith("-l4t") is (taken == "aarch64-linux")

    def test_the_folder_of_a_target(self, around: Surroundings, mirrored: str) -> None:
        wanted = self.board(around, "aarch64-linux", "sbsa-linux")
        named = replace(wanted, folder=f"{self.ROOT}/targets/aarch64-linux", redist_url=mirrored)
        assert system.decide(named, around).place.endswith("targets/aarch64-linux")

    @pytest.mark.parametrize(
        ("targets", "l4t", "reason"),
        [
            (("sbsa-linux",), True, "has sbsa-linux alone, which is for servers"),
            (("aarch64-linux",), False, r"has aarch64-linux alone, which is for Jetson \(L4T\)"),
            (("x86_64-linux",), True, "has no folder targets/sbsa-linux or targets/aarch64-linux"),
        ],
    )
    def test_another_systems_is_refused_before_anything_is_compiled(
        self,
        targets: Sequence[str],
        l4t: bool,  # noqa: FBT001
        reason: str,
        around: Surroundings,
    ) -> None:
        with pytest.raises(UnavailableError, match=reason):
            system.decide(replace(self.board(around, *targets, programs=62), l4t=l4t), around)

    def test_nvidias_archives_for_jetson(self, around: Surroundings, tmp_path: Path) -> None:
        """They are called `linux-aarch64`, those for servers `linux-sbsa`."""
        parts = whole()
        for name, part in parts.items():
            part |= {each: entry(f"{name}/{each}/{name}.tar.xz") for each in ("linux-sbsa", "linux-aarch64")}
        wanted = replace(
            REQUEST,
            toolkit=toolkits.find_toolkit("12.6"),
            target="aarch64",
            redist_url=mirror(tmp_path / "whole", "12.6.3", **parts),
        )
        for l4t, folder in ((True, "linux-aarch64"), (False, "linux-sbsa"), (None, "linux-sbsa")):
            found = redist.decide(replace(wanted, l4t=l4t), around)
            places = {each.name: each.url.split("/")[-2] for each in found.archives}
            assert places == {"cuda_nvcc": "x", "cuda_cudart": folder, "cuda_cccl": folder}


def test_all_are_asked_and_each_says_why(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(name: str) -> Any:
        class Nothing:
            def decide(self, *_: object) -> None:
                raise ToolError([name], "failed with status 1", "first\nlast words")

        return Nothing()

    monkeypatch.setattr(providers, "provider", unavailable)
    request = replace(REQUEST, providers=providers.ORDER, components=toolchain_parts.with_base(["cublas"]))
    with pytest.raises(UnavailableError) as caught:
        providers.decide(request, around, lambda _name: None)
    told = caught.value.message
    assert told.startswith("no provider has CUDA 12.4 with cublas:")
    for name in providers.ORDER:
        assert f"- {name}: {name} failed with status 1: last words" in told
    with pytest.raises(UnavailableError) as caught:
        providers.decide(replace(request, offline=True), around, lambda _name: None)
    assert "--offline uses only earlier downloads" in caught.value.hint
    for_jetson = replace(request, target="aarch64", l4t=True)
    with pytest.raises(UnavailableError) as caught:
        providers.decide(for_jetson, around, lambda _name: None)
    assert "a board's /usr/local/cuda-12.4: --provider system=FOLDER" in caught.value.hint
    assert "CUDA 13.2" in caught.value.hint


def test_every_mistake_of_a_wish_at_once(around: Surroundings) -> None:
    request = ToolchainRequest("9.9", components=("cubals", "nccl"), providers=("idnex",))
    with pytest.raises(UsageError) as caught:
        provide.resolve(request, around)
    for word in ("'9.9'", "'cubals'", "cublas", "'idnex'"):
        assert word in caught.value.message
    with pytest.raises(UnknownNameError, match=r"9\.9"):
        provide.resolve(ToolchainRequest("9.9"), around)


@pytest.mark.parametrize(
    ("version", "cuda", "exact"),
    [("13.0", "13.0", None), ("cu128", "12.8", None), ("12.2.2", "12.2", "12.2.2"), ("v12.4.1", "12.4", "12.4.1")],
)
def test_versions_as_people_write_them(around: Surroundings, version: str, cuda: str, exact: str | None) -> None:
    request = provide.resolve(ToolchainRequest(version), around)
    assert (request.cuda, request.exact) == (cuda, exact)
    assert request.providers == providers.ORDER


def test_providers_in_the_order_given(around: Surroundings) -> None:
    request = provide.resolve(ToolchainRequest("13.0", providers=("debian", "index", "debian")), around)
    assert request.providers == ("debian", "index")


def test_other_systems_are_told_so(around: Surroundings) -> None:
    around.machine.platform = "darwin"
    with pytest.raises(UnavailableError, match="on Linux"):
        provide.resolve(ToolchainRequest("13.0"), around)


def test_on_windows_the_index_and_the_system_alone(around: Surroundings) -> None:
    around.machine.platform, around.machine.cpu = "win32", "x86_64"
    wanted = provide.resolve(ToolchainRequest("12.4"), around)
    assert wanted.platform == "windows-x86_64"
    with pytest.raises(UnavailableError) as caught:
        providers.decide(wanted, around, lambda _: None)
    for word in ("debian: is for Linux alone", "conda: is for Linux alone", "index: the index has no nvcc before"):
        assert word in caught.value.message


def test_no_toolkits_for_windows_on_arm(around: Surroundings) -> None:
    around.machine.platform, around.machine.cpu = "win32", "arm64"
    with pytest.raises(UnavailableError, match="on Windows, x86-64"):
        provide.resolve(ToolchainRequest("13.0"), around)
