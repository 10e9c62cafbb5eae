"""Weights of rules from labelled tables.

*Pseudolikelihood* asks of each atom how probable its label is, given those of all others. All it
needs is, for each atom and rule, how many more groundings are true with the atom true than with it
false. A grounding of a clause has a say only where its other literals are false under the labels:
the database finds these few by the join that would ground the clause, with the labels inside, and
adds them up. What is not a plain clause is grounded and counted here. An atom of a functional
predicate is looked at together with those of its key: which of them is true, given the rest.

Every other objective of :mod:`minfer.learn` ("marginals": the loss of the marginals, by a gradient
through the solver) works on the grounded graph, whose numbers are theta_0 + X w: X counts how often
a rule's weight is in each factor. Hard rules, priors of candidates and weights that are kept are
theta_0. With a threshold that graph is grounded lazily: it has the groundings whose gains, under
priors and the weights that learning begins with, reach it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_choice, check_number
from minfer.basics.words import counted
from minfer.errors import ContradictionError, ModelError, RefusedError, SettingsError, visible
from minfer.factors.features import Features
from minfer.model.states import did_you_mean
from minfer.rules.blocks import Block, Floats, false_given
from minfer.rules.formulas import atoms
from minfer.rules.ground import Grounding, Part
from minfer.rules.joins import alike
from minfer.rules.model import automaton_of, block_weights, build, weight_of
from minfer.rules.parse import Rule, parse_rule
from minfer.rules.plan import check_size, make_plan
from minfer.rules.schema import by_atom
from minfer.rules.selection import Selector

if TYPE_CHECKING:
    from minfer.learn.model import Instance
    from minfer.rules.joins import ClauseJoin
    from minfer.rules.program import Rules
    from minfer.rules.schema import Predicate

_MOST_ALIKE = 5  # literals that may be the same atom, beyond which a clause is grounded

Key = tuple[str, ...]
#: The weight of a rule, or those of its keys where it has a +.
Weight = float | dict[Key, float]


@dataclass(frozen=True)
class Learned:
    """What was learned.

    Attributes
    ----------
    program : the first program, with the learned weights
    weights : {formula: weight}, of rules with a ``+`` {values: weight}; those that were kept too
    objective : its name
    status : "converged", or how else it ended
    loss : of a label, in nats: of its probability given all other labels, or of its marginal
    labels : how many atoms were learned from
    missed : true rows of the label tables that are not candidates: for the model these are false
    advice : what to do about a status that is not "converged"
    """

    program: Rules
    weights: dict[str, Weight]
    objective: str
    status: str
    loss: float
    labels: int
    missed: int = 0
    advice: str = ""

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def __getitem__(self, formula: str) -> Weight:
        """The weight of a rule, or those of its keys."""
        name = _normal(formula, self.weights)
        if name not in self.weights:
            raise ModelError(f"there is no rule {visible(formula)}")
        return self.weights[name]

    def rescaled(self, program: Rules) -> dict[str, Weight]:
        """Weights for a program with domains of another size, as ``with_weights`` takes them.

        A rule's weight is divided by how many times more groundings it has there for an atom that
        it is about, so that all of them together push as hard as before. That is right where
        groundings push in the same direction (a hundred friends), and wrong where most of them
        say nothing (transitivity over pairs that are all improbable): check on labels of the new
        size, and prefer to learn there.
        """
        before, now = _groundings(self.program), _groundings(program)
        out: dict[str, Weight] = {}
        for name, weight in self.weights.items():
            then = before.get(name, 0.0)
            ratio = then / now[name] if then and now.get(name) else 1.0
            if isinstance(weight, dict):
                out[name] = {k: w * ratio for k, w in weight.items()}
            else:
                out[name] = weight if math.isinf(weight) else weight * ratio
        return out

    def __str__(self) -> str:
        lines = [
            f"{self.objective}: {self.loss:.4g} nats a label, {counted(self.labels, 'label')}; "
            f"{self.status}"
        ]
        if self.missed:
            verb = "is not a candidate" if self.missed == 1 else "are not candidates"
            lines[0] += f"; {counted(self.missed, 'true label')} {verb}"
        for name, weight in self.weights.items():
            if isinstance(weight, dict):
                lines.append(f"{counted(len(weight), 'weight'):>9}  {visible(name)}")
            elif math.isinf(weight):
                lines.append(f"{'hard':>9}  {visible(name)}")
            else:
                lines.append(f"{weight:+9.3f}  {visible(name)}")
        return "\n".join(lines)


def learn(
    programs: Sequence[Rules],
    labels: Sequence[Mapping[str, Any]],
    objective: Any = "pseudolikelihood",
    *,
    prior: float | None = 2.0,
    mean: str = "zero",
    truth: bool | str | Mapping[str, bool | str] = True,
    keep: Iterable[str] = (),
    solver: Any = None,
    start: Learned | None = None,
    threshold: float | None = None,
    **settings: Any,
) -> Learned:
    """Weights from several programs that have their rules in common, and the labels of each.

    See :meth:`minfer.Rules.learn`. Programs share nothing but the weights: folds, cities, years.
    """
    programs, labels = list(programs), list(labels)
    if not programs or len(programs) != len(labels):
        raise SettingsError(f"learn: {len(programs)} programs, {len(labels)} mappings of labels")
    check_choice("mean", mean, ("zero", "given"))
    if prior is not None:
        check_number("prior", prior, above=0.0)
    rules = programs[0].rules
    texts = _named(rules)
    for other in programs[1:]:
        if _named(other.rules) != texts:
            raise ModelError("learn: the programs have different rules")
    kept = _kept(texts, rules, keep)
    if all(kept):
        raise ModelError("learn: no rule is left whose weight could be learned")
    weights = _Weights(rules, kept, mean == "given")
    data = [_Labelled(p, t, truth, weights) for p, t in zip(programs, labels)]
    n_labels = sum(d.n_labels for d in data)
    if not n_labels:
        raise ModelError("learn: there is nothing to learn from: no atom has a label")
    if objective == "pseudolikelihood":
        if solver is not None or threshold is not None or settings:
            told = {"solver": solver, "threshold": threshold}
            what = next(name for name, x in (told | settings).items() if x is not None)
            raise SettingsError(f"learn: {what}= is for objectives on the grounded graph")
        found, loss, status, advice = _by_counts(data, weights, prior, start)
        name = "pseudolikelihood"
    else:
        found, loss, status, advice, name = _on_graphs(
            data, weights, objective, prior, solver, start, threshold, settings
        )
    learned = dict(zip(texts, weights.by_rule(found)))
    program, missed = programs[0].with_weights(learned), sum(d.missed for d in data)
    return Learned(program, learned, name, status, loss, n_labels, missed, advice)


def with_weights(rules: Sequence[Rule], given: Mapping[str, Weight]) -> list[Rule]:
    texts = _named(rules)
    given = {_normal(name, texts): weight for name, weight in given.items()}
    unknown = [name for name in given if name not in texts]
    if unknown:
        hint = did_you_mean(unknown[0], texts)
        raise ModelError(f"with_weights: there is no rule {visible(unknown[0])}{hint}")
    out = []
    for name, rule in zip(texts, rules):
        if name not in given:
            out.append(rule)
            continue
        new = given[name]
        if isinstance(new, Mapping):
            bare = replace(rule, weight=None, text=str(rule.formula))
            out.append(bare.with_weights(new))
        else:
            rule = rule.with_weight(new)
            text = f"{rule.formula}." if rule.hard else f"{rule.weight:.4g}: {rule.formula}"
            out.append(replace(rule, weights=None, text=text))
    return out


def _normal(name: str, texts: Iterable[str]) -> str:
    """A formula as rules are named by it, however it was written."""
    return name if name in texts else str(parse_rule(name).formula)


def _named(rules: Sequence[Rule]) -> list[str]:
    """Names of rules: their formulas, numbered where one is there twice."""
    out: list[str] = []
    for rule in rules:
        name, k = str(rule.formula), 1
        while name in out:
            k += 1
            name = f"{rule.formula} #{k}"
        out.append(name)
    return out


def _kept(texts: list[str], rules: Sequence[Rule], keep: Iterable[str]) -> list[bool]:
    """Which rules keep their weights: hard ones, and those that are named."""
    out = [rule.hard for rule in rules]
    for name in [keep] if isinstance(keep, str) else keep:
        wanted = _normal(name, texts)
        if wanted not in texts:
            raise ModelError(f"keep: there is no rule {visible(name)}")
        k = texts.index(wanted)
        if rules[k].weight is None and rules[k].weights is None:
            raise ModelError(f"keep: {rules[k].name} has no weight")
        out[k] = True
    return out


class _Weights:
    """The weights that are learned: a column for each, rules with a + one for each key."""

    def __init__(self, rules: Sequence[Rule], kept: list[bool], given: bool) -> None:
        self.rules, self.kept, self.given = list(rules), kept, given
        self.columns: dict[tuple[int, Key | None], int] = {}

    def places(self, rule: int, keys: list[Key] | None) -> NDArray[np.int64]:
        listed: list[Key | None] = [None] if keys is None else list(keys)
        found = [self.columns.setdefault((rule, key), len(self.columns)) for key in listed]
        return np.array(found, dtype=np.int64)

    def mean(self) -> Floats:
        """What weights are before any data are seen."""
        return self._given(self.rules) if self.given else np.zeros(len(self.columns))

    def started(self, start: Learned | None) -> Floats:
        """The weights to begin with: those of another run, else what they are expected to be."""
        if start is None:
            return self.mean()
        if _named(start.program.rules) != _named(self.rules):
            raise ModelError("start: its rules differ from those of this program")
        return self._given(start.program.rules)

    def _given(self, rules: Sequence[Rule]) -> Floats:
        out = np.zeros(len(self.columns))
        for (k, key), place in self.columns.items():
            out[place] = dict(rules[k].weights or ()).get(key or (), rules[k].weight or 0.0)
        return out

    def by_rule(self, found: Floats) -> list[Weight]:
        """The weights of all rules, in order; those that were kept as they are."""
        out: list[Weight] = []
        for k, rule in enumerate(self.rules):
            if self.kept[k]:
                out.append(dict(rule.weights) if rule.weights else float(rule.weight or 0.0))
            elif rule.plus:
                out.append({
                    key: float(found[c]) for (r, key), c in self.columns.items()
                    if r == k and key is not None
                })  # fmt: skip
            else:
                place = self.columns.get((k, None))
                prior = (rule.weight or 0.0) if self.given else 0.0
                out.append(prior if place is None else float(found[place]))
        return out


class _Labelled:
    """A program and the labels of its atoms: 0, 1, or -1 where there is none."""

    def __init__(
        self,
        program: Rules,
        labels: Mapping[str, Any],
        truth: bool | str | Mapping[str, bool | str],
        weights: _Weights,
    ) -> None:
        if not isinstance(labels, Mapping):
            raise ModelError("learn: labels must be {predicate: table}")
        self.program, self.weights = program, weights
        self.store = program.store
        self.missed = 0
        self.grounder = program.grounder.with_rules([
            rule if kept else replace(rule, weight=None, weights=None)
            for rule, kept in zip(program.rules, weights.kept)
        ])  # fmt: skip
        self.fields = self.store.fields()
        self.known = self.store.known()
        self.y = np.full(self.store.n_atoms, -1, dtype=np.int8)
        for name, source in labels.items():
            p = self.store.open_predicate(name, "labels")
            how = truth.get(name, True) if isinstance(truth, Mapping) else truth
            self._read(p, source, how)
        told = (self.y >= 0) & (self.known < 2) & (self.y != self.known)
        if told.any():
            atom = self.store.atom_texts(np.flatnonzero(told)[:1])[0]
            raise ContradictionError(f"labels and evidence contradict each other about {atom}")
        self.free = self.known == 2
        self.n_labels = int((self.free & (self.y >= 0)).sum())
        self.y = np.where(self.free, self.y, self.known).astype(np.int8)
        self.group, self.exactly = self._groups()

    def _read(self, p: Predicate, source: Any, truth: bool | str) -> None:
        """Labels from a table. Without a column of truths, what is not in it is false."""
        store, what = self.store, f"labels of {visible(p.name)}"
        observed = store.observed(p.name, source, truth, what, labels=True)
        rows = store.truths(observed, p.classes, known=False)
        on = " and ".join(f"a.{c} = l.{c}" for c in p.arguments)
        got = store.con.arrays(
            f"select coalesce(a.id, -1) as id, l.truth as truth, l.clash as clash from "
            f"({by_atom(rows, p.arguments, p.symmetric)}) l left join {p.atoms} a on {on}"
        )
        missing, true = got["id"] < 0, got["truth"].astype(bool)
        ids, clash = got["id"][~missing], got["clash"][~missing].astype(bool)
        if clash.any():
            atom = store.atom_texts(ids[clash][:1])[0]
            raise ContradictionError(f"{what}: {atom} is both true and false")
        n_rows = store.con.one(f"select count(*) from ({rows})")[0]
        n_given = store.con.one(f"select count(*) from {observed.raw.name}")[0]
        self.missed += int(true[missing].sum()) + (n_given - n_rows if truth is True else 0)
        if truth is True:
            self.y[p.first : p.first + p.n] = 0
        self.y[ids] = true[~missing]

    def _groups(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For each atom the first of its key (or itself); there, whether exactly one is true."""
        group, exactly = np.arange(self.store.n_atoms), np.zeros(self.store.n_atoms, dtype=bool)
        for exact, scopes in self.grounder.unique_scopes():
            for scope in scopes:
                group[scope], exactly[scope[0]] = scope[0], exact
                y = self.y[scope]
                true = int((y == 1).sum())
                if true > 1 or (exact and true == 0 and not (y < 0).any()):
                    atom = self.store.atom_texts(scope[:1])[0]
                    words = "exactly one" if exact else "at most one"
                    raise ContradictionError(
                        f"labels: {words} of the {counted(len(scope), 'atom')} with the key of "
                        f"{atom} can be true, but {true} are"
                    )
        return group, exactly

    def differences(self) -> tuple[Any, Any]:
        """Groundings that are true with an atom true, less those with it false.

        Sparse (atoms, weights), and (atoms, 1) of hard rules and of rules that are kept with their
        weights counted in: the first as counts, the second added to the fields.
        """
        needed = {a.predicate for rule in self.grounder.rules for a in atoms(rule.formula)}
        for p in self.store.open_predicates:
            mine = slice(p.first, p.first + p.n)
            if p.name in needed and (self.y[mine] < 0).any():
                raise RefusedError(
                    f"pseudolikelihood needs the labels of all atoms that rules mention; "
                    f"some of {visible(p.name)} have none: label them, or use "
                    'objective="marginals", which uses only known labels'
                )
        entries: list[tuple[NDArray, NDArray, NDArray]] = []
        hard = np.zeros(self.store.n_atoms)
        fixed = np.where(self.free, self.fields, 0.0)
        self.store.set_probabilities(self.y)
        for part in self.grounder.parts:
            rule, kept = self.grounder.rules[part.rule], self.weights.kept[part.rule]
            found = list(self._of_part(part))
            texts = self.grounder.keys[part.rule].texts() if rule.plus else None
            for ids, key, difference in found:
                row = 0 if key is None else key
                if rule.hard:
                    hard += np.bincount(ids, difference, len(hard))
                elif kept:
                    pushes = difference * weight_of(rule, texts)[row]
                    fixed += np.bincount(ids, pushes, len(fixed))
                else:
                    place = self.weights.places(part.rule, texts)[row]
                    entries.append((ids, place + 0 * ids, difference))
        counts = _sparse(entries, self.store.n_atoms, max(len(self.weights.columns), 1))
        return counts, (hard, fixed)

    def _of_part(self, part: Part) -> Iterator[tuple[NDArray, NDArray | None, Floats]]:
        """Atoms, rows of keys, and differences.

        For each literal of a clause, how often all others are false. A literal that is the same
        atom as the one in question is no other; these cases are queries of their own, as a
        condition with OR would undo the filters.
        """
        joins, plus = self.grounder.bindings(part), self.grounder.rules[part.rule].plus
        most = max((len(x) for join in joins for x in alike(join.literals).values()), default=0)
        if most > _MOST_ALIKE:
            check_size(self.grounder, self.program.max_groundings, [part])
        if part.kind != "clause" or most > _MOST_ALIKE:
            for block in self.grounder.blocks(part):
                yield from block_differences(block, self.y, self.group)
            return
        for join in joins:
            for j, mine in enumerate(join.literals):
                places = alike(join.literals)[mine.predicate, mine.positive]
                later = [k for k in places if k > j]
                sizes, sign = range(len(later) + 1), 1.0 if mine.positive else -1.0
                for same in chain.from_iterable(combinations(later, n) for n in sizes):
                    got = self.store.con.arrays(self._query(join, j, same))
                    if len(got["id"]):
                        values = [got[f"k{k}"] for k in range(len(plus))]
                        key = self.grounder.keys[part.rule].rows(values)
                        yield got["id"].astype(np.int64), key, part.share * sign * got["n"]

    def _query(self, join: ClauseJoin, j: int, same: tuple[int, ...]) -> str:
        """SQL (id, k0, ..., n): bindings with all false but literal j and its ``same``."""
        mine = join.literals[j]
        p = self.store.predicates[mine.predicate]
        where = [f"{mine.alias}.known = 2"]
        tables, replaced = {s.alias: s.table for s in join.sources}, {}
        for k, x in enumerate(join.literals):
            if k == j:
                continue
            if k in same:
                where.append(f"{x.alias}.id = {mine.alias}.id")
                continue
            wanted = 0 if x.positive else 1
            false = f"coalesce({x.alias}.p, 0) = 0" if x.optional else f"{x.alias}.p = {wanted}"
            if x.predicate == mine.predicate and p.unique is not None:  # others of its key are so
                on = " and ".join(
                    f"{x.alias}.a{i} = {mine.alias}.a{i}"
                    for i in range(p.arity) if i not in p.unique[0]
                )  # fmt: skip
                where.append(f"(case when {on} then {str(x.positive).lower()} else {false} end)")
            elif x.optional:
                where.append(false)
            else:
                replaced[x.alias] = f"(select * from {tables[x.alias]} where p = {wanted})"
            if (x.predicate, x.positive) == (mine.predicate, mine.positive):
                where.append(f"{x.alias}.id is distinct from {mine.alias}.id")
        keys = [f"{join.variables[v]} as k{k}" for k, v in enumerate(join.plus)]
        listed = ", ".join([f"{mine.alias}.id as id", *keys])
        join = join.present([mine.alias, *(join.literals[k].alias for k in same)])
        return f"select {listed}, count(*) as n {join.from_where(where, replaced)} group by all"

    def ground(self, start: Learned | None = None, threshold: float | None = None) -> Grounding:
        """All groundings, or those whose gains reach a threshold; weights get columns."""
        if threshold is None:
            check_size(self.grounder, self.program.max_groundings)
            grounding = self.grounder.ground()
        else:
            rules = list(self.program.rules)
            if start is not None:
                rules = with_weights(rules, dict(zip(_named(rules), start.weights.values())))
            for rule in rules:
                if rule.weight is None and rule.weights is None:
                    raise SettingsError(
                        f"learn: threshold= needs weights to judge groundings by, and {rule.name} "
                        "has none: give start=, or weights in the rules"
                    )
            grounder = self.program.grounder.with_rules(rules)
            selector = Selector(grounder, self.program.max_groundings)
            log_odds = build(grounder, selector.grounding({})).log_odds
            p = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -700, 700)))
            grounding = selector.grounding(selector.select(p, threshold))
        for block in grounding.blocks:
            if not self.weights.kept[block.rule]:
                self.weights.places(block.rule, grounding.keys.get(block.rule))
        return grounding

    def instance(self, grounding: Grounding, mean: Floats) -> Instance:
        """The graph of all groundings, X, and the labels; theta_0 has X mean in it."""
        from minfer.learn.model import Instance

        rules, kept = self.grounder.rules, self.weights.kept
        numbers = [
            weight_of(rule, grounding.keys.get(k)) if kept[k]
            else np.zeros(max(len(grounding.keys.get(k, ())), 1))
            for k, rule in enumerate(rules)
        ]  # fmt: skip
        model = build(self.grounder, grounding, numbers)
        graph, first = model.graph, model.graph.n_factors
        added = []
        for block in grounding.blocks:  # those over one atom, which would be fields
            if block.scope.shape[1] == 1 and not kept[block.rule]:
                truth = np.array([False, True])
                ids = np.arange(first, first + len(block))
                added.append((block, Features(ids, block.scope, truth, np.zeros(len(block)))))
                first += len(block)
        graph = graph._append(*(group for _, group in added))
        theta = graph.weights
        entries: list[tuple[NDArray, NDArray, NDArray]] = []

        def count(block: Block, places: NDArray, sign: float = 1.0) -> None:
            """Rows ``places`` (F, k) of X: what a factor's weight is, in terms of the rule's."""
            column = self.weights.places(block.rule, grounding.keys.get(block.rule))
            each = column[0 if block.key is None else block.key] + np.zeros(len(block), np.int64)
            value = sign * block_weights(block, np.ones(len(column)))
            entries.extend((places[:, k], each, value) for k in range(places.shape[1]))

        every = np.arange(len(theta))
        where = {int(g._ids[0]): g for g in graph.groups if len(g)}
        for begin, _, number in model.ranges:
            if number < 0 or kept[model.blocks[number].rule]:
                continue
            block, group = model.blocks[number], where[begin]
            places = every[graph._weight_places(group)].reshape(len(group), group.n_weights)
            if block.automaton is not None or group.n_weights > 1:
                _, accepting = block.automaton or automaton_of(block.truth)  # type: ignore[arg-type]
                places = places[:, np.flatnonzero(accepting)]
            count(block, places)
        for block, group in added:
            group = where[int(group._ids[0])]
            places = every[graph._weight_places(group)].reshape(len(group), 1)
            count(block, places, 1.0 if block.up else -1.0)
        x = _sparse(entries, len(theta), len(self.weights.columns))
        graph = graph.with_weights(theta + x @ mean)
        return Instance(graph, x, self.y.astype(np.int32))


