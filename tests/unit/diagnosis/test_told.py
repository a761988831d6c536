"""A person's words count: GPUs, releases and what does not work are facts, and the tables conclude the rest."""

# ruff: noqa: E501, RUF001 - lines as people write them
from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from cuwheel.diagnosis import told
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse
from cuwheel_core.facts import versions
from tests.unit.verdicts.machines import MACHINES

ACCOUNTS = {
    "works on the older card": (
        "no-kernel-image",
        "It works on my 3090 but not on the 5090 of a colleague. We both have torch 2.5.1 and the same script.",
        "made with CUDA 12.8 or later",
    ),
    "a CUDA that no longer compiles for it": (
        "no-kernel-image",
        "Since the update to torch 2.11.0+cu130 nothing runs on the Tesla P40 of our server, what can I do?",
        "Tesla P40 is sm_61",
    ),
    "a driver before the GPU": (
        "driver-too-old-for-runtime",
        "Fresh machine with an RTX 5080 and driver 550.54.14, and my program does not work at all. Any idea?",
        "570",
    ),
    "a release for another CUDA": (
        "package-built-for-other-cuda",
        "I have CUDA 12.8 and a V100. With tensorflow 2.13 the list of GPUs is an empty list, torch is fine.",
        "CUDA 11.8",
    ),
    "a form": (
        "package-built-for-other-cuda",
        "### TensorFlow version\n\ntf 2.13\n\n### CUDA version\n\nCUDA 12.4\n\n### What happened?\n\nIt does not find the GPU.\n",
        "CUDA 11.8",
    ),
    "no CUDA for Windows": (
        "cpu-only-extension",
        "Windows 11, tensorflow 2.17, RTX 4070: it only uses the CPU, how do I make it see my GPU?",
        "WSL 2",
    ),
    "another cuDNN": (
        "cudnn-version-mismatch",
        "Updated to onnxruntime-gpu 1.20 yesterday; cuDNN 8.9 is installed as before, and now it is not working any more.",
        "cuDNN 9",
    ),
    "a GPU below the least": (
        "gpu-too-old-for-feature",
        "Is there a way to run vllm 0.9.1 on a GTX 1080 Ti? It stops with an error as soon as I start it.",
        "capability 7.0",
    ),
    "a board": (
        "l4t-vs-sbsa",
        "On my Orin Nano with JetPack 6 torch.cuda.is_available() returns False after pip install torch.",
        "JetPack",
    ),
    "WSL": ("wsl-libcuda-path", "I can't use the GPU inside WSL2, on Windows itself everything is fine.", "/usr/lib/wsl/lib"),
    "a container": (
        "container-without-gpu-runtime",
        "Inside the docker container it does not detect the GPU, on the host everything works for me.",
        "docker",
    ),
    "built without": ("cpu-only-extension", "llama-cpp-python only uses the CPU, whatever I pass as n_gpu_layers.", "GGML_CUDA"),
    "memory of a build": (
        "out-of-memory-during-compile",
        "Whenever I install flash-attn from source my computer freezes after some minutes and I have to reboot it.",
        "MAX_JOBS",
    ),
    "a symbol in a sentence": (
        "undefined-symbol-torch-abi",
        "After the update I get an ImportError about the undefined symbol _ZN3c104impl8GPUTrace13gpuTraceStateE. What is it?",
        "torch",
    ),
    "in Chinese": ("wsl-libcuda-path", "我在WSL2里面找不到GPU，怎么办", "/usr/lib/wsl/lib"),
}  # fmt: skip


@pytest.mark.parametrize(("cause", "account", "fix"), ACCOUNTS.values(), ids=ACCOUNTS)
def test_what_people_tell_is_held_against_the_tables(cause: str, account: str, fix: str) -> None:
    causes = explain(parse(account)).causes
    assert [each.id for each in causes[:1]] == [cause]
    assert causes[0].confidence <= 0.95  # it is a conclusion, and no program said it
    assert fix in " ".join(causes[0].fix)
    assert causes[0].evidence[0].line


FORM = """\
# GPU is gone inside the image

- [x] I have searched the existing issues
- [ ] I would like to work on a fix

### What happened?

<!-- e.g. "nvcc: command not found" -->
torch.cuda.is_available() returns False inside the docker container, on the host it is True.

### Steps to reproduce the problem

1. start the image
2. run the demo
"""


def test_a_form_that_somebody_filled_in_is_their_report() -> None:
    """What its makers wrote, in comments and beside boxes, is not."""
    assert [each.id for each in explain(parse(FORM)).causes[:1]] == ["container-without-gpu-runtime"]
    unfilled = FORM.replace("[x]", "[ ]").partition("torch.cuda")[0]
    assert explain(parse(unfilled)).causes == ()


def test_a_report_may_show_a_long_log() -> None:
    said = parse(
        "Training stopped working for me, it only uses the CPU, torch 2.4.1+cpu.\n```\n" + "step done\n" * 90 + "```\n"
    )
    assert [each.id for each in explain(said).causes[:1]] == ["cpu-only-torch"]


