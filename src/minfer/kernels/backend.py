"""What solvers run on: arrays, and the kernels that run over them, by topic.

A run asks for the :func:`backend` once, puts there what its kernels read and write, calls them by
their names in a topic, and gets back what it wants to read:

    on = backend()
    states = on.put(np.zeros(...))
    on.kernels("sampling.gibbs").sample(on.put(layout), states, ...)
    on.get(states)

The only backend here is of numpy arrays and this package's kernels: ``put``, ``get`` and ``write``
do nothing. Another, of a device, brings its own arrays and functions of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

Arrays = TypeVar("Arrays")  # an array, or a tuple of them


@dataclass(frozen=True)
class Backend:
    """Kernels by topic; ``to`` and ``back`` move one array, None where there is nothing to do."""

    kernels: Callable[[str], Any]
    to: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None

    def put(self, arrays: Arrays) -> Arrays:
        """An array, or a (named) tuple of them, there. What is written there is seen by ``get``."""
        return arrays if self.to is None else _each(self.to, arrays)

    def get(self, arrays: Arrays) -> Arrays:
        """As they are now, as numpy arrays; what is changed in them goes back by ``write``."""
        return arrays if self.back is None else _each(self.back, arrays)

    def write(self, there: Any, here: Any) -> None:
        """The numbers of a numpy array into an array that is there; nothing if that is itself."""
        if there is not here:
            there[...] = self.put(here)


def _each(move: Callable[[Any], Any], arrays: Any) -> Any:
    if not isinstance(arrays, tuple):
        return move(arrays)
    moved = [_each(move, each) for each in arrays]
    return type(arrays)(*moved) if hasattr(arrays, "_fields") else tuple(moved)


NUMPY = Backend(cache(lambda topic: import_module(f"minfer.kernels.{topic}")))
_IN_USE = [NUMPY]


def backend() -> Backend:
    """The one that runs begun now use."""
    return _IN_USE[-1]


@contextmanager
def using(other: Backend) -> Iterator[None]:
    """Another one, in all threads, to the end of the block."""
    _IN_USE.append(other)
    try:
        yield
    finally:
        _IN_USE.remove(other)
