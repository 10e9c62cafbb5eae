"""What stands in for intrinsics where the compiler is switched off (NUMBA_DISABLE_JIT=1).

Kernels then run as plain Python, slowly, and numpy checks every index. An address becomes an array
and a place in it, which is checked too; eight lanes are an array of eight numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import config as _config
from numpy.typing import NDArray

_OFF = bool(getattr(_config, "DISABLE_JIT", False))


def instead(plain: Callable[..., Any]) -> Callable[[Any], Any]:
    """Decorates an intrinsic: this function in its place, if the compiler is off."""
    return lambda made: plain if _OFF else made


class Place:
    """An address: so many bytes into an array of doubles."""

    __slots__ = ("at", "cells")

    def __init__(self, cells: NDArray[Any], at: int) -> None:
        self.cells, self.at = cells, int(at)

    def __add__(self, n: int) -> Place:
        return Place(self.cells, self.at + int(n))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Place):
            assert other.cells.ctypes.data == self.cells.ctypes.data, "addresses of two arrays"
            return self.at - other.at
        return self + -int(other)

    def __lt__(self, other: Place) -> bool:
        return bool(self - other < 0)

    def span(self, n: int) -> slice:
        """The next n cells, all of which must be there."""
        first, rest = divmod(self.at, 8)
        if rest or not 0 <= first <= len(self.cells) - n:
            raise IndexError(f"cells {self.at / 8:g} to {first + n} of {len(self.cells)}")
        return slice(first, first + n)


def address(array: NDArray[Any]) -> Place:
    return Place(array.reshape(-1), 0)


def get(at: Place) -> Any:
    return at.cells[at.span(1)][0]


def put(at: Place, x: float) -> None:
    at.cells[at.span(1)] = x


def load(at: Place) -> NDArray[Any]:
    return at.cells[at.span(8)].copy()


def store(at: Place, x: NDArray[Any]) -> None:
    at.cells[at.span(8)] = x


def spread(x: float) -> NDArray[Any]:
    return np.full(8, x)


def total(x: NDArray[Any]) -> Any:
    while len(x) > 1:
        x = x[::2] + x[1::2]
    return x[0]


def most(x: NDArray[Any]) -> Any:
    return x.max()


def least(x: NDArray[Any]) -> Any:
    return x.min()


def greater(x: NDArray[Any], y: NDArray[Any]) -> Any:
    return np.maximum(x, y)


def lesser(x: NDArray[Any], y: NDArray[Any]) -> Any:
    return np.minimum(x, y)


def choose(a: Any, b: Any, yes: Any, no: Any) -> Any:
    return np.where(a > b, yes, no)


def magnitude(x: NDArray[Any]) -> Any:
    return np.abs(x)


def exp(x: NDArray[Any]) -> Any:
    return np.exp(x)


def bits_of(x: float) -> Any:
    return np.float64(x).view(np.int64)


def double_of(bits: int) -> Any:
    return np.int64(bits).view(np.float64)
