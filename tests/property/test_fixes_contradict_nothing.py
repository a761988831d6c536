"""No fix is shown whose command contradicts what the log says: on any GPU, driver, torch, toolkit and system."""

from __future__ import annotations

import random
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

import pytest

from cuwheel.cli.parser import parse as parse_line
from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse
from cuwheel.facts import torch
from cuwheel.support import quoting
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import gpus, toolkits, versions
from tests.fixtures.verbs import CALLED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel_core.support.finding import Fix, Words

EXAMPLES = [(id_, example) for id_, file in knowledge().causes.items() for example in file.example]
# How a log shows the system that it was made on.
SYSTEMS = {
    "apt": "Ubuntu 22.04\n/usr/local/lib/x\n",
    "dnf": "Fedora Linux 41\n/usr/local/lib/x\n",
    "conda": "/home/me/miniconda3/envs/a/lib/x\n",
    "windows": "C:\\src\\build>\nC:\\src\\a\n",
    "wsl": "Linux 5.15.0-microsoft-standard-WSL2\n/home/me/x\n",
    "jetson": "NVIDIA Jetson AGX Orin\n/usr/local/lib/x\n",
    "container": "root@3f2a:/workspace# ./x\n",
}
GPUS = ("GeForce GTX 1080", "GeForce RTX 3090", "H100", "GeForce RTX 5090")
DRIVERS = ("470.256.02", "535.183.01", "550.54.14", "580.65.06")
LINUX_ONLY = {
    *("apt", "dnf", "sudo", "ldd", "ldconfig", "find", "grep", "cat", "dpkg", "ln", "lsmod", "dkms", "mokutil"),
    *("systemctl", "auditwheel"),
}
NOT_WHOLE = {"cuda-headers-missing", "nvcc-missing"}  # of that toolkit nvcc alone is there, or was elsewhere
METAVARIABLES = {"PACKAGE", "COMMAND", "ENV", "PROGRAM", "CONTAINER", "WHEEL"}


class World(NamedTuple):
    """Facts as a log tells them: what nvidia-smi, nvcc and torch print, and the folder of another toolkit."""

    system: str
    gpu: str
    driver: str
    nvcc: str
    torch_cuda: str
    folder: str

    @property
    def log(self) -> str:
        driver = toolkits.driver_cuda(self.driver)
        assert driver
        gpu = "" if self.system == "jetson" else f"GPU 0: NVIDIA {self.gpu}\n"
        return (
            f"{SYSTEMS[self.system]}{gpu}Driver Version: {self.driver}  CUDA Version: {driver.version}\n"
            f"Cuda compilation tools, release {self.nvcc}, V{self.nvcc}.99\n{self.folder}/bin\n"
            f"torch 2.6.0+cu{self.torch_cuda.replace('.', '')}\n"
        )


def worlds(number: int, seed: str) -> Iterator[World]:
    choice = random.Random(seed)  # noqa: S311 - for tests
    releases = [row.version for row in toolkits.all_toolkits()]
    for _ in range(number):
        system, other = choice.choice(list(SYSTEMS)), choice.choice(releases)
        yield World(
            system=system,
            gpu=choice.choice(GPUS),
            driver=choice.choice(DRIVERS),
            nvcc=choice.choice(releases),
            torch_cuda=choice.choice(torch.channels()),
            folder=(
                f"C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v{other}"
                if system == "windows"
                else f"/usr/local/cuda-{other}"
            ),
        )


def contradictions(world: World, cause: str, fix: Fix, log: str) -> Iterator[str]:
    for words in fix.commands:
        if (found := re.search(r"toolchain install ([\d.]+)", " ".join(words))) and found[1] == world.nvcc:
            yield from ("is there",) if cause not in NOT_WHOLE else ()
        yield from (f"{words}: {each}" for each in _wrong_in_itself(words))
        yield from (f"{words}: {each}" for each in _wrong_there(world, words))
        limit = toolkits.find_toolkit(world.nvcc).host_compilers.gcc_max
        asked = re.search(r"ccbin g\+\+-(\d+)", " ".join(words))
        if (
            asked and limit and int(asked[1]) > limit and "are not supported" not in log
        ):  # as the headers say themselves
            yield f"{words}: nvcc takes {limit}"
    line = "\n".join(quoting.command_of_fix(each, fix.shell) for each in fix.commands)
    if fix.shell == "posix":
        assert shlex.split(line) or not line


