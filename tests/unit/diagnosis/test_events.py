"""Who speaks in a line; a command is no sentence, and two messages are never one line."""

from __future__ import annotations

import pytest

from cuwheel.diagnosis import events
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse

LINES = {
    "nvcc": "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    "ptxas": "ptxas /tmp/x.ptx, line 9; fatal   : Unsupported .version 7.3; current version is '7.1'",
    "nvlink": "nvlink error   : Undefined reference to 'f' in 'a.o'",
    "cudafe++": 'src/a.cu(12): error: identifier "x" is undefined',
    "gcc": "src/a.cpp:3:10: fatal error: cuda.h: No such file or directory",
    "cl": r"C:\src\a.cpp(3): fatal error C1083: Cannot open include file: 'cuda.h'",
    "link": "LINK : fatal error LNK1181: cannot open input file 'cuda.lib'",
    "ld": "/usr/bin/ld: cannot find -lcudart",
    "loader": "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    "cmake": "CMake Error at CMakeLists.txt:3 (project):",
    "ninja": "ninja: build stopped: subcommand failed.",
    "make": "make[2]: *** [a.o] Error 1",
    "cargo": "error: failed to run custom build command for `kernels v0.1.0`",
    "runtime": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "driver": "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
    "nvml": "Failed to initialize NVML: Driver/library version mismatch",
    "xid": "[ 12.3] NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.",
    "container-toolkit": "nvidia-container-cli: initialization error: driver rpc error: timed out",
    "docker": 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]',
    "tensorrt": "[TRT] [E] 1: [stdArchiveReader.cpp::StdArchiveReader::35] Error Code 1: Serialization",
    "cudnn": "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "nccl": "node08:27:30 [0] NCCL WARN Call to shm_open failed",
    "onnxruntime": "[E:onnxruntime:Default, provider_bridge_ort.cc:1480 TryGetProviderInfo_CUDA] FAIL",
    "python": "KeyError: 'x'",
    "": "Epoch 3/20",
}


@pytest.mark.parametrize(("speaker", "line"), LINES.items(), ids=LINES)
def test_who_speaks(speaker: str, line: str) -> None:
    found = events.event(line)
    assert (found.speaker, found.command) == (speaker, None)


COMMANDS = (
    "nvcc -c a.cu",
    "[3/17] /usr/local/cuda/bin/nvcc  -DX=1 -c a.cu -o a.o",
    "cd /b && /usr/bin/ccache /opt/cuda/bin/nvcc -forward-unknown-to-host-compiler -x cu -c a.cu",
    '"C:\\CUDA\\v12.8\\bin\\nvcc.exe" --use-local-env -ccbin "C:\\VC" -x cu a.cu',
    "x86_64-linux-gnu-gcc -pthread -c a.c",
    "cl /nologo /O2 -c a.cpp",
    "#$ cicc --c++17 a.cpp1.ii",
    "user@host:~/src$ pip install flash-attn",
    "drwxr-xr-x 2 root root 4096 Jan  2 03:04 nvlink uncompress failed",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_lists_of_files_say_nothing(line: str) -> None:
    assert events.spoken(line).strip() == ""
    assert len(events.spoken(line)) == len(line)


def test_the_end_of_a_long_command_says_nothing_either() -> None:
    line = "nvcc " + "-I/include " * 2000 + "-allow-unsupported-compiler sm_89 is not supported by nvcc"
    assert events.spoken(line).strip() == ""


SENTENCES = (
    "gcc versions later than 12 are not supported! use -allow-unsupported-compiler",
    "nvcc fatal   : Unknown option '--expt-foo'",
    "nvcc is not found in /usr/local/cuda/bin",
    "subprocess.CalledProcessError: Command '['where', 'cl']' returned non-zero exit status 1.",
    "error: command '/usr/local/cuda/bin/nvcc' failed with exit status 1",
)


@pytest.mark.parametrize("line", SENTENCES)
def test_sentences_are_no_commands(line: str) -> None:
    assert events.spoken(line) == line


def test_of_a_command_within_a_message_its_program_is_said() -> None:
    line = 'nvcc error while executing compiling: "nvcc" "--gpu-architecture=sm_89" "-c" "a.cu"'
    assert events.spoken(line).rstrip() == 'nvcc error while executing compiling: "nvcc"'


def test_options_of_a_command_are_no_cause() -> None:
    """An architecture and `-allow-unsupported-compiler` are no complaint of an unsupported architecture."""
    command = (
        "[1/2] /opt/cuda/bin/nvcc -gencode=arch=compute_89,code=sm_89 -allow-unsupported-compiler -c a.cu -o a.o\n"
    )
    assert explain(parse(command)).causes == ()
    found = explain(parse(command + 'floatn.h(86): error: identifier "_Float32" is undefined\n')).causes
    assert [each.id for each in found] == ["float-n-types-undefined"]


def test_two_messages_are_two_lines() -> None:
    warning = "nvcc warning : incompatible redefinition for option 'std', the last value of this option was used\n"
    found = explain(parse(warning + "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n")).causes
    assert [line.text for line in found[0].evidence] == ["nvcc fatal : Unsupported gpu architecture 'compute_120'"]
