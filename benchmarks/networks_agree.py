"""Are the answers the same? minfer and pyAgrum under drawn evidence.

Evidence is drawn in several ways, so that much of it is possible and some is not: states of one
case of the network, states at random, likelihoods with and without zeros. pyAgrum calculates in
plain numbers: what it calls impossible though its probability is only below the smallest double is
counted as such. Anything else that differs is a fault, printed with what makes it again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minfer
from minfer import ContradictionError
from minfer_experiments.measure import Stopwatch
from networks_page import TOLERANCE
from networks_peers import Net, PyAgrum

#: Variables up to which all posteriors are compared, beyond it those of a few.
ALL_OF = 120
FEW = 6
UNDERFLOWS = -690.0  # log P(e)
ROWS = 25  # of a table for predict


# ---------------------------------------------------------------------- evidence


def drawn(net: Net, rng: np.random.Generator) -> dict[str, Any]:
    """{name: state's number, or likelihoods}."""
    n = len(net.names)
    share = rng.choice([0.0, 0.02, 0.05, 0.2, 0.5, 0.9], p=[0.1, 0.2, 0.2, 0.3, 0.15, 0.05])
    softly = rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.3, 0.2])
    if n > ALL_OF:  # where little is known for certain these take pyAgrum minutes
        share, softly = rng.choice([0.2, 0.5]), rng.choice([0.0, 0.1])
    k = min(n, max(int(rng.integers(1, 4)), round(share * n)))
    chosen = np.sort(rng.permutation(n)[:k]).tolist()
    case = net.sample(1, rng)[0]
    strange = rng.random() < 0.35  # some states at random: often impossible
    out: dict[str, Any] = {}
    for v in chosen:
        size = len(net.labels[v])
        state = int(case[v])
        if strange and rng.random() < 0.3:
            state = int(rng.integers(size))
        if rng.random() >= softly:
            out[net.names[v]] = state
            continue
        like = rng.random(size) * 10.0 ** rng.integers(-3, 2)
        zeros = rng.random(size) < rng.choice([0.0, 0.4])
        zeros[state] = False
        like[zeros] = 0.0
        if (like > 0).sum() == 1:  # pyAgrum takes that as the state itself, without its weight
            like = (like > 0).astype(float)
        out[net.names[v]] = like.tolist()
    return out


