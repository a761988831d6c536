"""What a repair would do, decided from libraries that exist as bytes alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.changes.repair.act import execute
from cuwheel.changes.repair.decide import decide
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.errors import UsageError
from cuwheel_core.errors import MalformedError, UnknownNameError
from cuwheel_core.facts import cuda_libraries
from tests.fixtures import systems
from tests.fixtures.elves import AARCH64, elf
from tests.fixtures.wheels import wheel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.changes.repair.answer import Fact
    from cuwheel.changes.repair.decide import Decision

pytestmark = systems.posix("has no auditwheel: wheels for Linux are repaired on Linux")
pytestmark = systems.NO_AUDITWHEEL

BIN = Path(__file__).parents[3] / "fixtures" / "bin"
OLD = {"libc.so.6": ["GLIBC_2.2.5"]}
# Case 5: what must be left out by hand today, as CUDA 12 and CUDA 13 name it.
CASE_5 = {
    12: {
        "libcusolver.so.11": "nvidia/cusolver/lib",
        "libcusolverMg.so.11": "nvidia/cusolver/lib",
        "libcudart.so.12": "nvidia/cuda_runtime/lib",
        "libcublas.so.12": "nvidia/cublas/lib",
        "libcublasLt.so.12": "nvidia/cublas/lib",
        "libcupti.so.12": "nvidia/cuda_cupti/lib",
        "libcuda.so.1": "",
        "libcudnn.so.9": "nvidia/cudnn/lib",
    },
    13: {
        "libcusolver.so.12": "nvidia/cu13/lib",
        "libcusolverMg.so.12": "nvidia/cu13/lib",
        "libcudart.so.13": "nvidia/cu13/lib",
        "libcublas.so.13": "nvidia/cu13/lib",
        "libcublasLt.so.13": "nvidia/cu13/lib",
        "libcupti.so.13": "nvidia/cu13/lib",
        "libcuda.so.1": "",
        "libcudnn.so.9": "nvidia/cudnn/lib",
    },
}


@pytest.fixture(autouse=True)
def _an_empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "no-env"))
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cuwheel.changes.repair.contents._SYSTEM", ())
    monkeypatch.setattr("cuwheel.changes.repair.contents._LD_CONF", str(tmp_path / "none"))


def decided(folder: Path, files: Mapping[str, bytes], wish: RepairRequest | None = None, **options: Any) -> Decision:
    return decide(wheel(folder / "dist", files, **options), wish or RepairRequest("x.whl"))


def one(folder: Path, *needed: str, wish: RepairRequest | None = None, **options: Any) -> Decision:
    return decided(folder, {"pkg/libown.so": elf(needed=needed, versions=OLD, **options)}, wish)


def fact(decision: Decision, soname: str) -> Fact:
    (found,) = [each for each in decision.libraries if each.soname == soname]
    return found


def rules(decision: Decision) -> list[str]:
    return [each.rule for each in decision.findings]


def put(folder: Path, name: str, **options: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(elf(soname=name, **options))
    return folder


@pytest.mark.parametrize("major", [12, 13])
def test_all_eight_of_case_5_are_kept_out_and_led_to(tmp_path: Path, major: int) -> None:
    folders = CASE_5[major]
    decision = one(tmp_path, *folders)
    assert {each.soname for each in decision.of("kept-out")} == set(folders)
    assert set(decision.excluded) == set(folders)
    assert fact(decision, "libcuda.so.1").reason == "it comes with the driver"
    expected = dict.fromkeys(f"$ORIGIN/../{each}" for each in folders.values() if each)
    assert decision.paths[0].after == tuple(expected)
    assert not decision.refused


def test_every_library_of_the_table_is_kept_out(tmp_path: Path) -> None:
    sonames = [each.pattern for each in cuda_libraries.all_libraries() if ".so" in each.pattern]
    names = tuple(dict.fromkeys(each.replace("*", "8") for each in sonames))
    decision = one(tmp_path, *names)
    assert {each.soname for each in decision.of("kept-out")} == set(names)
    assert "library-not-in-table" not in rules(decision)


def test_a_version_that_is_newer_than_the_table_is_kept_out_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "lib", "libcublas.so.99")
    decision = one(tmp_path, "libcublas.so.99", wish=RepairRequest("x.whl", libraries=(tmp_path / "lib",)))
    assert fact(decision, "libcublas.so.99").fate == "kept-out"
    assert rules(decision) == ["library-not-in-table"]
    assert decision.paths[0].after == ()


@pytest.mark.parametrize("name", ["libcublasx.so.12", "libcudf.so", "libcheckpoint.so.3", "libmycudart.so.12"])
def test_what_only_looks_like_nvidias_is_not(tmp_path: Path, name: str) -> None:
    put(tmp_path / "lib", name)
    decision = one(tmp_path, name, wish=RepairRequest("x.whl", libraries=(tmp_path / "lib",)))
    assert fact(decision, name).fate == "grafted"


def test_the_soname_does_not_tell_the_cuda_its_neighbours_do(tmp_path: Path) -> None:
    for number, (runtime, folder) in enumerate(
        [("libcudart.so.12", "nvidia/curand/lib"), ("libcudart.so.13", "nvidia/cu13/lib")]
    ):
        decision = one(tmp_path / str(number), "libcurand.so.10", runtime)
        assert f"$ORIGIN/../{folder}" in decision.paths[0].after
        assert len(fact(decision, "libcurand.so.10").packages) == 1
    alone = one(tmp_path / "alone", "libcurand.so.10")
    assert alone.paths[0].after == ("$ORIGIN/../nvidia/cu13/lib", "$ORIGIN/../nvidia/curand/lib")
    told = one(tmp_path / "told", "libcurand.so.10", wish=RepairRequest("x.whl", cuda=12))
    assert told.paths[0].after == ("$ORIGIN/../nvidia/curand/lib",)


def test_each_library_of_a_wheel_has_its_own_cuda(tmp_path: Path) -> None:
    both = {
        "pkg/cu12/libown.so": elf(needed=["libcusolver.so.11", "libcudart.so.12", "libcusparse.so.12"], versions=OLD),
        "pkg/cu13/libown.so": elf(needed=["libcusolver.so.12", "libcudart.so.13", "libcusparse.so.12"], versions=OLD),
    }
    decision = decided(tmp_path, both)
    assert [each.cuda for each in decision.paths] == [12, 13]
    assert decision.paths[1].after == ("$ORIGIN/../../nvidia/cu13/lib",)
    assert fact(decision, "libcusparse.so.12").packages == ("nvidia-cusparse", "nvidia-cusparse-cu12")
    assert rules(decided(tmp_path, both, RepairRequest("x.whl", requires=True))) == ["several-cudas"]
    chosen = decided(tmp_path, both, RepairRequest("x.whl", requires=True, cuda=12))
    assert chosen.requires == (
        "nvidia-cuda-runtime-cu12>=12,<13",
        "nvidia-cusolver-cu12>=11,<12",
        "nvidia-cusparse-cu12>=12,<13",
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("libown.so", "$ORIGIN/nvidia/cublas/lib"),
        ("pkg/libown.so", "$ORIGIN/../nvidia/cublas/lib"),
        ("pkg/a/b/c/libown.so", "$ORIGIN/../../../../nvidia/cublas/lib"),
        ("pkg-1.0.data/platlib/pkg/libown.so", "$ORIGIN/../nvidia/cublas/lib"),
        ("pkg-1.0.data/platlib/libown.so", "$ORIGIN/nvidia/cublas/lib"),
        # What is called so without being the wheel's own data folder.
        ("pkg/some.data/platlib/libown.so", "$ORIGIN/../../../nvidia/cublas/lib"),
    ],
)
def test_the_depth_inside_the_wheel_counts(tmp_path: Path, path: str, expected: str) -> None:
    decision = decided(tmp_path, {path: elf(needed=["libcublas.so.12"], versions=OLD)})
    assert decision.paths[0].after == (expected,)


def test_what_is_installed_elsewhere_cannot_be_led(tmp_path: Path) -> None:
    files = {"pkg-1.0.data/data/lib/libown.so": elf(needed=["libcublas.so.12"], versions=OLD)}
    decision = decided(tmp_path, files)
    assert decision.paths == ()
    assert rules(decision) == ["installed-elsewhere"]


def test_folders_of_the_build_machine_go_and_relative_ones_stay(tmp_path: Path) -> None:
    before = (
        "/home/ci/build/lib:$ORIGIN/../sibling:relative/lib:${ORIGIN}:$LIB/x:$ORIGINAL/x:$ORIGIN/../nvidia/cublas/lib"
    )
    decision = one(tmp_path, "libcublas.so.12", runpath=before)
    assert decision.paths[0].after == ("$ORIGIN/../sibling", "${ORIGIN}", "$ORIGIN/../nvidia/cublas/lib")
    assert decision.changes == ("tag", "search paths")


def test_a_library_that_needs_nothing_of_nvidias_loses_its_build_folders_too(tmp_path: Path) -> None:
    decision = one(tmp_path, "libm.so.6", runpath="/opt/build")
    assert decision.paths[0].after == ()
    assert decision.paths[0].changes


def test_what_is_in_the_wheel_is_found_there(tmp_path: Path) -> None:
    """Also if the build folder, which the search path names, has it too; and the nearest of several."""
    build = put(tmp_path / "build", "libinner.so")
    files = {
        "pkg/libown.so": elf(needed=["libinner.so"], versions=OLD, runpath=str(build)),
        "pkg/lib/libinner.so": elf(soname="libinner.so", versions=OLD),
        "pkg/more/cu12/libown.so": elf(needed=["libinner.so"], versions=OLD),
        "pkg/more/cu12/libinner.so": elf(soname="libinner.so", versions=OLD),
    }
    decision = decided(tmp_path, files)
    assert fact(decision, "libinner.so").fate == "inside"
    assert decision.excluded == ("libinner.so",)
    after = {each.path: each.after for each in decision.paths}
    assert after["pkg/libown.so"] == ("$ORIGIN/lib",)
    assert after["pkg/more/cu12/libown.so"] == ("$ORIGIN",)


def test_a_copy_of_the_systems_library_is_not_suddenly_used(tmp_path: Path) -> None:
    files = {
        "pkg/libown.so": elf(needed=["libstdc++.so.6"], versions=OLD),
        "pkg/old/libstdc++.so.6": elf(soname="libstdc++.so.6", versions=OLD),
    }
    decision = decided(tmp_path, files)
    assert fact(decision, "libstdc++.so.6").fate == "system"
    assert not any(each.after for each in decision.paths)


@pytest.mark.parametrize(
    ("versions", "needed", "policy"),
    [
        (["GLIBC_2.2.5"], [], "manylinux_2_5"),
        (["GLIBC_2.14"], [], "manylinux_2_17"),
        (["GLIBC_2.2.5", "GLIBC_2.34"], [], "manylinux_2_34"),
        # Not here: what the package of the table asks for.
        (["GLIBC_2.2.5"], ["libcublas.so.13"], "manylinux_2_27"),
        (["GLIBC_2.2.5"], ["libcusolverMp.so.0"], "manylinux_2_28"),
        (["GLIBC_2.34"], ["libcublas.so.13"], "manylinux_2_34"),
    ],
)
def test_the_lowest_tag_that_holds(tmp_path: Path, versions: list[str], needed: list[str], policy: str) -> None:
    files = {"pkg/libown.so": elf(needed=["libc.so.6", *needed], versions={"libc.so.6": versions})}
    decision = decided(tmp_path, files)
    assert decision.policy == policy
    assert decision.file_name.endswith(f"{policy}_x86_64.whl")


def test_the_tag_is_not_below_what_a_kept_out_library_needs_itself(tmp_path: Path) -> None:
    """Also if only another of NVIDIA's libraries needs it."""
    folder = put(tmp_path / "lib", "libcusolver.so.12", needed=["libnvJitLink.so.13"], versions=OLD, padding=5000)
    put(folder, "libnvJitLink.so.13", versions={"libc.so.6": ["GLIBC_2.35"]}, padding=70_000)
    decision = one(tmp_path, "libcusolver.so.12", wish=RepairRequest("x.whl", libraries=(folder,)))
    assert decision.policy == "manylinux_2_35"
    assert decision.because == ("libnvJitLink.so.13 (needed by what is kept out) needs glibc 2.35",)
    indirect = fact(decision, "libnvJitLink.so.13")
    assert indirect.indirect
    assert indirect.fate == "kept-out"
    # What bundling would have cost is that of both.
    assert decision.bundled == sum(each.stat().st_size for each in folder.iterdir())
    # auditwheel need not know of it, but must not take it.
    assert "libnvJitLink.so.13" in decision.excluded