def _sparse(entries: list[tuple[NDArray, NDArray, NDArray]], *shape: int) -> Any:
    from scipy import sparse

    none = np.zeros(0, np.int64)
    rows, columns, values = (np.concatenate(x) for x in zip((none, none, np.zeros(0)), *entries))
    return sparse.csr_array((values, (rows, columns)), shape=shape)


def block_differences(
    block: Block, y: NDArray[np.int8], group: NDArray[np.int64]
) -> Iterator[tuple[NDArray, NDArray | None, NDArray]]:
    """Atoms, rows of keys, and how much more is true with an atom true, from grounded factors."""
    n, arity = block.scope.shape
    weight = block.share * (np.ones(n) if block.count is None else block.count)
    labels, groups = y[block.scope].astype(np.int64), group[block.scope]
    for a in range(arity):
        values = np.where(groups == groups[:, a : a + 1], 0, labels)
        values[:, a] = 1
        false = false_given(block, values.astype(np.float64))
        values[:, a] = 0
        difference = weight * (false_given(block, values.astype(np.float64)) - false)
        some = np.flatnonzero(difference)
        if len(some):
            key = None if block.key is None else block.key[some]
            yield block.scope[some, a].astype(np.int64), key, difference[some]


class RulePseudolikelihood:
    """Minus the log of each label's probability given all others: sum, and its gradient.

    One choice for each key (which of its atoms, or none); an atom of a predicate that is not
    functional is alone in its key. Choices that a hard rule leaves no freedom in say nothing.
    """

    def __init__(self, data: _Labelled) -> None:
        self.counts, (hard, self.fixed) = data.differences()
        y, group, known = data.y, data.group, data.known
        true = np.flatnonzero(y == 1)
        label = np.full(len(y), -1, dtype=np.int64)  # the atom of each key that is true
        label[group[true]] = true
        at_label = np.where(label >= 0, hard[label], 0.0)
        settled = np.zeros(len(y), dtype=bool)  # keys of which evidence says it
        settled[group[known == 1]] = True
        open_ = (known == 2) & (y >= 0) & ~settled[group]
        better = (hard > at_label[group]) | ((y == 1) & (hard < 0) & ~data.exactly[group])
        if (open_ & better).any():
            atom = data.store.atom_texts(np.flatnonzero(open_ & better)[:1])[0]
            raise ContradictionError(f"labels: a hard rule forbids that of {atom}")
        self.members = np.flatnonzero(open_ & (hard == at_label[group]))
        self.key = group[self.members]
        self.none = ~data.exactly & ~settled & (at_label == 0)  # keys that may have no true atom
        self.label = np.where(settled, -1, label)

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        scores = self.fixed + self.counts @ w
        s, top = scores[self.members], np.where(self.none, 0.0, -np.inf)
        np.maximum.at(top, self.key, s)
        top[np.isinf(top)] = 0.0  # of keys that are no choice
        each = np.exp(s - top[self.key])
        total = np.bincount(self.key, each, len(top)) + np.where(self.none, np.exp(-top), 0.0)
        has, used = self.label >= 0, total > 0
        away = top - np.where(has, scores[self.label], 0.0)
        value = float(np.sum(np.log(total[used]) + away[used]))
        residual = np.zeros(len(scores))
        residual[self.members] = each / total[self.key]
        residual[self.label[has]] -= 1.0
        return value, np.asarray(self.counts.T @ residual)


