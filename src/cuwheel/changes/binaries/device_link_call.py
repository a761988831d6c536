"""Run by itself, where a crash of NVIDIA's library ends nobody else: a device link by nvJitLink.

device_link_call.py LIBRARY OUT OPTIONS… FILES…       0.cubin, 1.fatbin, …
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

_KINDS = {".cubin": 1, ".fatbin": 4}
_MINORS = range(99, -1, -1)


def main(library: str, out: str, *words: str) -> int:
    linker = ctypes.CDLL(library)
    major = library.rpartition(".")[2]

    def function(name: str) -> Any:  # noqa: ANN401 - ctypes makes them up
        """Its names end in the release that they are of."""
        named = (f"__nvJitLink{name}_{major}_{minor}" for minor in _MINORS)
        return next(getattr(linker, each) for each in named if hasattr(linker, each))

    options = [each.encode() for each in words if each.startswith("-")]
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    given = (ctypes.c_char_p * len(options))(*options)
    status = function("Create")(ctypes.byref(handle), ctypes.c_uint32(len(options)), given)
    for path in (Path(each) for each in words if not each.startswith("-")):
        data = path.read_bytes()
        kind, length = _KINDS[path.suffix], ctypes.c_size_t(len(data))
        status = status or function("AddData")(handle, kind, data, length, path.name.encode())
    status = status or function("Complete")(handle)
    if status:
        function("GetErrorLogSize")(handle, ctypes.byref(size))
        told = ctypes.create_string_buffer(size.value + 1)
        function("GetErrorLog")(handle, told)
        sys.stderr.write(f"nvJitLink: error {status}: {told.value.decode(errors='replace')}\n")
        return 1
    function("GetLinkedCubinSize")(handle, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    function("GetLinkedCubin")(handle, code)
    Path(out).write_bytes(code.raw)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
