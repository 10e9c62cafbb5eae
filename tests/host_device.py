"""A device that is this processor: the CUDA sources, compiled as C++ (``on_host.cpp``)."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from minfer.device.runs import CudaProgram


class Array(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("length", ctypes.c_longlong))


@cache
def compiled(text: str, names: tuple[str, ...], strict: bool = True) -> Any:
    """The text of a program, which has these kernels, as a library."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to compile the CUDA sources as C++")
    folder = Path(tempfile.mkdtemp())
    path = folder / "program.cu"
    path.write_text(text)
    here = Path(__file__).with_name("on_host.cpp")
    words = [compiler, "-std=c++17", "-O0", "-fPIC", "-shared", "-Wall", "-Wno-maybe-uninitialized"]
    words += ["-Werror"] if strict else ["-w"]
    words += [f"-DKERNELS={' '.join(f'X({name})' for name in names)}"]
    words += ["-DMEETS"] if "BARRIER()" in text else []
    subprocess.run(
        [*words, f'-DSOURCE="{path}"', str(here), "-o", str(folder / "lib.so")], check=True
    )
    library = ctypes.CDLL(str(folder / "lib.so"))
    library.launch.restype = ctypes.c_longlong
    return library


class Host:
    """Few threads, so that each has several places; ``moved`` counts bytes that were sent."""

    name = "this processor"

    def __init__(self, backwards: bool = False, right: str = "", wrong: str = "") -> None:
        self.backwards, self.moved = backwards, 0
        self.right, self.wrong = right, wrong  # a fault to plant: what to put where

    room, shared = 1 << 30, 1 << 17

    def put(self, array: NDArray) -> NDArray:
        self.moved += array.nbytes
        return np.array(array, order="C")

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray:
        return np.zeros(shape, dtype)

    def get(self, there: NDArray) -> NDArray:
        self.moved += there.nbytes
        return there.copy()

    def take(self, there: NDArray, columns: Any) -> NDArray:
        return np.take(there, columns, axis=1)

    def fill(self, there: NDArray, numbers: Any, columns: Any = None) -> None:
        there[... if columns is None else (slice(None), columns)] = numbers

    def recorded(self, program: CudaProgram, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def launch(
        self, program: CudaProgram, kernel: str, threads: int, rows: int, *given: Any
    ) -> None:
        blocks = max(min(-(-threads // 4), 3), 1)
        self._run(program, kernel, blocks, rows, given)

    def launch_blocks(
        self, program: CudaProgram, kernel: str, blocks: int, size: int, per: int, *given: Any
    ) -> None:
        room = np.full(blocks * per, np.nan)
        self._run(program, kernel, blocks, 1, (np.int64(per), *given, room))

    def borrow(self, tensor: Any) -> NDArray:
        return tensor.detach().numpy()

    def beside(self, tensor: Any) -> Any:
        return contextlib.nullcontext()

    def _run(
        self, program: CudaProgram, kernel: str, blocks: int, rows: int, given: tuple[Any, ...]
    ) -> None:
        text = program.text
        if self.right:
            assert text.count(self.right) == 1
            text = text.replace(self.right, self.wrong)
        library = compiled(text, tuple(program.kernels), not self.right)
        held = [
            Array(x.ctypes.data, x.size)
            if isinstance(x, np.ndarray)
            else (ctypes.c_int if x.dtype == np.int32 else ctypes.c_longlong)(int(x))
            for x in given
        ]
        words = (ctypes.c_void_p * len(held))(*(ctypes.addressof(x) for x in held))
        wrong = library.launch(kernel.encode(), blocks, rows, 4, int(self.backwards), words)
        assert wrong != -2, f"{kernel}: some threads wait where others have ended"
        assert wrong == 0, f"{kernel}: {wrong} indices out of range"
