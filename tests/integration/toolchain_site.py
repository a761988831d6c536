"""A stand-in for NVIDIA's archives: manifests of the real structure, archives repacked, a server on loopback.

The server can be told to break off, to stall, and to send something else; it notes what was asked of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tarfile
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tests.fixtures import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NVCC = """#!/bin/sh
echo 'Cuda compilation tools, release {minor}, V{version}'
"""
# Keys of redistrib_13.0.2.json, and the files of each as they lie in a real toolkit.
PARTS: dict[str, Callable[[str], bool]] = {
    "cuda_nvcc": lambda name: name.startswith("bin/"),
    "libnvvm": lambda name: name.startswith("nvvm/") or "libnvvm" in name,
    "cuda_crt": lambda name: name.startswith("include/crt/"),
    "cuda_cccl": lambda name: name.startswith(("include/cccl/", "lib/cmake/")),
    "cuda_cudart": lambda name: name.startswith(("include/", "lib/")),
}


def write_site(folder: Path, release: str, parts: dict[str, dict[str, bytes | Path]]) -> None:
    """A folder such as NVIDIA serves: `redistrib_<release>.json` and an archive for each part."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, object] = {"release_date": "2025-10-09", "release_label": release, "release_product": "cuda"}
    for name, files in parts.items():
        top = f"{name}-linux-x86_64-{release}-archive"
        relative = f"{name}/linux-x86_64/{top}.tar.xz"
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:xz", preset=0) as archive:
            for member, contents in files.items():
                _add(archive, f"{top}/{member}", contents)
        data = path.read_bytes()
        manifest[name] = {
            "name": name,
            "license": "CUDA Toolkit",
            "license_path": f"{name}/LICENSE.txt",
            "version": release,
            "linux-x86_64": {
                "relative_path": relative,
                "sha256": hashlib.sha256(data).hexdigest(),
                "md5": hashlib.md5(data).hexdigest(),  # noqa: S324 - the manifests have it
                "size": str(len(data)),
            },
        }
    (folder / f"redistrib_{release}.json").write_text(json.dumps(manifest, indent=2))


def _add(archive: tarfile.TarFile, name: str, contents: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    data = contents if isinstance(contents, bytes) else contents.read_bytes()
    info.size = len(data)
    info.mode = 0o755 if data[:2] in (b"#!", b"\x7fE") else 0o644
    archive.addfile(info, io.BytesIO(data))


def tiny_parts(version: str, padding: int = 0) -> dict[str, dict[str, bytes | Path]]:
    """Parts that look like a toolkit and weigh little: an nvcc that knows its version."""
    minor = ".".join(version.split(".")[:2])
    text = NVCC.format(minor=minor, version=version).encode()
    noise = hashlib.shake_256(b"noise").digest(padding)  # does not compress
    return {
        "cuda_nvcc": {"bin/nvcc": text, "bin/ptxas": b"#!/bin/sh\n", "LICENSE": b"yours\n", "share/noise": noise},
        "cuda_cudart": {
            "include/cuda_runtime.h": b"#pragma once\n",
            "include/cuda.h": b"CUresult CUDAAPI cuInit(unsigned int Flags);\n",
            "lib/libcudart.so.13": b"\x7fELF",
            "lib/libcudart_static.a": b"!<arch>\n",
        },
    }


def real_parts(root: Path) -> dict[str, dict[str, bytes | Path]]:
    """A real toolkit, taken apart as the archives are: each file in the first part that claims it."""
    parts: dict[str, dict[str, bytes | Path]] = {name: {} for name in PARTS}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if (
            path.is_symlink()
            or not path.is_file()
            or name.startswith(("lib64/", "nvvm/lib64/", "licenses/", "lib/stubs/"))
        ):
            continue
        owner = next((part for part, claims in PARTS.items() if claims(name)), None)
        if owner:
            parts[owner][name] = path
    return parts


@dataclass
class Behaviour:
    """`cut`: bytes after which an archive breaks off, once for each; `stall`: seconds to hang there instead."""

    cut: int | None = None
    stall: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    reached: threading.Event = field(default_factory=threading.Event)

    def archives(self) -> list[str]:
        return [path for path, _ in self.asked if path.endswith(".tar.xz")]


@contextlib.contextmanager
def serving(folder: Path, behaviour: Behaviour) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, folder, behaviour)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    with servers.answering(httpd) as url:
        yield f"{url}/"


def _answer(handler: BaseHTTPRequestHandler, folder: Path, behaviour: Behaviour) -> None:
    wanted = handler.headers.get("Range", "")
    behaviour.asked.append((handler.path, wanted))
    path = folder / handler.path.lstrip("/")
    if path.is_dir():
        names = "".join(f'<a href="{each.name}">{each.name}</a>\n' for each in sorted(path.iterdir()))
        data = names.encode()
    elif path.is_file():
        data = path.read_bytes()
    else:
        handler.send_error(404)
        return
    match = re.match(r"bytes=(\d+)-", wanted)
    start = int(match[1]) if match else 0
    if start and start >= len(data):
        handler.send_error(416)
        return
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", str(len(data) - start))
    handler.end_headers()
    if (
        behaviour.cut
        and handler.path.endswith(".xz")
        and handler.path not in behaviour.seen
        and len(data) > behaviour.cut
    ):
        behaviour.seen.add(handler.path)
        handler.wfile.write(data[start : behaviour.cut])
        handler.wfile.flush()
        behaviour.reached.set()
        time.sleep(behaviour.stall)
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        handler.wfile.write(data[start:])
