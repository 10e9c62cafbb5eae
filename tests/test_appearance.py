"""Edge appearance probabilities against enumeration: all spanning trees, all vertex subsets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer.errors import RefusedError
from minfer.graph import grid_edges
from minfer.solvers import appearance
from minfer.solvers.appearance import METHODS, edge_appearance


def labels(n, edges):
    """Component label of every vertex (the smallest vertex of its component)."""
    label = list(range(n))
    for u, v in edges:
        a, b = sorted((label[u], label[v]))
        label = [a if x == b else x for x in label]
    return label


def rank(n, edges):
    return n - len(set(labels(n, edges)))


def enumerated(n, edges):
    """Share of the spanning forests that hold each edge, by listing them all."""
    r = rank(n, edges)
    trees = [t for t in combinations(range(len(edges)), r) if rank(n, [edges[e] for e in t]) == r]
    share = np.zeros(len(edges))
    for tree in trees:
        share[list(tree)] += 1.0
    return share / len(trees)


def worst_excess(n, edges, rho):
    """max over vertex sets S, two or more, of rho(E[S]) - |S| + 1."""
    member = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    member = member[member.sum(axis=1) >= 2]
    inside = member[:, edges[:, 0]] * member[:, edges[:, 1]]
    return (inside @ rho - member.sum(axis=1) + 1).max()


def assert_in_polytope(n, edges, rho):
    assert (rho > 0).all()
    for c in set(labels(n, edges)):
        mine = [v for v in range(n) if labels(n, edges)[v] == c]
        total = rho[np.isin(edges[:, 0], mine)].sum()
        assert total == pytest.approx(len(mine) - 1, abs=1e-12 * n)
    if n >= 2:
        assert worst_excess(n, edges, rho) <= 1e-12 * n


@st.composite
def multigraphs(draw, max_vertices=6, max_edges=10):
    n = draw(st.integers(2, max_vertices))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1])
    edges = draw(st.lists(pair, min_size=1, max_size=max_edges))
    return n, np.array(edges, np.int32)


def complete(n):
    return np.stack(np.triu_indices(n, 1), axis=1).astype(np.int32)


def cycle(n):
    return np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1).astype(np.int32)


def random_graph(n, m, seed):
    edges = np.random.default_rng(seed).integers(0, n, (m, 2)).astype(np.int32)
    return edges[edges[:, 0] != edges[:, 1]]


@settings(max_examples=draws(150), deadline=None)
@given(multigraphs())
def test_spanning_tree_weights_equal_enumeration(graph):
    n, edges = graph
    expected = enumerated(n, edges)
    for method in ("spanning-tree", "auto"):
        rho = edge_appearance(n, edges, method)
        np.testing.assert_allclose(rho, expected, atol=1e-10, rtol=0)
        assert_in_polytope(n, edges, rho)


@settings(max_examples=draws(150), deadline=None)
@given(multigraphs(max_vertices=8, max_edges=24))
def test_forests_lie_in_the_polytope_and_bridges_have_one(graph):
    n, edges = graph
    rho = edge_appearance(n, edges, "forests")
    assert_in_polytope(n, edges, rho)
    for e in range(len(edges)):
        if rank(n, np.delete(edges, e, axis=0)) < rank(n, edges):
            assert rho[e] == 1.0
            assert edge_appearance(n, edges)[e] == 1.0


@settings(max_examples=draws(60), deadline=None)
@given(multigraphs(max_vertices=8, max_edges=28), st.integers(1, 3))
def test_the_cover_of_what_few_rounds_leave_is_made_of_forests(graph, rounds):
    """With hardly any Kruskal rounds, the maximum adjacency search has to cover the rest."""
    from minfer.kernels.messages import spanning

    n, edges = graph
    count = np.empty(len(edges), np.int32)
    n_forests = spanning.cover_with_forests(n, edges, rounds, rounds, count)
    assert count.min() >= 1
    assert count.sum() == n_forests * rank(n, edges)
    assert_in_polytope(n, edges, count / n_forests)


@settings(max_examples=draws(60), deadline=None)
@given(multigraphs(max_vertices=7, max_edges=12))
def test_blocks_are_the_classes_of_edges_on_a_common_cycle(graph):
    from minfer.kernels.messages import spanning

    n, edges = graph
    block_of, sizes = spanning.blocks(n, edges)
    for b in range(len(sizes)):
        assert len(set(edges[block_of == b].ravel())) == sizes[b]
    # ranks add up over blocks, and over no finer partition of a block (2-connectedness)
    assert (sizes - 1).sum() == rank(n, edges)
    for b in range(len(sizes)):
        mine = edges[block_of == b]
        if len(mine) > 1:
            for v in set(mine.ravel()) if sizes[b] > 2 else ():
                kept = mine[(mine != v).all(axis=1)]
                assert rank(n, kept) == sizes[b] - 2  # no articulation point inside
            assert rank(n, mine[1:]) == rank(n, mine)  # no bridge inside


def test_spanning_tree_refuses_what_does_not_fit(monkeypatch):
    monkeypatch.setattr(appearance, "_ENTRIES_ASKED", 1000)
    with pytest.raises(RefusedError, match="400 variables"):
        edge_appearance(400, grid_edges(20, 20), "spanning-tree")


def test_resistances_of_a_grid_and_a_long_ladder():
    edges = grid_edges(9, 14)
    n = 9 * 14
    laplacian = np.zeros((n, n))
    np.add.at(laplacian, (edges[:, 0], edges[:, 0]), 1.0)
    np.add.at(laplacian, (edges[:, 1], edges[:, 1]), 1.0)
    np.add.at(laplacian, (edges[:, 0], edges[:, 1]), -1.0)
    np.add.at(laplacian, (edges[:, 1], edges[:, 0]), -1.0)
    inverse = np.linalg.inv(laplacian + 1 / n)  # the pseudoinverse, but for a constant
    u, v = edges.T
    expected = inverse[u, u] + inverse[v, v] - 2 * inverse[u, v]
    np.testing.assert_allclose(edge_appearance(n, edges, "spanning-tree"), expected, atol=1e-12)
    # Far from the ends the rungs of a ladder have resistance 1/sqrt(3), however long it is.
    rho = edge_appearance(100_000, grid_edges(2, 50_000), "spanning-tree")
    assert rho.sum() == pytest.approx(99_999, abs=1e-12 * 100_000)
    assert rho[-25_000] == pytest.approx(3**-0.5, abs=1e-14)
    n_blocks = 20_000
    corners = 3 * np.arange(n_blocks)[:, None] + np.array([1, 2, 3])
    k4 = np.concatenate([np.zeros((n_blocks, 1), np.int64), corners], axis=1)
    edges = k4[:, complete(4)].reshape(-1, 2).astype(np.int32)
    np.testing.assert_allclose(edge_appearance(3 * n_blocks + 1, edges), 0.5, atol=1e-14)


def test_auto_mixes_blocks_solved_in_different_ways(monkeypatch):
    monkeypatch.setattr(appearance, "_WORK_FREE", 0.0)
    monkeypatch.setattr(appearance, "_WORK_PER_EDGE", (100.0, 100.0))
    edges = np.concatenate([grid_edges(30, 30), cycle(5) + 899, complete(5) + 903, [[0, 908]]])
    edges = edges.astype(np.int32)
    rho = edge_appearance(909, edges)
    big = len(grid_edges(30, 30))
    np.testing.assert_array_equal(rho[:big], edge_appearance(900, grid_edges(30, 30), "forests"))
    np.testing.assert_array_equal(rho[big : big + 5], 0.8)
    np.testing.assert_allclose(rho[big + 5 : big + 15], 0.4, atol=1e-14)
    assert rho[-1] == 1.0
    assert rho.sum() == pytest.approx(908, abs=1e-9)


@pytest.mark.parametrize("method", ["auto", "forests"])
def test_large_graphs(method):
    n, edges = 30_000, random_graph(30_000, 90_000, 5)
    rho = edge_appearance(n, edges, method)
    assert rho.min() > 0.0
    assert rho.max() == 1.0
    from minfer.kernels.messages import spanning

    block_of, sizes = spanning.blocks(n, edges)
    np.testing.assert_allclose(np.bincount(block_of, rho), sizes - 1, atol=1e-7, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_same_input_same_output(method):
    for n in (0, 1, 5):  # no edges
        rho = edge_appearance(n, np.empty((0, 2), np.int32), method)
        assert (rho.shape, rho.dtype) == ((0,), np.float64)
    edges = random_graph(300, 700, 9)
    kept = edges.copy()
    first = edge_appearance(300, edges, method)
    np.testing.assert_array_equal(first, edge_appearance(300, edges, method))
    np.testing.assert_array_equal(edges, kept)
    wide = np.asfortranarray(edges.astype(np.int64))
    wide.flags.writeable = False
    np.testing.assert_array_equal(first, edge_appearance(300, wide, method))
