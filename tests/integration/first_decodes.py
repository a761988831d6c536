"""Decodes facts for the first time in eight threads at once, in many copies of this process: how many ended well.

Started by test_first_decodes.py with the number of copies and a file of facts. A copy has everything imported and
nothing decoded, as a first `cuwheel find` has when its threads get their first answers.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from cuwheel.device_code import wheel_facts

THREADS = 8


def first_use(data: bytes) -> None:
    sys.setswitchinterval(1e-6)  # threads take turns as often as they do on a machine that is busy
    together = threading.Barrier(THREADS)

    def read() -> None:
        together.wait()
        wheel_facts.parse(data, "demo.whl")

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def main(copies: int, data: bytes) -> int:
    well = 0
    for _ in range(copies):
        child = os.fork()
        if child == 0:
            first_use(data)
            os._exit(0)
        well += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return well


if __name__ == "__main__":
    print(main(int(sys.argv[1]), Path(sys.argv[2]).read_bytes()))  # noqa: T201
