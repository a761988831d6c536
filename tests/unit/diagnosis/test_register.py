"""Notes are not logs, whatever errors they speak of; a log inside of them is one."""

# ruff: noqa: E501 - lines as people write them and programs print them
from __future__ import annotations

import io
import time

import pytest

from cuwheel import api
from cuwheel.diagnosis import text
from cuwheel.diagnosis.explain import explain
from cuwheel.report.explain import document

NOTES = {
    "checklist": """\
- [ ] nvcc not found on gpu07, install CUDA 12.4 there
- [x] driver 535 is too old for CUDA 12.4, ask ops
- [ ] torch 2.3 and torchvision 0.17 do not match: pin both
- [ ] no kernel image on the new RTX 5090s -> rebuild with 12.8
""",
    "team's notes": """\
# Weekly sync, GPU builds

Attendees: Ana, Jo, Pim

* The nightly failed because nvcc was not found in the runtime image. Jo switches to the devel image.
* gcc 13 is too new for CUDA 12.2 (unsupported GNU version), so we stay with gcc 12 until the upgrade.
* CUDA out of memory on the small runner: Pim halves the batch size.

Next week: decide on CUDA 13.
""",
    "plain to-do": """\
todo
install nvcc on the build box, CUDA_HOME is not set there
upgrade gcc before friday, the host compiler is too old
ask Bob why libcudart.so.12 cannot be found on node 3
check that torch is not the cpu build
""",
    "readme": """\
fastops
=======

Fused operators for PyTorch.

## Requirements

- An NVIDIA GPU with compute capability 7.0 or newer; older ones fail with "no kernel image is available for execution on the device"
- A CUDA toolkit: `nvcc` must be on your `PATH`, otherwise the build stops with "nvcc: command not found"
- GCC 12 or older for CUDA 12.2

## Installation

```bash
pip install ninja
export CUDA_HOME=/usr/local/cuda-12.4
pip install --no-build-isolation fastops
```
""",
    "tutorial": """\
How to build the extension on a fresh machine

Before you start, make sure that the driver is installed. If nvidia-smi says that it couldn't communicate with the
NVIDIA driver, reboot once. Then install the toolkit of the CUDA version that your torch was built with. When nvcc is
not found afterwards, its folder is missing in PATH. If the build complains about an unsupported GNU version, install
an older compiler and set NVCC_CCBIN. Should Python.h be missing, install python3-dev.

Finally, build the wheel and try to import it.
""",
    "numbered steps": """\
1. Check that nvcc --version says 12.4; if nvcc is not found, install the toolkit.
2. Set TORCH_CUDA_ARCH_LIST, or arch detection fails without a GPU.
3. Run `python setup.py bdist_wheel`.
4. If you see "undefined symbol", you built against another torch: rebuild.
5. Upload the wheel; if it is too large for the index, ask for a higher limit.
""",
    "faq": """\
**Q: I get `CUDA error: no kernel image is available for execution on the device`. What now?**

A: Your GPU is newer than the wheel. Use the nightly one.

**Q: Why does pip say "No matching distribution found"?**

A: There is no wheel for your Python. We build for 3.10 to 3.13.
""",
    "issue template": """\
<!-- Thank you for your report! Please fill in all sections. -->
### Describe the bug

<!-- e.g. "nvcc fatal: Unsupported gpu architecture", "CUDA driver version is insufficient" -->

### Environment

- OS:
- CUDA toolkit (nvcc --version, or "nvcc: command not found"):
- Driver:

### Checklist

- [ ] I have searched for the error ("libcudart.so not found") in existing issues
- [ ] I have installed the latest driver
""",
    "mail": """\
Hi Jo,

I had a look at the failing job yesterday. It seems that the CUDA toolkit is not found because the image has no nvcc;
we should use the devel one. The other failure (GLIBCXX_3.4.30 not found) is the old libstdc++ of conda, I think we can
ignore it until next week. Could you please ask ops for a newer driver? 535 is too old for CUDA 13.

Thanks,
Ana
""",
    "post-mortem": """\
## What happened

On Tuesday the release build of all wheels failed for three hours.

## Root cause

The runner was re-imaged. Its nvcc was 12.0 instead of 12.2, so CMake stopped with "You've specified CUDA version 122
however the CUDA compiler found is 120". After that was fixed, gcc 13 was picked up: "unsupported GNU version! gcc
versions later than 12 are not supported!".

## What we do about it

Pin the image. Check nvcc before the build.
""",
    "changelog": """\
Changelog
---------

1.4.0
- Fixed: `libcublas.so.11: cannot open shared object file` when only CUDA 12 is installed
- Fixed: build failed with "identifier _Float32 is undefined" on gcc 13
- Dropped: sm_50 and sm_60, which nvcc 13 no longer supports
- Added: a better message where nvcc is not found, instead of a traceback
""",
    "design note": """\
The loader looks for the library of torch's CUDA version first. When it is missing ("Configured CUDA binary not found")
it should fall back to the nearest one, because users rarely know what BNB_CUDA_VERSION means. We considered a warning,
but nobody reads warnings. On Jetson the SBSA wheel gives "named symbol not found", which has nothing to do with the
architecture list, so the check must look at the platform instead.
""",
    "german-style bullets with arrows": """\
• nvcc missing on CI → use devel image
• torch sees no GPU → driver too old, ask admin to update it
• wheel too large → drop sm_70, we don't need it any more
• remember: never set CUDA_HOME in .bashrc
""",
    "one reminder": "TODO: nvcc is missing on gpu07, install the CUDA toolkit there\n",
    "table": """\
| symptom | what to do |
|---|---|
| nvcc: command not found | install the toolkit |
| no kernel image is available for execution on the device | rebuild for your GPU |
| CUDA out of memory | smaller batches |
""",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_notes_are_no_logs(note: str) -> None:
    assert explain(text.parse(note)).causes == ()


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (("I tried to install it with:\n\n`pip install flash-attn`\n\nresulted in:\n\n`OSError: CUDA_HOME environment variable"
         " is not set. Please set it to your CUDA install root.`\n"), "cuda-home-unset"),
        ("I try to build the bindings, but\n`ld: cannot find -lcuda `\ncuda is in `/usr/local/cuda-11.3`.\n",
         "linker-cannot-find-cuda-lib"),
        (("after installation, I ran:\n`python app/circle.py`\nand got:\n\nCUDA Runtime Error: the provided PTX was compiled "
         "with an unsupported toolchain. at scene.cpp:35\n\nMy torch version is 1.8.1.\n"), "ptx-newer-than-driver"),
        ("# Not compiled with GPU support\n\nin a docker image of somebody's\n", "cpu-only-extension"),
    ],
)  # fmt: skip
def test_a_message_on_a_line_of_its_own_is_heard(told: str, cause: str) -> None:
    """Though only somebody's words stand round it, and none of them says that it failed."""
    assert explain(text.parse(told)).causes[0].id == cause


