"""A device that is this processor: the CUDA sources, compiled as C++ (``on_host.cpp``)."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from minfer.device.odds import SOURCE

REAL = {"float32": "float", "float64": "double"}


class Array(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("length", ctypes.c_longlong))


@cache
def compiled(real: str, source: str | None = None) -> Any:
    """The source, or another text of it, as a library."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to compile the CUDA sources as C++")
    folder = Path(tempfile.mkdtemp())
    path = SOURCE
    if source is not None:
        path = folder / "other.cu"
        path.write_text(source)
    here = Path(__file__).with_name("on_host.cpp")
    words = [
        compiler,
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Werror" if source is None else "-w",
        f"-DREAL={real}",
    ]
    subprocess.run(
        [*words, f'-DSOURCE="{path}"', str(here), "-o", str(folder / "lib.so")], check=True
    )
    library = ctypes.CDLL(str(folder / "lib.so"))
    library.launch.restype = ctypes.c_longlong
    return library


class Host:
    """Few threads, so that each has several places; ``moved`` counts bytes that were sent."""

    name = "this processor"

    def __init__(self, backwards: bool = False, source: str | None = None) -> None:
        self.backwards, self.source, self.moved = backwards, source, 0

    room = 1 << 30

    def put(self, array: NDArray) -> NDArray:
        self.moved += array.nbytes
        return np.array(array, order="C")

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray:
        return np.zeros(shape, dtype)

    def get(self, there: NDArray) -> NDArray:
        self.moved += there.nbytes
        return there.copy()

    def launch(self, dtype: Any, kernel: str, threads: int, rows: int, *given: Any) -> None:
        library = compiled(REAL[np.dtype(dtype).name], self.source)
        held = [
            Array(x.ctypes.data, x.size)
            if isinstance(x, np.ndarray)
            else (ctypes.c_int if x.dtype == np.int32 else ctypes.c_longlong)(int(x))
            for x in given
        ]
        words = (ctypes.c_void_p * len(held))(*(ctypes.addressof(x) for x in held))
        blocks = min(-(-threads // 4), 3)
        wrong = library.launch(kernel.encode(), blocks, rows, 4, int(self.backwards), words)
        assert wrong == 0, f"{kernel}: {wrong} indices out of range"
