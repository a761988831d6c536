"""The few bytes of a wheel's own words that a repair changes, and all those that it does not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cuwheel.facts import libraries
from cuwheel.facts.tables import tables
from cuwheel.repairing.policies import policies
from cuwheel.repairing.requirements import added_to, requirement
from cuwheel.repairing.writing import retagged

TAGS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b"Name: x\nRequires-Dist: a\n\nRequires-Dist: b\n",
            b"Name: x\nRequires-Dist: a\nRequires-Dist: n\n\nRequires-Dist: b\n",
        ),
        (b"Name: x\nVersion: 1\n\ntext\n", b"Name: x\nVersion: 1\nRequires-Dist: n\n\ntext\n"),
        (
            b"Name: x\r\nrequires-dist: a\r\nAuthor: y\r\n",
            b"Name: x\r\nrequires-dist: a\r\nRequires-Dist: n\r\nAuthor: y\r\n",
        ),
        (b"Requires-Dist: a\n  ; b\nAuthor: y", b"Requires-Dist: a\n  ; b\nRequires-Dist: n\nAuthor: y"),
        (b"Name: x\nVersion: 1", b"Name: x\nVersion: 1\nRequires-Dist: n\n"),
    ],
)
def test_requirements_go_behind_those_that_are_there(before: bytes, after: bytes) -> None:
    assert added_to(before, ["n"]) == after
    assert added_to(before, []) == before


def test_tags_are_changed_in_their_place() -> None:
    before = (
        b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: cp311-abi3-linux_x86_64\nTag: cp312-abi3-linux_x86_64\nBuild: 3\n"
    )
    assert retagged(before, TAGS) == (
        b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        b"Tag: cp311-abi3-manylinux_2_17_x86_64\nTag: cp311-abi3-manylinux2014_x86_64\n"
        b"Tag: cp312-abi3-manylinux_2_17_x86_64\nTag: cp312-abi3-manylinux2014_x86_64\n"
        b"Build: 3\n"
    )


def test_several_old_tags_become_one_set() -> None:
    before = b"Tag: py3-none-linux_x86_64\r\nTag: py3-none-manylinux_2_28_x86_64\r\n"
    assert retagged(before, ["manylinux_2_28_x86_64"]) == b"Tag: py3-none-manylinux_2_28_x86_64\r\n"


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

    for library in libraries.all_libraries():
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
    assert requirement(libraries.find_library(soname), major, found) == lines


def test_every_linux_package_of_the_table_tells_its_glibc() -> None:
    for row in tables().libraries.package:
        if row.cuda is not None:
            assert row.glibc, row.name
            assert row.glibc.keys() <= {"x86_64", "aarch64"}
