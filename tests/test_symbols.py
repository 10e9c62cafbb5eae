"""One name, one body: what a process compiles can never be taken for what another one compiled.

numba numbers the functions of each process from 1 on. A cache that two processes filled held two
functions under one name, and public answers were silently wrong (numba issue 10486).
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from minfer.kernels.compiling import identity as _identity
from sources import parsed

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(rb"B\d+v(\d+)B")

#: An earlier program: arc probabilities of a batch of sentences.
FIRST = """
import numpy as np
from minfer.parsing import tree_marginals
tree_marginals(np.random.default_rng(8).normal(0, 20, (16, 9, 9)), projective=False)
"""
#: Another one, which has functions of its own, and fits a chain with what the first has left.
SECOND = """
import sys, numba, numpy as np
for k in range(int(sys.argv[1])):
    exec(f"@numba.njit\\ndef own_{k}(x): return x + {k}")
    globals()[f"own_{k}"](1.0)
from minfer.learn import ChainCRF
rng = np.random.default_rng(3)
sentences = [[[f"w{rng.integers(5)}"] for _ in range(6)] for _ in range(20)]
tags = [[str(rng.integers(4)) for _ in s] for s in sentences]
crf = ChainCRF(max_iterations=3).fit(sentences, tags)
print(crf.log_likelihood(sentences, tags)[:5].tolist())
"""


def run(code: str, cache: Path, *arguments: object, **more: str) -> str:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "src"), "MINFER_CACHE_DIR": str(cache), **more,
    }  # fmt: skip
    call = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_answers_do_not_depend_on_who_compiled_what_before(tmp_path):
    """Log-likelihoods were -6.5, -63, -2124, -1789 or nan for -8.6, by the number of functions."""
    run(FIRST, tmp_path / "first")
    truth = run(SECOND, tmp_path / "clean", 0)
    for n in range(13):
        shutil.copytree(tmp_path / "first", tmp_path / f"{n}")
        assert run(SECOND, tmp_path / f"{n}", n) == truth, n
        if n % 4 == 0:
            assert run(SECOND, tmp_path / f"{n}", 0) == truth, n  # the next program, from the cache
        shutil.rmtree(tmp_path / f"{n}")


#: Two functions of one name, in a file each, that call what is too large to be inlined.
CLOSURE = """
import numba
import minfer.kernels.compiling.identity

def make(sign):
    def body(x):
        total = 0.0
        for k in range(1000):
            total += (x + k) ** 2 % 7
            if total > 1e9:
                total -= x * k
                print(total)
        return sign * total
    return numba.njit(body)

inner = make({sign})

@numba.njit(cache=True)
def outer(x):
    return inner(x) + inner(x + 1.0)
"""


@pytest.mark.parametrize("order", [("plus", "minus"), ("minus", "plus")])
@pytest.mark.slow
def test_caches_of_numba_do_not_meet_either(tmp_path, order):
    """Two functions that two processes cached, called in a third."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, sign in (("plus", 1.0), ("minus", -1.0)):
        (folder / f"{name}.py").write_text(CLOSURE.format(sign=sign))
    path = f"{ROOT / 'src'}{os.pathsep}{folder}"
    for names in (["plus"], ["minus"], order):
        code = "".join(f"import {name}; print({name}.outer(2.0))\n" for name in names)
        found = run(code, tmp_path / "cache", PYTHONPATH=path).split()
    values = dict(zip(order, map(float, found), strict=True))
    assert values["plus"] == -values["minus"] > 0


#: Kernels that compile in no time.
SMALL = """
import numpy as np
from minfer.kernels.arithmetic import vexp
x = np.array([0.0, np.log(3.0)])
assert abs(vexp.log_dot(x, x, 0, 0, 2) - np.log(10.0)) < 1e-12
vexp.exp_in_place(x)
assert abs(x[1] - 3.0) < 1e-12
"""


def numbers(cache: Path) -> set[bytes]:
    found = set()
    for path in cache.rglob("*.nbc"):
        content = path.read_bytes()
        assert _identity.counted(content) == ""
        found.update(NUMBER.findall(content))
    return found


@pytest.mark.slow
def test_symbols_of_two_caches_are_disjoint(tmp_path):
    for name in ("one", "other"):
        run(SMALL, tmp_path / name)
    one, other = numbers(tmp_path / "one"), numbers(tmp_path / "other")
    assert len(one) >= 2
    assert len(other) >= 2
    assert not one & other


