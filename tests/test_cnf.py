"""Weighted CNF files: counts by enumeration, and every complaint with its line."""

from __future__ import annotations

import itertools
import json
import math
import random

import numpy as np
import pytest

import minfer
from draws import draws
from minfer import ContradictionError, Exact, FactorGraph, FormatError, RefusedError
from minfer.factors import Clauses
from minfer.io.cnf import format_cnf, parse_cnf
from refused import refused
from test_cli import ok

TEXT = b"""c t wmc
c a comment in between: 1 2 3
p cnf 4 4
c p weight 1 0.3 0
1 2
 -3 0 -1
c another
2 0
c p weight -1 7e-1 0
4 4 0 -2 2 0
c p weight -4 1/4 0
c p weight 4 3 0
%
0

"""


def count(n: int, clauses: list[list[int]], weights: dict[int, float]) -> float:
    """The weighted model count by its definition."""
    total = 0.0
    for x in itertools.product([False, True], repeat=n):
        if all(any(x[abs(lit) - 1] == (lit > 0) for lit in clause) for clause in clauses):
            total += math.prod(weights.get(v if x[v - 1] else -v, 1.0) for v in range(1, n + 1))
    return total


def test_what_a_file_says():
    graph = parse_cnf("m.cnf", TEXT)
    assert graph.names == ("x1", "x2", "x3", "x4")
    assert graph.n_factors == 4
    assert graph.scope(0).tolist() == [0, 1, 2]
    assert graph.scope(2).tolist() == [3]
    assert not len(graph.scope(3))  # -2 2: always true
    assert np.exp(graph.field).round(12).tolist() == [0.7, 0.3, 1, 1, 1, 1, 0.25, 3]
    clauses = [[1, 2, -3], [-1, 2], [4], [-2, 2]]
    expected = count(4, clauses, {1: 0.3, -1: 0.7, -4: 0.25, 4: 3.0})
    assert Exact()(graph).log_z == pytest.approx(math.log(expected), abs=1e-12)
    first = next(g for g in graph.groups if isinstance(g, Clauses) and g.arity == 3)
    assert first.literal.tolist() == [[1, 1, 0]]


def test_unweighted_files_count_models(tmp_path):
    path = tmp_path / "m.cnf"
    path.write_bytes(b"p cnf 3 2\r\n1 2 3 0\r\n-1 -2 0\r\n")
    assert math.exp(Exact()(minfer.read(path)).log_z) == pytest.approx(5.0)
    other = tmp_path / "formula"  # known by its content
    other.write_bytes(b"c\tsome formula\n" + path.read_bytes())
    told = json.loads(ok("run", str(other), "--json").stdout)
    assert math.exp(told["log_z"]) == pytest.approx(5.0)
    ok("convert", str(other), str(tmp_path / "again.cnf.gz"))
    assert math.exp(Exact()(minfer.read(tmp_path / "again.cnf.gz")).log_z) == pytest.approx(5.0)
    empty = parse_cnf("m", b"p cnf 2 0\n")
    assert math.exp(Exact()(empty).log_z) == pytest.approx(4.0)


@pytest.mark.drawn
def test_drawn_files_against_enumeration():
    for seed in range(draws(300)):
        r = random.Random(seed)
        n = r.randint(1, 6)
        lits = [*range(1, n + 1), *range(-n, 0)]
        clauses = [r.choices(lits, k=r.randint(1, 4)) for _ in range(r.randint(0, 8))]
        weights = {
            lit: r.choice([0.0, 1.0, r.random(), 3e-7]) for v in range(1, n + 1)
            for lit in (v, -v) if seed % 3
        }  # fmt: skip
        weights |= {v: 1.0 for v in range(1, n + 1) if weights.get(v) == weights.get(-v) == 0.0}
        lines = [f"p cnf {n} {len(clauses)}"]
        for lit, w in weights.items():
            lines.insert(r.randint(0, len(lines)), f"c p weight {lit} {w!r} 0")
        glue = r.choice([" ", "\n", "\n\n \t"])
        lines += [glue.join(map(str, clause)) + f"{glue}0" for clause in clauses]
        expected = count(n, clauses, weights)
        try:
            graph = parse_cnf("m", "\n".join(lines).encode())
            found = Exact()(graph).log_z
        except ContradictionError:
            assert expected == 0.0, seed
            continue
        assert found == pytest.approx(math.log(expected), abs=1e-11), seed
        again = parse_cnf("m", text := format_cnf(graph))
        assert format_cnf(again) == text
        assert Exact()(again).log_z == pytest.approx(found, abs=1e-12), seed


