"""A page to play with: the network drawn, a bar for every state, evidence by a click.

What depends on the structure is done here: the clique tree (:mod:`minfer.engine.elimination`) and
the drawing (:mod:`minfer.basics.cards`). The page has the tables, and its script passes messages in
that tree, in logarithms as :class:`minfer.Exact` does: every click is answered exactly, at once.
Where a variable can be set in the page, its own table is apart from all others, whose tree serves
without it too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.cards import layered, spread
from minfer.basics.checks import check_flag, check_graph, check_type, told
from minfer.basics.words import counted
from minfer.engine.conditioning import condition
from minfer.engine.decomposition import only_tables
from minfer.engine.elimination import CliqueTree, clique_tree, links, tree_over
from minfer.engine.layout import Flat, flatten
from minfer.errors import ContradictionError, ModelError, RefusedError, SettingsError
from minfer.graph import FactorGraph, with_any_evidence
from minfer.io.text import PathLike, write_bytes
from minfer.model.directed import intervention
from minfer.model.evidence import Evidence
from minfer.model.joint import Joint
from minfer.queries.query import query
from minfer.report.page import page
from minfer.say.answers import set_text
from minfer.solvers.clique_passes import pass_messages
from minfer.solvers.conflicts import located
from minfer.solvers.plans import acted_on, plan_for
from minfer.solvers.pruning import prune, structure_of

__all__ = ["Explorer", "explore"]

#: Cells of all cliques, and variables, up to which a page answers and can be read.
MAX_CELLS, MAX_VARIABLES = 1 << 20, 1500
#: Sizes of a card in pixels. One with more states shows a histogram instead of a line for each.
WIDTH, HEAD, ROW, FOOT, MAX_ROWS, HISTOGRAM = 172, 27, 19, 4, 12, 84
#: Numbers of a variable's own table up to which the page shows its first rows.
MAX_TABLE = 4096
_HEIGHT = 640  # of the page within a notebook


@dataclass(frozen=True)
class Explorer:
    """A page that answers in the browser; in a notebook it shows itself."""

    html: str

    def write(self, path: PathLike) -> None:
        """Write the page to a file, atomically; ``-`` is standard output."""
        write_bytes(path, self.html.encode())

    def __repr__(self) -> str:
        return f"Explorer({len(self.html):,} characters of HTML; write(path) makes it a file)"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="network" '
            f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8884;border-radius:8px">'
            "</iframe>"
        )


def explore(
    model: FactorGraph,
    evidence: Evidence | None = None,
    *,
    do: Evidence | None = None,
    targets: Sequence[int | str] | None = None,
    fix: bool = False,
    title: str = "",
) -> Explorer:
    """A page to play with: click on states, and all posteriors follow, computed in the page.

    Parameters
    ----------
    model : FactorGraph
        A Bayesian network is drawn in layers with arrows, any other model as a graph. Evidence on
        it is set when the page opens and can be taken back there; soft evidence is built in.
    evidence : {variable: state, or likelihoods}, optional
        More of it, as in :func:`minfer.query`.
    do : {variable: state}, optional
        What is set when the page opens. In the page of a Bayesian network, a second click on a
        state sets the variable, a third one takes that back.
    targets : names or numbers of variables, optional
        Show these, what is observed, and what they depend on; all others are summed out before.
    fix : bool
        Build evidence and what is set in: it cannot be taken back in the page, and makes a smaller
        one, without what it cuts off from the targets.
    title : str
        What the network is called.

    Returns
    -------
    Explorer
        Has ``html`` and ``write(path)``; as the last line of a notebook's cell it shows the page.

    Raises
    ------
    RefusedError
        If the cliques have more than 2**20 cells, or there are more than 1,500 variables.

    Examples
    --------
    >>> import minfer
    >>> from minfer.examples import sprinkler
    >>> page = minfer.explore(sprinkler(), title="sprinkler")
    >>> page.html[:15], "https:" in page.html
    ('<!DOCTYPE html>', False)
    """
    check_graph(model, "explore")
    check_type(title, str, "explore: title must be a string")
    check_flag("fix", fix)
    acted = acted_on(model, do, evidence)
    done = {} if do is None else intervention(model, do)
    graph = with_any_evidence(acted if fix else model, evidence)
    before, seen = _without_evidence(graph)
    if not fix:
        graph = before
    try:
        given, given_log = _built_in(graph)
    except ContradictionError as error:
        raise located(error, before, seen, {}) from None
    if fix and done:
        given.insert(0, {"text": set_text(model, done)})
        done = {}
    if targets is not None:
        graph, seen, done = _part(graph, targets, seen, done, fix)
    if graph.n_variables > MAX_VARIABLES:
        raise RefusedError(
            f"explore: {counted(graph.n_variables, 'variable')} are too many to look at (up to "
            f"{MAX_VARIABLES:,}); keep what some of them depend on (targets=...), or "
            "use `minfer run`, which answers without a drawing"
        )
    engine = _engine(graph, fix, targets is not None)
    if done and engine["own"] is None:
        raise RefusedError(
            "explore: no variable can be set in the page of this model, whose own tables make its "
            f"clique tree too large; {_smaller(fix, targets is not None)}"
        )
    if (seen or done) and not fix:
        begun = acted_on(graph, done)
        try:  # or the page would begin with what cannot be
            possible = only_tables(condition(begun._observing(seen)))
            pass_messages(possible, clique_tree(possible))
        except ContradictionError as error:
            raise located(error, begun, seen, {}) from None
    parents = _parents(graph)
    heights = [ROW * s if s <= MAX_ROWS else HISTOGRAM for s in graph.n_states.tolist()]
    sizes = np.array([(WIDTH, HEAD + FOOT + h) for h in heights], dtype=float).reshape(-1, 2)
    variables = counted(graph.n_variables, "variable")
    if parents is None:
        drawing = spread([graph.scope(f).tolist() for f in range(graph.n_factors)], sizes)
        about = f"Undirected model: {variables}, {counted(graph.n_factors, 'factor')}"
    else:
        drawing = layered(parents, sizes)
        about = f"Bayesian network: {variables}, {counted(sum(map(len, parents)), 'arc')}"
    data = {
        "about": about,
        "directed": parents is not None,
        "tables": None if parents is None else [_table(graph, v) for v in range(graph.n_variables)],
        "names": [graph.name(v) for v in range(graph.n_variables)],
        "states": [list(graph.states(v)) for v in range(graph.n_variables)],
        "evidence": [] if fix else [[v, s] for v, s in seen.items()],
        "done": [[v, s] for v, s in done.items()],
        "given": given,
        "given_log": given_log,
        "card": {"width": WIDTH, "head": HEAD, "row": ROW, "rows": MAX_ROWS},
        "nodes": np.concatenate([drawing.corners, sizes], axis=1).round(1).tolist(),
        "edges": drawing.edges,
        "dots": drawing.dots.round(1).tolist(),
        "size": list(drawing.size),
        "engine": engine,
    }
    return Explorer(page(data, title or "network", "explore"))


def _without_evidence(graph: FactorGraph) -> tuple[FactorGraph, dict[int, int]]:
    """The model before it was conditioned, and what it was conditioned on."""
    if graph._field is None:
        return graph, {}
    log_field, seen = graph._field.copy(), {}
    for v in range(graph.n_variables):
        own = log_field[graph._offsets[v] : graph._offsets[v + 1]]
        if len(own) > 1 and _is_observed(own):
            seen[v] = int(own.argmax())
            own[:] = 0.0
    return graph._renumbered(_field=log_field), seen


def _is_observed(log_field: NDArray[np.float64]) -> bool:
    """Whether nothing else was ever said of a variable's states: 0 for one, minus infinity for the
    others."""
    return bool((log_field > -np.inf).sum() == 1 and log_field.max() == 0.0)


def _built_in(graph: FactorGraph) -> tuple[list[dict[str, str]], float | None]:
    """What the page cannot take back, in words, and the log of its probability.

    None where that takes a larger computation than the page's: of the whole model.
    """
    if graph._field is None or not graph._field.any():
        return [], 0.0
    out = []
    for v in range(graph.n_variables):
        own = graph._field[graph._offsets[v] : graph._offsets[v + 1]]
        if not own.any():
            continue
        name, states = graph.name(v), graph.states(v)
        if _is_observed(own):
            text = f"{name} = {states[int(own.argmax())]}"
        else:
            top = float(own.max())
            like = np.exp(own - (top if abs(top) > 50.0 else 0.0))
            text = ", ".join(f"{s}: {p:.4g}" for s, p in zip(states[:MAX_ROWS], like.tolist()))
            text = f"{name} ~ {text}{', ...' * (len(states) > MAX_ROWS)}"
        out.append({"text": text})
    for whole in (graph._renumbered(_field=None), graph):
        if plan_for(whole, (), (), (), whole=True).cells > MAX_CELLS:
            return out, None
    answer = query(graph, [0])
    assert isinstance(answer, Joint)
    return out, answer.log_evidence


def _part(
    graph: FactorGraph,
    targets: Sequence[int | str],
    seen: dict[int, int],
    done: dict[int, int],
    fix: bool,
) -> tuple[FactorGraph, dict[int, int], dict[int, int]]:
    """What some variables depend on, and what is observed and set of it, numbered anew."""
    if isinstance(targets, (str, bytes)) or not np.iterable(targets):
        raise SettingsError(f"explore: targets must be a list of variables, not {told(targets)}")
    wanted = [graph.index(v) for v in targets]
    if not wanted:
        raise SettingsError("explore: name at least one target, or none to show all")
    if fix:  # known for good: they part what lies behind them from the targets
        part = prune(graph, wanted, seen, check=False)
    else:
        part = prune(graph, [*wanted, *seen, *done], (), check=False)
    number = {v: k for k, v in enumerate(part.variables.tolist())}
    seen, done = ({number[v]: s for v, s in x.items() if v in number} for x in (seen, done))
    return part.graph, seen, done


def _parents(graph: FactorGraph) -> list[list[int]] | None:
    """Of each variable, if all factors are conditional distributions, one to a variable."""
    out: list[list[int] | None] = [None] * graph.n_variables
    for f in range(graph.n_factors):
        child = graph.child(f)
        if child is None or out[child] is not None:
            return None
        out[child] = [v for v in graph.scope(f).tolist() if v != child]
    return [own or [] for own in out] if graph.n_factors else None


def _table(graph: FactorGraph, v: int) -> dict[str, Any] | None:
    """A variable's conditional distribution, its parents' states in the rows; None of those whose
    own was left out behind fixed evidence."""
    try:
        table = graph.conditional(v)
    except ModelError:
        return None
    parents = [graph.index(name) for name in table.given]
    text = _numbers(table.table) if table.table.size <= MAX_TABLE else None
    return {"parents": parents, "text": text, "cells": table.table.size}


# ---------------------------------------------------------------------- the engine's plan


def _engine(graph: FactorGraph, fixed: bool = False, part: bool = False) -> dict[str, Any]:
    """The plan, and the numbers of variables' own tables in it, where these may give way."""
    flat = structure_of(graph).flat
    if flat is not None and graph.directed and not np.isneginf(flat.field).any():
        every = np.ones(graph.n_variables, dtype=bool)
        tree = tree_over(links(flat, every, flat.card), graph.n_variables, float(MAX_CELLS))
        if tree.complete and tree.cells <= MAX_CELLS:
            assert graph._child is not None
            own = np.full(graph.n_variables, -1)
            own[graph._child[flat.ids]] = np.arange(len(flat.ids))
            own[np.add.reduceat(flat.field != 0.0, flat.off[:-1]) > 0] = -1  # known of already
            return _planned(flat, np.full(graph.n_variables, -1), tree, own.tolist())
    model = only_tables(condition(graph))
    tree = clique_tree(model, float(MAX_CELLS))
    if not tree.complete or tree.cells > MAX_CELLS:
        raise RefusedError(
            f"explore: the clique tree of this model has {'' if tree.complete else 'more than '}"
            f"{tree.cells:,.0f} cells, and a page computes with up to {MAX_CELLS:,}; "
            f"{_smaller(fixed, part)}"
        )
    pass_messages(model, tree)  # a model that contradicts itself is told here, not in the page
    return _planned(flatten(model), model.fixed, tree)


def _planned(
    flat: Flat, fixed: NDArray, tree: CliqueTree, own: list[int] | None = None
) -> dict[str, Any]:
    return {
        "card": flat.card.tolist(),
        "fixed": fixed.tolist(),
        "field": _numbers(flat.field),
        "cliques": _lists(tree.variables, tree.ptr),
        "eliminated": tree.n_eliminated.tolist(),
        "parent": tree.parent.tolist(),
        "scopes": _lists(flat.scope, flat.fptr),
        "clique_of": tree.homes(flat.fptr, flat.scope).tolist(),
        "at": flat.toff.tolist(),
        "tables": _numbers(flat.log_psi),
        "own": own,
    }


def _smaller(fixed: bool, part: bool) -> str:
    ways = []
    if not part:
        ways.append("keep what some variables depend on (targets=...)")
    if not fixed:
        ways.append("build evidence in for good (fix=True)")
    ways.append("join states")
    return f"{', '.join(ways)}, or use `minfer run --evidence`, which also answers approximately"


def _lists(values: NDArray, ptr: NDArray[np.int64]) -> list[list[int]]:
    whole = values.tolist()
    return [whole[a:b] for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist())]


def _numbers(values: NDArray[np.float64]) -> str:
    return b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()
