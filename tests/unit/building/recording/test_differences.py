from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cuwheel.building.recording import culprits, differences
from cuwheel.building.recording.culprits import Change, Outcome
from cuwheel.building.recording.differences import Situation

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/x", "LANG": "C"}
CALL = Situation(
    label="the build", tool="nvcc", program="/opt/cuda/bin/nvcc", words=("-c", "a.cu", "-o", "a.o"), cwd="/src",
    environ=ENVIRON,
)  # fmt: skip


def with_(label: str = "here", **variables: str) -> Situation:
    return replace(CALL, label=label, environ=CALL.environ | variables)


def test_nothing_differs() -> None:
    found = differences.compare_situations(
        CALL, replace(CALL, label="here", words=("-c", "a.cu", "-o", "elsewhere/a.o"))
    )
    assert not found.any


def test_variables_by_what_they_do_and_lists_by_element() -> None:
    build = with_(label="the build", PATH="/bad/bin:/usr/bin:/bin", CUDA_PATH="/old", SHLVL="3", COLOUR="red")
    here = with_(PATH="/usr/bin:/bin:/home/x/bin", SHLVL="1")
    found = differences.compare_situations(build, here, {"CUDA_PATH": ".cargo/config.toml"})
    assert [each.name for each in found.variables] == ["CUDA_PATH", "PATH", "COLOUR", "SHLVL"]
    assert [each.weight for each in found.variables] == ["steers", "steers", "other", "session"]
    cuda, path, *_ = found.variables
    assert (cuda.left, cuda.right, cuda.origin) == ("/old", None, ".cargo/config.toml")
    assert (path.only_left, path.only_right, path.reordered) == (("/bad/bin",), ("/home/x/bin",), False)


def test_an_order_that_counts() -> None:
    found = differences.compare_situations(with_(PATH="/a:/b"), with_(PATH="/b:/a"))
    assert found.variables[0].reordered
    left = replace(CALL, words=("-Ia", "-Ib", "-O2", "-g"))
    right = replace(CALL, words=("-Ib", "-g", "-Ia", "-O2"))
    (argument,) = differences.compare_situations(left, right).arguments
    assert (argument.meaning, argument.reordered) == ("include folders", True)


def test_arguments_by_meaning_not_by_spelling() -> None:
    left = replace(CALL, words=("-arch", "sm_90", "-ccbin=g++-12", "-DA", "a.cu"))
    right = replace(CALL, words=("--gpu-architecture=sm_90", "-ccbin", "g++-13", "-DA", "a.cu"))
    (found,) = differences.compare_situations(left, right).arguments
    assert (found.option, found.meaning) == ("--compiler-bindir", "host compiler")
    assert (found.only_left, found.only_right) == (("g++-12",), ("g++-13",))


@pytest.mark.parametrize(
    ("name", "value", "separator"),
    [
        ("PATH", "/a:/b", ":"),
        ("Path", "C:\\a;D:\\b", ";"),
        ("INCLUDE", "C:\\Program Files\\x", ";"),
        ("LD_LIBRARY_PATH", "/a", ":"),
        ("CUDA_ARGS", "/a:/b", None),
        ("CUDA_PATH", "/usr/local/cuda", None),
        ("CUDA_PATH", "C:\\Program Files\\CUDA", None),
        ("MY_SEARCH_PATH", "/a:/b", ":"),
    ],
)
def test_lists_of_either_system(name: str, value: str, separator: str | None) -> None:
    assert differences.list_separator(name, value) == separator


def test_secrets_are_not_told_and_masked_ones_are_no_difference() -> None:
    recorded = with_(API_TOKEN="***", PIP_INDEX_URL="https://***@example.org/simple")  # noqa: S106
    here = with_(API_TOKEN="geheim", PIP_INDEX_URL="https://me:geheim@example.org/simple")  # noqa: S106
    assert not differences.compare_situations(recorded, here).any
    shown = differences.compare_situations(CALL, here)
    assert {each.name for each in shown.variables} == {"API_TOKEN", "PIP_INDEX_URL"}
    assert "geheim" not in repr(shown)