def _by_counts(
    data: list[_Labelled], weights: _Weights, prior: float | None, start: Learned | None
) -> tuple[Floats, float, str, str]:
    from minfer.learn.optimise import Minimum, minimise

    parts = [RulePseudolikelihood(d) for d in data]
    width = len(weights.columns)
    if not width:
        raise ModelError("learn: none of the rules to learn affects any label")
    for part in parts:  # later programs may have brought more keys
        part.counts.resize((part.counts.shape[0], width))
    mean, precision = weights.mean(), 0.0 if prior is None else prior**-2.0
    n = sum(d.n_labels for d in data)

    def least(precision: float, x: Floats) -> Minimum:
        def objective(w: Floats) -> tuple[float, Floats]:
            away = w - mean
            value, gradient = 0.5 * precision * float(away @ away), precision * away
            for part in parts:
                v, g = part(w)
                value, gradient = value + v, gradient + g
            return value / n, gradient / n

        return minimise(objective, x, epsilon=1e-7, delta=1e-13, memory=20, max_iterations=2000)

    found = least(precision, weights.started(start))
    endless = np.abs(found.x).max() >= 50
    if prior is None and not endless:
        # an optimum at infinity looks like one when the gradient is small; but a prior ten times as
        # wide lets weights go on by the logarithm of a hundred, where labels bound them by nothing
        narrow, wide = (least(scale**-2.0, mean.copy()).x for scale in (1e2, 1e3))
        endless = np.abs(wide - narrow).max() > 1.0
    good = found.gradient <= 1e-5 and not endless
    status = "converged" if good else "diverging" if endless else "stalled"
    advice = "" if good else "the labels do not bound the weights: give a prior"
    loss = sum(part(found.x)[0] for part in parts) / n
    return found.x, loss, status, advice


