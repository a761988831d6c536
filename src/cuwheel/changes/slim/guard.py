"""The guard of an environment that was cut to a workload: `workload_guard.py`, filled in."""

from __future__ import annotations

from pathlib import Path

_MODULE = "_cuwheel_workload"
_TEMPLATE = Path(__file__).with_name("workload_guard.py")
_BEGIN, _END = "# >>> data\n", "# <<< data\n"


def files(commands: tuple[str, ...], undo: str) -> dict[str, bytes]:
    """By their names in site-packages."""
    head, _, rest = _TEMPLATE.read_text(encoding="utf-8").partition(_BEGIN)
    data = f"COMMANDS = {'; '.join(commands)!a}\nUNDO = {undo!a}\n"
    source = head + data + rest.partition(_END)[2]
    return {f"{_MODULE}.py": source.encode(), f"{_MODULE}.pth": f"import {_MODULE}; {_MODULE}.watch()\n".encode()}
