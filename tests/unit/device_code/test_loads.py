"""What a package's Python loads beyond what its import loads for certain, and whether it goes on without it."""

from __future__ import annotations

import time

import pytest

from cuwheel.device_code import python_loads
from cuwheel.device_code.source import Texts

C, CUTLASS, FLASH, CORE = "pkg/_C.abi3.so", "pkg/_C_90a.abi3.so", "pkg/_flash.so", "pkg/lib/libcore.so"
LIBRARIES = (C, CUTLASS, FLASH, CORE)


def _found(files: dict[str, str]) -> dict[str, tuple[str, bool, bool]]:
    texts = Texts(names=tuple(files), read=files.get)
    certain = python_loads.libraries_that_import_loads(texts, "pkg", LIBRARIES)
    found = python_loads.places_that_load(
        texts, [each for each in LIBRARIES if each not in certain.loaded], certain.files
    )
    return {each.path: (each.file, each.at_import, each.guarded) for each in found}


INIT = "pkg/__init__.py"
TORCHAO = """
try:
    files = list(Path(__file__).parent.glob("_C*.so"))
    if files:
        for file in files:
            torch.ops.load_library(str(file))
except Exception as e:
    log(e)
"""
TORCHVISION = """
try:
    path = _get_extension_path("_C")
    torch.ops.load_library(path)
except (ImportError, OSError):
    pass
"""
CALLED = """
def _register():
    spec = finder.find_spec("_C")
    torch.ops.load_library(spec.origin)
_register()
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TORCHAO, {C: (INIT, True, True), CUTLASS: (INIT, True, True)}),  # every file of a pattern
        (TORCHVISION, {C: (INIT, True, True)}),  # the name of the module, without its suffix
        (CALLED, {C: (INIT, True, False)}),
        ("try:\n    _load_library('_flash')\nexcept OSError:\n    pass", {FLASH: (INIT, True, True)}),
        ("if x:\n    importlib.import_module('pkg._flash')", {FLASH: (INIT, True, True)}),
        ("def get():\n    return import_module('._flash', __package__)", {FLASH: (INIT, False, False)}),
        ("if x:\n    from . import (\n        other,\n        _flash,\n    )", {FLASH: (INIT, True, True)}),
        ("if has_cuda():\n    from . import _flash", {FLASH: (INIT, True, True)}),
        ("try:\n    from . import _flash\nexcept ImportError:\n    _flash = None", {FLASH: (INIT, True, True)}),
        ("with suppress(OSError):\n    lib = ctypes.CDLL(here / 'libcore.so')", {CORE: (INIT, True, True)}),
        ("def load():\n    return ctypes.CDLL(root + '/libcore.so')", {CORE: (INIT, False, False)}),
        ("name = '_C'\nprint(name)", {}),  # nothing is opened
        ("torch.ops.load_library(other)\nname = '_Central'", {}),
        ("this is no Python: _C", {}),
    ],
)
def test_who_loads_it(text: str, expected: dict[str, tuple[str, bool, bool]]) -> None:
    assert _found({INIT: text}) == expected


def test_modules_that_the_import_does_not_reach_are_read_too() -> None:
    """As xformers' flash attention: a `try` in a module that `import xformers` leaves alone."""
    guarded = "try:\n    from ... import _flash\nexcept ImportError:\n    _flash = None"
    files = {INIT: "", "pkg/ops/fmha/flash.py": guarded, "pkg/ops/other.py": "from pkg import _C"}
    assert _found(files) == {
        FLASH: ("pkg/ops/fmha/flash.py", False, True),
        C: ("pkg/ops/other.py", False, False),
    }
    files["pkg/ops/bare.py"] = "from .. import _flash"  # one that does not go on decides
    assert _found(files)[FLASH] == ("pkg/ops/bare.py", False, False)
    files[INIT] = "try:\n    from . import _flash\nexcept ImportError:\n    pass"
    assert _found(files)[FLASH] == (INIT, True, True)  # what runs at import is told first


def test_hostile_python_is_left_alone() -> None:
    assert FLASH in _found({INIT: "x = '\\d'\nif x:\n    from . import _flash"})  # and no SyntaxWarning comes of it
    chain = "".join(f"def f{n}():\n    f{n + 1}()\n" for n in range(5000)) + "f0()\nfrom . import _flash\n"
    assert _found({INIT: f"if x:\n    pass\n{chain}"}) is not None
    assert _found({INIT: "(" * 5000 + "_flash"}) == {}
    started = time.process_time()
    assert _found({INIT: "import " * 100_000}) == {}  # one line: nothing is read over and over
    assert _found({INIT: "'" + "*a" * 100_000}) == {}
    assert time.process_time() - started < 5
    many = {f"pkg/m{n}.py": "x = 1  # _flash" for n in range(6000)}
    assert _found({INIT: "", **many}) == {}