def _on_graphs(
    data: list[_Labelled],
    weights: _Weights,
    objective: Any,
    prior: float | None,
    solver: Any,
    start: Learned | None,
    threshold: float | None,
    settings: dict[str, Any],
) -> tuple[Floats, float, str, str, str]:
    from minfer.learn.fitting import fit
    from minfer.learn.objectives import MarginalLoss, objective_of
    from minfer.solvers.bp import BeliefPropagation

    if objective == "marginals":
        objective = MarginalLoss(solver or BeliefPropagation(tol=1e-7, max_iters=500))
    elif solver is not None:
        raise SettingsError('learn: solver= is for objective="marginals"; give an Objective of it')
    objective = objective_of(objective)
    for name in ("l2", "names"):
        if name in settings:
            raise SettingsError(f"learn: {name}= is not set here; prior= is the penalty")
    if threshold is not None:
        check_number("threshold", threshold, above=0.0)
    groundings = [d.ground(start, threshold) for d in data]
    if not weights.columns:
        raise ModelError("learn: none of the rules to learn has a grounding")
    mean = weights.mean()
    instances = [d.instance(g, mean) for d, g in zip(data, groundings)]
    n, own = sum(one.n_labels for one in instances), sum(d.n_labels for d in data)
    settings.setdefault("tol", 1e-4)
    fitted = fit(
        instances, objective, l2=0.0 if prior is None else prior**-2.0 / n,
        start=None if start is None else weights.started(start) - mean, **settings,
    )  # fmt: skip
    loss = fitted.loss * n / own
    return fitted.weights + mean, loss, fitted.status, fitted.advice, objective.name


def _groundings(program: Rules) -> dict[str, float]:
    """Groundings of each rule for an atom that it is about, by formula."""
    store = program.store
    bare = [replace(rule, weight=None, weights=None) for rule in program.rules]
    plan = make_plan(program.grounder.with_rules(bare))
    out = {}
    for name, rule, found in zip(_named(program.rules), program.rules, plan.rules):
        about = {a.predicate for a in atoms(rule.formula) if store.predicates[a.predicate].open}
        n = max((store.predicates[p].n for p in about), default=0)
        out[name] = found.groundings / n if n else 0.0
    return out