LOGS = {
    "no-kernel-image": """\
RuntimeError: CUDA error: no kernel image is available for execution on the device
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
""",
    "nvcc-missing": "  running build_ext\n  /bin/sh: 1: nvcc: not found\n  error: command '/usr/bin/nvcc' failed\n",
    "host-compiler-too-new": "/usr/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 12 are not supported!\n",
    "unsupported-gpu-architecture": "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n",
    "missing-cuda-runtime-lib": "libcudart.so.12: cannot open shared object file: No such file or directory\n",
    "wrong-nvcc-picked-up": """\
CMake Error at CMakeLists.txt:121 (message):
  You've specified CUDA version 122 however the CUDA compiler found is 120.
""",
    "cuda-home-unset": "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n",
    "gpu-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 7.8 GiB\n",
    "float-n-types-undefined": '/usr/include/bits/floatn.h(86): error: identifier "_Float32" is undefined\n',
    "python-headers-missing": "csrc/module.cpp:1:10: fatal error: Python.h: No such file or directory\n",
    "nvlink-uncompress-failed": "nvlink fatal   : Uncompress failed\n",
    "cpu-only-torch": "AssertionError: Torch not compiled with CUDA enabled\n",
}
ISSUES = {
    "in a fence": "### Describe the bug\n\nI tried to install it on my machine, and it fails.\n\n```\n{log}```\n\n### Expected\n\nIt should work.\n",
    "in a fence for consoles": "## Bug\n\nHi, thanks for this project! When I run the example I get:\n\n~~~console\n$ python demo.py\n{log}~~~\n\n- [x] I have read the FAQ\n- [ ] I can send a patch\n",
    "on lines of its own": "Hello,\n\nsince the update of last week our job stops with\n\n{log}\n\nand I don't know what to do. We use the image of our team.\n\nBest,\nAna\n",
    "indented": "Steps to reproduce\n\n1. Install the package\n2. Run the demo, and you should see\n\n{indented}\n\nI have tried two machines.\n",
    "after a list": "To see it:\n\n1. clone the repository\n2. follow the README\n3. start it\n\nresult:\n\n{log}",
    "below lists of a form": "**Machine**\n\n- OS: Debian 12\n- Python: 3.11\n\n**Output**\n\n{log}\n- both on metal and in a VM\n",
    "announced": "Reinstalled all of it on the new server, twice\n\nstill got error:\n\n{log}\n- driver: 550\n- kernel: 6.1\n",
    "in a quotation": "> Did you try another machine?\n\nYes, we did, the same there:\n\n```text\n{log}```\n",
    "in details": "**Describe the bug**\nIt does not work for me, see below.\n\n<details>\n<summary>the whole log</summary>\n\n```\n{log}```\n\n</details>\n",
}


