"""What is done in one go for the thousands of files that a page may have, held against doing it one by one."""

from __future__ import annotations

import random
from html import escape

import pytest
from packaging.version import Version

from cuwheel.delivery import index_folder, simple_api, simple_html, transaction, update
from cuwheel.delivery.simple_api import Hashes, Project, PublishedFile

SHA = "ab" * 32


def _file(name: str = "foo-1.0-py3-none-any.whl", **fields: object) -> PublishedFile:
    given = {"filename": name, "url": f"../../files/{name}", "hashes": Hashes(SHA), **fields}
    return PublishedFile(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_changed_in_place(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    paths = [f"files/foo-1.{each}-py3-none-any.whl{end}" for each in range(30) for end in ("", ".metadata")]
    before = {each: f"{chance.getrandbits(256):064x}" for each in chance.sample(paths, 40)}
    changes: dict[str, str | None] = {each: f"{chance.getrandbits(256):064x}" for each in chance.sample(paths, 10)}
    changes |= dict.fromkeys(chance.sample(paths, 10))
    merged = {path: digest for path, digest in {**before, **changes}.items() if digest}
    data = index_folder.sums_text(before)
    for sound in (True, False):
        assert index_folder.changed_sums(data, changes, sound=sound) == index_folder.sums_text(merged)


def test_sums_that_are_not_sound_are_cleared_of_other_lines() -> None:
    data = b"rubbish\n" + index_folder.sums_text({"files/a": SHA})
    assert index_folder.changed_sums(data, {}, sound=False) == index_folder.sums_text({"files/a": SHA})


@pytest.mark.parametrize("new", [1, 300])
def test_new_versions_are_put_among_those_that_are_in_order(new: int) -> None:
    chance = random.Random(new)  # noqa: S311 - not for secrets
    spelled = {f"{chance.randrange(3)}.{chance.randrange(50)}{chance.choice(['', 'rc1', '+cu130', '.post2'])}"
               for _ in range(600)}  # fmt: skip
    names = [f"foo-{each}-py3-none-any.whl" for each in spelled]
    expected = tuple(sorted(spelled, key=Version))
    assert index_folder.versions_in(names) == expected
    known = sorted(chance.sample(expected, len(expected) - min(new, len(expected))), key=Version)
    assert index_folder.versions_in(names, [*known, "9.9"]) == expected


def test_other_spellings_of_a_version_are_one() -> None:
    names = ["foo-1.0-py3-none-any.whl", "foo-1.0.0_1-py3-none-any.whl", "foo-01.0-py3-none-any.whl"]
    assert index_folder.versions_in(names) == index_folder.versions_in(names, ["1.0"]) == ("1.0", "1.0.0.post1")


@pytest.mark.parametrize("wrong", [
    _file("../../etc/passwd.whl"), _file(url="javascript:x"), _file(url="../../files/other-1.0-py3-none-any.whl"),
    _file(url="../../../files/foo-1.0-py3-none-any.whl"), _file(channels=("../..",)), _file(hashes=Hashes("zz" * 32)),
    _file(hashes=Hashes("ab")), _file(facts=Hashes(SHA.upper())), _file(provenance="file:///etc/passwd"),
    _file(provenance="../../files/foo-1.0-py3-none-any.whl"), _file("foo-1.0-py3-none-any.whl\n"),
    _file(url="https://host/a b"),
])  # fmt: skip
def test_one_strange_file_among_many_is_found(wrong: PublishedFile) -> None:
    sound = [_file(f"foo-1.{each}-py3-none-any.whl") for each in range(500)]
    assert index_folder.strange_files([*sound[:250], wrong, *sound[250:]])


def test_what_pages_of_ours_say_is_not_strange() -> None:
    name = "foo-1!1.0+cu130-1-cp312-cp312-manylinux_2_28_x86_64.whl"
    url = f"../../files/{name.replace('+', '%2B').replace('!', '%21')}"
    files = [
        _file(),
        _file(name, url=url),
        _file(name, url=url, provenance=f"{url}.provenance", provenance_hashes=Hashes(SHA)),
        _file(url="https://host/x?y=1", channels=("cu130", "cu130/torch2.11", "variants")),
        _file("foo-1.0-variants.json", hashes=Hashes()),
    ]
    assert index_folder.strange_files(files) == ""


@pytest.mark.parametrize("text", ['"><script>', "a&b", "it's", "<b>"])
def test_one_name_to_escape_has_all_escaped(text: str) -> None:
    page = simple_html.html_page(Project(name="foo", files=(_file(), _file(url=f"https://host/{text}")))).decode()
    assert f'href="https://host/{escape(text)}#sha256={SHA}"' in page
    assert text not in page.replace(escape(text), "")


def test_pages_of_channels_are_made_of_the_flat_ones() -> None:
    """Whatever stands in a text that looks like a part of the page."""
    evil = '<a href="../../files/","url":"../../files/,"_channels":["x"]'
    name = "foo-1.1+cu130-py3-none-any.whl"
    files = [
        _file(channels=("cu130", "cu130/torch2.11"), requires_python=">=3.9", yanked=evil, facts=Hashes(SHA)),
        _file("foo-1.0-variants.json", hashes=Hashes()),
        _file(name, url=f"../../files/{name.replace('+', '%2B')}", channels=("cu130",), upload_time=evil),
        _file("foo-2.0-py3-none-any.whl", provenance="../../files/foo-2.0-py3-none-any.whl.provenance",
              provenance_hashes=Hashes(SHA), channels=("cu124", "cu130/torch2.11")),
        _file("foo-3.0-py3-none-any.whl", url="https://host/a&b", provenance="https://host/p", channels=("cu124",)),
    ]  # fmt: skip
    page = update.project_page("foo", files)
    channels = update.channels_of(page)
    found = dict(transaction.rendered_pages(page, [*channels, "cu118"]))
    expected = {"": page, **{each: update.channel_page(page, each) for each in channels}}
    assert found == {
        path: data
        for channel, own in expected.items()
        for path, data in (
            (f"{index_folder.project_page('foo', channel)}.json", simple_api.encode_page(own)),
            (f"{index_folder.project_page('foo', channel)}.html", simple_html.html_page(own)),
        )
    }