def test_the_tag_is_not_below_what_a_grafted_library_needs(tmp_path: Path) -> None:
    folder = put(tmp_path / "lib", "libblas.so.3", versions={"libc.so.6": ["GLIBC_2.38"]})
    decision = one(tmp_path, "libblas.so.3", wish=RepairRequest("x.whl", libraries=(folder,)))
    assert decision.policy == "manylinux_2_38"
    assert decision.because == (f"{folder}/libblas.so.3 needs GLIBC_2.38",)
    assert decision.paths[0].after == ("$ORIGIN/../pkg.libs",)


def test_a_tag_that_promises_too_much_is_raised_and_one_that_holds_stays(tmp_path: Path) -> None:
    files = {"pkg/libown.so": elf(needed=["libcublas.so.13"], versions=OLD, rpath="$ORIGIN/../nvidia/cu13/lib")}
    low = decided(tmp_path, files, platform="manylinux_2_17_x86_64.manylinux2014_x86_64")
    assert low.policy == "manylinux_2_27"
    assert rules(low) == ["tag-too-low"]
    high = decided(tmp_path, files, platform="manylinux_2_28_x86_64")
    assert high.tags == ("manylinux_2_28_x86_64",)
    assert high.changes == ()
    between = decided(tmp_path, files, platform="manylinux_2_30_x86_64")  # no policy of auditwheel's, but a tag
    assert between.tags == ("manylinux_2_30_x86_64",)
    assert between.policy == "manylinux_2_28"


