"""Kernels that other kernels call are compiled for that only.

numba makes every function that a kernel calls ready to be called from Python: wrappers, optimised
code, machine code, a file of object code. Then it links its intermediate code into the caller and
optimises and emits all of it again, so that a function five calls deep is optimised five times.
Here such a function stays intermediate code until all of a kernel that Python calls is optimised
at once. If Python calls the function itself, that is one more compilation. Functions of numba's
own that kernels call, ``np.zeros`` say, are treated in the same way (:class:`Helper`). A kernel
that calls itself cannot be: none does.

What else is saved, and with which numba, is in :mod:`minfer.kernels._frugal` and
:mod:`minfer.kernels._lowering`.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from numba.core import sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from minfer.kernels import _frugal, _lowering

#: Why inner kernels are compiled as numba does it; empty where they are not.
UNAVAILABLE = _frugal.UNAVAILABLE or _lowering.UNAVAILABLE
try:
    _CompileResult: Any = import_module("numba.core.compiler").CompileResult
    _lookup: Any = import_module("numba.core.environment").lookup_environment
    _Template: Any = import_module("numba.core.typing.templates")._OverloadFunctionTemplate
    _jit_of: Any = _Template._get_jit_decorator
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)

_here = threading.local()  # .depth: compilations of ours under way in this thread; .inner


def is_inner() -> bool:
    """Whether what is compiled or loaded now is for a kernel only, not for Python."""
    return getattr(_here, "inner", False)


class Inner:
    """Stands for the entry point that an inner kernel does not have."""


class InnerLibrary(_frugal.Library):
    """Intermediate code, to be linked into that of callers and optimised there."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        return self.name, "bitcode", self._get_module_for_linking().as_bitcode()


class _InnerPipeline(_frugal.Pipeline):
    library = InnerLibrary


class _InnerCompiler(_frugal.Compiler):
    def _customize_flags(self, flags: Any) -> Any:
        flags = super()._customize_flags(flags)
        flags.no_compile = flags.no_cpython_wrapper = True
        return flags


class Helper(CPUDispatcher):
    """A dispatcher of a function that kernels call, and others perhaps."""

    _cache: Any
    _compiler: Any
    overloads: Any

    def compile(self, sig: Any) -> Any:
        ours = getattr(_here, "depth", 0) > 0
        return self._compile_inner(sig) if ours else self._compile_whole(sig)

    def _compile_inner(self, sig: Any) -> Any:
        usual = self._compiler
        self._compiler = _like(usual, _InnerCompiler, _InnerPipeline)
        self._cache.inner = True
        try:
            return super().compile(sig)
        finally:
            self._compiler = usual
            self._cache.inner = False

    def _compile_whole(self, sig: Any) -> Any:
        args, _ = sigutils.normalize_signature(sig)
        there = self.overloads.get(tuple(args))
        if there is not None and isinstance(there.entry_point, Inner):
            del self.overloads[tuple(args)]  # so far only kernels have called it
        entry = super().compile(sig)
        set_environments(self.overloads[tuple(args)].library)
        return entry

    def add_overload(self, cres: Any) -> None:
        if not isinstance(cres.library, InnerLibrary):
            return super().add_overload(cres)
        if cres.entry_point is None:  # as compiled; one that was loaded is known to numba already
            cres = cres._replace(entry_point=Inner())
            self.targetctx.insert_user_function(cres.entry_point, cres.fndesc, [cres.library])
        self.overloads[tuple(cres.signature.args)] = cres
        return None


class Kernel(Helper):
    """A dispatcher that knows whether Python or a kernel asks."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        if not getattr(_here, "depth", 0):  # somebody else's kernel
            return super().get_call_template(args, kws)
        before, _here.inner = is_inner(), True
        try:
            return super().get_call_template(args, kws)
        finally:
            _here.inner = before

    def compile(self, sig: Any) -> Any:
        inner, _here.inner = is_inner(), False  # what it calls says so itself
        _here.depth = getattr(_here, "depth", 0) + 1
        try:
            with global_compiler_lock, _frugal.uninterrupted():
                _frugal.leave_scipy()
                return self._compile_inner(sig) if inner else self._compile_whole(sig)
        finally:
            _here.depth -= 1
            _here.inner = inner


def set_environments(library: Any) -> None:
    """Tell machine code where the environments of all functions that were linked into it are.

    They hold what is rarely needed: the texts of exceptions.
    """
    for variable in library._final_module.global_variables:
        if variable.name.startswith("_ZN08NumbaEnv"):
            environment = _lookup(variable.name)
            if environment is not None:
                library.codegen.set_env(variable.name, environment)


def rebuild(context: Any, payload: tuple[Any, ...]) -> Any:
    """An inner kernel as it was saved."""
    from llvmlite.binding import parse_bitcode

    (name, kind, bitcode), fndesc, env, signature, objectmode, lifted, text, init, envs = payload
    assert kind == "bitcode"
    for function in init:
        function()
    library = InnerLibrary(context.codegen(), name)
    library._final_module = parse_bitcode(bitcode)
    library._finalize_final_module()
    return _CompileResult(
        target_context=context, typing_context=context.typing_context, library=library,
        environment=env, entry_point=Inner(), fndesc=fndesc, type_annotation=text,
        signature=signature, objectmode=objectmode, lifted=lifted, typing_error=None,
        call_helper=None, metadata=None, reload_init=init, referenced_envs=envs,
    )  # fmt: skip


def _help(template: Any) -> Any:
    """The decorator that numba uses for functions of its own, which makes helpers."""

    def decorate(**options: Any) -> Any:
        def make(function: Any) -> Any:
            helper: Any = _jit_of(template)(**options)(function)
            if type(helper) is CPUDispatcher:
                helper.__class__ = Helper
            return helper

        return make

    return decorate


if not UNAVAILABLE:
    _frugal.LENT.append((_Template, "_get_jit_decorator", _help))
    _frugal.LENT.append((_lowering.NRTContext, "get_meminfos", _lowering.counters))
    _frugal.PASSES[_lowering.NativeLowering] = _lowering.Lowering


def adopt(kernel: Any) -> None:
    """Make a dispatcher one that knows."""
    if not UNAVAILABLE and type(kernel) is CPUDispatcher:
        kernel.__class__ = Kernel
        made: Any = kernel
        made._cache.rebuild = rebuild
        made._compiler = _like(made._compiler, _frugal.Compiler, _frugal.Pipeline)


def _like(compiler: Any, kind: Any, pipeline: Any) -> Any:
    """A compiler of the same function with the same options."""
    options = compiler.targetdescr, compiler.targetoptions, compiler.locals
    return kind(compiler.py_func, *options, pipeline)
