"""What auditwheel's policies and the table of NVIDIA's packages say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cuwheel.changes.repair.needs import requirement
from cuwheel.changes.repair.policies import policies
from cuwheel_core.facts import cuda_libraries
from cuwheel_core.facts.tables import tables
from tests.fixtures import systems

pytestmark = systems.NO_AUDITWHEEL


@systems.posix("has no auditwheel: wheels for Linux are repaired on Linux")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_newer_policies_promise_no_less(machine: str) -> None:
    known = policies(machine)
    assert len(known) > 5
    for older, newer in pairwise(known):
        assert older.system <= newer.system
        assert all(older.versions[family] <= newer.versions[family] for family in older.versions)


def test_every_package_of_the_table_can_be_required() -> None:
    """Each bound is a version, the lower below the upper, and a measured release that has the library between them."""
    from packaging.requirements import Requirement
    from packaging.version import Version

    for library in cuda_libraries.all_libraries():
        for major in library.majors if ".so" in library.pattern else ():
            first = library.package_for(major)
            assert first
            rows = [each for each in library.packages if each.name == first.name]
            for found in (None, *(each.measured_release for each in rows)):
                told = Requirement(requirement(library, major, found))
                assert told.name == first.name
                lower, upper = sorted(Version(each.version) for each in told.specifier)
                assert lower < upper
            for row in rows:
                if library.pattern not in row.only:
                    told = Requirement(requirement(library, major, row.measured_release))
                    assert told.specifier.contains(row.measured_release or "", prereleases=True), told


@pytest.mark.parametrize(
    ("soname", "major", "found", "lines"),
    [
        # One package, whichever of its folders a release has it in.
        ("libcusparseLt.so.0", 13, None, "nvidia-cusparselt-cu13>=0,<1"),
        ("libcusparseLt.so.0", 13, "0.8.1", "nvidia-cusparselt-cu13>=0.8,<1"),
        # Releases before it came are kept out, and those after it went.
        ("libcudnn_ext.so.9", 12, None, "nvidia-cudnn-cu12>=9.22,<10"),
        ("libcudss.so.0", 12, None, "nvidia-cudss-cu12>=0,<1.0"),
        ("libnvToolsExt.so.1", 12, None, "nvidia-nvtx-cu12>=12,<12.9"),
        # Two packages bring it: the usual one alone.
        ("libcufftw.so.12", 13, None, "nvidia-cufft>=12,<13"),
    ],
)
def test_releases_without_the_library_are_not_required(soname: str, major: int, found: str | None, lines: str) -> None:
    assert requirement(cuda_libraries.find_library(soname), major, found) == lines


def test_every_linux_package_of_the_table_tells_its_glibc() -> None:
    for row in tables().libraries.package:
        if row.cuda is not None:
            assert row.glibc, row.name
            assert row.glibc.keys() <= {"x86_64", "aarch64"}
