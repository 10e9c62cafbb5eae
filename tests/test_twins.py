"""Every intrinsic has a twin in plain Python, which gives the same bits and checks every index."""

from __future__ import annotations

import ast
import inspect
import operator
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.core import config

from minfer.kernels.arithmetic import lanes
from minfer.kernels.compiling import jit as _jit
from minfer.kernels.compiling import plain as _plain

OFF = bool(getattr(config, "DISABLE_JIT", False))
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}

#: What to do with each: statements over out, x, y, z (64 numbers each) and start (whole numbers).
CASES = {
    "lanes.lanes_of": "out[0] = lanes_of(x)",
    "lanes.strict": "store(out, 3, strict(x))",
    "lanes.lone": "store(out, 3, lone(x))",
    "lanes.load": "store(out, 3, load(x, 5))",
    "lanes.load_as": "store(out, 3, load_as(x, z, 5)); store(out, 40, load_as(lone(y), x, 7))",
    "lanes.store": "store(out, 3, load(x, 0)); store(z, 0, load(x, 1)); out[:3] = z[:3]",
    "lanes.splat": "store(out, 3, splat(x, 0.1)); store(out, 40, splat(lone(x), 0.1))",
    "lanes.choose": "store(out, 3, choose(load(x, 0), load(y, 0), load(x, 1), load(y, 2)))",
    "lanes.magnitude": "store(out, 3, magnitude(load(x, 2)))",
    "lanes.rows_into_lanes": "rows_into_lanes(wide, start, 1, lines)",
    "lanes.rows_out_of_lanes": "rows_out_of_lanes(wide, start, 1, lines)",
    "lanes._power_of_two": "store(out, 3, _power_of_two(splat(x, magic + 5.0)))",
    "lanes._taken_apart": "m, e = _taken_apart(magnitude(load(x, 2)))\n"
                          "    store(out, 3, m); store(out, 40, e)",
    "lanes._add_both": "store(out, 3, load(x, 2) + load(y, 2)); store(out, 40, 0.1 + load(x, 1))",
    "lanes._sub_both": "store(out, 3, load(x, 2) - load(y, 2)); store(out, 40, 0.1 - load(x, 1))",
    "lanes._mul_both": "store(out, 3, load(x, 2) * load(y, 2)); store(out, 40, load(x, 1) * 0.1)",
    "lanes._truediv_both": "store(out, 3, load(x, 2) / load(y, 2));"
                           "store(out, 40, load(x, 1) / 0.1)",
    "rows._at": "out[0] = _at(x, 3); out[1] = _at(start, 2)",
    "vexp.bits_of": "out[0] = bits_of(x[0]) % 1000003",
    "vexp.double_of": "out[0] = double_of(4611686018427387904 + 12345)",
    "addresses.address": "out[0] = address(x) + 24 - address(x)",
    "addresses.get": "out[0] = get(address(x) + 16)",
    "addresses.put": "put(address(out) + 16, x[3])",
    "addresses.load": "lanes_store(out, 1, load(address(x) + 24))",
    "addresses.store": "store(address(out) + 24, lanes_load(x, 1))",
    "addresses.spread": "lanes_store(out, 0, spread(0.1))",
    "addresses.total": "out[0] = total(lanes_load(x, 3))",
    "addresses.greater": "lanes_store(out, 0, greater(lanes_load(x, 1), lanes_load(y, 1)))",
    "addresses.most": "out[0] = most(lanes_load(x, 3))",
    "addresses.least": "out[0] = least(lanes_load(x, 3))",
}  # fmt: skip
DOUBLES = ("addresses", "vexp", "rows", "lanes._taken_apart")  # what has no float32


def name_of(made):
    function = getattr(made, "_defn", made)
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


#: Notes every call of ``numba.extending.intrinsic`` while all modules of kernels are imported.
RECORD = """
import numba.extending
made, intrinsic = [], numba.extending.intrinsic

def noted(*args, **options):
    found = intrinsic(*args, **options)
    if not args:
        return lambda function: made.append(found(function)) or made[-1]
    made.append(found)
    return found

numba.extending.intrinsic = noted
from minfer.kernels.compiling import jit as _jit, plain as _plain
_jit.kernels()
twins = {id(made) for made, _ in _plain.TWINS}
print(len(made), *[str(x) for x in made if id(x) not in twins], sep=";")
"""


@pytest.mark.slow  # it imports all kernels in a process of its own
def test_every_intrinsic_has_a_twin():
    call = [sys.executable, "-c", RECORD]
    out = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    count, *without = out.strip().split(";")
    assert without == []
    assert int(count) == len(CASES)


def test_every_overloaded_function_has_a_twin_and_every_twin_a_case():
    """Calls of ``overload`` in kernels, by their text: names, or a loop over operators."""
    _jit.kernels()
    twins = sorted(name_of(made) for made, _ in _plain.TWINS)
    assert twins == sorted([*CASES, "lanes.exp"])  # that one is compared in tests/test_plain.py
    found = set()
    for module in [m for name, m in sys.modules.items() if name.startswith(_jit.HOMES)]:
        for call in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "").startswith("overload"):
                found.add(f"{module.__name__.rpartition('.')[2]}.{ast.unparse(call.args[0])}")
    assert found == {"lanes.exp", "lanes.symbol"}
    a, b = _plain.Vector(np.arange(8.0)), _plain.Vector(np.arange(8.0) + 1)
    for name in OPERATORS:
        assert isinstance(getattr(operator, name)(a, b), _plain.Vector)