@pytest.mark.parametrize("issue", ISSUES.values(), ids=ISSUES)
@pytest.mark.parametrize(("cause", "log"), LOGS.items(), ids=LOGS)
def test_a_log_within_an_issue_is_one(cause: str, log: str, issue: str) -> None:
    indented = "".join(f"    {line}\n" for line in log.splitlines())
    found = explain(text.parse(issue.format(log=log, indented=indented))).causes
    assert found
    assert found[0].id == cause


MESSAGES = {
    "driver-state-broken": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n",
    "cudnn-version-mismatch": """\
Unable to use CUDA because of the following issues with CUDA components:
Outdated cuDNN installation found.
The local installation must be replaced by 9.1 or later.
""",
    "driver-too-old-for-runtime": """\
The NVIDIA driver on your system is too old (found version 11040).
Please update your GPU driver, otherwise the CPU is used.
""",
    "tensorrt-engine-mismatch": """\
6: The engine plan file is generated on an incompatible device, expecting compute 7.5 got compute 8.9, please rebuild.
[01/02/2026-03:04:05] [I] Selected Device: Tesla T4
[01/02/2026-03:04:05] [I] Compute Capability: 7.5
""",
    "arch-detection-failed": "`nvidia-smi` failed. Ensure that you have CUDA installed and that `nvidia-smi` is in your PATH.\n",
}


@pytest.mark.parametrize(("cause", "message"), MESSAGES.items(), ids=MESSAGES)
def test_a_message_that_gives_reasons_and_advice_is_no_note(cause: str, message: str) -> None:
    found = explain(text.parse(message)).causes
    assert [each.id for each in found[:1]] == [cause]


REPORTS = {
    "tensorrt-engine-mismatch": """\
I built the engine file on one server and run it on another, and then I got this error:

"The engine plan file is generated on an incompatible device, expecting compute 7.5 got compute 6.1, please rebuild."

Can somebody tell me how to solve it?
""",
    "driver-library-mismatch": """\
# Failed to initialize NVML: Driver/library version mismatch

Whenever I start the monitor on my laptop I get this error. How do I fix it? Thank you in advance.
""",
    "cpu-only-torch": """\
I'm trying to run the demo on my laptop, and instead I get an error saying "Torch not compiled with CUDA enabled". We use the
image of our team, and my colleague says that it should work. Is there anything that I can do?
""",
    "toolkit-torch-mismatch": """I asked for CUDA 11.3 with PyTorch, yet starting my script says "The detected CUDA version (10.1) mismatches the version that
was used to compile PyTorch (11.3)". Why?
""",
    "no-nvidia-driver-or-gpu": """Followed every step, and at my first project: "Found no NVIDIA driver on your system." My card is made by AMD.
""",
    "out-of-memory-during-compile": """We see failures in three packages since Monday, all of them because of `nvcc error   : 'cudafe++' died due to signal 9 (Kill signal)`.
""",
}


@pytest.mark.parametrize(("cause", "report"), REPORTS.items(), ids=REPORTS)
def test_whoever_quotes_a_known_message_states_a_fact(cause: str, report: str) -> None:
    found = explain(text.parse(report)).causes
    assert [each.id for each in found[:1]] == [cause]


def test_code_blocks_of_a_manual_are_examples() -> None:
    chapter = "## Chapter\n\nThe library is loaded first.\n\n```\nRuntimeError: CUDA error: no kernel image is available\n```\n"
    filler = "It goes on with the next one, and then with the others.\n" * 12
    assert explain(text.parse("# Manual\n\n" + (chapter + filler) * 4)).causes == ()
    assert explain(text.parse(chapter)).causes != ()


def test_what_somebody_guesses_is_no_message() -> None:
    report = "I get an error, and I think nvcc is missing or my gcc is too new for it. How do I fix it? We should use conda.\n"
    assert explain(text.parse(report)).causes == ()


@pytest.mark.parametrize("note", [NOTES["team's notes"], NOTES["tutorial"]])
def test_what_people_wrote_round_a_log_is_no_evidence(note: str) -> None:
    found = explain(text.parse(f"{note}\n```\n{LOGS['python-headers-missing']}```\n")).causes
    assert [each.id for each in found if not each.when] == ["python-headers-missing"]


def test_it_is_told_that_prose_is_not_searched() -> None:
    answer = api.explain(io.BytesIO(NOTES["team's notes"].encode()))
    assert not answer.succeeded
    assert answer.similar == ()
    told = str(document(answer, verbose=False))
    assert "looks like notes" in told


@pytest.mark.parametrize("line", ["", "-" * 20, "<!--", "- ", "* [ "], ids=["blank", "rule", "comment", "item", "box"])
def test_a_report_with_many_lines_without_words_is_read_at_once(line: str) -> None:
    told = "# CUDA error\n\nI get this error when I build it, can you help me please?\n\n"
    shown = "```\n" + f"{line}\n" * 20_000 + "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n```\n"
    began = time.process_time()
    found = text.parse(told + shown)
    assert time.process_time() - began < 3
    assert found.lines