def test_a_policy_that_was_asked_for_is_taken_or_refused(tmp_path: Path) -> None:
    assert one(tmp_path, "libc.so.6", wish=RepairRequest("x.whl", policy="manylinux2014")).policy == "manylinux_2_17"
    assert one(tmp_path, "libc.so.6", wish=RepairRequest("x.whl", policy="manylinux_2_28_x86_64")).tags == (
        "manylinux_2_28_x86_64",
    )
    low = one(tmp_path, "libcublas.so.13", wish=RepairRequest("x.whl", policy="manylinux_2_17"))
    assert low.refused
    assert low.findings[0].evidence == ("libcublas.so.13 (kept out) needs glibc 2.27",)
    with pytest.raises(UsageError, match="knows no policy 'manylinux_3_1'"):
        one(tmp_path, "libc.so.6", wish=RepairRequest("x.whl", policy="manylinux_3_1"))
    with pytest.raises(UsageError, match="made for glibc"):
        one(tmp_path, "libc.so.6", wish=RepairRequest("x.whl", policy="musllinux_1_2"))


def test_a_symbol_that_not_every_machine_has(tmp_path: Path) -> None:
    wish = RepairRequest("x.whl", policy="manylinux_2_28")
    decision = one(tmp_path, "libz.so.1", undefined=["inflate", "zcfree"], wish=wish)
    assert decision.refused
    assert "zcfree of libz.so.1" in decision.findings[0].evidence[0]


