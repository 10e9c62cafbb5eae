"""Data to try rules on: friends and smokers, and records of invented people with duplicates."""

from __future__ import annotations

import random
from difflib import SequenceMatcher
from typing import Any

import numpy as np

_FIRST = [
    "Ada", "Alma", "Anton", "Beate", "Boris", "Carla", "Clemens", "Dora", "Edgar", "Elsa", "Emil",
    "Frieda", "Georg", "Greta", "Hanna", "Hugo", "Ida", "Igor", "Jana", "Jonas", "Karla", "Klaus",
    "Lena", "Linus", "Mara", "Max", "Nora", "Oskar", "Paula", "Pavel", "Rosa", "Ruben", "Selma",
    "Simon", "Tilda", "Tomas", "Ursula", "Viktor", "Wanda", "Yann",
]  # fmt: skip
_LAST = [
    "Adler", "Bauer", "Berger", "Brandt", "Busch", "Diaz", "Dorn", "Ebert", "Falk", "Fuchs",
    "Garcia", "Graf", "Haas", "Hahn", "Jansen", "Keller", "Koch", "Lang", "Lorenz", "Mayer",
    "Novak", "Olsen", "Petrov", "Pohl", "Richter", "Roth", "Sauer", "Schmidt", "Silva", "Sommer",
    "Stein", "Thorn", "Vogel", "Wagner", "Weber", "Winter", "Wolf", "Zander",
]  # fmt: skip
_TOWNS = [
    "Aldenau", "Birkfeld", "Corvia", "Dornbach", "Elmstadt", "Falkenried", "Grunwald", "Havelsee",
]  # fmt: skip


def friends_and_smokers(n: int = 50, degree: int = 4, seed: int = 0) -> dict[str, dict[str, Any]]:
    """People, who is whose friend (both ways), and what is known about some of them.

    Returns columns: ``people`` (person), ``friends`` (x, y), ``known`` (person, smokes).
    Most friends have the same habit.
    """
    rng = np.random.default_rng(seed)
    people = [f"P{k:0{len(str(n))}d}" for k in range(n)]
    smokes = rng.random(n) < 0.3
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < n * degree // 2 and len(pairs) < n * (n - 1) // 4:
        x, y = rng.integers(0, n, 2).tolist()
        if x != y and (smokes[x] == smokes[y] or rng.random() < 0.2):
            pairs.add((min(x, y), max(x, y)))
    both = sorted(pairs | {(y, x) for x, y in pairs})
    known = np.flatnonzero(rng.random(n) < 0.4).tolist()
    return {
        "people": {"person": people},
        "friends": {"x": [people[x] for x, _ in both], "y": [people[y] for _, y in both]},
        "known": {"person": [people[k] for k in known], "smokes": smokes[known].astype(int)},
    }


def duplicate_people(n: int = 60, copies: float = 0.5, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Records of invented people, some with a second or third record that has errors in it.

    A person has a second record with probability ``copies`` and one more with a third of that; at
    2, everybody has two or three.
    Returns columns: ``records`` (record, name, town, born), ``pairs`` (a, b, similarity: of the
    names, from 0 to 1) of records that share a letter at the start of a name or a year, and
    ``truth`` (a, b), the pairs that are the same person.
    """
    rng = random.Random(seed)
    records: list[tuple[str, str, str, int, int]] = []
    for person in range(n):
        name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
        town, born = rng.choice(_TOWNS), rng.randint(1940, 2005)
        count = 1 + (rng.random() < copies) + (rng.random() < copies / 3)
        for copy in range(count):
            said, place, year = name, town, born
            if copy:
                said = _slip(rng, name)
                place = town if rng.random() < 0.7 else rng.choice(_TOWNS)
                year = born if rng.random() < 0.8 else born + rng.choice([-1, 1, 10])
            records.append((f"R{len(records):04d}", said, place, year, person))
    pairs, truth = [], []
    initials = [{word[0] for word in r[1].split()} for r in records]
    matchers = [SequenceMatcher(None, "", r[1].lower()) for r in records]  # each indexed once
    for i, a in enumerate(records):
        for j, b in enumerate(records[i + 1 :], i + 1):
            if initials[i] & initials[j] or a[3] == b[3]:
                matchers[j].set_seq1(a[1].lower())
                likeness = matchers[j].ratio()
                if likeness > 0.4:
                    pairs.append((a[0], b[0], round(likeness, 3)))
            if a[4] == b[4]:
                truth.append((a[0], b[0]))
    names = ("record", "name", "town", "born")
    return {
        "records": {name: [r[i] for r in records] for i, name in enumerate(names)},
        "pairs": {name: [p[i] for p in pairs] for i, name in enumerate(("a", "b", "similarity"))},
        "truth": {name: [p[i] for p in truth] for i, name in enumerate(("a", "b"))},
    }


def _slip(rng: random.Random, name: str) -> str:
    first, last = name.split()
    kind = rng.randrange(4)
    if kind == 0:
        return f"{first[0]}. {last}"
    if kind == 1:
        return f"{last} {first}"
    k = rng.randrange(1, len(last))
    if kind == 2:
        return f"{first} {last[:k]}{last[k:][1:]}"
    return f"{first} {last[:k]}{rng.choice('aeionrst')}{last[k:]}"
