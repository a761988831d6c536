"""A project that needs nothing from an index: its backend is one file of its own, and runs nvcc.

On PTX, unless a test is about what is compiled: that is a twentieth of the time that a kernel in C++ takes.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PYPROJECT = """\
[build-system]
requires = []
build-backend = "own_backend"
backend-path = ["."]

[project]
name = "bare"
version = "1.0"

[tool.cuwheel]
for = "h100"
cuda = "13.0"
repair = {{ enabled = false }}
{settings}

[tool.cuwheel.environment]
KERNEL_ARCHS = "{{archs.nvcc}}"
"""
_BACKEND = """\
import base64, hashlib, os, shlex, subprocess, sys, zipfile
from pathlib import Path

VERSION = "1.0"
TAG = "py3-none-linux_x86_64"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    {before}
    nvcc = [os.environ["CUDACXX"], *shlex.split(os.environ["KERNEL_ARCHS"])]
    if Path("kernel.cu").exists():
        subprocess.run([*nvcc, "-Xcompiler", "-fPIC", "-c", "kernel.cu", "-o", "kernel.o"], check=True)
        subprocess.run([*nvcc, "-shared", "kernel.o", "-o", "kernel.so"], check=True)
    else:
        subprocess.run([*nvcc, "-fatbin", "kernel.ptx", "-o", "kernel.fatbin"], check=True)
        Path("kernel.s").write_text('.section .nv_fatbin, "a"\\n.balign 8\\n.incbin "kernel.fatbin"\\n')
        subprocess.run(["gcc", "-shared", "-nostdlib", "kernel.s", "-o", "kernel.so"], check=True)
    info = f"bare-{{VERSION}}.dist-info"
    files = {{
        "bare/__init__.py": b"",
        "bare/kernel.so": Path("kernel.so").read_bytes(),
        f"{{info}}/METADATA": f"Metadata-Version: 2.1\\nName: bare\\nVersion: {{VERSION}}\\n".encode(),
        f"{{info}}/WHEEL": f"Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: false\\nTag: {{TAG}}\\n".encode(),
    }}
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{{name}},sha256={{digest}},{{len(data)}}\\n")
    files[f"{{info}}/RECORD"] = ("".join(rows) + f"{{info}}/RECORD,,\\n").encode()
    name = f"bare-{{VERSION}}-{{TAG}}.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        for member, data in files.items():
            wheel.writestr(zipfile.ZipInfo(member), data)
    return name
"""
_KERNEL = """\
namespace { __global__ void twice(float *x) { x[threadIdx.x] *= 2; } }
extern "C" int run(float *x) { twice<<<1, 1>>>(x); return 0; }
"""
_PTX = """\
.version 6.3
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 x) {
    .reg .f32 %f<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    ld.global.f32 %f1, [%rd1];
    mul.f32 %f1, %f1, 0f40000000;
    st.global.f32 [%rd1], %f1;
    ret;
}
"""


def bare(folder: Path, *, settings: str = "", before: str = "pass", in_cpp: bool = False) -> Path:
    """`before`: Python that the backend runs first. `in_cpp`: its kernel."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PYPROJECT.format(settings=settings))
    (folder / "own_backend.py").write_text(_BACKEND.format(before=before))
    (folder / "kernel.cu" if in_cpp else folder / "kernel.ptx").write_text(_KERNEL if in_cpp else _PTX)
    return folder


def prebuilt(folder: Path, library: str = "bare/kernel.so") -> Path:
    """A project that needs no compiler: it packs the `kernel<digits>.so` that lies in it, by the CUDA it is built for.

    `library`: what it is called in the wheel; `{digits}` is the CUDA (130).
    """
    folder.mkdir(parents=True, exist_ok=True)
    compiling = _BACKEND[_BACKEND.index("    nvcc =") : _BACKEND.index("    info =")]
    text = _BACKEND.replace(compiling, '    digits = os.environ["CUDA_DIGITS"]\n').format(before="pass")
    text = text.replace('"bare/kernel.so": Path("kernel.so")', f'f"{library}": Path(f"kernel{{digits}}.so")')
    settings = 'gate = { allow = ["sm_52", "sm_61", "sm_80", "compute_90"] }'
    (folder / "pyproject.toml").write_text(_PYPROJECT.format(settings=settings) + 'CUDA_DIGITS = "{cuda_digits}"\n')
    (folder / "own_backend.py").write_text(text)
    (folder / "kernel.cu").write_text(_KERNEL)
    return folder


def in_git(folder: Path, tag: str) -> Path:
    """The same as a repository with one commit and a tag."""
    who = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"]}
    who |= {f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    who |= {"GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z", "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z"}
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", tag]):
        subprocess.run(["git", *words], cwd=folder, check=True, env=who)
    return folder


def sdist(project: Path, to: Path) -> Path:
    """As an index has it, with metadata that need not be worked out."""
    to.mkdir(parents=True, exist_ok=True)
    path = to / "bare-1.0.tar.gz"
    told = b"Metadata-Version: 2.2\nName: bare\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("bare-1.0/PKG-INFO")
        info.size = len(told)
        archive.addfile(info, io.BytesIO(told))
        for each in sorted(project.iterdir()):
            archive.add(each, f"bare-1.0/{each.name}")
    return path
