from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.errors import ConfigurationError, NewerSchemaError, UsageError
from cuwheel.facts import toolchain_parts
from cuwheel.toolchains import lock
from cuwheel.toolchains.toolchain import Wanted
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import toolkits
from tests.unit.toolchains.test_store import RECIPE

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = Wanted(
    toolkit=toolkits.find_toolkit("13.0"), components=toolchain_parts.with_base([]), providers=("index",), cpu="x86_64"
)
WHOLE = replace(RECIPE, components=tuple(row.name for row in REQUEST.components))


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cuwheel.lock"
    lock.update(path, lock.locked(WHOLE))
    other = replace(WHOLE, cuda="13.4", release="13.4.3")
    lock.update(path, lock.locked(other))
    assert [each.cuda for each in lock.read_lock(path).toolchain] == ["13.0", "13.4"]
    found = lock.recipe_for(REQUEST, None, path)
    assert found.identity == WHOLE.identity
    assert found.archives == WHOLE.archives
    newer = replace(WHOLE, release="13.0.3")
    lock.update(path, lock.locked(newer))
    assert [each.release for each in lock.read_lock(path).toolchain] == ["13.0.3", "13.4.3"]


def test_addresses_on_this_machine_are_left_out(tmp_path: Path) -> None:
    for url in ("file:///home/me/x.whl", "/home/me/x.whl"):
        local = replace(WHOLE, archives=tuple(replace(each, url=url) for each in WHOLE.archives))
        lock.update(tmp_path / "l", lock.locked(local))
        assert "/home/me" not in (tmp_path / "l").read_text()
        assert lock.read_lock(tmp_path / "l").toolchain[0].identity == WHOLE.identity


def test_strings_survive(tmp_path: Path) -> None:
    odd = replace(WHOLE, archives=tuple(replace(each, name='a"\\ü\n') for each in WHOLE.archives))
    lock.update(tmp_path / "l", lock.locked(odd))
    assert lock.read_lock(tmp_path / "l").toolchain[0].archive[0].name == 'a"\\ü\n'


def test_a_system_toolkit_is_locked_by_its_version(tmp_path: Path) -> None:
    """It has no hashes, and its place is nobody else's business."""
    system = replace(WHOLE, provider="system", release="13.0.88", archives=(), place="/opt/cuda")
    lock.update(tmp_path / "l", lock.locked(system))
    assert "/opt/cuda" not in (tmp_path / "l").read_text()
    found = lock.recipe_for(REQUEST, None, tmp_path / "l")
    assert (found.provider, found.release) == ("system", "13.0.88")


def test_an_image_cannot_be_locked() -> None:
    with pytest.raises(UsageError, match="cannot be locked"):
        lock.locked(replace(WHOLE, provider="container", archives=()))


@pytest.mark.parametrize("file", ["../evil", "/etc/evil", "a/b", "..", "."])
def test_names_that_lead_out_of_the_cache(tmp_path: Path, file: str) -> None:
    odd = replace(WHOLE, archives=tuple(replace(each, file=file) for each in WHOLE.archives))
    lock.update(tmp_path / "l", lock.locked(odd))
    with pytest.raises(MalformedError, match="not plain files"):
        lock.read_lock(tmp_path / "l")


def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cuwheel.lock"
    with pytest.raises(UnreadableError) as caught:
        lock.read_lock(path)
    assert "--lock" in caught.value.hint
    lock.update(path, lock.locked(WHOLE))
    text = path.read_text()
    for change, error, why in (
        (("a" * 64, "b" * 64), MalformedError, "was edited"),
        (("lock/1", "lock/9"), NewerSchemaError, "lock/9"),
        (('kind = "wheel"', 'kind = "egg"'), ConfigurationError, "kind"),
        (("[[toolchain", "[toolchain"), MalformedError, "is not a cuwheel.lock"),
    ):
        path.write_text(text.replace(*change))
        with pytest.raises(error, match=why) as wrong:
            lock.read_lock(path)
        assert "--" in wrong.value.hint  # what to do about it


def test_what_it_has_not(tmp_path: Path) -> None:
    path = tmp_path / "cuwheel.lock"
    lock.update(path, lock.locked(WHOLE))
    with pytest.raises(UsageError, match=r"has no CUDA 13\.0 for linux-aarch64, only 13\.0 for linux-x86_64"):
        lock.recipe_for(replace(REQUEST, cpu="aarch64"), None, path)
    with pytest.raises(UsageError, match="has no cublas"):
        lock.recipe_for(replace(REQUEST, components=toolchain_parts.with_base(["cublas"])), None, path)
    with pytest.raises(UsageError, match=r"has no CUDA 13\.0\.1"):
        lock.recipe_for(replace(REQUEST, exact="13.0.1"), None, path)


def test_nothing_that_lets_somebody_in_is_written(tmp_path: Path) -> None:
    """Neither a login nor the query that signs an address: the file is made to be committed."""
    (first, *_) = WHOLE.archives
    wheel = replace(first, kind="wheel", url="https://anna:p4ss@x.example/a.whl?token=s3cret")
    tar = replace(first, kind="tar", name="b", url="https://anna:p4ss@x.example/b.tar.xz")
    lock.update(tmp_path / "l", lock.locked(replace(WHOLE, archives=(wheel, tar))))
    text = (tmp_path / "l").read_text()
    assert not [word for word in ("anna", "p4ss", "s3cret") if word in text]
    assert [each.url for each in lock.read_lock(tmp_path / "l").toolchain[0].archive] == [
        "",
        "https://x.example/b.tar.xz",
    ]


def test_a_login_in_somebody_elses_lock_goes_no_further(tmp_path: Path) -> None:
    lock.update(tmp_path / "l", lock.locked(WHOLE))
    text = (tmp_path / "l").read_text()
    assert "https://" in text
    (tmp_path / "l").write_text(text.replace("https://", "https://anna:p4ss@"))
    assert "p4ss" not in repr(lock.read_lock(tmp_path / "l"))
