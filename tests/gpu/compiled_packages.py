"""Published packages cut to their PTX, and with what `graft --compile` made of that: the driver compiles the one, and
must do without its compiler for the other; the results must be the same bits.

    python3 -m tests.gpu.compiled_packages NAME FOLDER OUT     FOLDER as `make` filled it, where there is a network

OUT also says how long each took to its first result.
"""

from __future__ import annotations

import functools
import importlib
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu import runner

_PYTHON = ("--python-version", "3.12")
_WAYS = ("cut", "compiled", "whole")  # what runs: by the driver's compiler, without it, and what the publisher made
_ROUNDS = 3
_AS_SOON = 1.2  # times what the untouched wheel takes to its first result, at most
_SECONDS = 240.0
_CUBLAS = ("cublas", "cublasLt")
_FAR_BACK = 1 << 28  # two builds of a library repeat each other's host code, hundreds of megabytes apart


@dataclass(frozen=True, kw_only=True)
class Package:
    """`cuda`: of the libraries in it, the one for this. `whole`: whether the publisher's machine code is timed, too.

    `cuda_12`: linked with libraries of CUDA 12, which the machine need not have.
    """

    wheel: str
    platform: str
    needs: Sequence[str]
    cuda: str | None = None
    whole: bool = False
    cuda_12: bool = False


PACKAGES = {
    "catboost": Package(
        wheel="catboost==1.2.10",
        platform="manylinux2014_x86_64",
        needs=("numpy", "scipy", "pandas", "six"),
        whole=True,
    ),
    "xformers": Package(wheel="xformers==0.0.35", platform="manylinux_2_28_x86_64", needs=("torch",), cuda_12=True),
    "ctranslate2": Package(wheel="ctranslate2==4.8.5", platform="manylinux_2_28_x86_64", needs=("numpy", "torch")),
    "bitsandbytes": Package(
        wheel="bitsandbytes==0.50.2",
        platform="manylinux_2_24_x86_64",
        cuda="12.6",
        needs=("torch",),
        cuda_12=True,
    ),
}


def make(name: str, folder: Path) -> None:
    """One archive of unpacked wheels: they share their host code."""
    import cuwheel
    from tests.fixtures import cache

    package = PACKAGES[name]
    options = (*_PYTHON, "--platform", package.platform)
    kept = cache.made(package.wheel.replace("==", "-"), lambda to: cache.pip_download(to, package.wheel, *options))
    (wheel,) = kept.glob("*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        cuwheel.slim(wheel, machines=["b200"], cuda=package.cuda, output=place / "cut")  # takes the PTX for older ones
        (cut,) = (place / "cut").glob("*.whl")
        cuwheel.graft(cut, compile=["sm_90"], output=place / "made")
        wheels = {"cut": cut, "compiled": next((place / "made").glob("*.whl"))}
        if package.whole:
            cuwheel.slim(wheel, machines=["h100"], output=place / "whole")
            wheels["whole"] = next((place / "whole").glob("*.whl"))
        for which, each in wheels.items():
            zipfile.ZipFile(each).extractall(place / "packed" / which)  # noqa: S202 - made here
            if package.cuda_12:
                _stand_ins(place / "packed" / which)
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": _FAR_BACK}]
        with (
            lzma.open(folder / "wheels.tar.xz", "wb", filters=filters) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(place / "packed", ".")


def _stand_ins(package: Path) -> None:
    """Beside torch for CUDA 13 there is no cuBLAS 12: one whose functions fail, for what does not need it."""
    from tests.gpu import compilers

    folder = package / "stand-ins"
    folder.mkdir()
    (library,) = (each for each in package.glob("*/*.so") if "cuda" in each.name or each.name == "_C.so")
    told = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    for name in _CUBLAS:
        soname = f"lib{name}.so.12"
        symbols = re.findall(rf"(\w+)@{re.escape(soname)}$", told, re.MULTILINE)
        source, versions = folder / "functions.c", folder / "versions"
        source.write_text("".join(f"int {each}(void) {{ return 1; }}\n" for each in symbols))
        versions.write_text(f"{soname} {{ global: *; }};\n")
        words = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script={versions}"]
        subprocess.run([*words, source, "-o", folder / soname], check=True)
        source.unlink()
        versions.unlink()
    (folder / "libcudart.so.12").write_bytes(compilers.cudart("12.4").read_bytes())


def rows(name: str, folder: Path) -> list[dict[str, object]]:
    """By the driver's compiler, then without that compiler, by turns with what the publisher compiled."""
    with tempfile.TemporaryDirectory() as scratch:
        seen: dict[str, list[Any]] = {}
        runner.unpack(folder / "wheels.tar.xz", Path(scratch))
        for round_ in range(_ROUNDS):
            for way in _WAYS:
                if Path(scratch, way).is_dir() and not (way == "cut" and round_):
                    seen.setdefault(way, []).append(_ran(name, Path(scratch, way)))
    return [{"what": PACKAGES[name].wheel, "good": are_good(seen), "seen": seen}]


def are_good(seen: dict[str, list[Any]]) -> bool:
    """The same bits with the driver's compiler and without; and as soon as with the publisher's own machine code."""
    digests = [each[0] for way in ("cut", "compiled") for each in seen[way]]
    if None in digests or len(set(digests)) > 1:
        return False
    if "whole" not in seen:
        return True
    publishers = [seconds for digest, seconds in seen["whole"] if digest]
    return bool(publishers) and min(seconds for _, seconds in seen["compiled"]) <= _AS_SOON * min(publishers)


def _ran(name: str, package: Path) -> list[Any]:
    """A digest of what came out, and the seconds to it; else null and why not."""
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "CUDA_CACHE_DISABLE": "1"}
    if package.name != "cut":
        env["CUDA_DISABLE_PTX_JIT"] = "1"
    libraries = [str(package / "stand-ins")]
    if name == "bitsandbytes":
        env["BNB_CUDA_VERSION"] = "126"
    if name == "ctranslate2":
        libraries = _cublas_under_another_name(package)
    env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*libraries, env.get("LD_LIBRARY_PATH")]))
    words = [sys.executable, "-m", "tests.gpu.compiled_work", name]
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return [None, f"not done in {_SECONDS:.0f} s"]
    told = re.findall(r'\["[0-9a-f]{64}", [\d.]+\]', done.stdout)  # libraries print, too, with or without a line's end
    return json.loads(told[-1]) if told and not done.returncode else [None, done.stderr[-600:]]


@functools.cache
def _cublas_under_another_name(package: Path) -> list[str]:
    """ctranslate2 opens cuBLAS 12 by name; of that it calls what cuBLAS 13, which torch brings, has alike."""
    torch = importlib.import_module("torch")
    (found,) = {path.parent for path in Path(str(torch.__file__)).parents[1].glob("nvidia/*/lib/libcublas.so.13")}
    folder = package / "stand-ins"
    folder.mkdir()
    for each in _CUBLAS:
        (folder / f"lib{each}.so.12").symlink_to(found / f"lib{each}.so.13")
    return [str(folder), str(found)]


def main(name: str, folder: str, out: str) -> int:
    found = rows(name, Path(folder))
    Path(out).mkdir(parents=True, exist_ok=True)
    Path(out, "grafted.json").write_text(json.dumps(found, indent=1))
    return 0 if all(each["good"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
