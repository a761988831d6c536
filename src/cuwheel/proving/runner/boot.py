"""The Python that a check runs in its own process. It proves that it came to its end: a status of 0 alone does not.

The proof is a word in a file, written by the process that was started and by no fork of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

_COMMON = """\
import json, os, sys
_proof, _word, _what = sys.argv[1:4]
sys.argv[1:] = []
_pid = os.getpid()
def _done(**fields):
    if os.getpid() == _pid:
        with open(_proof + ".part", "w") as file:
            json.dump(dict(fields, word=_word), file)
        os.replace(_proof + ".part", _proof)
"""

_IMPORT = """\
import importlib
_module = importlib.import_module(_what)
sys.stdout.flush()
_done(file=str(getattr(_module, "__file__", None) or ""), version=str(getattr(_module, "__version__", "") or ""))
"""

# A SystemExit that the snippet itself raises is its end; one from inside something that it imports is not.
_SNIPPET = """\
try:
    exec(compile(_what, "<check>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
except SystemExit as _exit:
    _last = _exit.__traceback__
    while _last.tb_next:
        _last = _last.tb_next
    if _last.tb_frame.f_code.co_filename == "<check>":
        sys.stdout.flush()
        _done()
    raise
sys.stdout.flush()
_done()
"""

_TEXTS = {"import": _COMMON + _IMPORT, "python": _COMMON + _SNIPPET}
_MOST_PROOF = 1 << 16


def words(python: str, kind: str, what: str, proof: Path, word: str) -> list[str]:
    """`-X faulthandler`: a crash then names the line of Python that it happened in."""
    return [python, "-X", "faulthandler", "-u", "-c", _TEXTS[kind], str(proof), word, what]


def proved(proof: Path, word: str) -> Optional[dict[str, Any]]:
    """What the check fields at its end, or None if it did not get there."""
    try:
        with proof.open("rb") as file:
            content = json.loads(file.read(_MOST_PROOF))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("word") == word else None
