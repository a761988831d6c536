"""Failures that speak of CUDA and are not its own, and logs in which nothing failed: no cause of CUDA's is named."""

# ruff: noqa: E501 - lines as programs print them
from __future__ import annotations

import pytest

from cuwheel.diagnosis import text
from cuwheel.diagnosis.explain import explain

# Verbose output of installers that reached their end: it speaks of much that was passed over on the way.
INSTALLED = """\
Using pip 25.1 from /venv/lib/python3.11/site-packages/pip (python 3.11)
1 location(s) to search for versions of tracer-cu12:
* https://index.example/simple/tracer-cu12/
  Skipping link: none of the wheel's tags (cp311-cp311-win_amd64) are compatible (run pip debug --verbose to show compatible tags): https://files.index.example/packages/1a/404f/tracer_cu12-1.2-cp311-cp311-win_amd64.whl#sha256=404ab1 (from https://index.example/simple/tracer-cu12/)
  Link requires a different Python (3.11.7 not in: '>=3.7,<3.11'): https://files.index.example/packages/2b/tracer_cu12-0.9-py3-none-any.whl (from https://index.example/simple/tracer-cu12/)
  Downloading tracer_cu12-1.2-cp311-cp311-manylinux_2_28_x86_64.whl (404.9 MB)
Successfully installed tracer-cu12-1.2
"""


def test_a_verbose_installation_that_succeeded_has_no_cause() -> None:
    assert explain(text.parse(INSTALLED)).causes == ()