class Tally:
    """What was compared on one network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.net = Net(name)
        self.seconds = 0.0
        self.sets = self.impossible = self.underflow = self.numbers = 0
        self.difference = 0.0
        self.faults: list[str] = []

    def fault(self, text: str) -> None:
        self.faults.append(f"{self.name}: {text}")
        print(f"  FAULT {self.faults[-1]}", flush=True)

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
        if a.shape != b.shape:
            self.fault(f"{what}: shapes {a.shape} and {b.shape}")
            return
        off = float(np.abs(a - b).max()) if a.size else 0.0
        self.numbers += a.size
        self.difference = max(self.difference, off)
        if not off <= TOLERANCE:
            self.fault(f"{what}: off by {off:.2e}")

    @property
    def row(self) -> dict[str, Any]:
        keys = ("sets", "impossible", "underflow", "numbers", "difference", "seconds")
        return {"network": self.name, **{key: getattr(self, key) for key in keys}}


# ---------------------------------------------------------------------- comparing


def answered(peer: PyAgrum, evidence: dict[str, Any]) -> tuple[list[Any] | None, float]:
    """pyAgrum's posteriors and P(e); None where it calls the evidence impossible.

    It may say so when posteriors are asked for, or only when P(e) is.
    """
    try:
        found = peer.first(evidence)
        p_e = float(peer.engine.evidenceProbability())
    except Exception as error:  # of its own kinds
        if "ncompatible" not in str(error) and "Null" not in str(error):
            raise
        return None, 0.0
    sound = p_e > 0 and all(np.isfinite(p).all() for p in found)
    return (found if sound else None), p_e


def compare(tally: Tally, evidence: dict[str, Any], rng: np.random.Generator, seed: str) -> None:
    """One set of evidence by query, with one target, several and all."""
    net, graph = tally.net, tally.net.graph
    n = len(net.names)
    free = [v for v in range(n) if net.names[v] not in evidence] or list(range(n))
    few = rng.choice(free, min(len(free), FEW), replace=False).tolist()
    if rng.random() < 0.3:  # a target that is known
        few[0] = net.names.index(str(rng.choice(list(evidence))))
    together = [net.names[v] for v in few[: int(rng.integers(2, 4))]]
    whole = n <= ALL_OF
    peer = PyAgrum(net.pyagrum, net.names, None if whole else few)
    unseen = [name for name in together if not isinstance(evidence.get(name), int)]
    theirs, p_e = answered(peer, evidence)
    given = {  # a bare number may be a state's name: ours gets names
        name: net.labels[net.names.index(name)][e] if isinstance(e, int) else e
        for name, e in evidence.items()
    }
    target = net.names[few[0]]
    try:
        one = minfer.query(graph, target, given)
        log_pe = one.log_evidence
    except ContradictionError:
        tally.impossible += 1
        if theirs is not None:
            tally.fault(f"{seed}: impossible here, P(e) = {p_e:.3g} there")
        for what, call in (
            ("all", lambda: minfer.query(graph, None, given)),
            ("joint", lambda: minfer.query(graph, together, given)),
        ):
            try:
                call()
                tally.fault(f"{seed}: impossible for one target, but not for {what}")
            except ContradictionError:
                pass
        return
    if theirs is None:
        if log_pe < UNDERFLOWS:
            tally.underflow += 1
        else:
            tally.fault(f"{seed}: impossible there, log P(e) = {log_pe:.6g} here")
        return
    tally.same(f"{seed}: log P(e)", log_pe / max(1.0, abs(log_pe)),
               math.log(p_e) / max(1.0, abs(log_pe)))  # fmt: skip
    known = dict(zip(peer.targets, theirs))
    tally.same(f"{seed}: query {target}", one, known[target])
    every = minfer.query(graph, None, given)
    tally.same(f"{seed}: log Z of all", every.log_z / max(1.0, abs(log_pe)),
               log_pe / max(1.0, abs(log_pe)))  # fmt: skip
    for name, p in known.items():
        tally.same(f"{seed}: all, {name}", every[name], p)
    if len(unseen) > 1:
        wide = PyAgrum(net.pyagrum, net.names, [])
        wide.engine.addJointTarget(set(unseen))
        wide.first(evidence)
        tensor = wide.engine.jointPosterior(set(unseen))
        array = tensor.toarray().transpose(  # its axes run against its names
            [list(reversed(tensor.names)).index(name) for name in unseen]
        )
        for what, joint in (
            ("query", minfer.query(graph, together, given)),
            ("joint", every.joint(*together)),
        ):
            table = np.asarray(joint.table)
            at = tuple(slice(None) if name in unseen else int(evidence[name]) for name in together)
            tally.same(f"{seed}: {what} {together}", table[at], array)
            tally.same(f"{seed}: {what} {together} sums to one", table.sum(), 1.0)


def compare_rows(tally: Tally, rng: np.random.Generator, seed: str) -> None:
    """A table of hard evidence by predict: rows that observe the same, and others."""
    net, graph = tally.net, tally.net.graph
    n, count = len(net.names), ROWS if len(net.names) <= ALL_OF else 3
    cases = net.sample(count, rng)
    share = float(rng.choice([0.05, 0.2, 0.5])) if n <= ALL_OF else 0.2
    alike = rng.random() < 0.5
    mask = rng.random((1 if alike else count, n)) < share
    rows = np.where(np.broadcast_to(mask, cases.shape), cases, -1)
    if rng.random() < 0.5:  # some states at random
        other = np.array([[rng.integers(len(s)) for s in net.labels] for _ in range(count)])
        rows = np.where((rows >= 0) & (rng.random(rows.shape) < 0.1), other, rows)
    targets = rng.choice(n, min(n, int(rng.choice([1, 3]))), replace=False).tolist()
    names = [net.names[v] for v in targets]
    columns = {net.names[v]: [net.labels[v][s] if s >= 0 else None for s in rows[:, v].tolist()]
               for v in range(n) if (rows[:, v] >= 0).any() or v in targets}  # fmt: skip
    answer = minfer.predict(graph, columns, names, evidence=list(columns), workers=1)
    for r in range(count):
        evidence = {net.names[v]: int(rows[r, v]) for v in np.flatnonzero(rows[r] >= 0).tolist()}
        peer = PyAgrum(net.pyagrum, net.names, targets)
        theirs, p_e = answered(peer, evidence)
        log_pe = float(answer["log P(e)"][r])
        tally.sets += 1
        if log_pe == -math.inf:
            tally.impossible += 1
            if theirs is not None:
                tally.fault(f"{seed}, row {r}: impossible here, P(e) = {p_e:.3g} there")
            if answer["problem"][r] is None:
                tally.fault(f"{seed}, row {r}: impossible and not marked")
            continue
        if theirs is None:
            if log_pe < UNDERFLOWS:
                tally.underflow += 1
            else:
                tally.fault(f"{seed}, row {r}: impossible there, log P(e) = {log_pe:.6g} here")
            continue
        scale = max(1.0, abs(log_pe))
        tally.same(f"{seed}, row {r}: log P(e)", log_pe / scale, math.log(p_e) / scale)
        for v, name, p in zip(targets, names, theirs):
            ours = [answer[f"P({name}={state})"][r] for state in net.labels[v]]
            tally.same(f"{seed}, row {r}: predict {name}", ours, p)


def agree(names: list[str], n: int, rng: int) -> dict[str, Any]:
    """The network on which least time was spent is next, until there were n sets of evidence."""
    tallies: list[Tally] = []
    for name in names:
        tallies.append(Tally(name))
    done, turn, said = 0, 0, Stopwatch()
    while done < n:
        tally = min(tallies, key=lambda t: (t.sets > 0, t.seconds))
        seed = f"{rng}/{turn}"
        r = np.random.default_rng([rng, turn])
        if turn < len(tallies):
            print(f"  {tally.name}", flush=True)
        spent, before = Stopwatch(), tally.sets
        try:
            if turn % 6 == 5:
                compare_rows(tally, r, seed)
            else:
                evidence = drawn(tally.net, r)
                tally.sets += 1
                compare(tally, evidence, r, seed)
        except Exception as error:
            tally.fault(f"{seed}: {type(error).__name__}: {error}")
        if turn >= len(tallies):  # first turns compile
            tally.seconds += spent.cpu
        done += max(1, tally.sets - before)
        turn += 1
        if said.wall > 30:
            said = Stopwatch()
            faults = sum(len(t.faults) for t in tallies)
            print(f"  {done:,} of {n:,}, {faults} faults; now {tally.name}", flush=True)
    for tally in tallies:
        row = tally.row
        print("  " + ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{value}"
                               for key, value in row.items()), flush=True)  # fmt: skip
    faults = [text for tally in tallies for text in tally.faults]
    return {"n": done, "rng": rng, "faults": faults, "rows": [t.row for t in tallies]}
