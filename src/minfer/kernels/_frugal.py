"""What numba does for every function and kernels can do without, in compiling them.

Half the time of a compilation is Python's: typing and writing intermediate code. Less of it:

* a function that makes and returns no array need not count references to those it is given, whose
  owner is its caller (:class:`Uncounted`; nearly every kernel that others call is one). That is a
  tenth of the time;
* numba looks up the implementation of each operation by all options of the compilation at hand,
  compared one by one (:class:`Flags`);
* the collector of cyclic garbage walks over the compiler's many objects every few milliseconds
  (:func:`uninterrupted`);
* nobody calls a kernel from C.

Results do not depend on any of this. It uses names of numba that are not promised to stay. Where
one of them is missing (:data:`UNAVAILABLE`), or in a numba that was never tried, kernels are
compiled as numba does it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numba
from numba.core import errors, ir, types

#: Versions of numba that this was tried with.
_TRIED = ("0.68",)
#: Why kernels are compiled as numba does it; empty where they are not.
UNAVAILABLE = ""

_Pipeline: Any = object
FunctionCompiler: Any = object
_Flags: Any = object
_Pass: Any = object
_register: Callable[..., Any] = lambda **_: lambda kind: kind  # noqa: E731
try:
    FunctionCompiler = import_module("numba.core.dispatcher")._FunctionCompiler
    _compiler = import_module("numba.core.compiler")
    _Pipeline, _Flags = _compiler.Compiler, _compiler.Flags
    _machinery = import_module("numba.core.compiler_machinery")
    _Pass, _register = _machinery.AnalysisPass, _machinery.register_pass
    _Annotate = import_module("numba.core.typed_passes").AnnotateTypes
    _HASH = hash(_Flags())  # one for all of them
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)
if numba.__version__.rpartition(".")[0] not in _TRIED:
    UNAVAILABLE = f"not tried with numba {numba.__version__}"
#: A part of the name of the cache folder: another way of compiling may change a last bit.
EDITION = "" if UNAVAILABLE else "2"

#: Options that what a kernel calls does not inherit.
_OWN = {"no_compile", "no_cpython_wrapper", "no_cfunc_wrapper"}
_TUPLES = (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple)
#: Expressions whose result is a part of their operands, or holds them.
_BORROWS = {
    "build_tuple", "cast", "exhaust_iter", "getattr", "getitem", "getiter", "phi", "static_getitem",
}  # fmt: skip


_here = threading.local()  # .counting: whether references are counted everywhere


class Flags(_Flags):
    """The options of one compilation, compared by those that were set."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return bool(super().__eq__(other))
        mine, theirs = self._values, other._values
        return mine == theirs or all(
            getattr(self, name) == getattr(other, name) for name in {*mine, *theirs} - _OWN
        )

    def __hash__(self) -> int:
        return _HASH


@_register(mutates_CFG=False, analysis_only=True)
class Uncounted(_Pass):
    """No references are counted in a function that neither makes nor returns what has them."""

    _name = "uncounted"

    def __init__(self) -> None:
        _Pass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        if not getattr(_here, "counting", False) and only_borrows(state):
            state.targetctx = state.targetctx.subtarget(enable_nrt=False)
        return False


def only_borrows(state: Any) -> bool:
    """Whether a typed function has no counted objects but arrays given to it and parts of them."""
    models = state.targetctx.data_model_manager

    def is_counted(kind: Any) -> bool:
        return bool(models[kind].contains_nrt_meminfo())

    def is_given(kind: Any) -> bool:
        if type(kind) in _TUPLES:
            return all(map(is_given, kind))
        return isinstance(kind, types.Array) or not is_counted(kind)

    def is_borrowed(value: Any) -> bool:
        known = isinstance(value, ir.Arg | ir.Var | ir.Const)
        return known or (isinstance(value, ir.Expr) and value.op in _BORROWS)

    def copies(statement: Any) -> bool:  # a whole array is set: it may overlap, and is copied first
        return bool(is_counted(state.typemap[statement.value.name]))

    if is_counted(state.return_type) or not all(map(is_given, state.args)):
        return False
    blocks = state.func_ir.blocks.values()
    if any(copies(s) for block in blocks for s in block.find_insts((ir.SetItem, ir.StaticSetItem))):
        return False
    return not any(
        is_counted(state.typemap[statement.target.name]) and not is_borrowed(statement.value)
        for block in blocks
        for statement in block.find_insts(ir.Assign)
    )


class Pipeline(_Pipeline):
    """numba's, and references are not counted where nobody needs it."""

    def define_pipelines(self) -> Any:
        managers = super().define_pipelines()
        for manager in managers:
            manager.add_pass_after(Uncounted, _Annotate)
            manager.finalize()
        return managers


class Compiler(FunctionCompiler):
    """Of one kernel that Python calls."""

    def _customize_flags(self, flags: Any) -> Any:
        flags = Flags(flags)
        flags.no_cfunc_wrapper = True
        return flags

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        """Once more, references counted, where it turns out that numba needs them after all."""
        try:
            return super()._compile_core(args, return_type)
        except errors.NumbaRuntimeError:
            if getattr(_here, "counting", False):
                raise
        _here.counting = True
        try:
            return super()._compile_core(args, return_type)
        finally:
            _here.counting = False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Garbage is collected rarely here."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
