"""`trials` with programs that fail on purpose, and a machine whose death is played."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.command import Told, call

from cuwheel_lab import api
from cuwheel_lab.measuring import campaign, execution, journal, trials_file

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
CUWHEEL = str(Path(sys.executable).with_name("cuwheel"))
SOURCES = Path(__file__).parents[3] / "tests" / "integration" / "src"

FAULTY = """\
import os, sys, time
def once_in_ten(limit):  # in each ten runs, exactly so many
    path = "count-" + "-".join(sys.argv[1:])
    number = os.path.getsize(path) if os.path.exists(path) else 0
    open(path, "a").write("x")
    return number * 7 % 10 < limit
kind = sys.argv[1]
if kind == "crash" and once_in_ten(3):
    os.abort()
if kind == "hang" and once_in_ten(5):
    if os.fork() == 0:
        os.setsid()
    time.sleep(3600)
if kind == "leak":
    kept = []
    while len(kept) < 400:
        kept.append(bytearray(b"x" * 10**6)); time.sleep(0.005)
if kind == "killed":
    os.kill(os.getpid(), 9)
if kind == "status":
    sys.exit(3)
if kind == "output":
    print("loss is nan")
if kind == "result":
    sys.exit(print("answer 41.5"))
cache = os.environ.get("CUDA_CACHE_PATH")
if kind == "cold":
    if not os.path.exists(cache + "/compiled"):
        open(cache + "/compiled", "w").close()
        sys.exit("failed while cold")
print("answer 42")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "boot-id").write_text("boot-1\n")
    monkeypatch.setenv("CUWHEEL_BOOT_ID_FILE", str(tmp_path / "boot-id"))
    return tmp_path


def trials(place: Path, text: str, *words: str) -> Told:
    (place / "TRIALS.toml").write_text(f"cold.page_cache = false\n{text}")  # it is everybody's
    return call("lab", "trials", "run", "TRIALS.toml", "--json", *words, cwd=place)


def answer(done: Told, status: int) -> dict[str, Any]:
    assert done.status == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def command(kind: str, repeats: int, more: str = "") -> str:
    return f'command = "{sys.executable} faulty.py {kind}"\nrepeats = {repeats}\n{more}'


@pytest.mark.parametrize(
    ("kind", "repeats", "more", "expected"),
    [
        ("crash", 10, "", {"signal": 3}),
        ("hang", 4, "timeout = 2", {"timeout": 3}),
        ("leak", 2, "memory = '150MB'", {"memory": 2}),
        ("killed", 2, "", {"signal": 2}),
        ("status", 2, "", {"status": 2}),
        ("output", 2, "failure.forbid = 'is nan'", {"output": 2}),
        ("right", 2, "failure.expect = 'answer 43'", {"output": 2}),
        ("result", 2, "failure.number = 42\nfailure.tolerance = 0.4", {"result": 2}),
    ],
)
def test_how_a_program_fails(place: Path, kind: str, repeats: int, more: str, expected: dict[str, int]) -> None:
    found = answer(trials(place, command(kind, repeats, more)), 1)
    (group,) = found["groups"]
    assert (group["runs"], group["kinds"]) == (repeats, expected)
    assert found["done"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("right", "failure.number = 42"),
        ("result", "failure.number = 42\nfailure.tolerance = 0.5"),
        ("status", "failure.status = [0, 3]"),
        ("status", "failure.kinds = 'machine'"),
    ],
)
def test_what_is_no_failure_ends_with_0(place: Path, kind: str, more: str) -> None:
    found = answer(trials(place, command(kind, 2, more)), 0)
    assert (found["runs"], found["failures"]) == (2, 0)
    assert found["groups"][0]["ignored"] == (2 if "machine" in more else 0)


def test_nothing_of_a_trial_is_left(place: Path) -> None:
    """Not even what went into a session of its own."""
    answer(trials(place, command("hang", 2, "timeout = 1")), 1)
    here = str(place)
    cwds = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            cwds.append(str((process / "cwd").readlink()))
        except OSError:
            continue
    assert here not in cwds


