from __future__ import annotations

import io
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from cuwheel.toolchains import driver_stub

HEADER = """
#define cuMemAlloc                          cuMemAlloc_v2
#define cuMemcpyHtoD                        __CUDA_API_PTDS(cuMemcpyHtoD_v2)
    #define cuStreamWaitValue32             __CUDA_API_PTSZ(cuStreamWaitValue32_v2)
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
typedef CUresult (CUDAAPI *PFN_other)(int);
CUresult CUDAAPI cuMemcpyHtoD(
    CUdeviceptr dstDevice, const void *srcHost);
#define CUDA_VERSION 13000
"""


def test_every_name_that_compiled_code_may_ask_for() -> None:
    names = set(driver_stub.functions(HEADER))
    assert {"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"} <= names
    assert "cuStreamWaitValue32_v2_ptsz" in names
    assert not any(name.startswith(("CUDA", "PFN")) for name in names)


@pytest.mark.parametrize(("cpu", "machine"), [("x86_64", "EM_X86_64"), ("aarch64", "EM_AARCH64")])
def test_it_is_a_shared_library_of_that_soname(cpu: str, machine: str) -> None:
    file = ELFFile(io.BytesIO(driver_stub.library(["cuInit", "cuMemAlloc_v2"], cpu)))
    assert (file["e_type"], file["e_machine"]) == ("ET_DYN", machine)
    dynamic: Any = file.get_section_by_name(".dynamic")
    assert [tag.soname for tag in dynamic.iter_tags("DT_SONAME")] == ["libcuda.so.1"]
    named: Any = file.get_section_by_name(".dynsym")
    symbols = list(named.iter_symbols())
    assert [symbol.name for symbol in symbols] == ["", "cuInit", "cuMemAlloc_v2"]
    assert {symbol["st_shndx"] for symbol in symbols[1:]} == {1}
    assert {(symbol["st_info"]["bind"], symbol["st_info"]["type"]) for symbol in symbols[1:]} == {
        ("STB_GLOBAL", "STT_FUNC")
    }
    text: Any = file.get_section_by_name(".text")
    assert symbols[1]["st_value"] == text["sh_addr"]
    loaded = next(file.iter_segments("PT_LOAD"))
    assert loaded["p_offset"] % loaded["p_align"] == loaded["p_vaddr"] % loaded["p_align"]