LOGS = (
    (
        "dh_movefiles: warning: debian/tmp/usr/share/tracer/cuda not found (supposed to put it in tracer-nvidia)\n"
        "tar: Error is not recoverable: exiting now\n"
        "make[1]: *** [debian/rules:22: override_dh_install] Error 25"
    ),
    (
        "FAILED: fused_step.o\n"
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n"
        "ImportError: /home/u/.cache/torch_extensions/py311_cu124/fused_step/fused_step.so: cannot open shared object file: No such file or directory"
    ),
    (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 88, in main\n'
        "    loss = criterion(out.cuda(), labels.cuda())\n"
        "ValueError: Expected input batch_size (32) to match target batch_size (31)."
    ),
    (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)\n"
        '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 117, in forward'
    ),
    (
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "fc.weight". Unexpected key(s) in state_dict: "module.fc.weight".\n'
        "Using cuda:0"
    ),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/coco/annotations.json'\n"
        "Namespace(device='cuda', gpus=2)"
    ),
    (
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in the cached files\n"
        "vllm 0.6.3 CUDA 12.4"
    ),
    (
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url https://huggingface.co/meta-llama\n"
        "torch 2.5.1+cu124"
    ),
    (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n"
        "CUDA_VISIBLE_DEVICES=0,1"
    ),
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ("KeyError: 'cuda_device_id'\n  File \"config.py\", line 4, in load"),
    "ImportError: cannot import name 'LlamaFlashAttention2' from 'transformers.models.llama.modeling_llama'",
    "AttributeError: 'GPT2Config' object has no attribute 'use_flash_attn'",
    ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\ndevice: cuda:0  NVIDIA A100"),
    (
        "error: subprocess-exited-with-error\n"
        "  × Getting requirements to build wheel did not run successfully.\n"
        "      AttributeError: module 'pkgutil' has no attribute 'ImpImporter'. Did you mean: 'zipimporter'?"
    ),
    (
        "ERROR: Cannot install torch==2.5.1 and transformers==4.2 because these package versions have conflicting dependencies.\n"
        "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io"
    ),
    (
        "pytest tests/test_cuda_wrapper.py\n"
        "E       AssertionError: assert 3 == 4\n"
        "FAILED tests/test_cuda_wrapper.py::test_count - AssertionError: assert 3 == 4"
    ),
    (
        "error[E0433]: failed to resolve: use of undeclared type `CudaDevice`\n"
        " --> src/main.rs:12:13\n"
        'error: could not compile `app` (bin "app") due to 1 previous error'
    ),
    (
        "src/app.cpp:10:5: error: 'foo' was not declared in this scope\n"
        "make[2]: *** [CMakeFiles/app.dir/build.make:76: CMakeFiles/app.dir/src/app.cpp.o] Error 1\n"
        '-- Found CUDAToolkit: /usr/local/cuda/include (found version "12.4.131")'
    ),
    (
        "CMake Error at CMakeLists.txt:14 (find_package):\n"
        '  Could not find a package configuration file provided by "OpenCV" with any of the following names:\n'
        "    OpenCVConfig.cmake\n"
        "-- The CUDA compiler identification is NVIDIA 12.4.131"
    ),
    (
        "/usr/bin/ld: cannot find -lopenblas: No such file or directory\n"
        "collect2: error: ld returned 1 exit status\n"
        "-L/usr/local/cuda/lib64 -lcudart"
    ),
    (  # a program that was compiled and then run
        "NVCC src/layers/scale_layer.cu\n"
        "test/all.testbin 0 --gtest_shuffle\n"
        "[==========] Running 81 tests from 27 test cases.\n"
        "make: *** [runtest] Segmentation fault (core dumped)"
    ),
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory\nimport cv2"),
    "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory",
    "OSError: cannot load library 'libsndfile.so': libsndfile.so: cannot open shared object file: No such file or directory",
    (
        "UserWarning: CUDA graphs is not supported in this mode, falling back to eager\n"
        "Epoch 1/10 100%|##########| loss 0.12\n"
        "Training finished"
    ),
    (
        "WARNING 01-02 10:00:00 cuda.py:22] You are using a deprecated `pynvml` package. Please install `nvidia-ml-py` instead.\n"
        "INFO: Application startup complete. Uvicorn running on http://0.0.0.0:8000"
    ),
    (
        "I0000 00:00:1 cuda_executor.cc] could not open file to read NUMA node: /sys/bus/pci/devices/0000:01:00.0/numa_node\n"
        "Your kernel may have been built without NUMA support.\n"
        "Epoch 1/5 accuracy: 0.91"
    ),
    (
        "nvcc warning : incompatible redefinition for option 'std', the last value of this option was used\n"
        "[100%] Built target kernels\n"
        "Successfully built flash_attn"
    ),
    (
        "/opt/torch/include/c10/util/Half.h(12): warning #1394-D: field of class type without a DLL interface used in a class with a DLL interface\n"
        "   Creating library build\\lib.lib and object build\\lib.exp\n"
        "Finished generating code"
    ),
    (
        "ptxas warning : Unresolved extern variable ignored? no\n"
        "ptxas info : 12 bytes spill stores\n"
        "Build succeeded.\n"
        "    0 Error(s)"
    ),
    ("torch.cuda.is_available(): True\ntorch.version.cuda: 12.4\nZeroDivisionError: division by zero"),
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ('RuntimeError: expected scalar type Half but found Float\n  File "attention.py", line 3 in forward (cuda:0)'),
    "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
    (
        "../aten/src/ATen/native/cuda/Indexing.cu:1141: indexSelectLargeIndex: block: [1,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        "RuntimeError: CUDA error: device-side assert triggered"
    ),
    (
        "git clone https://github.com/NVIDIA/cutlass\n"
        "fatal: unable to access 'https://github.com/NVIDIA/cutlass/': Could not resolve host: github.com"
    ),
    ("ModuleNotFoundError: No module named 'cv2'\nUsing device: cuda"),
    "ModuleNotFoundError: No module named 'pandas'",
    (
        "ERROR: Could not find a version that satisfies the requirement my-internal-pkg==1.0 (from versions: none)\n"
        "ERROR: No matching distribution found for my-internal-pkg==1.0"
    ),
    ("npm ERR! code ELIFECYCLE\nnpm ERR! gpu-demo@1.0.0 build: `webpack`"),
    (
        "xformers: WARNING A matching Triton is not available, some optimizations will not be enabled.\n"
        "Traceback: No module named 'triton'\n"
        "Model loaded in 5.2s"
    ),
    ("free(): invalid pointer\nAborted (core dumped)"),
    ('IndexError: list index out of range\n  File "dataset.py", line 20, in __getitem__\ndevice cuda'),
    ("PermissionDenied: you do not have access to bucket gs://models\ngpu: nvidia-tesla-t4"),
    # What long logs of builds and runs that went well have in them.
    (
        '-- Unable to find cublas_v2.h in either "/opt/cuda/include" or "/opt/math_libs/include"\n'
        '-- Found CUDAToolkit: /opt/cuda/include (found version "13.0.88")\n'
        "-- Configuring done"
    ),
    "2026-10-16 23:03:59 install ninja-build:amd64 <none> 1.11.1-2",
    (
        "MESA-LOADER: failed to open ast: /usr/lib/dri/ast_dri.so: cannot open shared object file: No such file or directory\n"
        "Using cuda:0\nEpisode 2000: reward 311.2"
    ),
    (
        "n1:31:31 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory\n"
        "NCCL version 2.18.1+cuda12.1"
    ),
    (
        "SKIPPED [1] tests/test_record.py:116: a killed shim leaves its compiler running\n"
        "make: Leaving directory '/work'\n300 passed, 1 skipped in 40.1s"
    ),
    (
        "W tensorflow/tsl/framework/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.10GiB. "
        "The caller indicates that this is not a failure, but this may mean that there could be performance gains\nEpoch 3/20"
    ),
    "tag: manylinux_2_28_x86_64 (not lower: libsolver.so.0 needs glibc 2.28)",
    "-- cuDNN not found, disabling\n-- Build files have been written to: /b",
    "WARNING: CUDA headers not found; GPU code will not be built\nrunning install",
    (
        "error: RPC failed; curl 92 HTTP/2 stream 5 was not closed cleanly\nfatal: early EOF\n"
        "fatal: clone of 'https://git.example/fft.git' into submodule path 'deps/fft' failed\nFailed to recurse into submodule path 'deps'"
    ),
    (
        "python train.py -gpu 6,7\nloss.backward(torch.ones(torch.cuda.device_count()).cuda())\n"
        "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and output[0] has a shape of torch.Size([])."
    ),
    (
        "[E ProcessGroupNCCL.cpp:523] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE) ran for 1800600 milliseconds\n"
        "[rank2]: frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout + 0x2b4 (0x15 in /venv/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so)"
    ),
    (
        "../lib/libnet_gpu.so: undefined reference to `cv::String::deallocate()'\ncollect2: error: ld returned 1 exit status\nmy cuda is 11.8"
    ),
    "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load`.",
    "# Slow startup of the web UI\n\nThe first page load takes 30 seconds on my box with an RTX 3090, next time it is fast. The browser shows nothing.",
    "## Requirements\n- NVIDIA GPU with 12 GB, AMD GPUs are not supported\n- CUDA 12 or newer\n- 32 GB RAM",
    'The pod is pending because the PVC is not bound: persistentvolumeclaim "data" not found.\n0/3 nodes are available: 3 pod has unbound claims.',
    '>>> import os\n>>> os.path.exists("torch/data.csv")\nFalse',
    "I compile main.cu with nvcc and execute it, a Segmentation fault occurs.",
    # Other programs', and other makers'.
    'nginx: [emerg] dlopen() "/usr/lib/nginx/geoip.so" failed (/usr/lib/nginx/geoip.so: undefined symbol: ngx_http_add_variable)',
    "R: symbol lookup error: /usr/lib/R/library/stringi/libs/stringi.so: undefined symbol: u_errorName_66",
    "ImportError: DLL load failed while importing _ctypes: The specified module could not be found.",
    "The procedure entry point SetThreadDescription could not be located in the dynamic link library KERNEL32.dll",
    "Failed to load native library 'libnative-platform.dylib' for Mac OS X x86_64.",
    "ModuleNotFoundError: No module named 'web_backend'",
    "Error: ENOSPC: System limit for number of file watchers reached, watch '/app'",
    "docker: Error response from daemon: manifest for nvidia/cuda:99.0-devel not found: manifest unknown",
    "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
    "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1103",
    "NotImplementedError: Could not run 'aten::empty.memory_format' with arguments from the 'SparseMPS' backend.",
    "RuntimeError: Native API failed. Native API returns: -50 (PI_ERROR_INVALID_ARG_VALUE)",
    "ERROR: Could not find a version that satisfies the requirement setuptools>=40.8.0 (from versions: none)\nLooking in indexes: https://download.pytorch.org/whl/cu117",
    # Other programs' compilers, libraries and disks.
    "   Compiling libc v0.2.150\nerror: linker `cc` not found\n  = note: No such file or directory (os error 2)",
    "error: linker `link.exe` not found\n  = note: program not found\nerror: could not compile `serde`",
    '# runtime/cgo\ncgo: C compiler "gcc" not found: exec: "gcc": executable file not found in $PATH',
    "gyp ERR! find VS could not find a version of Visual Studio 2017 or newer to use\ngyp ERR! stack Error: Could not find any Visual Studio installation to use",
    "../meson.build:2:0: ERROR: Unknown compiler(s): [['cc'], ['gcc'], ['clang']]",
    "LoadError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by /srv/gems/nokogiri-1.16/nokogiri.so)",
    "Error: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /srv/app/node_modules/images/build/images.node)",
    'PANIC:  could not write to file "pg_wal/xlogtemp.31": No space left on device',
    "[ 41%] Building CXX object src/CMakeFiles/mesh.dir/plane.cpp.o\n/usr/include/eigen3/Eigen/src/Core/Matrix.h:294:35: error: no matching function for call to 'Eigen::Matrix<double, 3, 1>::_init1(const Point&)'",
    '  File "geometry/core.py", line 12, in <module>\n    lib = CDLL("proj.dll")\n  File "ctypes/__init__.py", line 376, in __init__\n    self._handle = _dlopen(self._name, mode)\nOSError: [WinError 126] The specified module could not be found',
    "Traceback (most recent call last):\n  File \"run.py\", line 3, in <module>\nFileNotFoundError: [Errno 2] No such file or directory: 'torch/checkpoint.pt'",
    "ninja: error: '/src/app/libs/libjs.so', needed by '/src/app/build/libview.so', missing and no known rule to make it",
)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log[:40])
def test_no_false_alarm(log: str) -> None:
    assert [cause.id for cause in explain(text.parse(log)).causes[:1]] in ([], ["not-cuda"])