def test_what_fails_only_when_cold(place: Path) -> None:
    found = answer(trials(place, command("cold", 6, "axes.start = ['cold', 'warm']")), 1)
    groups = {each["axes"]["start"]: (each["failures"], each["runs"]) for each in found["groups"]}
    assert groups == {"cold": (6, 6), "warm": (0, 6)}
    (effect,) = found["effects"]
    assert (effect["verdict"], effect["prevented_by"]) == ("prevents", ["warm"])
    assert found["warm_ups"]["failures"] == 1  # the first run before a warm trial is a cold one
    assert "cold: JIT cache empty, page cache kept (as asked)" in found["cold"]
    assert "warm: JIT cache kept, page cache kept" in found["cold"]


@pytest.mark.slow
def test_two_axes_of_a_planted_fault_are_found_among_four(place: Path) -> None:
    (place / "planted.py").write_text(
        "import os\n"
        "def run(shape, quant, **others):\n"
        "    if shape != 'mixed' or quant != 'nf4': return\n"
        "    with open('bad', 'a+') as file:\n"
        "        number = file.tell()\n"
        "        file.write('x')\n"
        "    if number % 8: os._exit(1)  # seven of eight\n"
    )
    text = (
        'function = "planted.py:run"\nrepeats = 2\nseed = 1\nenvironment = { PYTHONHASHSEED = "0" }\n'
        "axes.shape = ['mixed', 'equal']\naxes.quant = ['nf4', 'fp4']\n"
        "axes.compute = ['half', 'float']\naxes.double = ['on', 'off']\n"
    )
    found = answer(trials(place, text), 1)
    verdicts = {each["axis"]: (each["verdict"], each["prevented_by"]) for each in found["effects"]}
    assert verdicts["shape"] == ("prevents", ["equal"])
    assert verdicts["quant"] == ("prevents", ["fp4"])
    assert verdicts["compute"][0] != "prevents"
    assert verdicts["double"][0] != "prevents"


