"""CUDA sources to PTX, without a card: by the run-time compiler, or nvcc."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ARCHITECTURE = "compute_80"  # the oldest that is of use; newer cards take its PTX


@cache
def library() -> Any:
    """NVRTC, or None."""
    places = [Path(p) / "nvidia" for p in sys.path] + [Path("/usr/local/cuda/lib64")]
    found = [f for p in places for f in p.glob("**/libnvrtc.so.1?")]
    return ctypes.CDLL(str(found[0])) if found else None


def by_library(text: str) -> str:
    """What NVRTC says of a source: its PTX, or its complaints as an error."""
    rtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    assert rtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"it.cu", 0, 0, 0) == 0
    words = [b"--std=c++17", f"--gpu-architecture={ARCHITECTURE}".encode()]
    wrong = rtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * 2)(*words))
    what = "ProgramLog" if wrong else "PTX"
    getattr(rtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    told = ctypes.create_string_buffer(size.value)
    getattr(rtc, f"nvrtcGet{what}")(program, told)
    rtc.nvrtcDestroyProgram(ctypes.byref(program))
    if wrong:
        raise ValueError(told.value.decode())
    return told.value.decode()


def to_ptx(text: str, folder: Path) -> str:
    """The PTX of a source; ValueError with what is wrong with it."""
    if library() is not None:
        return by_library(text)
    compiler = shutil.which("nvcc")
    if compiler is None:
        if os.environ.get("MINFER_PTX_TESTS") == "1":
            raise AssertionError("MINFER_PTX_TESTS=1, but there is neither NVRTC nor nvcc")
        pytest.skip("needs a compiler: pip install nvidia-cuda-nvrtc-cu12")
    source, out = folder / "it.cu", folder / "it.ptx"
    source.write_text(text)
    words = [compiler, "-ptx", "--std=c++17", f"-arch={ARCHITECTURE}", "-w", "-o", str(out)]
    run = subprocess.run([*words, str(source)], check=False, capture_output=True, text=True)
    if run.returncode:
        raise ValueError(run.stderr)
    return out.read_text()
