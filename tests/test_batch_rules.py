"""Independent parts of rules, solved side by side: the answer is that of one run."""

from __future__ import annotations

import numpy as np
import pytest

from refused import refused

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


from minfer import BeliefPropagation, ContradictionError, RefusedError, Rules, SettingsError
from minfer.batch.rules import gathered, infer_rules
from test_cli import call

BP = BeliefPropagation(tol=1e-9, max_iters=2000, damping=0.3)


def towns(n: int = 12, size: int = 7) -> Rules:
    """People of some towns who are friends within them, and some who have no friends at all."""
    rng = np.random.default_rng(0)
    pairs = {
        (f"p{t}_{i}", f"p{t}_{j}")
        for t in range(n)
        for i, j in rng.integers(0, 2 + size * t // n, (2 * size, 2)).tolist()
        if i != j
    }
    people = sorted({x for pair in pairs for x in pair} | {"alone", "too"})
    prior = rng.normal(0, 1, len(people))
    program = Rules().closed("f", sorted(pairs), types=("p", "p"), symmetric=True)
    program.open("s", {"x": people, "w": prior}, columns=("x",), types=("p",), log_odds="w")
    program.open("t", people, types=("p",), log_odds=-1)
    program.rule("0.8: f(x, y) ^ s(x) => s(y)").rule("1: f(x, y) ^ s(x) ^ t(x) => s(y) v t(y)")
    return program.rule("0.7: s(x) <=> t(x)")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_parts_give_the_answer_of_the_whole(workers):
    program = towns()
    whole = program.infer(solver=BP, grounding="full")
    answer = infer_rules(program, solver=BP, workers=workers)
    assert np.abs(answer.probabilities - whole.probabilities).max() < 1e-7
    assert answer.status == whole.status
    assert answer.converged
    assert answer.marginals.log_z == pytest.approx(whole.marginals.log_z, abs=1e-6)
    assert answer.kept == whole.kept
    assert answer.query("s(x)")[0][0] == whole.query("s(x)")[0][0]
    assert answer.explain('s("alone")').probability == answer.probability('s("alone")')


def test_components_are_put_together_by_size():
    graph = towns().model.graph
    component = graph.component_labels()
    for most in (1, 3, 1000):
        part = gathered(graph, most)
        assert part.max() < min(most, component.max() + 1)
        for c in range(component.max() + 1):
            assert len(set(part[component == c].tolist())) == 1
    sizes = np.bincount(gathered(graph, 3))
    assert sizes.max() < 2 * sizes.min()
    many = Rules().open("a", list(range(3000))).open("b", list(range(3000)))
    many.rule("1: a(x) => b(x)")
    assert set(np.bincount(gathered(many.model.graph, 7)).tolist()) <= set(range(840, 880))


def test_a_folder_is_kept_and_gone_on_with(tmp_path):
    program = towns(4)
    first = infer_rules(program, solver=BP, workers=1, parts=3, folder=tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert len(list((tmp_path / "models").iterdir())) == 3
    second = infer_rules(program, solver=BP, workers=1, parts=3, folder=tmp_path)
    assert np.array_equal(first.probabilities, second.probabilities)
    kept = [path for path in files if path.suffix in (".minfer", ".parquet")]
    assert all(path.stat().st_mtime_ns == files[path] for path in kept)
    with pytest.raises(RefusedError):
        infer_rules(program.condition("s(alone)"), solver=BP, workers=1, parts=3, folder=tmp_path)


def test_settings_and_contradictions_are_told():
    refused(SettingsError, "workers", infer_rules, towns(2), workers=0)
    refused(SettingsError, "engine", infer_rules, towns(2), engine="abacus")
    program = Rules().open("a", [1, 2, 3]).open("b", [1, 2, 3])
    for rule in ("a(x) v b(x).", "a(x) => b(x).", "b(x) => a(x).", "!a(x) v !b(x)."):
        program.rule(rule)
    refused(ContradictionError, "no world is possible", infer_rules, program, workers=1)


def test_the_command_line_has_workers(tmp_path):
    (tmp_path / "p.mln").write_text("*F(p, p)\nS(p)\n1 F(x, y) ^ S(x) => S(y)\n0.5 S(x)\n")
    (tmp_path / "e.db").write_text("F(A, B)\nF(B, C)\nF(D, E)\nS(A)\n")
    arguments = ["rules", "run", str(tmp_path / "p.mln"), str(tmp_path / "e.db")]
    alone = call(*arguments)
    apart = call(*arguments, "--workers", "1")
    assert alone.exit_code == apart.exit_code == 0, apart.stderr
    head, *rows = alone.stdout.splitlines()  # one of them in one part, the other part by part
    also, *others = apart.stdout.splitlines()
    assert head == also
    for row, other in zip(rows, others, strict=True):
        (a, p), (b, q) = row.split(","), other.split(",")
        assert a == b
        assert float(p) == pytest.approx(float(q), rel=1e-12)
    wrong = call(*arguments, "--workers", "1", "--grounding", "lazy")
    assert wrong.exit_code == 2


@pytest.mark.slow
def test_ray_gives_the_same(tmp_path, cluster):
    program = towns(4)
    whole = program.infer(solver=BP, grounding="full")
    answer = infer_rules(program, solver=BP, engine="ray", workers=2, folder=tmp_path)
    assert np.abs(answer.probabilities - whole.probabilities).max() < 1e-7
