"""``jit``, the decorator of every kernel: one set of options, one cache folder, one notice.

It is ``numba.njit(cache=True, nogil=True)`` with traps closed, each told in a module of this
folder: kernels are kept under a hash of all sources they are made of, and no two functions have one
name (``identity``); they lie where nobody else can write (``trust``) and damage costs no more than
a compilation, or come with the wheel (``cache``); what only kernels call is not compiled by itself
(``frugal``); and what is compiled is asked what plain Python has answered before anyone gets a
result of it (``answers``). Where numba lacks a name that one of these needs (``UNAVAILABLE`` in
each; ``MINFER_WITHOUT=symbols,cache,frugal,event`` forces it), it does its own work as ever, or is
not asked to keep anything.

No fast-math flag that assumes finite numbers is ever set: minus infinity and zero are legal. In
sweeps and beliefs a loop whose sum may be reordered writes to no array: LLVM guards such a loop by
a check of how far its arrays are apart, and adds in another order where they are close, so that the
last bit would depend on where arrays happen to lie.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numba

from minfer.kernels.compiling import cache as _cache
from minfer.kernels.compiling import frugal as _frugal
from minfer.kernels.compiling import identity as _identity
from minfer.kernels.compiling import trust as _trust
from minfer.kernels.compiling.cache import LOADING, SHIPPED, KernelCache, ShippedKernels

config: Any = numba.config  # its settings are made at run time, unseen by type checkers

#: How the names of modules of kernels begin.
HOMES = ("minfer.kernels.", "minfer.parsing.kernels.")
#: How every kernel is compiled; a part of the name of the cache folder. What is not said of a
#: kernel it takes over from the one that happens to have it compiled, so fast-math flags are.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False}
READY = ShippedKernels(SHIPPED)


def _candidates() -> list[Path]:
    asked = os.environ.get("MINFER_CACHE_DIR")
    cache_home = os.environ.get("XDG_CACHE_HOME")
    places = [Path(asked)] if asked else []
    places += [Path(cache_home) / "minfer"] if cache_home else []
    with suppress(RuntimeError):  # no home at all
        places.append(Path.home() / ".cache" / "minfer")
    uid = os.geteuid() if hasattr(os, "geteuid") else 0
    with suppress(OSError):  # no folder for temporary files
        places.append(Path(tempfile.gettempdir()) / f"minfer-cache-{uid}")
    return [place.absolute() for place in places]


def cache_dir() -> Path:
    """The first folder for kernels of this numba and Python that nobody but us can write to."""
    editions = f"{_frugal.EDITION} {_identity.EDITION}"
    made_by = f"{numba.__version__} {platform.python_version()} {OPTIONS} {editions}"
    name = f"kernels-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"
    asked = os.environ.get("MINFER_CACHE_DIR")
    places, passed_over = _candidates(), list[str]()
    for place in places:
        try:
            _trust.opened(place / name, make=True).prove()
        except _trust.Untrusted as error:
            passed_over.append(str(error))
        except OSError as error:
            if asked and place == places[0]:
                why = error.strerror or error
                passed_over.append(
                    f"MINFER_CACHE_DIR={asked} cannot be written to ({why}): name a folder that "
                    "can be, or unset it"
                )
        else:
            if passed_over:
                _cache.say(f"compiled kernels are kept in {place}, because {passed_over[0]}")
            return place / name
    why = passed_over[0] if passed_over else "no cache folder can be written to"
    _cache.say(f"compiled kernels are not kept, and the next run compiles them again: {why}")
    _cache.UNSAVED.append(why)
    _cache.FAULTS.append(_cache.Fault(places[0] if places else Path.cwd(), why, False))
    return (places[0] if places else Path.cwd()) / name


CACHE_DIR = cache_dir()


#: Why compiling is neither announced nor timed; empty where it is.
UNAVAILABLE = "MINFER_WITHOUT has it" if "event" in _identity.WITHOUT else ""
_Listener: Any = object
try:
    _event: Any = import_module("numba.core.event")
    _Listener, _register = _event.Listener, _event.register
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)


class _SayOnce(_Listener):
    """Prints one line when a kernel of ours is compiled rather than loaded; keeps the time."""

    said = False
    depth, began, spent, loaded = 0, 0.0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        if _SayOnce.depth == 0:
            _SayOnce.began, _SayOnce.loaded = time.perf_counter(), LOADING[0]
        _SayOnce.depth += 1
        function = getattr(event.data["dispatcher"], "py_func", None)  # anyone's, not only ours
        module = getattr(function, "__module__", None) or ""
        if not _SayOnce.said and module.startswith("minfer."):
            _SayOnce.said = True
            print(f"minfer: {_notice()}", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        _SayOnce.depth -= 1
        if _SayOnce.depth == 0:
            _SayOnce.spent += _running()


def _notice() -> str:
    """What is said about compiling; also that kernels are kept in another way, or not at all."""
    text = (
        "compiling the kernels this needs, once for this version (5 to 25 s for a solver, some "
        "40 s for the parser; `minfer warmup` does all ahead of time)"
    )
    if _identity.UNAVAILABLE:
        return f"{text}; they cannot be kept with this numba ({_identity.UNAVAILABLE})"
    if _cache.UNAVAILABLE:
        return f"{text}; they are kept by numba's own cache, without checksums"
    return text


def _running() -> float:
    """Seconds of the compilation under way, without those of loading, which are counted there."""
    return time.perf_counter() - _SayOnce.began - (LOADING[0] - _SayOnce.loaded)


def compiling() -> float:
    """Seconds (wall clock) this process has spent compiling and loading kernels."""
    return _SayOnce.spent + (_running() if _SayOnce.depth else 0.0) + LOADING[0]


def be_quiet() -> None:
    """No notice from this process: somebody has said already that kernels are compiled."""
    _SayOnce.said = True


if not UNAVAILABLE:
    _register("numba:compile", _SayOnce())

_KERNELS: list[Any] = []  # every one that was decorated


def jit(function: Callable | None = None, /, **options: Any) -> Any:
    """``numba.njit`` as every kernel here uses it; options such as ``fastmath={...}``."""
    if function is None:
        return lambda f: jit(f, **options)
    kernel: Any = _dispatcher(function, {**OPTIONS, **options})
    _KERNELS.append(kernel)
    return kernel


def _dispatcher(function: Any, options: dict[str, Any]) -> Any:
    """A kernel that is kept where it belongs, or not at all."""
    folder = _place(function)
    if config.DISABLE_JIT or folder is None or _identity.UNAVAILABLE:
        kernel = numba.njit(**options)(function)
    elif _cache.UNAVAILABLE and _is_ours(folder):
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            kernel = numba.njit(cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before
    else:
        kernel = numba.njit(**options)(function)
        if not _cache.UNAVAILABLE:
            kernel._cache = KernelCache(function, folder, READY)
    _frugal.adopt(kernel)
    if hasattr(kernel, "add_overload"):  # not where the compiler is off
        kind: Any = type(kernel)
        kernel.__class__ = _asked(kind)
    return kernel


@cache
def _asked(kind: Any) -> type:
    """A dispatcher that takes no machine code in before it has answered."""

    def add_overload(self: Any, made: Any) -> None:
        if made is not getattr(self._cache, "loaded", None):
            from minfer.kernels.compiling.answers import vet

            vet(self, made)
        kind.add_overload(self, made)

    return type(kind.__name__, (kind,), {"add_overload": add_overload})


@cache
def _is_ours(folder: Path) -> bool:
    """Whether numba's own cache may have a folder, which it reads and runs as it is."""
    try:
        _trust.check_below(folder)
    except _trust.Untrusted as error:
        _cache.distrust(error)
        return False
    except OSError:
        return False
    return True


