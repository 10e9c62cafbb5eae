"""Intermediate code of a kernel, written shorter than numba writes it.

Every instruction costs time: to be made, printed, parsed, and tidied away by LLVM. numba writes
many that nobody needs. For ``a[i]`` it fills a place on the stack with zeros, copies a description
of the array there (seven numbers), and reads shape and strides back, twice: some twenty
instructions, of which LLVM leaves four. Here those four are written.

* Elements of arrays are read and written at their address (:meth:`Lower.lower_getitem`,
  :meth:`Lower.lower_setitem`). Negative indices count from the end, as ever.
* Sums, differences, products and comparisons of two numbers of one type are one instruction each
  (:meth:`Lower.lower_binop`); numba first looks for versions that know one of them in advance.
* A variable that is set in one place keeps its value wherever that place comes first. numba gives
  it a place on the stack if another block reads it, every argument for instance, and sets that to
  zero in the end (:meth:`Lower._find_singly_assigned_variable`, :meth:`Lower.delvar`).
* ``for i in range(n)`` needs no test that its step is not zero, and no places on the stack but two
  (:meth:`Lower._begin`): 25 instructions instead of 95.
* To count references to an array, it is asked for its counter only, not for all its parts
  (:func:`counters`).

What a kernel computes does not depend on it. A part of :mod:`minfer.kernels._frugal`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from importlib import import_module
from typing import Any

from llvmlite.ir import Constant
from numba.core import ir, types

#: Why numba's own way is taken; empty where it is not.
UNAVAILABLE = ""

_Lower: Any = object
NativeLowering: Any = object
NRTContext: Any = object
_register: Callable[..., Any] = lambda **_: lambda kind: kind  # noqa: E731
try:
    _lowering: Any = import_module("numba.core.lowering")
    _Lower = _lowering.Lower
    _must_use_alloca, _compute_use_defs = _lowering.must_use_alloca, _lowering.compute_use_defs
    _pointer_add = _lowering.cgutils.pointer_add
    NativeLowering = import_module("numba.core.typed_passes").NativeLowering
    NRTContext = import_module("numba.core.runtime.context").NRTContext
    _register = import_module("numba.core.compiler_machinery").register_pass
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)

_NUMBERS = {types.float64, types.float32, types.int64, types.uint64, types.int32, types.uint32}
_ARITHMETIC = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}
_COMPARISONS = {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==",
    operator.ne: "!=",
}  # fmt: skip


class Lower(_Lower):
    """numba's, with shorter ways for what is frequent in kernels."""

    def _find_singly_assigned_variable(self) -> None:
        """Those that need no place on the stack.

        They are set by one statement, whose block comes before all others that read them, on every
        way there and in the order of writing; and no references to them are counted.
        """
        self._singly_assigned_vars: set[str] = set()
        self._blk_local_varmap: dict[str, Any] = {}
        self._by_one: set[str] = set()  # ranges without a step
        if self.func_ir.func_id.is_generator:
            return
        home: dict[str, int | None] = {}  # None: set by several statements
        for label, block in self.blocks.items():
            for statement in block.find_insts(ir.Assign):
                name, made = statement.target.name, statement.value
                calls = isinstance(made, ir.Expr) and made.op == "call"
                if calls and _counts_by_one(made, self.typeof(made.func.name)):
                    self._by_one.add(name)
                home[name] = None if name in home else label
        self._by_one = {name for name in self._by_one if home[name] is not None}
        placed = set(_must_use_alloca(self.blocks))
        before = self.func_ir.variable_lifetime.cfg.dominators()
        for label, names in _compute_use_defs(self.blocks).usemap.items():  # set elsewhere
            for name in names:
                at = home.get(name)
                first = at is not None and at < label and at in before[label]
                if not first or self._is_counted(self.typeof(name)):
                    placed.add(name)
        self._singly_assigned_vars = {
            name for name, at in home.items() if at is not None and name not in placed
        }

    def _is_counted(self, kind: Any) -> bool:
        return self.context.enable_nrt and _has_counters(self.context, kind)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        kept = name in self._singly_assigned_vars
        if kept or argidx is not None or self._is_counted(self.typeof(name)):
            super().storevar(value, name, argidx)
        else:  # what was there before needs no look
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))

    def delvar(self, name: str) -> None:
        if self._is_counted(self.typeof(name)):
            super().delvar(name)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        short = _SHORT.get(expr.op)
        if short is not None:
            kind = self.typeof((expr.func if expr.op == "call" else expr.value).name)
            made = short(self, resty, expr, kind)
            if made is not None:
                return made
        return super().lower_expr(resty, expr)

    def _attribute(self, resty: Any, expr: Any, kind: Any) -> Any:
        if expr.attr == "shape" and type(kind) is types.Array:
            return self._part(kind, self.loadvar(expr.value.name), "shape")
        return None

    def _half(self, resty: Any, expr: Any, kind: Any) -> Any:
        """What an iterator gave, or whether it did."""
        name = expr.op.removeprefix("pair_")
        value = self._part(kind, self.loadvar(expr.value.name), name)
        self.incref(resty, value)
        return value

    def _range(self, resty: Any, expr: Any, kind: Any) -> Any:
        """``range(stop)`` or ``range(start, stop)``."""
        if not _counts_by_one(expr, kind):
            return None
        numbers = self.fndesc.calltypes[expr].args
        ends = [self._loaded(end, number) for end, number in zip(expr.args, numbers)]
        one = Constant(ends[0].type, 1)
        start = ends[0] if len(ends) == 2 else Constant(one.type, 0)
        return self._whole(resty, start=start, stop=ends[-1], step=one)

    def _begin(self, resty: Any, expr: Any, kind: Any) -> Any:
        """An iterator of such a range: where it is, and how often it still goes on."""
        if expr.value.name not in self._by_one:
            return None
        builder, value = self.builder, self.loadvar(expr.value.name)
        start, stop = self._part(kind, value, "start"), self._part(kind, value, "stop")
        with builder.goto_entry_block():
            place, left = builder.alloca(start.type), builder.alloca(start.type)
        n, none = builder.sub(stop, start), Constant(start.type, 0)
        builder.store(start, place)
        builder.store(builder.select(builder.icmp_signed(">", n, none), n, none), left)
        return self._whole(resty, iter=place, stop=stop, step=Constant(n.type, 1), count=left)

    def _next(self, resty: Any, expr: Any, kind: Any) -> Any:
        if type(kind) is not types.RangeIteratorType:
            return None
        builder, value = self.builder, self.loadvar(expr.value.name)
        place, left = self._part(kind, value, "iter"), self._part(kind, value, "count")
        n, here = builder.load(left), builder.load(place)
        valid = builder.icmp_signed(">", n, Constant(n.type, 0))
        with builder.if_then(valid):
            builder.store(builder.sub(n, Constant(n.type, 1), flags=["nsw"]), left)
            builder.store(builder.add(here, self._part(kind, value, "step")), place)
        return self._whole(resty, first=here, second=valid)

    def _whole(self, kind: Any, **parts: Any) -> Any:
        """A value from its parts."""
        value, model = self.context.get_constant_undef(kind), self.context.data_model_manager[kind]
        for name, part in parts.items():
            value = model.set(self.builder, value, part, name)
        return value

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        kind, at = signature.args
        if not self._is_element(kind, value, at):
            return super().lower_getitem(resty, expr, value, index, signature)
        place = self._address(kind, value, at, index)
        align = None if kind.aligned else 1
        read = self.context.unpack_value(self.builder, kind.dtype, place, align=align)
        return self.context.cast(self.builder, read, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        kind, at, given = signature.args
        if not self._is_element(kind, target_var, at):
            return super().lower_setitem(target_var, index_var, value_var, signature)
        value = self.context.cast(self.builder, self._loaded(value_var, given), given, kind.dtype)
        place = self._address(kind, target_var, at, index_var)
        align = None if kind.aligned else 1
        return self.context.pack_value(self.builder, kind.dtype, value, place, align=align)

    def _is_element(self, kind: Any, array: Any, at: Any) -> bool:
        """Whether ``at`` is one integer for each axis of a plain array of numbers."""
        if type(kind) is not types.Array or self.typeof(array.name) != kind:
            return False
        axes = _axes(at)
        return (
            kind.layout in "CA"
            and isinstance(kind.dtype, types.Number | types.Boolean)
            and len(axes) == kind.ndim > 0
            and all(isinstance(axis, types.Integer) for axis in axes)
            and not self.context.enable_boundscheck
        )

    def _address(self, kind: Any, array: Any, at: Any, index: Any) -> Any:
        """Where the element is."""
        builder, value, asked = self.builder, self.loadvar(array.name), self._loaded(index, at)
        shape = self._part(kind, value, "shape")
        several = isinstance(at, types.BaseTuple)
        places = [
            self._from_start(builder.extract_value(asked, k) if several else asked, one, shape, k)
            for k, one in enumerate(_axes(at))
        ]
        data = self._part(kind, value, "data")
        if kind.layout == "C":
            offset = places[0]
            for axis, place in enumerate(places[1:], 1):
                row = builder.mul(offset, builder.extract_value(shape, axis))
                offset = builder.add(row, place)
            return builder.gep(data, [offset])
        strides = self._part(kind, value, "strides")
        steps = [builder.mul(builder.extract_value(strides, k), p) for k, p in enumerate(places)]
        offset = steps[0]
        for step in steps[1:]:
            offset = builder.add(offset, step)
        return _pointer_add(builder, data, offset)

    def _from_start(self, index: Any, kind: Any, shape: Any, axis: int) -> Any:
        """An index of an axis as a machine word, counted from the start."""
        builder = self.builder
        if not kind.signed:
            return self.context.cast(builder, index, kind, types.uintp)
        index = self.context.cast(builder, index, kind, types.intp)
        if isinstance(index, Constant) and index.constant >= 0:
            return index
        below = builder.icmp_signed("<", index, Constant(index.type, 0))
        wrapped = builder.add(index, builder.extract_value(shape, axis))
        return builder.select(below, wrapped, index)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        signature = self.fndesc.calltypes[expr]
        kind, result = signature.args[0], signature.return_type
        sums = op in _ARITHMETIC and result == kind
        compares = op in _COMPARISONS and result == types.boolean
        if kind not in _NUMBERS or signature.args[1] != kind or not (sums or compares):
            return super().lower_binop(resty, expr, op)
        builder, real = self.builder, isinstance(kind, types.Float)
        sides = self._loaded(expr.lhs, kind), self._loaded(expr.rhs, kind)
        if sums and real:
            made = getattr(builder, f"f{_ARITHMETIC[op]}")(*sides)
        elif sums:
            flags = ["nsw"] if kind.signed else []
            made = getattr(builder, _ARITHMETIC[op])(*sides, flags=flags)
        elif real:
            compare = builder.fcmp_unordered if op is operator.ne else builder.fcmp_ordered
            made = compare(_COMPARISONS[op], *sides)
        else:
            compare = builder.icmp_signed if kind.signed else builder.icmp_unsigned
            made = compare(_COMPARISONS[op], *sides)
        return self.context.cast(builder, made, result, resty)

    def _loaded(self, variable: Any, kind: Any) -> Any:
        """The value of a variable, as a number of some kind."""
        value, own = self.loadvar(variable.name), self.typeof(variable.name)
        return self.context.cast(self.builder, value, own, kind)

    def _part(self, kind: Any, array: Any, name: str) -> Any:
        return self.context.data_model_manager[kind].get(self.builder, array, name)


#: Expressions that have a shorter way, sometimes: it returns None where it has not.
_SHORT: dict[str, Callable[..., Any]] = {
    "getattr": Lower._attribute, "call": Lower._range, "getiter": Lower._begin,
    "iternext": Lower._next, "pair_first": Lower._half, "pair_second": Lower._half,
}  # fmt: skip


def _counts_by_one(expr: Any, kind: Any) -> bool:
    """Whether this is a call of ``range`` without a step."""
    known = isinstance(kind, types.Function) and kind.typing_key is range
    return known and len(expr.args) in (1, 2) and not expr.kws and not expr.vararg


@_register(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """The pass that writes intermediate code."""

    _name = "lowering"

    @property
    def lowering_class(self) -> Any:
        return Lower


def _axes(at: Any) -> list[Any]:
    """The types of an index, axis by axis."""
    several: Any = at
    return list(several) if isinstance(at, types.BaseTuple) else [at]


_known: dict[Any, bool] = {}


def _has_counters(context: Any, kind: Any) -> bool:
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = bool(context.data_model_manager[kind].contains_nrt_meminfo())
    return found


def counters(runtime: Any, builder: Any, kind: Any, value: Any) -> list[Any]:
    """``numba.core.runtime.context.NRTContext.get_meminfos``: of the parts that have any."""
    context = runtime._context
    if not _has_counters(context, kind):
        return []
    model = context.data_model_manager[kind]
    found = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
    for part, get in model.traverse(builder):
        if _has_counters(context, part):
            found += counters(runtime, builder, part, get(value))
    return found