@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 5), max_size=8), st.booleans())
def test_all_hunks_make_the_one_the_other(one: list[int], other: list[int], single: bool) -> None:  # noqa: FBT001
    hunks = differences.hunks(one, other, single=single)
    assert list(differences.apply_hunks(one, other, hunks)) == other
    assert list(differences.apply_hunks(one, other, ())) == one


@given(
    st.lists(st.integers(0, 9), unique=True, max_size=8),
    st.lists(st.integers(0, 9), unique=True, max_size=8),
    st.data(),
)
def test_any_choice_of_elements_can_be_carried_over(one: list[int], other: list[int], data: st.DataObject) -> None:
    hunks = differences.hunks(one, other, single=True)
    chosen = [hunk for hunk in hunks if data.draw(st.booleans())]
    result = differences.apply_hunks(one, other, chosen)
    added = [other[hunk.start_] for hunk in chosen if hunk.start == hunk.stop]
    removed = [one[hunk.start] for hunk in chosen if hunk.start < hunk.stop]
    assert sorted(result) == sorted([*(each for each in one if each not in removed), *added])


# Culprits


class Fake:
    """A compiler that fails where all of `needs` are as they are, counting its runs."""

    def __init__(self, fails: object) -> None:
        self.fails, self.runs = fails, 0

    def __call__(self, situation: Situation) -> Outcome:
        self.runs += 1
        assert callable(self.fails)
        return Outcome(status=1, sign="error: no") if self.fails(situation) else Outcome(status=0)


def crowd(count: int, value: str) -> dict[str, str]:
    return {f"OTHER_{index}": value for index in range(count)}


def test_one_variable_among_many_in_few_runs() -> None:
    build = with_(label="the build", CUDA_PATH="/old", NVCC_APPEND_FLAGS="-O1", **crowd(60, "a"))
    here = with_(SHLVL="1", **crowd(60, "b"))
    compiler = Fake(lambda situation: situation.environ.get("CUDA_PATH") == "/old")
    found = culprits.find_culprits(build, here, compiler)
    assert found.verdict == "found"
    assert found.changes == (Change("variable", "CUDA_PATH"),)
    assert found.from_ == "left"
    assert compiler.runs == found.runs <= 10


def test_what_the_record_says_saves_runs() -> None:
    build, here = with_("the build", CUDA_PATH="/old", **crowd(60, "a")), with_(**crowd(60, "b"))
    compiler = Fake(lambda situation: situation.environ.get("CUDA_PATH") == "/old")
    found = culprits.find_culprits(build, here, compiler, recorded=False)
    assert found.changes == (Change("variable", "CUDA_PATH"),)
    assert compiler.runs <= 6
    other = Fake(lambda situation: situation.environ.get("CUDA_PATH") == "/old")
    assert culprits.find_culprits(build, here, other, recorded=True).runs > compiler.runs  # it is not what it was


def test_an_unlikely_variable_is_found_too() -> None:
    build = with_(label="the build", **crowd(60, "a"))
    compiler = Fake(lambda situation: situation.environ.get("OTHER_41") == "a")
    found = culprits.find_culprits(build, with_(**crowd(60, "b")), compiler)
    assert found.changes == (Change("variable", "OTHER_41"),)
    assert compiler.runs <= 4 + 2 + 2 * 6 + 1


def test_two_that_do_it_together_and_either_mends_it() -> None:
    def fails(situation: Situation) -> bool:
        return situation.environ.get("A") == "1" and situation.environ.get("B") == "1"

    found = culprits.find_culprits(with_(A="1", B="1", C="1"), with_(), Fake(fails))
    assert len(found.changes) == 1
    assert found.changes[0].name in "AB"


def test_two_that_must_both_be_mended() -> None:
    def fails(situation: Situation) -> bool:
        return "A" in situation.environ or "B" in situation.environ

    found = culprits.find_culprits(with_(A="1", B="1", C="1", D="1", E="1"), with_(), Fake(fails))
    assert {change.name for change in found.changes} == {"A", "B"}


def test_the_folder_in_path_that_does_it() -> None:
    build = with_(PATH="/a:/b:/bad:/usr/bin:/bin", CC="x")
    here = with_(PATH="/usr/bin:/c:/bin")
    found = culprits.find_culprits(build, here, Fake(lambda situation: "/bad" in situation.environ["PATH"].split(":")))
    (change,) = found.changes
    assert (change.kind, change.name) == ("element", "PATH")
    assert culprits.with_changes(build, here, found.changes).environ["PATH"] == "/a:/b:/usr/bin:/bin"