def test_where_a_library_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, asked, loader = (put(tmp_path / each, "libblas.so.3") for each in ("named", "asked", "loader"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{loader}:")
    wish = RepairRequest("x.whl", libraries=(asked,))
    files = {"pkg/libown.so": elf(needed=["libblas.so.3"], versions=OLD, runpath=str(named))}
    for folder, via in (
        (named, "the search path of pkg/libown.so"),
        (asked, "asked for"),
        (loader, "LD_LIBRARY_PATH"),
    ):
        found = fact(decided(tmp_path, files, wish), "libblas.so.3")
        assert (found.place, found.via) == (f"{folder}/libblas.so.3", via)
        assert found.trail[-1].found == "found"
        (folder / "libblas.so.3").write_bytes(elf(machine=AARCH64))
    decision = decided(tmp_path, files, wish)
    missing = fact(decision, "libblas.so.3")
    assert missing.fate == "missing"
    assert [each.found for each in missing.trail if each.found != "not there"] == ["is for aarch64"] * 3
    assert decision.refused
    assert f"{named}/libblas.so.3 is for aarch64" in decision.findings[0].evidence


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    decision = one(tmp_path, "libhip.so.7", "libsycl.so.8", "libc.so.6")
    (finding,) = decision.findings
    assert finding.message == "libhip.so.7, libsycl.so.8 were not found, and users would not have them"
    assert finding.fix.endswith("--exclude libhip.so.7 --exclude libsycl.so.8")


def test_the_environments_packages_are_looked_at_with_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    put(site / "nvidia" / "cublas" / "lib", "libcublas.so.12", versions={"libc.so.6": ["GLIBC_2.27"]})
    (site / "nvidia_cublas_cu12-12.4.5.8.dist-info").mkdir()
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    (site / "nvidia_cuda_runtime_cu12-12.4.127.dist-info").mkdir()
    decision = one(tmp_path, "libcublas.so.12", wish=RepairRequest("x.whl", requires=True, cuda="12.4"))
    found = fact(decision, "libcublas.so.12")
    assert (found.version, found.toolkit) == ("12.4.5.8", "12.4")
    assert found.via == "the environment's packages"
    assert decision.requires == ("nvidia-cublas-cu12>=12.4,<13",)
    # A wheel that was compiled with an older one runs with an older one, whatever this machine has.
    older = one(tmp_path, "libcublas.so.12", wish=RepairRequest("x.whl", requires=True, cuda="12.2"))
    assert older.requires == ("nvidia-cublas-cu12>=12,<13",)
    unknown = one(tmp_path, "libcublas.so.12", wish=RepairRequest("x.whl", requires=True))
    assert unknown.requires == ("nvidia-cublas-cu12>=12,<13",)


def test_the_version_of_a_toolkits_library_is_in_its_name(tmp_path: Path) -> None:
    folder = put(tmp_path / "lib", "libcublas.so.12.6.4.1", versions=OLD)
    (folder / "libcublas.so.12").symlink_to("libcublas.so.12.6.4.1")
    put(folder, "libcudart.so.12.6.77")
    (folder / "libcudart.so.12").symlink_to("libcudart.so.12.6.77")
    wish = RepairRequest("x.whl", libraries=(tmp_path,), requires=True, cuda="12.6")
    assert one(tmp_path, "libcublas.so.12", wish=wish).requires == ("nvidia-cublas-cu12>=12.6,<13",)
    wish = RepairRequest("x.whl", libraries=(tmp_path,), requires=True, cuda=12)
    assert one(tmp_path, "libcublas.so.12", wish=wish).requires == ("nvidia-cublas-cu12>=12,<13",)


def test_the_toolkit_that_compiled_it_bounds_what_is_numbered_like_it(tmp_path: Path) -> None:
    """By the wheel's own code: this machine has nothing at all."""
    code = (BIN / "plain-130.so").read_bytes()
    decision = decided(tmp_path, {"pkg/libown.so": code}, RepairRequest("x.whl", requires=True))
    assert decision.requires == ("nvidia-cuda-runtime>=13.0,<14",)


@pytest.mark.parametrize("beside", ["runtime", "packages"])
def test_a_library_of_another_cuda_is_never_taken(tmp_path: Path, beside: str) -> None:
    """libcusparse.so.12 is of CUDA 12 and of CUDA 13; that of 13 would be required in a release that 12 never had."""
    folder = put(tmp_path / "site" / "nvidia" / "cu13" / "lib", "libcusparse.so.12.6.3.3", versions=OLD)
    (folder / "libcusparse.so.12").symlink_to("libcusparse.so.12.6.3.3")
    if beside == "runtime":
        put(folder, "libcudart.so.13.0.96")
        (folder / "libcudart.so.13").symlink_to("libcudart.so.13.0.96")
    else:
        (tmp_path / "site" / "nvidia_cusparse-12.6.3.3.dist-info").mkdir()
    wish = RepairRequest("x.whl", libraries=(folder,), requires=True, cuda="12.9")
    decision = one(tmp_path, "libcusparse.so.12", "libcudart.so.12", wish=wish)
    assert fact(decision, "libcusparse.so.12").place is None
    assert f"is of CUDA {'13.0' if beside == 'runtime' else '13'}" in [
        each.found for each in fact(decision, "libcusparse.so.12").trail
    ]
    assert decision.requires == ("nvidia-cuda-runtime-cu12>=12.9,<13", "nvidia-cusparse-cu12>=12,<13")
    wish = RepairRequest("x.whl", libraries=(folder,), requires=True, cuda=13)
    fitting = one(tmp_path, "libcusparse.so.12", wish=wish)
    assert fact(fitting, "libcusparse.so.12").place is not None


def test_requirements_that_are_there_already_are_not_written_twice(tmp_path: Path) -> None:
    files = {"pkg/libown.so": elf(needed=["libcublas.so.13", "libcudart.so.13", "libcudnn.so.9"], versions=OLD)}
    requires = ["NVIDIA.cublas==13.0.0.1", "nvidia-cudnn-cu13; extra == 'gpu'", "torch>2"]
    decision = decided(tmp_path, files, RepairRequest("x.whl", requires=True), requires=requires)
    assert decision.requires == ("nvidia-cuda-runtime>=13,<14", "nvidia-cudnn-cu13>=9,<10")


def test_releases_that_lack_the_library_are_not_required(tmp_path: Path) -> None:
    decision = one(tmp_path, "libnvToolsExt.so.1", "libcudart.so.12", wish=RepairRequest("x.whl", requires=True))
    assert "nvidia-nvtx-cu12>=12,<12.9" in decision.requires
    decision = one(tmp_path, "libnvtx3interop.so.1", "libcudart.so.12", wish=RepairRequest("x.whl", requires=True))
    assert "nvidia-nvtx-cu12>=12.9,<13" in decision.requires


def test_which_cuda_to_require_must_be_clear(tmp_path: Path) -> None:
    assert rules(one(tmp_path, "libcurand.so.10", wish=RepairRequest("x.whl", requires=True))) == ["cuda-unclear"]
    told = one(tmp_path, "libcurand.so.10", wish=RepairRequest("x.whl", requires=True, cuda=13))
    assert told.requires == ("nvidia-curand>=10,<11",)


def test_libraries_of_another_cuda_than_was_built_for(tmp_path: Path) -> None:
    decision = one(tmp_path, "libcudart.so.13", wish=RepairRequest("x.whl", cuda=12))
    assert rules(decision) == ["other-cuda"]
    assert "libcudart.so.13, which is for CUDA 13, not 12" in decision.findings[0].message


def test_a_frameworks_libraries_stay_with_the_framework(tmp_path: Path) -> None:
    put(tmp_path / "lib", "libc10.so", padding=100)
    needed = ("libtorch.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so")
    wish = RepairRequest("x.whl", libraries=(tmp_path / "lib",))
    decision = one(tmp_path, *needed, wish=wish)
    assert {each.soname for each in decision.of("kept-out")} == set(needed)
    assert rules(decision) == ["framework-not-required"]
    assert rules(one(tmp_path, *needed, wish=RepairRequest("x.whl", exclude=("torch",)))) == []
    files = {"pkg/_C.so": elf(needed=needed, versions=OLD)}
    assert rules(decided(tmp_path, files, wish, requires=["torch>=2.6"])) == []


def test_what_was_asked_to_be_kept_out(tmp_path: Path) -> None:
    put(tmp_path / "lib", "libmpi.so.40")
    wish = RepairRequest("x.whl", exclude=("libmpi.so.*",), libraries=(tmp_path / "lib",))
    decision = one(tmp_path, "libmpi.so.40", wish=wish)
    assert fact(decision, "libmpi.so.40").reason == "requested (libmpi.so.*)"
    assert decision.excluded == ("libmpi.so.40",)


def test_nvidias_libraries_that_came_inside_are_told(tmp_path: Path) -> None:
    files = {
        "pkg/libown.so": elf(needed=["libcudart-0a1b2c3d.so.12"], versions=OLD, rpath="$ORIGIN/../pkg.libs"),
        "pkg.libs/libcudart-0a1b2c3d.so.12": elf(soname="libcudart-0a1b2c3d.so.12", versions=OLD, padding=700_000),
    }
    decision = decided(tmp_path, files)
    assert rules(decision) == ["nvidia-inside"]
    assert not decision.refused


def test_libpython_is_not_grafted(tmp_path: Path) -> None:
    put(tmp_path / "lib", "libpython3.11.so.1.0")
    decision = one(tmp_path, "libpython3.11.so.1.0", wish=RepairRequest("x.whl", libraries=(tmp_path / "lib",)))
    assert fact(decision, "libpython3.11.so.1.0").fate == "removed"
    assert decision.changes == ("tag", "libraries")


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("win32", "made for Linux and Windows"),
        ("macosx_11_0_arm64", "delocate"),
        ("musllinux_1_2_x86_64", "auditwheel repair, in a musllinux image"),
        ("android_21_arm64_v8a", "made for Linux and Windows"),
    ],
)
def test_wheels_for_other_systems(tmp_path: Path, platform: str, words: str) -> None:
    decision = decided(tmp_path, {"pkg/libown.so": elf(needed=["libcudart.so.12"], versions=OLD)}, platform=platform)
    assert decision.refused
    assert rules(decision)[0] == "other-platform"
    assert words in decision.findings[0].fix