def _wrong_in_itself(words: Words) -> Iterator[str]:
    if any(re.search(r"\{(?!toolkit\})|\bcuNNN\b", each) for each in words):
        yield "is not filled in"
    if words[0] == "cuwheel":
        yield from _not_a_command_of_ours(words)


def _not_a_command_of_ours(words: Words) -> Iterator[str]:
    called = CALLED.get(" ".join(words[1:3])) or CALLED[words[1]]
    rest = list(words[1 + len(called.words) :])
    try:
        parse_line("cuwheel", "Do it.", called.command, rest)
    except CuwheelError as error:  # files that a person is to name are not there
        yield from (line for line in str(error).splitlines() if "no such" not in line and "problems:" not in line)


def _wrong_there(world: World, words: Words) -> Iterator[str]:
    driver = toolkits.driver_cuda(world.driver)
    assert driver
    system, text = world.system, " ".join(words)
    if system == "windows" and (words[0] in LINUX_ONLY or "/usr/" in text):
        yield "does not run on Windows"
    if (system == "dnf" and "apt" in words[:2]) or (system == "apt" and "dnf" in words[:2]):
        yield "is another system's"
    if system == "wsl" and {"modprobe", "rmmod", "dkms"} & {*words}:
        yield "there is no module under WSL"
    if system == "jetson" and re.search(r"\bnvidia-[\w-]+-cu\d+|download\.pytorch\.org", text):
        yield "is for servers"
    if found := re.search(r"whl/cu(\d\d)(\d)", text):
        channel = f"{found[1]}.{found[2]}"
        if channel != world.torch_cuda and not versions.at_least(driver.version, channel):
            yield f"the driver takes {driver.version}"
    if found := re.search(r"jax\[cuda(\d+)|-cu(\d\d)\b", text):
        major = int(found[1] or found[2])
        if major > max(driver.major, versions.major(world.torch_cuda)):
            yield f"the driver takes {driver.version}, torch is for {world.torch_cuda}"
    if (found := re.search(r"(?:CUDA_HOME|CUDA_PATH)=(.*(?:cuda-|\\v)[\d.]+)$", text)) and found[1] != world.folder:
        yield "is a folder that nobody named"
    if system != "jetson" and (found := re.search(r"TORCH_CUDA_ARCH_LIST=([\d.]+)$", text)):
        capability = gpus.find_gpu(world.gpu).capability
        if found[1] != str(capability):
            yield f"the GPU has {capability}"


@pytest.mark.parametrize("id_", sorted(knowledge().causes))
def test_no_command_contradicts_what_is_known(id_: str) -> None:
    wrong = []
    for example in knowledge().causes[id_].example:
        for world in worlds(4, id_ + example.log[:40]):
            if world.system == "windows" and "microsoft-standard" in example.log:
                continue  # within WSL
            for cause in explain(parse(world.log + example.log)).causes:
                if not cause.fixes and world.system != "windows":
                    wrong.append(f"{cause.id} on {world.system}: no fix is left")
                wrong += [
                    f"{cause.id}: {each}"
                    for fix in cause.fixes
                    for each in contradictions(world, cause.id, fix, example.log)
                ]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_the_check_itself_can_fail() -> None:
    world = World("windows", "H100", "550.54.14", "12.4", "12.4", "C:\\CUDA\\v11.8")
    wrong = (
        ("pip", "install", "{package}"),
        ("cuwheel", "check", "--no-such"),
        ("apt", "install", "x"),
        ("pip", "install", "jax[cuda13]"),
        ("pip", "install", "torch", "--index-url", "https://download.pytorch.org/whl/cu130"),
        ("export", "CUDA_HOME=C:\\CUDA\\v12.1"),
        ("export", "TORCH_CUDA_ARCH_LIST=8.6"),
    )
    for words in wrong:
        assert [*_wrong_in_itself(words), *_wrong_there(world, words)], words


def test_what_is_to_be_filled_in_by_hand_is_one_of_few_words() -> None:
    """Names in capitals stand where no log could tell; everything else is typed as it is shown."""
    strange = [
        (id_, words)
        for id_, file in knowledge().causes.items()
        for fix in file.fix
        for command in fix.commands
        for words in [shlex.split(command)]
        if words[0] not in ("export", "unset")
        and {each for each in words if re.fullmatch(r"[A-Z][A-Z-]{2,}", each)} - METAVARIABLES
    ]
    assert not strange
