"""A scheduler, a worker with this machine's GPU and a client, as three processes: `verify` goes there by the GPU's tag.

python -m tests.gpu.fleet REPORT
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cuwheel.machine.gpu import gpus_of_this_process
from tests.integration.cluster_world import World, wait_for
from tests.unit.changes.slim.packages import FOO, make_wheel


def main(report: Path) -> int:
    capabilities = sorted(set(gpus_of_this_process().values()))
    with tempfile.TemporaryDirectory(prefix="cuwheel-fleet-") as name:
        folder = Path(name)
        os.environ["CUWHEEL_CACHE"] = str(folder / "cache")
        world = World(folder=folder)
        try:
            world.scheduler()
            world.worker("gpu", env={"CUWHEEL_CACHE": str(folder / "worker")})
            wait_for(lambda: "works for" in world.said("gpu"), 120)
            wheel = make_wheel(folder / "wheels", FOO)
            words = ["verify", str(wheel), "--cluster", world.address, "-o", str(folder / "proofs"), "--json"]
            told = subprocess.run(
                [sys.executable, "-m", "cuwheel", *words],
                env=world.environ(),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            world.end()
        found = json.loads(told.stdout) if told.stdout else {"proofs": [], "said": told.stderr}
    report.write_text(json.dumps({"here": capabilities, "status": told.returncode, **found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
