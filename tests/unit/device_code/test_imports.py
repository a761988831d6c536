"""What a package's import loads for certain, read from its Python."""

from __future__ import annotations

import sys
import time

import pytest

from cuwheel.device_code import python_loads
from cuwheel.device_code.source import Texts

LIBRARIES = ("pkg/_C.abi3.so", "pkg/sub/_ext.cpython-312-x86_64-linux-gnu.so", "pkg/libcore.so", "pkg/ops.so")
C, EXT, CORE, OPS = LIBRARIES


def _loaded(files: dict[str, str], name: str | None = "pkg") -> tuple[str, ...]:
    return python_loads.libraries_that_import_loads(Texts(names=tuple(files), read=files.get), name, LIBRARIES).loaded


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        ("from . import _C", (C,)),
        ("import pkg._C", (C,)),
        ("from pkg import _C as ops", (C,)),
        ("from pkg._C import add, sub", (C,)),
        ("from ._C import *", (C,)),
        ("import torch\nfrom .sub import _ext", (EXT,)),
        ("import importlib\n_C = importlib.import_module('pkg._C')", (C,)),
        ("from importlib import import_module\next = import_module('.sub._ext', package=__name__)", (EXT,)),
        ("tf.load_op_library(resource('ops.so'))", (OPS,)),
        ("from .sub._ext import run", (EXT,)),
        ("class Ops:\n    from . import _C", (C,)),
        ("with quiet():\n    from . import _C", (C,)),
        ("try:\n    from . import _C\nfinally:\n    pass", (C,)),
        ("try:\n    from . import _C\nexcept ImportError as e:\n    raise RuntimeError('no') from e", (C,)),
        ("import ctypes, os\nlib = ctypes.CDLL(os.path.join(here, 'libcore.so'))", (CORE,)),
        ("import torch\ntorch.ops.load_library(here + '/pkg/ops.so')", (OPS,)),
        ("def _load():\n    return ctypes.CDLL('libcore.so')\nlib = _load()", (CORE,)),
        ("def f():\n    f()\n    from . import _C\nf()", (C,)),
    ],
)
def test_what_is_certain(text: str, loaded: tuple[str, ...]) -> None:
    assert _loaded({"pkg/__init__.py": text, "pkg/sub/__init__.py": ""}) == loaded


@pytest.mark.parametrize(
    "text",
    [
        "def load():\n    from . import _C",
        "try:\n    from . import _C\nexcept ImportError:\n    _C = None",
        "try:\n    from . import _C\nexcept:\n    pass",
        "try:\n    import pkg._C\nexcept (OSError, KeyError):\n    pass",
        "if capability >= (9, 0):\n    from . import _C",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import _C",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    from . import _C",
        "for name in names:\n    torch.ops.load_library(name + '.so')",
        "lib = ctypes.CDLL('libcudart.so.12')",
        "from . import missing",
        "import other._C",
        "from .... import _C",
        "this is no Python",
        "\0",
    ],
)
def test_what_is_not(text: str) -> None:
    assert _loaded({"pkg/__init__.py": text}) == ()


def test_modules_are_followed_and_their_packages_too() -> None:
    files = {
        "pkg/__init__.py": "from .api import run",
        "pkg/api.py": "import pkg.sub.deep as deep\nfrom . import api",
        "pkg/sub/__init__.py": "from .. import _C",
        "pkg/sub/deep.py": "from ._ext import go",
        "pkg/other.py": "import ctypes\nctypes.CDLL('libcore.so')",
    }
    assert set(_loaded(files)) == {C, EXT}


@pytest.mark.parametrize(
    ("files", "name", "found"),
    [
        (("pkg/__init__.py",), None, True),
        (("pkg/__init__.py", "pkgx/__init__.py"), "pkg-cuda12x", True),
        (("pkg/__init__.py", "tests/__init__.py"), "Pkg", True),
        (("pkg/__init__.py", "other/__init__.py"), "third", False),
        (("pkg/__init__.py", "other/__init__.py"), None, False),
        (("pkg/_C.py",), "pkg", False),
        ((), "pkg", False),
    ],
)
def test_the_package_that_people_import(files: tuple[str, ...], name: str | None, *, found: bool) -> None:
    assert bool(_loaded(dict.fromkeys(files, "import pkg._C"), name)) == found


def test_hostile_python_costs_little() -> None:
    start = time.process_time()
    many = {f"pkg/m{index}.py": f"from . import m{index + 1}\n" for index in range(5000)}
    assert _loaded({"pkg/__init__.py": "from . import m0", **many}) == ()
    depth = 20_000 if sys.version_info >= (3, 11) else 2000
    for text in ("1+" * depth + "1", "(" * depth, "-" * depth + "1", "a." * depth + "a", "x" * (1 << 21)):
        assert _loaded({"pkg/__init__.py": text}) == ()
    assert time.process_time() - start < 20
