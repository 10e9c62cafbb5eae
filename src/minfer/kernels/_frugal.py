"""What numba does for every function and kernels can do without, in compiling them.

Half the time of a compilation is Python's: typing and writing intermediate code. Less of it:

* a function that makes and returns no array need not count references to those it is given, whose
  owner is its caller (:class:`Uncounted`; nearly every kernel that others call is one). That is a
  tenth of the time;
* numba works out the type of each operation as if it had never met one like it
  (:class:`Memory`), and looks up its implementation by all options of the compilation at hand,
  compared one by one (:class:`Flags`);
* it runs optimisation passes over functions that are only declared (:class:`Library`), and imports
  ``scipy.linalg`` to see whether there are matrix products (:func:`leave_scipy`);
* it works out which variables are alive where after each of a dozen passes, and looks once
  (:func:`_post_process`), finds the variables of a statement by asking of everything in it what it
  is, again and again (:func:`_list_vars`), and times every call of LLVM once for each compilation
  that is under way (:func:`_untimed`);
* it looks for functions inside functions (:class:`Closures`) and for expressions of whole arrays
  (:class:`Rewrites`) with much preparation, and marks where variables end (:class:`Endings`),
  whether or not it matters;
* it writes intermediate code at length (:mod:`minfer.kernels._lowering`);
* the collector of cyclic garbage walks over the compiler's many objects every few milliseconds
  (:func:`uninterrupted`);
* nobody calls a kernel from C.

Results do not depend on any of this. It uses names of numba that are not promised to stay. Where
one of them is missing (:data:`UNAVAILABLE`), or in a numba that was never tried, kernels are
compiled as numba does it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
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
_Inference: Any = object
_Closures: Any = object
_Rewrites: Any = object
_Legalization: Any = object
_Library: Any = object
_register: Callable[..., Any] = lambda **_: lambda kind: kind  # noqa: E731
try:
    FunctionCompiler = import_module("numba.core.dispatcher")._FunctionCompiler
    _compiler = import_module("numba.core.compiler")
    _Pipeline, _Flags = _compiler.Compiler, _compiler.Flags
    _machinery = import_module("numba.core.compiler_machinery")
    _Pass, _register = _machinery.AnalysisPass, _machinery.register_pass
    _typed_passes = import_module("numba.core.typed_passes")
    _Annotate, _Inference = _typed_passes.AnnotateTypes, _typed_passes.NopythonTypeInference
    _Rewrites, _Legalization = _typed_passes.NopythonRewrites, _typed_passes.IRLegalization
    _Closures = import_module("numba.core.untyped_passes").InlineClosureLikes
    _ConfigStack = import_module("numba.core.targetconfig").ConfigStack
    _Library = import_module("numba.core.codegen").JITCodeLibrary
    _event: Any = import_module("numba.core.event")
    _postproc: Any = import_module("numba.core.postproc")
    _transforms: Any = import_module("numba.core.transforms")
    _run_whole, _Lifetime = _postproc.PostProcessor.run, _postproc.VariableLifetime
    _HASH = hash(_Flags())  # one for all of them
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)
if numba.__version__.rpartition(".")[0] not in _TRIED:
    UNAVAILABLE = f"not tried with numba {numba.__version__}"
#: A part of the name of the cache folder: another way of compiling may change a last bit.
EDITION = "" if UNAVAILABLE else "4"

#: Options that what a kernel calls does not inherit.
_OWN = {"no_compile", "no_cpython_wrapper", "no_cfunc_wrapper"}
_TUPLES = (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple)
#: Expressions whose result is a part of their operands, or holds them.
_BORROWS = {
    "build_tuple", "cast", "exhaust_iter", "getattr", "getitem", "getiter", "phi", "static_getitem",
}  # fmt: skip


_here = threading.local()  # .counting: whether references are counted everywhere; .uninterrupted


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


#: Signatures found so far, by what was asked and the options of the compilation.
_known: dict[Any, Any] = {}
#: Functions of these modules mean the same in every kernel.
_BUILTIN = {"_operator", "builtins", "math"}


class Memory:
    """numba's typing context, which remembers the answers to what is asked again and again."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        resolve = self._context.resolve_function_type
        meant = getattr(function, "typing_key", function)
        if kws or getattr(meant, "__module__", None) not in _BUILTIN:
            return resolve(function, args, kws)
        return self._remembered((function, args), lambda: resolve(function, args, kws))

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        resolve = self._context.resolve_setitem
        key = "setitem", target, index, value
        return self._remembered(key, lambda: resolve(target, index, value))

    def resolve_getattr(self, kind: Any, name: str) -> Any:
        resolve = self._context.resolve_getattr
        if not isinstance(kind, types.Array | types.BaseTuple):
            return resolve(kind, name)
        return self._remembered((name, kind), lambda: resolve(kind, name))

    def _remembered(self, key: Any, ask: Callable[[], Any]) -> Any:
        key = *key, _ConfigStack().top()
        found = _known.get(key)
        if found is None:
            found = _known[key] = ask()
        return found


@_register(mutates_CFG=True, analysis_only=False)
class Closures(_Closures):
    """Functions inside functions and the like become part of them, if there are any."""

    _name = "closures"

    def run_pass(self, state: Any) -> bool:
        ops = {expression.op for block in state.func_ir.blocks.values()
               for expression in block.find_exprs()}  # fmt: skip
        names = state.func_id.code.co_names
        if ops & {"make_function", "build_list"} or not {"reduce", "stencil"}.isdisjoint(names):
            return bool(super().run_pass(state))
        return False