def begun(place: Path, text: str) -> subprocess.Popen[bytes]:
    """Until its second trial runs."""
    (place / "TRIALS.toml").write_text(f"cold.page_cache = false\n{text}")
    (place / "slow.py").write_text(SECOND_WAITS)
    process = subprocess.Popen(
        [CUWHEEL, "lab", "trials", "run", "TRIALS.toml"],
        cwd=place,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until = time.monotonic() + 600
    while not (place / "ran").exists() or (place / "ran").stat().st_size < 2:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    return process


SLOW = f'command = "{sys.executable} slow.py"\nrepeats = 2\n'
SECOND_WAITS = """\
import os, time
with open("ran", "a") as file:
    file.write("x")
if os.path.getsize("ran") == 2:
    time.sleep(3600)
"""


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_the_machines_death_is_a_result(place: Path, boot: str) -> None:
    """Played by killing everything at once, and another boot id."""
    process = begun(place, SLOW)
    process.send_signal(signal.SIGKILL)  # what it started dies with it, a moment later
    process.wait()
    until = time.monotonic() + 600
    while journal.is_running(place / "cuwheel-trials"):
        assert time.monotonic() < until
        time.sleep(0.02)
    (place / "boot-id").write_text(f"{boot}\n")
    machine_died = boot != "boot-1"
    before = call("lab", "trials", "report", "--json", cwd=place)
    assert json.loads(before.stdout)["failures"] == int(machine_died)
    refused = trials(place, SLOW)
    assert refused.status == 2
    assert "--resume" in refused.stderr
    found = answer(trials(place, SLOW, "--resume"), int(machine_died))
    (group,) = found["groups"]
    assert (group["runs"], group["kinds"]) == (2, {"machine": 1} if machine_died else {})
    assert found["without_result"] == int(not machine_died)
    assert (place / "cuwheel-trials" / journal.DONE).is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_is_no_result_and_runs_again(place: Path, number: signal.Signals) -> None:
    process = begun(place, SLOW)
    process.send_signal(number)
    assert process.wait(600) == 130
    lines = list(journal.read_lines(place / "cuwheel-trials"))
    assert lines[-1].end
    assert lines[-1].end.outcome == "interrupted"
    found = answer(trials(place, SLOW, "--resume"), 0)
    assert (found["runs"], found["without_result"]) == (2, 1)


def test_the_command_to_go_on_names_the_folder_and_the_plan(place: Path) -> None:
    """Without them it would begin elsewhere, or with another plan."""
    (place / "TRIALS.toml").write_text(command("status {a}", 1, "axes.a = ['x', 'y']\n"))
    plan = trials_file.load_trials(place / "TRIALS.toml")
    folder = place / "else where"
    api.trials(place / "TRIALS.toml", output=folder)

    def interrupted(_job: execution.Job) -> journal.End:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign.run_trials(
            plan, folder, campaign.CampaignOptions(resume=True, repeats=3, only={"a": "y"}), execute=interrupted
        )
    found = api.trials_report(folder)
    assert (found.look, found.done) == (2, False)
    shown = call("lab", "trials", "report", folder, cwd=place)
    (line,) = re.findall(r"^  go on: cuwheel (.*--only a=y)$", shown.stdout, re.MULTILINE)
    assert line.startswith("lab trials run ")
    assert f"-o '{folder}' --resume --repeats 3" in line


def test_a_second_runner_is_refused(place: Path) -> None:
    process = begun(place, SLOW)
    try:
        done = trials(place, SLOW, "--resume")
        assert done.status == 4
        assert "another cuwheel process is running these trials" in done.stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(600)


def test_a_cold_trial_after_a_restart_of_the_machine(place: Path) -> None:
    """The hook changes the boot id, as a restart would."""
    (place / "restart.sh").write_text("echo x >> restarts\necho boot-$(wc -l < restarts)-new > boot-id\n")
    text = f"cold.reboot = 'sh {place}/restart.sh'\naxes.start = ['cold']\n"
    found = answer(trials(place, command("right", 3, text)), 0)
    assert found["boots"] == 3
    assert len((place / "restarts").read_text().splitlines()) == 2  # the first trial of a boot needs none
    starts = [each.start for each in journal.read_lines(place / "cuwheel-trials") if each.start]
    assert all(each.cold.rebooted for each in starts)


def test_more_repeats_are_added_and_another_file_is_refused(place: Path) -> None:
    answer(trials(place, command("right", 2)), 0)
    found = answer(trials(place, command("right", 2), "--resume", "--repeats", "4"), 0)
    assert found["runs"] == 4
    done = trials(place, command("status", 2), "--resume")
    assert done.status == 2
    assert "has changed since" in done.stderr


def test_a_wheel_is_an_axis(place: Path) -> None:
    """Each in an environment of its own, known by its hash."""
    from tests.fixtures.small_wheel import Wheel

    for version, status in (("1.0", 0), ("2.0", 5)):
        Wheel(version=version, files={"subject/__init__.py": f"raise SystemExit({status})"}).write(place)
    names = sorted(each.name for each in place.glob("*.whl"))
    text = (
        "command = \"python -c 'import subject'\"\nrepeats = 2\n"
        f"[axes.wheel]\nold = {{ install = '{names[0]}' }}\nnew = {{ install = '{names[1]}' }}\n"
    )
    found = answer(trials(place, text), 1)
    assert {each["axes"]["wheel"]: each["failures"] for each in found["groups"]} == {"old": 0, "new": 2}
    versions = [each["version"] for packages in found["packages"] for each in packages]
    assert versions == ["1.0", "2.0"]
    assert all(len(each["sha256"]) == 64 for packages in found["packages"] for each in packages)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_the_kernel_that_failed_is_named(place: Path, tmp_path: Path) -> None:
    """By a driver that is none, through `trace`."""
    driver = f"gcc -shared -fPIC -o libcuda.so.1 '{SOURCES}/fake_driver.c'"
    program = f"gcc -o program '{SOURCES}/traced_program.c' -ldl -lpthread"
    subprocess.run(["sh", "-ec", f"{driver}; {program}"], cwd=tmp_path, check=True)
    text = f"command = './program absent'\nrepeats = 2\ntrace = true\nenvironment.LD_LIBRARY_PATH = '{tmp_path}'\n"
    found = answer(trials(place, text), 1)
    assert found["traced"]
    (kernel,) = found["kernels"]
    assert kernel["trials"] == 2
    assert kernel["call"]["kernel"]


def test_the_page_has_plots(place: Path) -> None:
    text = command("cold", 2, "axes.start = ['cold', 'warm']")
    trials(place, text, "--html", "report.html")
    page = (place / "report.html").read_text()
    assert page.count("<svg viewBox") >= 2
    assert "Failure rate by condition" in page
