# SPDX-License-Identifier: Apache-2.0
"""torch's CUDAExtension, also where the torch at hand was built without CUDA: its headers are the same."""

from __future__ import annotations

import os

import torch
from setuptools import setup
from torch.utils import cpp_extension

if torch.version.cuda is None:  # then torch does not look for a toolkit at all
    cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME")

extension = cpp_extension.CUDAExtension(
    "torch_extension._C",
    sources=["src/torch_extension/extension.cpp", "src/torch_extension/squares.cu"],
    extra_compile_args={"cxx": ["-O1"], "nvcc": ["-O2"]},
)
if torch.version.cuda is None:  # neither torch's CUDA libraries are there, nor the runtime that they would bring
    missing = {"c10_cuda", "torch_cuda", "cudart"}
    extension.libraries = [name for name in extension.libraries if name not in missing]
    extension.libraries += ["cudart_static", "rt", "pthread", "dl"]

setup(ext_modules=[extension], cmdclass={"build_ext": cpp_extension.BuildExtension})
