"""Requests: frozen, checked when they are made, and the same whether a verb is given one or its fields."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any, Literal, Union, get_origin

import pytest

import cuwheel
from cuwheel import api
from cuwheel.building.request import BuildRequest
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.errors import UsageError
from cuwheel.proving.request import PackRequest, VerifyRequest
from cuwheel.support.request_fields import takes_request
from cuwheel.toolchains.request import ToolchainRequest, ToolkitSources, toolkit_from

REQUESTS: dict[type, dict[str, Any]] = {
    BuildRequest: {},
    SlimRequest: {},
    ToolchainRequest: {"version": "13.0"},
    VerifyRequest: {"wheels": "a.whl"},
    PackRequest: {"wheels": "a.whl", "to": Path("kit.pyz")},
    RepairRequest: {"wheels": "a.whl"},
}


@pytest.mark.parametrize("made", REQUESTS, ids=lambda each: each.__name__)
def test_lists_become_tuples_and_nothing_changes_afterwards(made: type) -> None:
    lists = [each.name for each in fields(made) if str(each.type).startswith("Sequence")]
    assert lists
    request = made(**(REQUESTS[made] | {name: ["a"] for name in lists}))
    assert all(getattr(request, name) == ("a",) for name in lists)
    with pytest.raises(FrozenInstanceError):
        setattr(request, lists[0], ())


@pytest.mark.parametrize("made", REQUESTS, ids=lambda each: each.__name__)
def test_a_lone_text_is_not_taken_for_a_list_of_letters(made: type) -> None:
    for each in fields(made):
        if str(each.type).startswith("Sequence"):
            with pytest.raises(UsageError, match=f"{each.name} must be a list"):
                made(**(REQUESTS[made] | {each.name: "h100"}))


@pytest.mark.parametrize(
    ("made", "given", "words"),
    [
        (BuildRequest, {"jobs": 0}, "jobs must be a positive number"),
        (BuildRequest, {"fetched": "kit", "locked": Path("l")}, "cannot be used together"),
        (ToolchainRequest, {"version": "13.0", "fetched": "kit", "locked": Path("l")}, "cannot be used together"),
        (VerifyRequest, {"wheels": "a.whl", "timeout": 0.0}, "timeout must be a positive number"),
        (VerifyRequest, {"wheels": "a.whl", "cuda": "12.8; rm"}, "is not a CUDA version"),
        (VerifyRequest, {"wheels": "a.whl", "pass_env": ["A-B"]}, "is not a variable name"),
        (VerifyRequest, {}, "no wheel to verify was given"),
        (RepairRequest, {}, "no wheel to repair was given"),
        (PackRequest, {"wheels": (), "to": Path("kit.pyz")}, "no wheel to verify was given"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_asked(made: type, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(**given)


def test_a_build_and_a_toolchain_share_where_toolkits_come_from() -> None:
    request = BuildRequest(".", providers=["index"], offline=True, redist_url="https://me:secret@host/x")
    assert isinstance(request, ToolkitSources)
    toolkit = toolkit_from(request, "13.0", ["cublas"])
    for each in fields(ToolkitSources):
        assert getattr(toolkit, each.name) == getattr(request, each.name)
    assert toolkit.redist_url == "https://host/x"  # the login is remembered elsewhere, and printed nowhere


def test_a_verb_takes_a_request_or_what_it_is_made_of() -> None:
    taken = []

    @takes_request(SlimRequest)
    def slim(request: SlimRequest) -> int:
        """What it does."""
        taken.append(request)
        return len(request.named)

    assert slim(SlimRequest(["a.so", "b.so"], future=True)) == 2
    assert slim(["a.so", "b.so"], future=True) == 2
    assert taken[0] == taken[1]
    assert slim("a.so") == 1
    with pytest.raises(TypeError, match="futur"):
        slim("a.so", futur=True)  # type: ignore[call-overload]
    signature = inspect.signature(slim)
    assert list(signature.parameters) == list(inspect.signature(SlimRequest).parameters)
    assert signature.return_annotation == "int"
    assert (slim.__name__, slim.__doc__) == ("slim", "What it does.")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", api.__all__)
def test_every_verb_is_a_function(name: str) -> None:
    """A module of the same name would take its place once it is imported."""
    function = getattr(api, name)
    assert inspect.isfunction(function)
    assert getattr(api, name) is function
    assert function.__doc__


@pytest.mark.parametrize("name", cuwheel.__all__)
def test_what_the_package_promises_is_there(name: str) -> None:
    found = getattr(cuwheel, name)
    assert found
    is_type = inspect.isclass(found) or get_origin(found) in (Literal, Union)
    assert name[0].isupper() == is_type, "verbs are functions, the rest are types"


def test_what_it_does_not_promise_is_not() -> None:
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        cuwheel.NoSuchRequest  # type: ignore[attr-defined]  # noqa: B018


def test_paths_may_be_given_as_text() -> None:
    @takes_request(PackRequest)
    def pack(request: PackRequest) -> PackRequest:
        return request

    given: dict[str, Any] = {"wheels": "a.whl", "to": "kit.pyz", "config": "checks.toml"}
    request = pack(**given)
    assert (request.to, request.config) == (Path("kit.pyz"), Path("checks.toml"))
    assert request.wheels == ("a.whl",)
    assert pack(PackRequest(wheels="a.whl", to=Path("kit.pyz"))).to == Path("kit.pyz")