def _place(function: Any) -> Path | None:
    """The folder of a kernel; None for one that depends on more than the text of its module."""
    module = function.__module__
    if module.startswith(HOMES):
        return _folder(module)
    file = Path(function.__code__.co_filename)
    if function.__closure__ or not file.is_file():
        return None
    source = hashlib.sha256(file.read_bytes()).hexdigest()
    return CACHE_DIR / f"{module.rpartition('.')[2]}-{source[:16]}"


def _folder(module: str) -> Path:
    return CACHE_DIR / f"{module.rpartition('.')[2]}-{_identity.key(module)[:16]}"


def ready(kernel: Any) -> bool:
    """Whether some version of a kernel is compiled, in this process or in the cache."""
    if config.DISABLE_JIT:
        return True
    has_any = getattr(kernel._cache, "has_any", None)
    return bool(kernel.overloads) or (has_any is not None and has_any(kernel.targetctx))


def folders() -> list[Path]:
    """Where the kernels of each module are kept; nothing is imported for that."""
    return [_folder(module) for module in _modules()]


def kernels() -> list[Any]:
    """Every kernel of the package; all its modules are imported for that."""
    for module in _modules():
        import_module(module)
    return list(_KERNELS)


def _modules() -> Iterator[str]:
    package = _identity.PACKAGE
    for home in HOMES:
        for path in sorted(package.joinpath(*home.split(".")[1:]).rglob("*.py")):
            if path.stem != "__init__":
                yield ".".join([package.name, *path.relative_to(package).with_suffix("").parts])
