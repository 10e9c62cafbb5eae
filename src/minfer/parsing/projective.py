"""Projective trees, and lifting the others to them (Nivre & Nilsson 2005).

An arc h -> m is projective if every word between h and m descends from h; a tree is projective if
all its arcs are, which is so iff no two arcs cross when the root 0 stands left of the words.

A projective model cannot be trained on another tree. :func:`lift` moves it there by the least: as
long as there is one, the shortest non-projective arc h -> m (of equals the leftmost) becomes
g -> m, where g is the head of h. Lifting takes descendants from h alone, so an arc once
non-projective stays so until it is lifted itself, and only arcs from h can become so.

Trees are heads (n,): the head of word i + 1, 0 for the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from minfer.basics.words import counted
from minfer.errors import ModelError

Heads = Sequence[int] | NDArray[np.integer]


def is_projective(heads: Heads) -> bool:
    """Whether a tree is projective, in linear time.

    >>> is_projective([2, 0, 2]), is_projective([3, 4, 0, 3])
    (True, False)
    """
    return _projective(_numbers(heads))


def _projective(heads: list[int]) -> bool:
    """Words are stacked from left to right; one that lies beside its head leaves when all its own
    dependents have left. In a projective tree, and in no other, all leave."""
    above = [-1, *heads]
    waiting = [0] * len(above)  # dependents that have not left
    for head in heads:
        waiting[head] += 1
    stack = [0]
    for word in range(1, len(above)):
        stack.append(word)
        while len(stack) > 1:
            left, right = stack[-2:]
            if above[left] == right and not waiting[left]:
                waiting[right] -= 1
                del stack[-2]
            elif above[right] == left and not waiting[right]:
                waiting[left] -= 1
                del stack[-1]
            else:
                break
    return len(stack) == 1


def non_projective_arcs(heads: Heads) -> list[int]:
    """The words whose arc from their head is not projective, in order."""
    above = [0, *_numbers(heads)]
    below = _descendants(above)
    return [m for m in range(1, len(above)) if _crossed(above, below, m)]


def lift(heads: Heads) -> NDArray[np.int32]:
    """The projective tree that lifting makes of a tree; itself if it is projective.

    The root of a tree with one root stays the only one: no arc from it can be non-projective.

    >>> lift([3, 4, 0, 3]).tolist()
    [3, 3, 0, 3]
    """
    numbers = _numbers(heads)
    if _projective(numbers):
        return np.array(numbers, dtype=np.int32)
    above = [0, *numbers]
    below = _descendants(above)
    children: list[set[int]] = [set() for _ in above]
    for m, h in enumerate(numbers, 1):
        children[h].add(m)

    queue: list[tuple[int, int, int]] = []
    queued = [False] * len(above)

    def queue_if_crossed(m: int) -> None:
        if not queued[m] and _crossed(above, below, m):
            queued[m] = True
            heappush(queue, (abs(above[m] - m), min(above[m], m), m))

    for m in range(1, len(above)):
        queue_if_crossed(m)
    while queue:
        m = heappop(queue)[2]
        queued[m] = False
        h = above[m]
        above[m] = above[h]
        below[h] &= ~below[m]
        children[h].remove(m)
        children[above[h]].add(m)
        for word in (m, *children[h]):
            queue_if_crossed(word)
    return np.array(above[1:], dtype=np.int32)


@dataclass(frozen=True)
class TreeCounts:
    """What the trees of a treebank are like."""

    sentences: int
    words: int
    longest: int  # words of the longest sentence
    several_roots: int  # sentences with more than one word of head 0
    non_projective: int  # sentences with a non-projective arc
    arcs: int  # non-projective ones
    lifted: int  # words whose head :func:`lift` changes

    def __str__(self) -> str:
        share = 100 * self.non_projective / max(1, self.sentences)
        lifted = 100 * self.lifted / max(1, self.words)
        return (
            f"{counted(self.sentences, 'sentence')}, {counted(self.words, 'word')}; "
            f"{self.non_projective:,} ({share:.1f} %) non-projective, "
            f"{counted(self.lifted, 'arc')} ({lifted:.2f} %) to lift"
        )


def count_trees(trees: Iterable[Heads]) -> TreeCounts:
    """Count words, roots and non-projectivity.

    >>> print(count_trees([[2, 0], [3, 4, 0, 3]]))
    2 sentences, 6 words; 1 (50.0 %) non-projective, 1 arc (16.67 %) to lift
    """
    totals = np.zeros(6, dtype=np.int64)
    longest = 0
    for tree in trees:
        heads = _numbers(tree)
        longest = max(longest, len(heads))
        row = [1, len(heads), heads.count(0) > 1, 0, 0, 0]
        if not _projective(heads):
            lifted = int((lift(heads) != np.array(heads)).sum())
            row[3:] = [1, len(non_projective_arcs(heads)), lifted]
        totals += row
    sentences, words, roots, crossed, arcs, lifted = totals.tolist()
    return TreeCounts(sentences, words, longest, roots, crossed, arcs, lifted)


def _numbers(heads: Heads) -> list[int]:
    """The heads as plain numbers, which must be a tree."""
    numbers: list[int] = np.asarray(heads).tolist()
    if fault := tree_fault(numbers, multi_root=True):
        raise ModelError(f"heads: {fault[1]}")
    return numbers


def _descendants(above: list[int]) -> list[int]:
    """Each word's descendants and itself, as the bits of a number."""
    below = [1 << word for word in range(len(above))]
    waiting = [0] * len(above)
    for head in above[1:]:
        waiting[head] += 1
    leaves = [word for word in range(1, len(above)) if not waiting[word]]
    while leaves:
        word = leaves.pop()
        head = above[word]
        below[head] |= below[word]
        waiting[head] -= 1
        if head and not waiting[head]:
            leaves.append(head)
    return below