def test_linked_with_musl_under_a_plain_tag(tmp_path: Path) -> None:
    decision = one(tmp_path, "libcudart.so.12", "libc.musl-x86_64.so.1")
    assert decision.refused
    assert "linked with musl" in decision.findings[0].message


def test_without_native_code(tmp_path: Path) -> None:
    pure = decided(tmp_path, {"pkg/__init__.py": b""}, platform="any")
    assert not pure.refused
    assert [(each.rule, each.severity) for each in pure.findings] == [("no-libraries", "note")]
    assert pure.changes == ()
    odd = decided(tmp_path, {"pkg/__init__.py": b""})
    assert [(each.rule, each.severity) for each in odd.findings] == [("no-libraries", "warning")]


def test_machines_that_do_not_fit(tmp_path: Path) -> None:
    x86, arm = (elf(needed=["libcudart.so.12"], versions=OLD, machine=each) for each in (62, AARCH64))
    assert rules(decided(tmp_path, {"pkg/a.so": x86, "pkg/b.so": arm})) == ["several-machines"]
    assert rules(decided(tmp_path, {"pkg/b.so": arm})) == ["wrong-machine"]
    assert rules(decided(tmp_path, {"pkg/c.so": elf(machine=243)}, platform="linux_riscv64")) == ["other-platform"]
    assert rules(decided(tmp_path, {"pkg-1.0.data/purelib/a.so": x86})) == ["library-in-purelib"]
    narrow = bytearray(x86)
    narrow[4] = 1  # 32-bit
    assert decided(tmp_path, {"pkg/d.so": bytes(narrow)}, platform="linux_i686").refused


