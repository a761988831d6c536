"""What tracing costs a launch-bound program: launches through our function against the driver's own, in one process.

In turns of a thousand launches, so that both meet the same machine. Needs a GPU; at most 1 % more.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from cuwheel.tracing import session

_FLOOR = 1.01
_RUNS = 5


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        program, place = Path(name, "launches"), Path(name, "trace")
        place.mkdir()
        source = Path(__file__).with_name("launches.c")
        subprocess.run(["cc", "-O2", "-o", program, source, "-ldl"], check=True)
        environ = session.environ_for(place, dict(os.environ))
        ratios = []
        for _ in range(_RUNS):
            done = subprocess.run([program], env=environ, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"cannot be measured here: {done.stdout.strip()}")
                return 2
            traced, plain, apart = done.stdout.split()
            if apart != "1":
                print("the program was not traced")
                return 1
            ratios.append(float(traced) / float(plain))
            print(f"a launch: {traced} ns traced, {plain} ns by itself: {ratios[-1]:.4f}")
    median = sorted(ratios)[_RUNS // 2]
    print(f"median {median:.4f}, at most {_FLOOR}")
    return median > _FLOOR


if __name__ == "__main__":
    raise SystemExit(main())