def _crossed(above: list[int], below: list[int], m: int) -> bool:
    """Whether a word between m and its head does not descend from the head."""
    low, high = sorted((m, above[m]))
    between = (1 << high) - (1 << low + 1)
    return bool(between & ~below[above[m]])


def tree_fault(heads: Sequence[int], multi_root: bool = False) -> tuple[int, str] | None:
    """Why n heads (head of word i + 1, 0 for the root) are not a tree: the word and what is wrong.

    >>> tree_fault([2, 0])
    >>> tree_fault([2, 3, 2, 0])
    (2, 'words 2 -> 3 -> 2 form a cycle')
    """
    n = len(heads)
    if min(heads, default=0) < 0 or max(heads, default=0) > n:
        word, head = next((k, h) for k, h in enumerate(heads, 1) if not 0 <= h <= n)
        return word, f"word {word} has head {head}, but the words are 1 to {n}"
    above = [0, *heads]
    seen = [0] * (n + 1)  # the walk that came by
    seen[0] = -1
    for first in range(1, n + 1):
        word = first
        while not seen[word]:
            seen[word] = first
            word = above[word]
        if seen[word] == first:
            return _cycle(above, word)
    roots = heads.count(0)
    if roots > 1 and not multi_root:
        first, second = [k for k, h in enumerate(heads, 1) if h == 0][:2]
        return second, (
            f"words {first} and {second} both have head 0: allow several roots (multi_root=True) "
            "if the treebank does"
        )
    return None


def _cycle(above: list[int], word: int) -> tuple[int, str]:
    if above[word] == word:
        return word, f"word {word} is its own head"
    steps = [word]
    while above[steps[-1]] != word:
        steps.append(above[steps[-1]])
    least = steps.index(min(steps))
    steps = steps[least:] + steps[:least]
    shown = [*steps[:8], *["..."] * (len(steps) > 8), steps[0]]
    root = "" if 0 in above[1:] else "; no word has head 0"
    return steps[0], f"words {' -> '.join(map(str, shown))} form a cycle{root}"
