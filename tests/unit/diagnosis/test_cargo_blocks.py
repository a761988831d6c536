"""What nvcc.exe says in a build script whose crate quotes nothing: it stands in cargo's own block of stdout."""

from __future__ import annotations

import pytest

from cuwheel.diagnosis import inquiry

_LOG = """\
error: failed to run custom build command for `{crate} v0.3.1`

Caused by:
  process didn't exit successfully: `C:\\src\\target\\debug\\build\\{crate}-01ab\\build-script-build` (exit code: 101)
  --- stdout
  cargo:rerun-if-changed=build.rs
{printed}
  cargo:rustc-env=CUDA_COMPUTE_CAP=120

  --- stderr
  thread 'main' panicked at C:\\Users\\me\\.cargo\\registry\\src\\idx-6f17\\{crate}\\src\\lib.rs:391:13:
  nvcc error while executing compiling: "nvcc" "--ptx" "src\\\\one.cu"

  # stdout


  # stderr


  note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""


def _whole(printed: str) -> str:
    return _LOG.format(crate="kernels", printed="\n".join(f"  {line}" for line in printed.splitlines()))


def _verbose(printed: str) -> str:
    """`cargo build -vv`: each line with the crate's name before it, and no blocks."""
    said = f"{printed}\nthread 'main' panicked at build.rs:3:5:\nnvcc error while compiling\n\n# stdout\n\n\n# stderr\n"
    return "\n".join(f"[kernels 0.3.1] {line}" for line in said.splitlines())


def _timed(printed: str) -> str:
    """A log of GitHub's runners."""
    return "\n".join(f"2026-01-02T03:04:05.6789012Z {line}" for line in _whole(printed).splitlines())


@pytest.mark.parametrize("shape", [_whole, _verbose, _timed])
@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        ("nvcc fatal   : Cannot find compiler 'cl.exe' in PATH", "msvc-not-found"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "unsupported-gpu-architecture"),
        ("nvcc fatal   : Unknown option '--expt-foo'", "nvcc-unknown-option"),
        (
            "C:\\crt/host_config.h(153): fatal error C1189: #error:  -- unsupported Microsoft Visual Studio version!",
            "msvc-too-new",
        ),
        ("LINK : fatal error LNK1104: cannot open file 'cudart.lib'", "linker-cannot-find-cuda-lib"),
    ],
)
def test_the_cause_is_what_nvcc_said_and_not_that_it_was_silent(shape: object, printed: str, cause: str) -> None:
    assert callable(shape)
    assert inquiry.causes(shape(printed))[0].id == cause


@pytest.mark.parametrize("shape", [_whole, _verbose, _timed])
@pytest.mark.parametrize(
    "printed",
    [
        'src/one.cu(12): error: identifier "foo" is undefined\n\n1 error detected in the compilation of "src/one.cu".',
        "one.cu\nC:\\src\\one.cu(3): error C2065: 'foo': undeclared identifier",
        "nvcc fatal   : No input files specified; use option --help for more information",
    ],
)
def test_an_error_that_no_cause_knows_is_not_silence(shape: object, printed: str) -> None:
    assert callable(shape)
    assert "nvcc-silent-failure" not in [each.id for each in inquiry.causes(shape(printed)) if each.confidence > 0.3]


@pytest.mark.parametrize("shape", [_whole, _verbose, _timed])
def test_silence_where_the_block_has_nothing_of_nvcc(shape: object) -> None:
    assert callable(shape)
    found = inquiry.causes(shape(""))[0]
    assert found.id == "nvcc-silent-failure"
    assert any("--- stdout" in fix for fix in found.fix)
