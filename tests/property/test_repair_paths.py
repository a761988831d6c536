"""Search paths of any library anywhere in a wheel lead where they should, and survive being set twice."""

from __future__ import annotations

import posixpath

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cuwheel.changes.repair import needs
from cuwheel.changes.repair.contents import Binary
from cuwheel.wheel.file import installed_path

_WORDS = st.sampled_from(["pkg", "a", "b", "lib", "nvidia", "cublas", "x.data", "platlib"])
_FOLDERS = st.lists(_WORDS, max_size=5).map("/".join)
_ENTRIES = st.one_of(
    _FOLDERS.map(lambda each: f"$ORIGIN/../{each}"),
    _FOLDERS.map(lambda each: f"/home/ci/{each}"),
    st.sampled_from(["$ORIGIN", "${ORIGIN}/..", "", ".", "$LIB", "$ORIGINS", "relative"]),
)
_NEEDED = st.sampled_from(
    ["libcublas.so.12", "libcudart.so.12", "libcusolver.so.11", "libinner.so", "libc.so.6", "libfoo.so.1"]
)


def _binary(path: str, needed: list[str], entries: list[str]) -> Binary:
    return Binary(
        path=path,
        machine="x86_64",
        size=1,
        soname=None,
        needed=tuple(needed),
        rpath=(),
        runpath=tuple(entries),
        versions=(),
        glibc=None,
    )


@given(folder=_FOLDERS, needed=st.lists(_NEEDED, unique=True), entries=st.lists(_ENTRIES, max_size=4), inner=_FOLDERS)
def test_every_need_is_led_to_from_where_it_is_installed(
    folder: str, needed: list[str], entries: list[str], inner: str
) -> None:
    binary = _binary(posixpath.join(folder, "libown.so"), needed, entries)
    place = posixpath.join(inner, "libinner.so")
    inside = {"libinner.so": [place]}
    way = needs.search_path_of(binary, inside, lambda soname: soname.startswith("libcu"))
    own, there = installed_path(binary.path), installed_path(place)
    if own is None:
        assert way is None
        return
    assert way is not None
    here = posixpath.join("/site", posixpath.dirname(own))
    reached = [posixpath.normpath(entry.replace("${ORIGIN}", here).replace("$ORIGIN", here)) for entry in way.after]
    assert all(entry.startswith(("$ORIGIN", "${ORIGIN}")) for entry in way.after)
    for soname in needed:
        if soname.startswith("libcu"):
            assert any(f"/site/{each}" in reached for each in needs.folders_for(soname, 12))
    if "libinner.so" in needed and there is not None:
        assert posixpath.normpath(posixpath.join("/site", posixpath.dirname(there))) in reached
    again = needs.search_path_of(
        replace(binary, rpath=way.after, runpath=()), inside, lambda soname: soname.startswith("libcu")
    )
    assert again is not None
    assert again.after == way.after
