"""What made a build stop, whoever said it."""

from __future__ import annotations

import pytest

from cuwheel.diagnosis import ending

TRACEBACK = """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/subprocess.py", line 413, in check_call
    raise CalledProcessError(retcode, cmd)
subprocess.CalledProcessError: Command '['cmake', '--build', '.']' returned non-zero exit status 1.
ERROR Backend subprocess exited when trying to invoke build_wheel
"""
NINJA = """\
[1/2] Building CXX object a.o
FAILED: [code=1] CMakeFiles/x.dir/gen.h
cd /b && python gen.py
gen.py: the table is empty
ninja: build stopped: subcommand failed.
"""
LOGS = {
    "CMake Error at CMakeLists.txt:5 (message): fastops needs a GPU library that is not there": """\
-- Performing Test HAS_PUSH_STATE
-- Performing Test HAS_PUSH_STATE - Failed
CMake Error at CMakeLists.txt:5 (message):
  fastops needs a GPU library
  that is not there

  Second paragraph.


-- Configuring incomplete, errors occurred!
*** CMake configuration failed
"""
    + TRACEBACK,
    'meson.build:3:0: ERROR: Dependency "nope" not found, tried pkgconfig': (
        'The Meson build system\nmeson.build:3:0: ERROR: Dependency "nope" not found, tried pkgconfig\n'
        "A full log can be found at /b/meson-logs/meson-log.txt\n"
    ),
    "configure: error: no acceptable C compiler found in $PATH": (
        "checking for gcc... no\nconfigure: error: no acceptable C compiler found in $PATH\nmake: *** [all] Error 1\n"
    ),
    "FAILED: [code=1] CMakeFiles/x.dir/gen.h": NINJA + TRACEBACK,
    "make[2]: *** [Makefile:7: gen.h] Error 3": (
        "python gen.py\ngen.py: the table is empty\nmake[2]: *** [Makefile:7: gen.h] Error 3\n"
        "make[1]: *** [Makefile:3: all] Error 2\nmake: *** [Makefile:1: top] Error 2\n"
    )
    + TRACEBACK,
    "error: failed to run custom build command for `kernels v0.1.0`": (
        "   Compiling kernels v0.1.0\nerror: failed to run custom build command for `kernels v0.1.0`\n\n"
        "Caused by:\n  process didn't exit successfully: `build-script-build` (exit status: 101)\n"
        "warning: build failed, waiting for other jobs to finish...\n"
    ),
    "error: command '/usr/bin/g++' failed with exit code 1": (
        "running build_ext\nbuilding 'x' extension\nx.cpp:1:10: fatal error: nope.h: No such file or directory\n"
        "error: command '/usr/bin/g++' failed with exit code 1\n"
    )
    + TRACEBACK,
    "error: [Errno 2] No such file or directory: 'data.txt'": (
        "running build_py\nerror: [Errno 2] No such file or directory: 'data.txt'\n"
    ),
    "RuntimeError: this package needs CUDA_ARCHS": (
        'Traceback (most recent call last):\n  File "setup.py", line 3\nRuntimeError: this package needs CUDA_ARCHS\n'
        "ERROR Backend subprocess exited when trying to invoke get_requires_for_build_wheel\n"
    ),
    "ERROR: scikit-build-core: the version 'x' is not valid": (
        "*** scikit-build-core 0.11\nERROR: scikit-build-core: the version 'x' is not valid\n"
    ),
}


@pytest.mark.parametrize(("what", "log"), LOGS.items(), ids=range(len(LOGS)))
def test_whoever_said_it(what: str, log: str) -> None:
    found = ending.ending_of(log)
    assert found
    assert found.what == what
    assert not any("CalledProcessError" in line for line in found.lines)


def test_what_was_gone_on_after_did_not_end_it() -> None:
    optional = "error: command '/usr/bin/nvcc' failed with exit code 1\nbuilding without kernels\ncopying a.py -> b\n"
    found = ending.ending_of(optional + "RuntimeError: no kernels, and --strict was given\n")
    assert found
    assert found.what == "RuntimeError: no kernels, and --strict was given"


def test_a_command_that_failed_is_shown_with_what_it_printed() -> None:
    found = ending.ending_of(NINJA + TRACEBACK)
    assert found
    assert found.of_call
    assert "gen.py: the table is empty" in found.lines
    assert ending.ending_of("all went well\n[1/1] done\n") is None


def test_an_error_that_a_call_printed_is_known_again() -> None:
    log = (
        "CMake Error at Modules/CMakeTestCXXCompiler.cmake:60 (message):\n  The C++ compiler is not able to compile a "
        "simple test program.\n\n    x.cxx:1:2: error: no such thing\n\n-- Configuring incomplete, errors occurred!\n"
    )
    found = ending.ending_of(log)
    assert found
    assert found.decides
    assert not found.outweighs("x.cxx:1:2: error: no such thing\n")
    assert found.outweighs("y.cxx:1:2: error: another thing\n")