def test_an_argument_or_the_folder_or_the_program() -> None:
    other = replace(
        CALL, words=("-c", "a.cu", "-allow-unsupported-compiler", "-o", "b.o"), cwd="/else", program="/nvcc"
    )
    found = culprits.find_culprits(CALL, other, Fake(lambda each: "-allow-unsupported-compiler" not in each.words))
    assert [change.kind for change in found.changes] == ["argument"]
    assert culprits.with_changes(CALL, other, found.changes).words == (
        "-c",
        "a.cu",
        "-allow-unsupported-compiler",
        "-o",
        "a.o",
    )
    assert culprits.find_culprits(CALL, other, Fake(lambda each: each.cwd == "/src")).changes == (Change("directory"),)
    assert culprits.find_culprits(CALL, other, Fake(lambda each: each.program != "/nvcc")).changes == (
        Change("program"),
    )


def test_it_works_in_the_build_and_not_here() -> None:
    found = culprits.find_culprits(
        with_(A="1", B="2"), with_(), Fake(lambda situation: situation.environ.get("A") != "1")
    )
    assert (found.from_, found.changes) == ("right", (Change("variable", "A"),))


def test_both_do_the_same() -> None:
    for fails in (True, False):
        compiler = Fake(lambda _situation, fails=fails: fails)
        found = culprits.find_culprits(with_(A="1"), with_(), compiler)
        assert (found.verdict, found.changes) == ("same", ())
        assert compiler.runs == 4


def test_two_ways_to_fail() -> None:
    def run(situation: Situation) -> Outcome:
        return Outcome(status=1, sign="a" if situation.environ.get("A") else "b")

    found = culprits.find_culprits(with_(A="1", B="1"), with_(), run)
    assert (found.verdict, found.changes) == ("found", (Change("variable", "A"),))


@pytest.mark.parametrize("pattern", ["fwfw", "fwwf", "ffwf", "wfwwfw", "fwwwf"])
def test_flaky_calls_are_not_blamed_on_a_variable(pattern: str) -> None:
    outcomes = itertools.cycle(pattern)
    found = culprits.find_culprits(with_(A="1"), with_(), Fake(lambda _situation: next(outcomes) == "f"))
    assert found.verdict == "flaky"
    assert found.changes == ()
    assert found.rates is not None
    assert all(total >= 5 for _, total in found.rates)
    assert any(0 < worked < total for worked, total in found.rates)


def test_chance_seldom_passes_for_a_cause() -> None:
    verdicts = []
    for seed in range(300):
        choice = random.Random(seed)  # noqa: S311
        run = Fake(lambda _situation, choice=choice: choice.random() < 0.5)
        verdicts.append(culprits.find_culprits(with_(A="1"), with_(), run).verdict)
    assert verdicts.count("found") < 300 * 0.05


def test_the_runs_are_limited() -> None:
    compiler = Fake(lambda situation: any(situation.environ.get(f"OTHER_{index}") == "a" for index in range(60)))
    found = culprits.find_culprits(with_(**crowd(60, "a")), with_(**crowd(60, "b")), compiler, most=20)
    assert found.verdict == "unfinished"
    assert compiler.runs == 20
    assert {f"OTHER_{index}" for index in range(60)} <= {change.name for change in found.changes}


def test_what_cannot_be_carried_over() -> None:
    recorded, here = with_(TOKEN="***", A="1"), with_(TOKEN="right")  # noqa: S106
    found = culprits.find_culprits(recorded, here, Fake(lambda situation: situation.environ["TOKEN"] == "***"))  # noqa: S105
    assert found.verdict == "elsewhere"


@settings(max_examples=200)
@given(st.sets(st.integers(0, 15), min_size=1, max_size=4))
def test_nothing_can_be_left_out(needed: set[int]) -> None:
    runs = []

    def holds(items: tuple[int, ...]) -> bool:
        runs.append(items)
        return needed <= set(items)

    found = culprits.smallest_part(tuple(range(16)), holds, lambda _: None)
    assert set(found) == needed