@_register(mutates_CFG=True, analysis_only=False)
class Rewrites(_Rewrites):
    """Expressions of whole arrays become loops, if there are any."""

    _name = "rewrites"

    def run_pass(self, state: Any) -> bool:
        kinds = state.typemap
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                made = statement.value
                whole = isinstance(kinds[statement.target.name], types.Array)
                if isinstance(made, ir.Expr) and (
                    made.op == "build_list"
                    or (whole and made.op in {"unary", "binop", "inplace_binop", "call"})
                ):
                    return bool(super().run_pass(state))
        if any(isinstance(kind, types.StringLiteral) for kind in kinds.values()):
            return bool(super().run_pass(state))
        return False


@_register(mutates_CFG=False, analysis_only=True)
class Endings(_Legalization):
    """Where variables are no longer needed is marked, if that frees something."""

    _name = "endings"

    def run_pass(self, state: Any) -> bool:
        if state.targetctx.enable_nrt or state.func_ir.is_generator:
            return bool(super().run_pass(state))
        return False


@_register(mutates_CFG=False, analysis_only=False)
class Inference(_Inference):
    """numba's type inference, with a memory."""

    _name = "inference"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = Memory(context)
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


#: Passes of numba's, and what stands in for them.
PASSES: dict[Any, Any] = {
    _Inference: Inference, _Closures: Closures, _Rewrites: Rewrites, _Legalization: Endings,
}  # fmt: skip


class Library(_Library):
    """The code of one kernel."""

    def _optimize_functions(self, module: Any) -> None:
        """As numba does it, without functions that are only declared."""
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                manager, builder = self._codegen._function_pass_manager()
                manager.run(function, builder)


class Pipeline(_Pipeline):
    """numba's, with what is above in its place."""

    library = Library

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        library = self.library(targetctx.codegen(), "kernel")
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *rest)

    def define_pipelines(self) -> Any:
        managers = super().define_pipelines()
        for manager in managers:
            manager.add_pass_after(Uncounted, _Annotate)
            manager.passes = [(PASSES.get(kind, kind), text) for kind, text in manager.passes]
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


@cache
def leave_scipy() -> None:
    """Let numba load what it knows about arrays without importing ``scipy.linalg``.

    It does so only to see whether there are matrix products, and again where one is compiled.
    """
    name = "numba.np.arraymath"
    if UNAVAILABLE or name in sys.modules:
        return
    linalg: Any = import_module("numba.np.linalg")
    ensure = getattr(linalg, "ensure_blas", None)
    if ensure is None or find_spec("scipy") is None:
        return
    linalg.ensure_blas = lambda: None
    try:
        made: Any = import_module(name)
        made.ensure_blas = ensure
    finally:
        linalg.ensure_blas = ensure


_PLAIN = {str, int, bool, type(None), ir.Loc, ir.Scope}


def _list_vars(statement: Any, value: Any) -> list[Any]:
    """``numba.core.ir.Inst._rec_list_vars``: the variables in a part of a statement."""
    kind = type(value)
    if kind is ir.Var:
        return [value]
    if kind in _PLAIN:
        return []
    if isinstance(value, ir.Inst):
        return list(value.list_vars())
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return [value] if isinstance(value, ir.Var) else []
    found: list[Any] = []
    for part in value:
        kind = type(part)
        if kind is ir.Var:
            found.append(part)
        elif kind not in _PLAIN:
            found += _list_vars(statement, part)
    return found


def _post_process(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """``numba.core.postproc.PostProcessor.run``; what is alive where, once somebody asks."""
    code = processor.func_ir
    if emit_dels or code.is_generator:
        _run_whole(processor, emit_dels, extend_lifetimes)
        return
    code.blocks = _transforms.canonicalize_cfg(code.blocks)
    code.variable_lifetime = _Lifetime(code.blocks)
    code.generator_info = None


@contextmanager
def _untimed(kind: str, callback: Any) -> Iterator[None]:
    """``numba.core.event.install_timer``, without the timer."""
    yield


#: What is put in the place of numba's own while a kernel is compiled: where, its name, what.
LENT: list[tuple[Any, str, Any]] = []
if not UNAVAILABLE:
    LENT = [
        (ir.Inst, "_rec_list_vars", _list_vars),
        (_postproc.PostProcessor, "run", _post_process),
        (_event, "install_timer", _untimed),
    ]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Garbage is collected rarely here, and some of numba's functions are replaced by faster ones.

    By whoever holds numba's lock on compilations, so that nobody else meets them.
    """
    if getattr(_here, "uninterrupted", False):  # for a kernel that calls this one
        yield
        return
    before = gc.get_threshold()
    own = [(home, name, getattr(home, name)) for home, name, _ in LENT]
    gc.set_threshold(100_000, 50, 100)
    _here.uninterrupted = True
    try:
        for home, name, ours in LENT:
            setattr(home, name, ours)
        yield
    finally:
        _here.uninterrupted = False
        gc.set_threshold(*before)
        for home, name, theirs in own:
            setattr(home, name, theirs)
