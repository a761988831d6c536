"""Which wheels are looked into: by a reader that counts, over releases whose verdicts are made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from cuwheel.delivery.candidates import Candidate, IndexFile
from cuwheel.delivery.find_answer import Skipped, words_of_skipped
from cuwheel.delivery.judging import Rank, Ruling
from cuwheel.delivery.search_policy import Policy
from cuwheel_core.verdicts.choice import NO_KERNEL_IMAGE
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cuwheel.delivery.find_answer import Stopped

TAG = "py3-none-manylinux_2_28_x86_64"


def _listed(versions: Collection[str]) -> list[Ruling]:
    """Undecided, the newest first."""
    found = []
    for version in sorted(versions, key=Version, reverse=True):
        file = f"demo-{version}-{TAG}.whl"
        candidate = Candidate(
            listing=IndexFile(file=file, url=f"https://index.test/{file}"),
            version=Version(version),
            wheel=WheelName.parse(file),
            index="https://index.test",
        )
        found.append(Ruling.on(candidate, decided=False))
    return found


class Made:
    """A reader of made-up wheels: + runs, ? has no device code, - fails. `offered` are known by their place, `kept` by
    the cache.
    """

    def __init__(self, truth: Mapping[str, str], offered: Collection[str] = (), kept: Collection[str] = ()) -> None:
        self.stopped: Stopped | None = None
        self._truth, self._offered, self._kept = truth, offered, kept
        self.read: list[str] = []

    def is_offered(self, ruling: Ruling) -> bool:
        return ruling.version in self._offered

    def judged(self, ruling: Ruling) -> Ruling | None:
        return self.known(ruling)

    def known(self, ruling: Ruling) -> Ruling | None:
        return self._verdict(ruling) if ruling.version in {*self._offered, *self._kept} else None

    def look(self, ruling: Ruling) -> Ruling:
        if ruling.version not in {*self._offered, *self._kept}:
            self.read.append(ruling.version)
        return self._verdict(ruling)

    def _verdict(self, ruling: Ruling) -> Ruling:
        sign = self._truth[ruling.version]
        return Ruling.on(
            ruling.candidate,
            rank={"+": Rank.RUNS, "?": Rank.UNOPPOSED, "-": Rank.FAILS}[sign],
            outcome={"+": "native", "?": "unknown", "-": "fails"}[sign],
            predicted_error=NO_KERNEL_IMAGE if sign == "-" else None,
            known_from="wheel",
        )


def _truth(text: str) -> dict[str, str]:
    """`2.1.1- 2.1.0+`: versions, each with what becomes of it."""
    return {each[:-1]: each[-1] for each in text.split()}


def _searched(text: str, reader: Made | None = None, *, knows_gpu: bool = True) -> tuple[str | None, list[str]]:
    """The version that is chosen, and those that were read."""
    truth = _truth(text)
    reader = reader or Made(truth)
    found = Policy(knows_gpu=knows_gpu).search(_listed(truth), reader)
    found.sort(key=lambda each: each.release, reverse=True)
    ranked = sorted(found, key=lambda each: each.rank)
    return (ranked[0].version if ranked[0].rank.may_be_taken else None), reader.read


@pytest.mark.parametrize(
    ("truth", "chosen", "read"),
    [
        ("3.0+ 2.0+ 1.0+", "3.0", ["3.0"]),
        ("3.0- 2.0+ 1.0+", "2.0", ["3.0", "2.0"]),
        ("2.1.2- 2.1.1+ 2.1.0+ 2.0.0+", "2.1.1", ["2.1.2", "2.1.0", "2.1.1"]),
        ("2.1.2- 2.1.1- 2.1.0- 2.0.0+", "2.0.0", ["2.1.2", "2.1.0", "2.0.0"]),
        ("2.1.1- 2.1.0+cu126+ 2.1.0-", "2.1.0+cu126", ["2.1.1", "2.1.0+cu126"]),
        ("0.0.3- 0.0.2- 0.0.1+", "0.0.1", ["0.0.3", "0.0.2", "0.0.1"]),
        ("6.0? 5.0? 4.0? 3.0? 2.0+", "6.0", ["6.0", "5.0", "4.0", "3.0"]),
        ("6.0? 5.0? 4.0+ 3.0+", "4.0", ["6.0", "5.0", "4.0"]),
        ("2.0- 1.0-", None, ["2.0", "1.0"]),
    ],
)
def test_what_is_read_and_what_is_chosen(truth: str, chosen: str | None, read: list[str]) -> None:
    assert _searched(truth) == (chosen, read)


def test_without_a_gpu_the_newest_is_enough() -> None:
    assert _searched("3.0? 2.0+", knows_gpu=False)[0] == "3.0"


def test_what_a_place_offers_is_always_looked_at_until_something_runs() -> None:
    text = "2.1.4- 2.1.3- 2.1.2+ 2.1.1- 2.1.0- 2.0.0+"
    assert _searched(text)[0] == "2.0.0"
    assert _searched(text, Made(_truth(text), offered=_truth(text))) == ("2.1.2", [])


def test_every_reason_has_words() -> None:
    for why in Skipped:
        assert words_of_skipped(why, "1.0", "2.0")
        assert "{}" not in words_of_skipped(why, "1.0", "2.0", of_many=True)


_VERSIONS = [f"{major}.{minor}.{patch}" for major in (1, 2) for minor in (0, 1) for patch in range(4)]
_SIGNS = st.lists(st.sampled_from("+?-"), min_size=len(_VERSIONS), max_size=len(_VERSIONS))
_SOME = st.sets(st.sampled_from(_VERSIONS))


@given(_SIGNS, _SOME, _SOME)
def test_the_cache_never_decides(signs: list[str], offered: set[str], kept: set[str]) -> None:
    """Whatever an earlier question left there, whatever the truth: the same is chosen, and no more is read."""
    truth = dict(zip(_VERSIONS, signs, strict=True))
    text = " ".join(f"{version}{sign}" for version, sign in truth.items())
    plain, read = _searched(text, Made(truth, offered))
    chosen, again = _searched(text, Made(truth, offered, kept))
    assert chosen == plain
    assert again == [each for each in read if each not in kept]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=4, max_size=4))
def test_no_newer_release_runs_than_the_one_that_is_chosen(minors: list[tuple[int, bool]]) -> None:
    """Where the patches of a minor release change once from what runs to what does not, or back."""
    truth: dict[str, str] = {}
    for minor, (count, newest_run) in enumerate(minors):
        for patch in range(4):
            runs = patch >= 4 - count if newest_run else patch < count
            truth[f"1.{minor}.{patch}"] = "+" if runs else "-"
    text = " ".join(f"{version}{sign}" for version, sign in truth.items())
    running = [each for each, sign in truth.items() if sign == "+"]
    assert _searched(text)[0] == max(running, key=Version, default=None)
