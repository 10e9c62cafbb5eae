"""What stands in for intrinsics where the compiler is switched off (NUMBA_DISABLE_JIT=1).

Kernels then run as plain Python, slowly, and numpy checks every index. An address becomes an array
and a place in it, lanes become a :class:`Vector`, and what reads or writes by a raw offset checks
it: numpy's own rule that -1 is the last one does not hold here, for a machine would read what lies
in front. Every intrinsic has a *twin* in this module, which :func:`instead` puts in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

#: Whether the compiler is switched off.
OFF = bool(getattr(numba.config, "DISABLE_JIT", False))
_BYTES = 64  # of all lanes of a vector

#: Every intrinsic, and every function that is overloaded, with its twin.
TWINS: list[tuple[Any, Callable[..., Any]]] = []


def instead(plain: Callable[..., Any]) -> Callable[[Any], Any]:
    """Decorates an intrinsic: this function in its place, if the compiler is off."""

    def decorate(made: Any) -> Any:
        TWINS.append((made, plain))
        return plain if OFF else made

    return decorate


# ---------------------------------------------------------------- lanes


def _infix(operation: Callable[[Any, Any], Any], swap: bool = False) -> Any:
    """An operator lane by lane; a number becomes one of the lanes' type in all of them."""

    def infix(self: Vector, other: Any) -> Vector:
        x, y = np.asarray(self), np.asarray(other, None if _is_lanes(other) else self.dtype)
        if y.ndim and (x.dtype, x.shape) != (y.dtype, y.shape):
            raise TypeError(f"{len(x)} lanes of {x.dtype} and {len(y)} of {y.dtype}")
        with np.errstate(all="ignore"):
            return Vector(operation(y, x) if swap else operation(x, y))

    return infix


class Vector(np.ndarray[Any, Any]):
    """Lanes: numbers side by side. It is a value: no operation changes one."""

    def __new__(cls, numbers: Any, dtype: Any = None) -> Vector:
        made = np.array(numbers, dtype=dtype).view(cls)
        made.flags.writeable = False
        return made

    __add__ = __iadd__ = _infix(np.add)
    __sub__ = __isub__ = _infix(np.subtract)
    __mul__ = __imul__ = _infix(np.multiply)
    __truediv__ = __itruediv__ = _infix(np.true_divide)
    __radd__ = _infix(np.add, swap=True)
    __rsub__ = _infix(np.subtract, swap=True)
    __rmul__ = _infix(np.multiply, swap=True)
    __rtruediv__ = _infix(np.true_divide, swap=True)


def _is_lanes(x: Any) -> bool:
    return isinstance(x, Vector)


def _kind(like: Any) -> tuple[Any, int]:
    """Type and number of the lanes in an array, or of a value."""
    return like.dtype, len(like) if _is_lanes(like) else _BYTES // like.itemsize


def _part(array: NDArray[Any], at: int, count: int) -> NDArray[Any]:
    """``count`` entries of an array's memory, all of which must be its own."""
    if not array.flags.c_contiguous:
        raise IndexError(f"offset {at} into an array with strides {array.strides}")
    if not 0 <= at <= array.size - count:
        raise IndexError(f"entries {at} to {at + count - 1} of {array.size}")
    return array.reshape(-1)[at : at + count]


def at(array: NDArray[Any], i: int) -> Any:
    x = _part(array, i, 1)[0]
    return np.float64(x) if array.dtype == np.float64 else np.int64(x)


def lanes_of(like: Any) -> int:
    return _kind(like)[1]


def strict(array: NDArray[Any]) -> Vector:
    return splat(array, 0.0)


def lone(array: NDArray[Any]) -> Vector:
    return Vector(np.zeros(1, array.dtype))


def splat(like: Any, x: float) -> Vector:
    dtype, count = _kind(like)
    return Vector(np.full(count, x, dtype))


def load_lanes(array: NDArray[Any], at: int) -> Vector:
    return load_as(array, array, at)


def load_as(like: Any, array: NDArray[Any], at: int) -> Vector:
    dtype, count = _kind(like)
    return Vector(_part(array, at, count), dtype)


def store_lanes(array: NDArray[Any], at: int, x: Vector) -> None:
    _part(array, at, len(x))[:] = x


def rows_into_lanes(x: NDArray[Any], start: NDArray[Any], m: int, line: NDArray[Any]) -> None:
    for at, column in _both_ways(x, start, m, line):
        column[:] = at


def rows_out_of_lanes(x: NDArray[Any], start: NDArray[Any], m: int, line: NDArray[Any]) -> None:
    for at, column in _both_ways(x, start, m, line):
        at[:] = column


def _both_ways(x: Any, start: Any, m: int, line: Any) -> list[tuple[Any, Any]]:
    """By lane: the columns of one row of a sentence, and where they are in the line."""
    lanes = lanes_of(line)
    square = _part(line, m * lanes, lanes * lanes).reshape(lanes, lanes)
    return [(_part(x, at(start, lane) + m, lanes), square[:, lane]) for lane in range(lanes)]


def choose(a: Vector, b: Vector, yes: Vector, no: Vector) -> Vector:
    return Vector(np.where(np.asarray(a) > np.asarray(b), yes, no), a.dtype)


def magnitude(x: Vector) -> Vector:
    return Vector(np.abs(np.asarray(x)))


def power_of_two(t: Vector) -> Vector:
    whole, bias, mantissa = ("i8", 1023, 52) if t.itemsize == 8 else ("i4", 127, 23)
    bits: Any = np.asarray(t).view(whole)
    return Vector(((bits + bias) << mantissa).view(t.dtype))


def taken_apart(x: Vector) -> tuple[Vector, Vector]:
    bits = np.asarray(x).view(np.int64)
    mantissa = (bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000
    exponent = ((bits >> 52) & 0x7FF) | 0x4330000000000000
    return Vector(mantissa.view(np.float64)), Vector(exponent.view(np.float64))


# ---------------------------------------------------------------- doubles by their address


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

    def span(self, n: int) -> NDArray[Any]:
        """The next n cells, all of which must be there."""
        first, rest = divmod(self.at, 8)
        if rest:
            raise IndexError(f"byte {self.at} is within a number")
        return _part(self.cells, first, n)


def address(array: NDArray[Any]) -> Place:
    if array.dtype != np.float64 or not array.flags.c_contiguous:
        raise IndexError(f"the address of {array.dtype} with strides {array.strides}")
    return Place(array.reshape(-1), 0)


def get(at: Place) -> Any:
    return at.span(1)[0]


def put(at: Place, x: float) -> None:
    at.span(1)[0] = x


def load(at: Place) -> Vector:
    return Vector(at.span(8))


def store(at: Place, x: Vector) -> None:
    at.span(8)[:] = x


def spread(x: float) -> Vector:
    return Vector(np.full(8, x, np.float64))


def total(x: Vector) -> Any:
    parts = np.asarray(x)
    while len(parts) > 1:
        parts = parts[::2] + parts[1::2]
    return parts[0]


def most(x: Vector) -> Any:
    return np.asarray(x).max()


def least(x: Vector) -> Any:
    return np.asarray(x).min()


def greater(x: Vector, y: Vector) -> Vector:
    return Vector(np.maximum(np.asarray(x), np.asarray(y)))


# ---------------------------------------------------------------- bits of a double


def bits_of(x: float) -> Any:
    return np.float64(x).view(np.int64)


def double_of(bits: int) -> Any:
    return np.int64(bits).view(np.float64)
