"""What numba does for every kernel and can be left undone.

Work is left out; nothing is typed, written, linked or optimised in another way than numba's:

* A kernel that only kernels call needs no machine code of its own. numba makes it ready to be
  called from Python (wrappers, optimised code, machine code), then links its intermediate code into
  the caller and optimises all of it again, so that a function five calls deep is optimised five
  times. Here it stays intermediate code, in memory, until a kernel that Python calls is optimised
  with all that it calls (:class:`Kernel`, :class:`InnerLibrary`). If Python calls it itself, that
  is one more compilation. A kernel that calls itself cannot be treated so: none does.
* Nobody calls a kernel from C (:class:`Compiler`).
* Optimisation passes are not run over functions that are only declared (:class:`Library`).
* The collector of cyclic garbage does not walk over the compiler's many objects every few
  milliseconds (:func:`uninterrupted`).

Nobody else's functions are touched. Names of numba that are not promised to stay are used, all of
them in this file: where one is missing, or where numba has a version that was never tried
(:data:`UNAVAILABLE`), kernels are compiled as numba does it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numba

from minfer.kernels.compiling import identity as _identity

#: Versions of numba that this was tried with.
_TRIED = ("0.68",)
#: Why kernels are compiled as numba does it; empty where they are not.
UNAVAILABLE = ""

_Dispatcher: Any = object
_FunctionCompiler: Any = object
_Pipeline: Any = object
_Library: Any = object
try:
    _Dispatcher = import_module("numba.core.registry").CPUDispatcher
    _FunctionCompiler = import_module("numba.core.dispatcher")._FunctionCompiler
    _Pipeline = import_module("numba.core.compiler").Compiler
    _Library = import_module("numba.core.codegen").JITCodeLibrary
    _normalize: Any = import_module("numba.core.sigutils").normalize_signature
    _lock: Any = import_module("numba.core.compiler_lock").global_compiler_lock
    _lookup: Any = import_module("numba.core.environment").lookup_environment
    _event: Any = import_module("numba.core.event")
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)
if numba.__version__.rpartition(".")[0] not in _TRIED:
    UNAVAILABLE = f"not tried with numba {numba.__version__}"
if "frugal" in _identity.WITHOUT:
    UNAVAILABLE = "MINFER_WITHOUT has it"
#: A part of the name of the cache folder: another way of compiling may change a last bit.
EDITION = "" if UNAVAILABLE else "5"

_here = threading.local()  # .compiling: a kernel for Python is, in this thread


class Library(_Library):
    """The code of one kernel."""

    def _optimize_functions(self, module: Any) -> None:
        """As numba does it, without functions that are only declared."""
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                manager, builder = self._codegen._function_pass_manager()
                manager.run(function, builder)


class InnerLibrary(Library):
    """Intermediate code, to be linked into that of callers and optimised there."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class Pipeline(_Pipeline):
    """numba's, for another library."""

    library = Library

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        library = self.library(targetctx.codegen(), "kernel")
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *rest)


class InnerPipeline(Pipeline):
    library = InnerLibrary


class Compiler(_FunctionCompiler):
    """Of a kernel that Python calls."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cfunc_wrapper = True
        return flags


class InnerCompiler(Compiler):
    def _customize_flags(self, flags: Any) -> Any:
        flags = super()._customize_flags(flags)
        flags.no_compile = flags.no_cpython_wrapper = True
        return flags


class Inner:
    """Stands for the entry point that an inner kernel does not have."""


class Kernel(_Dispatcher):
    """A dispatcher that knows whether Python or a kernel asks.

    What it has for kernels is apart, so that their code does not depend on what Python has called.
    """

    _inner_compiler: Any
    _inners: dict[Any, Any]  # by types of arguments
    overloads: Any

    @property
    def nopython_signatures(self) -> Any:
        found = self._inners if _asked_by_a_kernel() else self.overloads
        return [made.signature for made in found.values()]

    def get_overload(self, sig: Any) -> Any:
        if _asked_by_a_kernel():
            return self._inners[tuple(_normalize(sig)[0])].entry_point
        return super().get_overload(sig)

    def compile(self, sig: Any) -> Any:
        with _lock:
            if _asked_by_a_kernel():
                return self._compile_inner(sig)
            with uninterrupted():
                entry = super().compile(sig)
            _set_environments(self.overloads[tuple(_normalize(sig)[0])].library)
            return entry

    def _compile_inner(self, sig: Any) -> Any:
        args, return_type = _normalize(sig)
        found = self._inners.get(tuple(args))
        if found is None:
            details = {"dispatcher": self, "args": args, "return_type": return_type}
            with _event.trigger_event("numba:compile", data=details):
                made = self._inner_compiler.compile(args, return_type)
            found = made._replace(entry_point=Inner())
            self.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])
            self._inners[tuple(args)] = found
        return found.entry_point


def _asked_by_a_kernel() -> bool:
    """Whether a kernel of ours is being compiled by this thread, and nobody else's function is."""
    return getattr(_here, "compiling", False)


def _set_environments(library: Any) -> None:
    """Tell machine code where the environments (texts of exceptions) of its functions are."""
    for variable in library._final_module.global_variables:
        if variable.name.startswith("_ZN08NumbaEnv"):
            environment = _lookup(variable.name)
            if environment is not None:
                library.codegen.set_env(variable.name, environment)


def adopt(kernel: Any) -> None:
    if not UNAVAILABLE and type(kernel) is _Dispatcher:
        kernel.__class__ = Kernel
        usual = kernel._compiler
        kernel._inners = {}
        kernel._inner_compiler = _like(usual, InnerCompiler, InnerPipeline)
        kernel._compiler = _like(usual, Compiler, Pipeline)


def _like(compiler: Any, kind: Any, pipeline: Any) -> Any:
    options = compiler.targetdescr, compiler.targetoptions, compiler.locals
    return kind(compiler.py_func, *options, pipeline)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Garbage is collected rarely here, by whoever holds numba's lock on compilations."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    _here.compiling = True
    try:
        yield
    finally:
        _here.compiling = False
        gc.set_threshold(*before)
