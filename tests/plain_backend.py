"""A second backend: arrays of its own, and all kernels as plain Python, helpers included."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from minfer.kernels.backend import Backend
from minfer.kernels.compiling.plain import TWINS


class There(np.ndarray):
    """An array of the backend."""


@cache
def plain(module: str) -> dict[str, Any]:
    """What a module of kernels defines, its kernels and those that they call as plain functions."""
    names = dict(vars(import_module(module)))
    twins = {id(made): twin for made, twin in TWINS}
    for name, value in list(names.items()):
        kernel = getattr(value, "py_func", None)
        if id(value) in twins:
            names[name] = twins[id(value)]
        elif kernel is not None and kernel.__module__ == module:
            names[name] = FunctionType(kernel.__code__, names, name, kernel.__defaults__)
        elif kernel is not None:
            names[name] = plain(kernel.__module__)[kernel.__name__]
    return names


def guarded(kernel: Any, calls: list[str]) -> Any:
    """A kernel that takes arrays of the backend only."""

    def call(*given: Any) -> Any:
        _check(given)
        calls.append(kernel.__name__)
        with np.errstate(all="ignore"):  # whole numbers wrap around on purpose
            return kernel(*given)

    return call


def _check(given: Any) -> None:
    for each in given:
        if isinstance(each, tuple):
            _check(each)
        assert not isinstance(each, np.ndarray) or isinstance(each, There), each


def plain_backend(calls: list[str]) -> Backend:
    """Notes the kernels that are called in ``calls``."""

    @cache
    def kernels(topic: str) -> SimpleNamespace:
        names = plain(f"minfer.kernels.{topic}").items()
        mine = {k: guarded(v, calls) if isinstance(v, FunctionType) else v for k, v in names}
        return SimpleNamespace(**mine)

    return Backend(
        kernels, lambda x: np.array(x).view(There), lambda x: np.array(x).view(np.ndarray)
    )
