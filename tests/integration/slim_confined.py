"""`slim` where the world says no: a small file size limit, a full disk, folders and files of other users.

    python -m tests.integration.slim_confined {limit|shut|others} ENV

Runs as an ordinary user where it was started as root. Prints what it was told, and the exit status of `slim`.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from cuwheel.cli import main

NOBODY = 65534
_LIMIT = 16_000


def confine(how: str, env: Path) -> None:
    main(["slim", "--env", str(env), "--for", "h100", "--dry-run", "--quiet", "--json"])  # imports everything
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, _LIMIT))
        return
    if os.geteuid() == 0:
        for path in (env, *env.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    site = next(env.glob("lib/python3*/site-packages"))
    if how == "shut":
        (site / "foo").chmod(0o555)
    elif os.geteuid() == 0:
        os.chown(site / "foo" / "libfoo.so", 0, 0)
    if os.geteuid() == 0:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


if __name__ == "__main__":
    confine(sys.argv[1], Path(sys.argv[2]))
    sys.stdout.flush()
    sys.exit(main(["slim", "--env", sys.argv[2], "--for", "h100"]))