def test_a_library_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    decision = decided(tmp_path, {"pkg/libown.so": elf(needed=["libcudart.so.12"])[:300]})
    assert decision.refused
    assert rules(decision) == ["library-unreadable"]


def test_windows_libraries_and_device_code_alone_are_no_business_of_the_loader(tmp_path: Path) -> None:
    files = {"pkg/code.cubin": (BIN / "bare-130.cubin").read_bytes(), "pkg/x.o": (BIN / "object-130.o").read_bytes()}
    assert rules(decided(tmp_path, files, platform="any")) == ["no-libraries"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unlisted": ["pkg/libown.so"]}, "RECORD and the files do not match: pkg/libown.so"),
        ({"listed": ["../../../etc/passwd"]}, "RECORD and the files do not match"),
    ],
)
def test_a_record_that_lies(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        decided(tmp_path, {"pkg/libown.so": elf(needed=["libcudart.so.12"])}, **options)


def test_names_that_are_no_wheels(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"pkg/libown.so": elf()}).rename(tmp_path / "pkg.whl")
    with pytest.raises(MalformedError, match="not that of a wheel"):
        decide(path, RepairRequest("x.whl"))
    with pytest.raises(UsageError, match="is a folder"):
        decide(tmp_path, RepairRequest("x.whl"))


@pytest.mark.parametrize(("text", "major"), [("13.0", 13), ("12", 12), ("cu128", 12), (13, 13), (None, None)])
def test_a_cuda_as_people_write_it(text: str | int | None, major: int | None) -> None:
    assert RepairRequest("x.whl", cuda=text).cuda_major == major


def test_a_cuda_that_is_none() -> None:
    with pytest.raises(UnknownNameError):
        RepairRequest("x.whl", cuda="77")


def test_a_refused_decision_is_not_carried_out(tmp_path: Path) -> None:
    decision = one(tmp_path, "libnowhere.so.1")
    with pytest.raises(MalformedError, match=r"libnowhere\.so\.1 was not found"):
        execute(decision, tmp_path / "to")
    assert not (tmp_path / "to").exists()