WISHES = (
    "# Fall back to the CPU if CUDA is not available\n\nThis lets us test on laptops where the GPU is not found.\n",
    "# Fix compilation with CUDA 13\n\nCUDA 13 removed some functions that we call. They are replaced now.\n",
    "# Which part needs CUDA 12.4?\n\nI would like to stay with the release that our cluster has.\n",
    "# [Feature request]: Pascal GPUs\n\nPlease support the P40, sm_61 is not in the list of architectures.\n",
)


@pytest.mark.parametrize("wish", WISHES)
def test_who_asks_for_a_change_or_makes_one_has_no_failure(wish: str) -> None:
    assert explain(parse(wish)).causes == ()


def test_a_gpu_of_the_newest_generation_and_nobody_says_more() -> None:
    found = explain(parse("# RTX 5090 does not work\n\nIt was fine with my old card, what can I do?\n")).causes
    assert [each.id for each in found[:1]] == ["no-kernel-image"]
    assert found[0].confidence < 0.6
    assert explain(parse("# Loss becomes nan on my RTX 5090\n\nHow do I fix it?\n")).causes == ()


def test_a_weak_cause_explains_no_strong_one() -> None:
    said = "Using CUDA device\nDefaulting to CPU. the engine has not been built with cuda support\n"
    assert [each.id for each in explain(parse(said)).causes[:1]] == ["cpu-only-extension"]


GUESSED = """\
# Install of the CUDA rasterizer fails on my laptop

Is a submodule missing, or a third-party header that the sources include? The clone has no such library in its folder.
"""


def test_a_guess_is_told_as_one() -> None:
    found = explain(parse(GUESSED)).causes
    assert 0 < len(found) <= 3
    assert found[0].id == "source-dependency-missing"
    assert all(each.title.startswith("not sure: it may be that ") and each.confidence < 0.5 for each in found)


OTHER_TROUBLE = (
    "# Loss is nan with two GPUs\n\nI cannot train on my CUDA machine, it fails after the first epoch. How do I fix it?\n",
    "# Training is very slow on my RTX 3090\n\nThe GPU does not get enough data, is my driver wrong?\n",
    "# Can't understand the docker image\n\nWhich GPU driver does it want, and why do I need it?\n",
    "CMake Error: the flux of cuda could not be compiled\nninja: build stopped: subcommand failed.\n",
)


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        (
            "Failed: CUDA driver of the host and libraries of two versions mixed in one process",
            "cuda-lib-version-conflict",
        ),
        ("FATAL the GPU's memory was exhausted by CUDA while the tensor was allocated", "gpu-out-of-memory"),
        ("tuner: cannot start, the host compiler is newer than nvcc accepts, unsupported", "host-compiler-too-new"),
    ],
)
def test_what_a_program_says_in_words_of_its_own_is_guessed(printed: str, cause: str) -> None:
    found = explain(parse(f"step 1\n{printed}\n")).causes
    assert cause in [each.id for each in found]
    assert len(found) <= 3
    assert all(each.title.startswith("not sure: it may be that ") and each.confidence < 0.5 for each in found)
    assert all(each.when for each in found)


@pytest.mark.parametrize(
    "printed",
    [
        "src/a.cu(7): error: expected a ';'\nerror: command '/usr/local/cuda/bin/nvcc' failed with exit status 1",
        "ModuleNotFoundError: No module named 'pandas', needed by the torch loader",
        "W engine: cuDNN library could not be found, going on without\n[100%] done, no error",
        "/srv/venv/lib/python3.11/site-packages/torch/data.py: error: cannot open the annotations",
        "KeyError: 'missing key' on cuda:0",
        "AttributeError: module 'torch' has no attribute 'int4' in the CUDA backend, unsupported",
        "[rank0]: frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x15 in torch/lib/libc10.so)",
    ],
)
def test_what_only_names_cuda_is_not(printed: str) -> None:
    assert not [each for each in explain(parse(f"{printed}\n")).causes if each.title.startswith("not sure")]


@pytest.mark.parametrize("trouble", OTHER_TROUBLE)
def test_nothing_is_guessed_of_other_trouble(trouble: str) -> None:
    assert not [each for each in explain(parse(trouble)).causes if each.title.startswith("not sure")]


SATISFIED = (
    "I want to force the model onto the CPU because my GPU is busy with another training. torch 2.3.1+cu121, RTX 3060.",
    "We see a difference between A100 and H100 with the same seed (torch 2.6.0+cu124). Is there a way to avoid it?",
    "Is there a GUI for this on Windows 11? I have tensorflow 2.16 and an RTX 3070 and would like to try it.",
    "In WSL2 my files under /mnt/c are slow to read. Training on the GPU works, but the loader takes most of the time.",
    "How do I mount a folder of the host inside the docker container? I pass --gpus all and -v, and the folder is empty.",
    "Which power mode should I use on an Orin Nano? With 15 W I get 20 fps and would like more.",
    "It would be nice to explain how GPU acceleration works, with an example. Enable GPU support for more models.",
    "I run torch 2.8.0+cu128 on an RTX 5090 and am happy with it.",
    "Thanks! With tensorflow 2.13 and CUDA 11.8 it finds my GPU now.",
    "Our RTX 4090 has driver 550.54.14 and torch 2.5.1+cu124, and there is a problem with my learning rate.",
    "vllm 0.9.1 on an A100: how do I set the temperature?",
    "How do I install flash-attn? My GPU is an RTX 3090.",
    "The CPU is used for preprocessing, as I wanted. My question is about the data loader.",
)


