"""Which files a requirement may mean, from folders and pages in folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from packaging.version import Version

from cuwheel.delivery import best_candidate, candidates
from cuwheel.delivery.candidates import Candidate, Claim, IndexFile, Places
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.network import client, resolver, settings
from cuwheel.support.process import Completed
from cuwheel_core.errors import UnknownNameError, UnreadableError
from cuwheel_core.facts.arch import Capability
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)


def _folder(folder: Path, names: Sequence[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def _index(folder: Path, project: str, names: Sequence[str], yanked: Sequence[str] = ()) -> Path:
    links = (f'<a href="../../files/{each}" {"data-yanked=no" if each in yanked else ""}>x</a>' for each in names)
    (folder / project).mkdir(parents=True)
    (folder / project / "index.html").write_text("".join(links))
    return folder


def _files(
    text: str, *, indexes: Sequence[Path] = (), links: Sequence[Path] = (), first_only: bool = False
) -> list[str]:
    where = Places(tuple(map(str, indexes)), tuple(map(str, links)), first_only)
    with client.Session() as session:
        return sorted(
            each.file for each in candidates.list_candidates(candidates.parse_requirement(text), where, session)
        )


NAMES = (
    "demo_cuda-1.0-cp311-cp311-linux_x86_64.whl",
    "demo_cuda-1.0+cu130-cp311-cp311-linux_x86_64.whl",
    "Demo.Cuda-1.1-1-py3-none-any.whl",
    "demo_cuda-1.1-cp311-cp311-linux_x86_64-cu13_sm90.whl",
    "demo-cuda-1.1.tar.gz",
    "demo_cuda-2.0rc1-py3-none-any.whl",
    "demo_cuda-nonsense-py3-none-any.whl",
    "demo_cudas-3.0-py3-none-any.whl",
    "demo_cuda-3.0.exe",
    "notes.txt",
)


def test_everything_in_a_folder_that_is_a_file_of_the_project(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "wheels", NAMES)
    assert _files("demo-cuda", links=[folder]) == sorted(NAMES[:5])


def test_a_requirement_takes_previews_and_local_versions_as_pip_does(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "wheels", NAMES)
    assert _files("Demo_CUDA==1.0", links=[folder]) == sorted(NAMES[:2])
    assert _files("demo-cuda>=2.0rc1", links=[folder]) == [NAMES[5]]
    assert _files("demo-cuda>1.5", links=[folder]) == [NAMES[5]], "there is nothing else"
    assert _files("demo-cuda<1", links=[folder]) == []


def test_pages_in_folders_and_the_one_that_publish_writes(tmp_path: Path) -> None:
    _index(tmp_path / "site" / "simple", "demo-cuda", NAMES[:1])
    for place in (tmp_path / "site", tmp_path / "site" / "simple"):
        assert _files("demo-cuda", indexes=[place]) == [NAMES[0]]


def test_indexes_are_merged_unless_the_first_one_decides(tmp_path: Path) -> None:
    both = [_index(tmp_path / str(n), "demo-cuda", [name]) for n, name in enumerate((NAMES[0], NAMES[4]))]
    assert _files("demo-cuda", indexes=both) == sorted([NAMES[0], NAMES[4]])
    assert _files("demo-cuda", indexes=both, first_only=True) == [NAMES[0]]
    empty = _folder(tmp_path / "empty", ())
    assert _files("demo-cuda", indexes=[empty, *both], first_only=True) == [NAMES[0]]


def test_what_was_withdrawn_counts_only_by_its_exact_version(tmp_path: Path) -> None:
    folder = _index(tmp_path / "site", "demo-cuda", NAMES[:1], yanked=NAMES[:1])
    with client.Session() as session:
        for text, yanked in (("demo-cuda", True), ("demo-cuda==1.0", False)):
            (found,) = candidates.list_candidates(candidates.parse_requirement(text), Places((str(folder),)), session)
            assert (found.listing.yanked is not None) is yanked


def test_nothing_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no package named") as error:
        _files("demo", indexes=[_folder(tmp_path / "site", ())])
    assert str(tmp_path / "site") in error.value.hint


def test_a_place_that_is_not_there_is_an_error_only_where_it_is_the_only_one(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "wheels", NAMES[:1])
    assert _files("demo-cuda", links=[tmp_path / "nowhere", folder]) == [NAMES[0]]
    with pytest.raises(UnreadableError, match="no such file or folder"):
        _files("demo-cuda", links=[tmp_path / "nowhere"])


@pytest.mark.parametrize("text", ["", "not a name", "demo @ https://x.test/demo.whl", "demo; python_version<'4'", "-x"])
def test_what_is_not_a_name_with_versions(text: str) -> None:
    with pytest.raises(UsageError, match="name with versions"):
        candidates.parse_requirement(text)


def test_places_come_from_the_command_line_or_from_pip_or_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuwheel.network.resolver.public_index", lambda: "https://public.test/simple")

    def places(**options: object) -> Places:
        return candidates.configured_places(settings.read_settings(), **options)  # type: ignore[arg-type]

    assert places() == Places(("https://public.test/simple",))
    assert places(indexes=["https://u:p@one.test/simple"]) == Places(
        ("https://public.test/simple",), own=("https://one.test/simple",)
    )
    assert places(no_index=True, find_links=["wheels"]) == Places((), ("wheels",))
    monkeypatch.setenv("UV_INDEX", "https://uv.test/simple")
    assert places() == Places(("https://uv.test/simple", "https://public.test/simple"), first_only=True)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://pip.test/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert places() == Places(("https://public.test/simple", "https://pip.test/simple"), ("/wheels",))


def test_the_public_index_is_uvs_where_uv_is_and_no_pip_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str | Path]] = []

    def run(command: Sequence[str | Path], **_: object) -> Completed:
        ran.append(command)
        return Completed(command=(), status=0, stdout="[default: https://public.test/simple]", stderr="", seconds=0)

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("cuwheel.support.process.run", run)
    monkeypatch.setattr("cuwheel.network.venvs.uv", lambda: "/bin/uv")
    assert resolver.public_index.__wrapped__() == "https://public.test/simple"
    assert [command[0] for command in ran] == ["/bin/uv"]


def test_the_public_index_is_the_one_in_pips_source_and_no_pip_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    index = pytest.importorskip("pip._internal.models.index")
    monkeypatch.setattr("cuwheel.support.process.run", lambda *_, **__: pytest.fail("it was started"))
    assert resolver.public_index.__wrapped__() == index.PyPI.simple_url.rstrip("/")


def test_builds_of_a_release_are_ordered_by_their_leading_number_however_long() -> None:
    builds = ["", "0", "1", "1_5", "2", "10", "10_1", "9" * 5000, "1" + "0" * 5000]
    names = [f"a-1.0-{build}{'-' * bool(build)}py3-none-any.whl" for build in builds]
    listed = [
        Candidate(listing=IndexFile(file=name, url=name), version=Version("1.0"), wheel=WheelName.parse(name), index="")
        for name in reversed(names)
    ]
    assert [each.file for each in sorted(listed, key=lambda each: each.build)] == names


class Kept(NamedTuple):
    """A source of another kind: what it lists is made up."""

    place: str
    claim: Claim
    names: tuple[str, ...]

    def files_of(self, project: str, session: client.Session) -> list[IndexFile]:
        assert project == "demo"
        assert isinstance(session, client.Session)
        return [IndexFile(file=each, url=f"https://{self.place}.test/{each}") for each in self.names]


@pytest.mark.parametrize(
    ("claims", "taken"),
    [
        ((Claim.SHARED, Claim.SHARED), {"1.0": "a", "2.0": "b"}),
        ((Claim.FIRST, Claim.FIRST), {"1.0": "a"}),
        ((Claim.SHARED, Claim.ALONE), {"2.0": "b", "1.0": "b"}),
        ((Claim.BESIDE, Claim.ALONE), {"1.0": "b", "2.0": "b"}),
    ],
)
def test_a_source_of_any_kind_is_asked_by_what_it_claims(
    monkeypatch: pytest.MonkeyPatch, claims: tuple[Claim, Claim], taken: dict[str, str]
) -> None:
    names = [f"demo-{version}-py3-none-any.whl" for version in ("1.0", "2.0")]
    sources = (Kept("a", claims[0], (names[0],)), Kept("b", claims[1], (*names[:1], names[1])))
    monkeypatch.setattr(Places, "sources", sources)
    monkeypatch.setattr(candidates, "_answers_at", lambda _: True)
    with client.Session() as session:
        found = candidates.list_candidates(candidates.parse_requirement("demo"), Places(()), session)
    assert {str(each.version): each.index for each in found} == taken


@pytest.mark.parametrize(
    "said",
    [{"glibc": "2." + "9" * 9}, {"glibc": "abcdefghijklmnopqrst"}, {"python": "3." + "9" * 9}, {"python": "9" * 5000}],
)
def test_versions_of_a_machine_that_are_none_have_few_tags(said: dict[str, str]) -> None:
    """Each minor version of glibc and of Python has tags of its own: those of a profile may be anything."""
    python, glibc = said.get("python", "3.12"), said.get("glibc", "2.35")
    machine = Machine(
        name="a", capability=Capability.parse("9.0"), os="linux", cpu="x86_64", python=python, glibc=glibc
    )
    order = best_candidate.tag_order_of(machine)
    assert 50 < len(order) < 100_000