def test_a_forked_process_draws_other_numbers():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, str(next(_identity._Numbers())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != next(_identity._Numbers())
    os.close(read)
    os.close(write)


def test_counted_names_are_found():
    name = b"_ZN5numba2np8arrayobj18ol_np_zeros$3c_locals$3e4impl%sB22c8tJTEx"
    for number, there in ((b"B3v38B", True), (b"B40v%039dB" % (1 << 127), False)):
        code = b"\0\x7fELF\0other\0" + name % number + b"\0more\0"
        assert (_identity.counted(code) == (name % number).decode()) is there
    assert _identity.counted(b"B3v4B B9v12B") == ""  # lengths that do not fit: not a name


@pytest.mark.slow
def test_a_kernel_with_a_counted_name_is_used_and_not_kept(tmp_path):
    """What was compiled before minfer was loaded may share its name with something elsewhere."""
    (tmp_path / "tiny.py").write_text(
        "from minfer.kernels.compiling.jit import jit\nimport numpy as np\n"
        "@jit\ndef plain(x):\n    return 2 * x\n"
        "@jit\ndef made(n):\n    return np.linspace(0.0, 1.0, n).sum()\n"
    )
    code = (
        "import numba, numpy as np\n"
        "numba.njit(nogil=True, error_model='numpy', fastmath=False)"
        "(lambda n: np.linspace(0.0, 1.0, n).sum())(3)\n"
        "import tiny\nprint(tiny.plain(2), tiny.made(3))\n"
        "from minfer.kernels.compiling import cache\nprint(len(cache.UNSAVED))"
    )
    places = f"{ROOT / 'src'}{os.pathsep}{tmp_path}"
    for expected in ("4 1.5\n1", "4 1.5\n1"):
        assert run(code, tmp_path / "cache", PYTHONPATH=places) == expected
    assert [path.name.partition("-")[0] for path in (tmp_path / "cache").rglob("*.nbc")] == [
        "plain"
    ]


@pytest.mark.slow
def test_where_numba_has_other_names_nothing_is_kept(tmp_path):
    """And everything works: without each part, and without all of them."""
    code = (
        f"{SMALL}\nfrom minfer.kernels.compiling.jit import CACHE_DIR\n"
        "print(len(list(CACHE_DIR.rglob('*.nb?'))))"
    )
    parts = ("symbols", "cache", "frugal", "event")
    for k, without in enumerate([*parts, ",".join(parts)]):
        kept = int(run(code, tmp_path / str(k), MINFER_WITHOUT=without))
        assert (kept > 0) == ("symbols" not in without), without


def test_names_that_numba_does_not_have_are_found_out(monkeypatch):
    identity = numba.core.bytecode.FunctionIdentity
    before = identity._unique_ids
    try:
        identity._unique_ids = iter([5, 6, 7])
        assert _identity.install() == ""
        assert isinstance(identity._unique_ids, _identity._Numbers)
        monkeypatch.delattr(identity, "_unique_ids")
        assert "AttributeError" in _identity.install()
    finally:
        identity._unique_ids = before


#: Files that use names of numba or llvmlite which are not promised to stay, and what is done where
#: one is missing; tests force each.
PRIVATE = {
    "compiling/identity.py": "no kernel is kept (MINFER_WITHOUT=symbols)",
    "compiling/cache.py": "numba's own cache (MINFER_WITHOUT=cache), nothing of the wheel",
    "compiling/frugal.py": "numba's own way of compiling (MINFER_WITHOUT=frugal)",
    "compiling/jit.py": "nothing is announced or timed (MINFER_WITHOUT=event)",
    "arithmetic/lanes.py": "plain twins of intrinsics (NUMBA_DISABLE_JIT=1)",
    "arithmetic/addresses.py": "plain twins of intrinsics (NUMBA_DISABLE_JIT=1)",
    "arithmetic/vexp.py": "plain twins of intrinsics (NUMBA_DISABLE_JIT=1)",
    "cliques/rows.py": "plain twins of intrinsics (NUMBA_DISABLE_JIT=1)",
}
LLVM_ONLY = {place for place, done in PRIVATE.items() if done.startswith("plain twins")}


def dotted(node: ast.AST) -> str:
    """``a.b.c``; nothing for what is no such chain of names."""
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return node.id if isinstance(node, ast.Name) else ""


def private_names(tree: ast.AST) -> set[str]:
    """Names of numba and llvmlite that a file takes from where nothing is promised."""
    found = set()
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"(numba|llvmlite)(\.\w+)+", node.value) else []
        elif isinstance(node, ast.Attribute):
            names = [dotted(node)]
        for name in names:
            root, *parts = name.split(".")
            inner = root == "numba" and any(p == "core" or p.startswith("_") for p in parts)
            if inner and "__" not in name:
                found.add(name)
            if root == "llvmlite":
                found.add(name)
    return found


def test_private_names_of_numba_stay_in_a_few_files():
    for path in sorted((ROOT / "src" / "minfer").rglob("*.py")):
        text = path.read_text("utf-8")
        names = private_names(parsed(path)) if "numba" in text or "llvmlite" in text else set()
        place = "/".join(path.parts[-2:])
        if place not in PRIVATE:
            assert not names, path
        if place in LLVM_ONLY:
            assert all(name.startswith("llvmlite") for name in names), (path, names)


def test_no_kernel_names_an_instruction_of_one_processor():
    """What is written for LLVM compiles on any: lanes and addresses are its own, portable ones."""
    for path in sorted((ROOT / "src" / "minfer" / "kernels").rglob("*.py")):
        text = path.read_text("utf-8")
        assert not re.search(r"llvm\.(x86|aarch64|arm)\b|InlineAsm|inline_asm", text), path