@pytest.mark.parametrize("account", SATISFIED)
def test_what_goes_together_is_no_cause(account: str) -> None:
    assert explain(parse(account)).causes == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("works on my 3090 but not on the 5090, torch", ["GeForce RTX 3090", "GeForce RTX 5090"]),
        ("RTX 5070Ti and rtx5080 laptop gpu", ["GeForce RTX 5070 Ti", "GeForce RTX 5080"]),
        ("a V100, an A100 and a T4 with cuda", ["Tesla V100", "A100", "Tesla T4"]),
        ("1080p video at 1920x1080, cuda", []),
        ("port 3060 and v100.2 of the api", []),
    ],
)
def test_gpus_are_known_by_what_people_call_them(text: str, named: list[str]) -> None:
    found = [gpu.name for gpu, _ in told.gpus_named([text])]
    assert [name for name in named if name in found] == named
    assert bool(found) == bool(named)


def test_releases_are_told_in_many_ways() -> None:
    texts = (
        "tensorflow==2.13.0",
        "TensorFlow version 2.13.0",
        "tf 2.13.0",
        "TensorFlow 2.13.0",
        "tensorflow-gpu-2.13.0",
    )
    for text in texts:
        assert [found[:2] for found in told.releases_named(text.lower())] == [("tensorflow", "2.13.0")]
    assert list(told.releases_named("/usr/lib/tensorflow/2.13.0/x.so and my_tf 2.1")) == []


MORE = {
    "cpu-only-torch": "My laptop has an RTX 4080, I did pip install torch on Windows 11 and torch.cuda.is_available() is False.",
    "driver-state-broken": "After the laptop wakes up from sleep mode my program only uses the CPU until I reboot it.",
    "driver-module-not-loaded": "Since the last kernel the nvidia driver does not load, and my screen stays at a low resolution.",
    "package-built-for-other-cuda": "I installed CUDA 12 and still it is looking for libcublas.so.11, why?",
    "no-kernel-image": "Since the new torch my card of the 10 series is no longer supported, which release was the last?",
    "cudnn-version-mismatch": "It crashes without a word; the notebook has another cuDNN version (8.9.6 instead of 9).",
    "no-nvidia-driver-or-gpu": "Can I run it on a MacBook with an M2? It cannot find a GPU.",
}


@pytest.mark.parametrize(("cause", "account"), MORE.items(), ids=MORE)
def test_what_is_seen_and_where_decide_together(cause: str, account: str) -> None:
    assert [each.id for each in explain(parse(account)).causes[:1]] == [cause]


def test_what_doctor_finds_on_the_machine_is_the_cause_of_what_is_not_seen() -> None:
    said = parse("torch.cuda.is_available() returns False on my machine, what can I do?\n")
    assert [each.id for each in explain(said).causes[:1]] == ["cpu-only-torch"]
    for name, cause in (
        ("case 1: CMake picks the system's nvcc", "driver-too-old-for-runtime"),
        ("a laptop without an NVIDIA GPU", "no-nvidia-driver-or-gpu"),
    ):
        machine = next(each for each in MACHINES if each.name.startswith(name))
        found = explain(said, machine.profile).causes
        assert [each.id for each in found[:1]] == [cause]


@pytest.mark.parametrize("driver", ["470.82.01", "535.54.03", "575.51.03", "581.29"])
def test_what_a_fix_states_of_a_driver_is_so(driver: str) -> None:
    said = parse("RuntimeError: The NVIDIA driver on your system is too old (found version 11070).\n")
    stated = set()
    for machine in MACHINES:
        profile = replace(machine.profile, driver=replace(machine.profile.driver, version=driver))
        fixes = " ".join(explain(said, profile).causes[0].fix)
        if match := re.search(r"driver (\S+) is below (\S+), the minimum of CUDA (\S+):", fixes):
            torch = profile.framework("torch")
            assert match[1] == driver
            assert versions.key(driver) < versions.key(match[2])
            if torch and torch.cuda:  # whatever toolkit is there too
                assert match[3] == torch.cuda
            stated.add(match[2])
    assert bool(stated) == (versions.key(driver) < (580,))  # the highest floor there is


def test_what_was_read_is_shown_under_the_names_that_people_use() -> None:
    found = explain(parse("vllm 0.9.1 does not start on my GTX 1080 Ti, only on the A100."))
    assert {(each.name, each.value) for each in found.versions} >= {
        ("vllm", "0.9.1"), ("gpu", "GeForce GTX 1080 Ti"), ("gpu", "A100"),
    }  # fmt: skip