@pytest.mark.skipif(OFF, reason="needs the compiler")
def test_machine_code_of_operators_differs_by_name():
    @numba.njit
    def all_four(x):
        a, b = lanes.load(x, 0), lanes.load(x, 8)
        lanes.store(x, 0, (a + b) * (a - b) / (a + 1.0) * (2.0 - b))

    all_four(np.ones(16))
    (code,) = all_four.inspect_llvm().values()
    for name in ("add_lanes_lanes", "sub_lanes_lanes", "mul_lanes_lanes", "truediv_lanes_lanes",
                 "add_lanes_float", "sub_float_lanes"):  # fmt: skip
        assert name in code, name


def function(module, cases, plain):
    """Cases of a module as one function, of intrinsics or of their twins: the k-th has outs[k]."""
    _jit.kernels()  # all modules, so all twins
    names: dict = {}
    for made, twin in _plain.TWINS:
        home, _, name = name_of(made).partition(".")
        if home in (module, "lanes"):
            names[name if home == module else f"lanes_{name}"] = twin if plain else made
    lines = [f"    out = outs[{k}]\n    {CASES[case]}\n" for k, case in enumerate(cases)]
    exec("def body(outs, x, y, z, start, wide, lines, magic):\n" + "".join(lines), names)
    return names["body"] if plain else numba.njit(names["body"])


@pytest.mark.slow
@pytest.mark.skipif(OFF, reason="needs the compiler")
@pytest.mark.parametrize(("module", "dtype"), [
    ("lanes", np.float64), ("lanes", np.float32), ("rows", np.float64), ("vexp", np.float64),
    ("addresses", np.float64),
])  # fmt: skip
def test_twins_give_the_same_bits(module, dtype):
    cases = [case for case in CASES if case.partition(".")[0] == module
             and (dtype == np.float64 or not case.startswith(DOUBLES))]  # fmt: skip
    found = []
    for plain in (False, True):
        rng = np.random.default_rng(5)
        x, y = rng.normal(size=(2, 64)).astype(dtype)
        z = rng.normal(size=64).astype(np.float32 if dtype == np.float64 else np.float64)
        many = 512 // (8 * x.itemsize)
        start = np.arange(many)[::-1] * (many + 3)
        wide, lines = rng.normal(size=(2, 40 * many)).astype(dtype)
        outs = np.ones((len(cases), 64), dtype)
        magic = dtype(lanes.MAGIC if dtype == np.float64 else lanes.MAGIC_32)
        with np.errstate(all="ignore"):
            function(module, cases, plain)(outs, x, y, z, start, wide, lines, magic)
        found.append((dict(zip(cases, outs)), x, y, z, wide, lines))
    for case in cases:
        np.testing.assert_array_equal(found[1][0][case], found[0][0][case], case)
    for compiled, twin in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(twin, compiled)


A = np.zeros(20)
BAD = {
    "in front": lambda: _plain.load_lanes(A, -1),
    "beyond": lambda: _plain.load_lanes(A, 13),
    "beyond, of another kind": lambda: _plain.load_as(_plain.lone(A), A, 20),
    "stored in front": lambda: _plain.store_lanes(A, -8, _plain.splat(A, 1.0)),
    "stored beyond": lambda: _plain.store_lanes(A, 13, _plain.splat(A, 1.0)),
    "one in front": lambda: _plain.at(A, -1),
    "one beyond": lambda: _plain.at(A, 20),
    "strided": lambda: _plain.load_lanes(A[::2], 0),
    "a row too far": lambda: _plain.rows_into_lanes(A, np.arange(8) + 6, 0, np.zeros(64)),
    "a line too short": lambda: _plain.rows_out_of_lanes(A, np.arange(8), 0, np.zeros(63)),
    "an address in front": lambda: _plain.get(_plain.address(A) - 8),
    "an address beyond": lambda: _plain.put(_plain.address(A) + 160, 1.0),
    "lanes of an address": lambda: _plain.load(_plain.address(A) + 104),
    "within a number": lambda: _plain.get(_plain.address(A) + 4),
    "an address of whole numbers": lambda: _plain.address(np.arange(9)),
    "an address with strides": lambda: _plain.address(A[::2]),
}


@pytest.mark.parametrize("case", BAD)
def test_twins_check_every_index(case):
    with pytest.raises(IndexError):
        BAD[case]()
    assert not A.any()


def test_lanes_are_values():
    x = _plain.load_lanes(np.arange(8.0), 0)
    y = x
    y += 1.0
    assert x[0] == 0.0
    assert y[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 3.0
    with pytest.raises(TypeError, match="lanes"):
        x + _plain.lone(np.zeros(1))
