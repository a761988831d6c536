"""A matrix of builds on Windows: toolkits by their folders, commands with backslashes; who started us."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from tests.wine import windows
from tests.wine.test_verbs import on_c

if TYPE_CHECKING:
    from pathlib import Path

# Both say what nvcc says of its version; the second fails where its word is in the command.
_NVCC = r"""#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "--version"))
            printf("Cuda compilation tools, release %s, V%s.88\n", VERSION, VERSION);
        if (strstr(words[i], FAILS)) {
            fprintf(stderr, "nvcc fatal   : Unsupported gpu architecture 'sm_10'\n");
            return 1;
        }
    }
    return 0;
}
"""


def test_a_matrix_of_two_toolkits(place: Path) -> None:
    (place / "nvcc.c").write_text(_NVCC)
    for version, fails in (("13.0", "nothing"), ("12.8", "a b.cu")):
        folder = place / f"v{version}" / "bin"
        folder.mkdir(parents=True)
        defined = [f'-DVERSION="{version}"', f'-DFAILS="{fails}"']
        subprocess.run([windows.COMPILER, *defined, "-o", folder / "nvcc.exe", place / "nvcc.c"], check=True)
    source = place / "source"
    (source / "src").mkdir(parents=True)
    (source / "src" / "a b.cu").write_text("")
    rows = ", ".join(f"'{on_c(place / each)}'" for each in ("v13.0", "v12.8"))
    (source / "matrix.toml").write_text(f"command = '''nvcc -c \"src\\a b.cu\"'''\n[axes]\ntoolkit = [{rows}]\n")
    done = windows.cuwheel("lab", "matrix", "matrix.toml", "-o", "out", "--json", cwd=source)
    told = done.stderr.decode(errors="replace")
    assert done.stdout, told
    answer = json.loads(done.stdout.decode("utf-8"))
    good, bad = answer["cells"]
    assert [each["run"]["result"] for each in (good, bad)] == ["succeeded", "failed"], told
    assert good["command"] == ["nvcc", "-c", "src\\a b.cu"]
    assert bad["causes"][0]["id"] == "gpu-architecture-removed"
    # As it was printed: the copy of the one that succeeded is gone.
    words = bad["compare"].split()
    assert words[0] == "cuwheel"
    compared = windows.cuwheel(*words[1:], "--json", cwd=source)
    found = json.loads(compared.stdout.decode("utf-8"))
    kits = [on_c(place / each / "bin" / "nvcc.exe") for each in ("v12.8", "v13.0")]
    assert list(found["differences"]["program"].values()) == kits
    assert found["directory"].endswith("002-v12.8\\source")


def test_the_programs_that_started_this_one(drive_c: Path) -> None:
    asked = "from cuwheel.support import process_groups; print(*process_groups.parents())"
    inner = f"import subprocess, sys; sys.exit(subprocess.call(['cmd.exe', '/c', sys.executable, '-c', {asked!r}]))"
    done = windows.run(["-c", inner], cwd=drive_c)
    assert done.stdout.decode().split()[:2] == ["cmd.exe", "python.exe"], done.stderr