#: What follows 'p cnf 3 2', and what is said of it.
WRONG = {
    "1 2 0\n": "line 2: the file ends too early: there are 1 clauses, but 'p cnf' says 2",
    "1 2 0\n1 3 0\n2 0\n": "line 4, column 1, token '2': clause 3, but 'p cnf' says 2",
    "1 2 0\n1 3\n": "line 3: the file ends too early: clause 2 is not ended by 0",
    "1 4 0\n1 3 0\n": "line 2, column 3, token '4': not a literal: the variables are 1 to 3",
    "1 2.5 0\n1 0\n": "line 2, column 3, token '2.5': not a literal",
    "1 x 0\n1 0\n": "line 2, column 3, token 'x': expected a number",
    "1 0\n2 0\nc p weight 4 1 0\n": "line 4, .*4 is no literal: the variables are 1 to 3",
    "1 0\n2 0\nc p weight 0 1 0\n": "line 4, .*should be 'c p weight LITERAL W 0'",
    "1 0\n2 0\nc p weight 1 1\n": "line 4, .*should be 'c p weight LITERAL W 0'",
    "1 0\n2 0\nc p weight 1 -0.5 0\n": "line 4, .*a negative number is not allowed",
    "1 0\n2 0\nc p weight 1 inf 0\n": "line 4, .*infinite or too large",
    "1 0\n2 0\nc p weight 1 nan 0\n": "line 4, .*NaN is not allowed",
    "1 0\n2 0\nc p weight 1 half 0\n": "line 4, .*expected a number",
    "1 0\n2 0\nc p weight 1 1/0 0\n": "line 4, .*a number, or a fraction",
    "c p weight 1 .5 0\n1 0 2 0\nc p weight -1 .5 0\nc p weight 1 .5 0\n":
        "line 5, .*literal 1 had a weight in line 2",
    "1 0\n2 0\nc p weight 1 0.5 0\n": "line 4, .*literal -1 has no weight",
    "1 0\n2 0\nc p show 1 2 0\n": "line 4, .*'c p show 1 2 0': counts of models projected",
    "c t pmc\n1 0\n2 0\n": "line 2, .*projected",
    "1 0\n2 0\nc ind 1 0\n": "line 4, .*projected",
    "cp weight 1 0.5 0\n1 0\n2 0\n": "line 2, .*looks like a weight.*c p weight",
    "w 1 0.5 0\n1 0\n2 0\n": "line 2, .*an old way to write weights.*c p weight",
    "c weights 0.5 0.5\n1 0\n2 0\n": "line 2, .*an old way to write weights.*c p weight",
    "1 0\n2 0\np cnf 3 2\n": "line 4, .*a second line that begins with p",
    "1 0\n2 0\n%\n3 0\n": "line 4, .*nothing but a 0 may follow",
    "1 0\n2 0\n%\nc p weight 1 .5 0\n": "line 4, .*nothing but a 0 may follow",
    "1 0\n2 0\nc p weight 1 1e-400 0\n": "line 4, .*outside 5e-324",
    "1 0\n2 0\nc p weight 1 1e300/1e-300 0\n": "line 4, .*outside 5e-324",
}  # fmt: skip


def test_mistakes_are_told_with_their_line():
    for text, words in WRONG.items():
        refused(FormatError, f"^m.cnf: {words}", parse_cnf, "m.cnf", b"p cnf 3 2\n" + text.encode())
    for text, words in {
        b"": "line 1: there is no line 'p cnf",
        b"1 2 0\np cnf 2 1\n": "line 1, column 1, token '1': a clause before the line 'p cnf'",
        b"p wcnf 2 1\n1 0\n": "line 1, .*only 'p cnf' is read",
        b"p cnf 2\n1 0\n": "line 1, .*should be 'p cnf VARIABLES CLAUSES'",
        b"p cnf -2 1\n1 0\n": "line 1, .*should be 'p cnf VARIABLES CLAUSES'",
        b"p cnf 999999999 1\n1 0\n": "line 1, .*if that many are meant, build the model in Python",
        b"p cnf 1 1\n\0": "this is not text",
    }.items():
        refused(FormatError, f"^m.cnf: {words}", parse_cnf, "m.cnf", text)


def test_contradictions_of_the_model_are_no_mistakes_of_the_file():
    text = b"p cnf 2 2\n1 0\n0\n"
    refused(ContradictionError, "line 3, .*clause 2 is empty", parse_cnf, "m.cnf", text)
    text = b"p cnf 1 0\nc p weight 1 0 0\nc p weight -1 0 0\n"
    refused(ContradictionError, "line 2, .*both weights", parse_cnf, "m.cnf", text)
    with pytest.raises(ContradictionError):
        Exact()(parse_cnf("m.cnf", b"p cnf 2 3\n1 0\n-1 2 0\n-2 0\n"))


def test_what_a_file_cannot_hold_is_refused(tmp_path):
    binary = FactorGraph.empty([2, 2])
    unary = binary.add_tables([[1]], [[0.5, -np.inf]]).add_clauses([[0, 1]], signs=[[-1, 1]])
    again = parse_cnf("m", format_cnf(unary))
    assert np.allclose(again.field, [0, 0, 0.5, -np.inf])
    assert again.n_factors == 1
    path = tmp_path / "m.cnf"
    refused(RefusedError, "3 states", minfer.write, FactorGraph.empty([2, 3]), path)
    for graph in (
        binary.add_clauses([[0, 1]], 2.0),
        binary.add_parity([[0, 1]]),
        binary.add_tables([[0, 1]], [np.zeros((2, 2))]),
    ):
        refused(RefusedError, "factor 0 is .*hard clauses and weights", minfer.write, graph, path)


def test_a_byte_order_mark_is_told():
    with pytest.raises(FormatError, match=r"line 1: .* byte order mark"):
        parse_cnf("m.cnf", b"\xef\xbb\xbfp cnf 1 1\n1 0\n")
