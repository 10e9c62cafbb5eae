"""What the parser sees of a sentence: atoms of tokens, and the templates that conjoin them.

An atom is a 64-bit hash of a string: the form ``w``, lower-cased ``l``, its first ``p`` and last
``s`` three letters, its shape ``z``, other beginnings ``a`` (1), ``b`` (2) and endings ``c`` (1),
``d`` (2), ``e`` (4), the tags ``u`` (UPOS) and ``x`` (XPOS; UPOS where there is
none). ``x+1`` is the tag of the next token. A template names the atoms it conjoins for each role a
token can play, as in McDonald, Crammer & Pereira (2005) for arcs and Smith & Eisner (2008) for
pairs of arcs; its hash chooses a line of weights in a table (Shi et al. 2009).

Forms are hashed once: an :class:`Encoder` keeps what it has seen, up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer.errors import ModelError

if TYPE_CHECKING:
    from minfer.parsing.conllu import Sentence

FORM_ATOMS = "wlpszabcde"
ATOMS = FORM_ATOMS + "ux"

#: Templates by role: single tokens, arcs (head | modifier), grandparents (g | h | m) and siblings
#: (head | left modifier | right modifier).
TEMPLATES: dict[str, tuple[str, ...]] = {
    "head": ("w", "w x", "l", "x", "u", "s x", "x-1 x", "x x+1", "x-1 x x+1"),
    "modifier": (
        *("w", "w x", "l", "x", "u", "s x", "p x", "z x", "x-1 x", "x x+1", "x-1 x x+1"),
        *("l-1 x", "x l+1"),
    ),
    "arc": (
        *("x | x", "u | u", "w x | w x", "l | l", "x | w x", "w x | x", "x | l", "l | x"),
        *("l | u", "u | l", "s x | s x", "x | s x", "s x | x"),
        *("x x+1 | x-1 x", "x-1 x | x-1 x", "x x+1 | x x+1", "x-1 x | x x+1"),
        *("x x+1 | x", "x-1 x | x", "x | x-1 x", "x | x x+1"),
    ),
    "between": ("u | u",),
    "grandparent": (
        *("x | x | x", "u | u | u", "l | x | x", "x | l | x", "x | x | l", "x | | x"),
        *("l | | x", "x | | l", "l | | l", "u | l | l", "u | u | u u+1"),
    ),
    "sibling": (
        *("x | x | x", "u | u | u", "l | x | x", "x | l | x", "x | x | l", " | x | x"),
        *(" | l | x", " | x | l", " | l | l", "l | u | u", "u | u u+1 | u-1 u"),
    ),
    "label": (  # grandparent | head | modifier | its first child; the first three see the distance
        *(" | x | x", " | u | u", " | l | x", " | x | x", " | u | u", " | x | l", " | l | x"),
        *(" | l | l", " | u | w x", " | | w x", " | l | u", " | x | s x", " | s x | x"),
        *(" | x | x-1 x", " | x | x x+1", " | x x+1 | x", " | x-1 x | x", " | x | x-1 x x+1"),
        *("u | x | x", "x | l | x", "x | x | l", " | u | l x+1", " | u | l-1 x"),
        *(" | x | x | l", " | u | u | x", " | u | u | l", " | x | l | l"),
    ),
    "tag": (  # the first three also with the tag before
        *("w", "s", "l+1", "l", "z", "p", "a", "b", "c", "d", "e", "w-1", "w+1", "l-2", "l+2"),
        *("l-1 l", "l l+1", "s-1", "s+1", "z-1 z", "z z+1", "s s+1", "l-1 l+1"),
    ),
}

_ROLES = (("head", 0), ("modifier", 0), ("arc", 0), ("arc", 1), *(
    (kind, role) for kind in ("grandparent", "sibling") for role in range(3)
))  # fmt: skip


_Compiled = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]


def hashed(text: str) -> int:
    """64 bits of a string, the same everywhere."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def shape(form: str) -> str:
    """Letters by case, digits as 0, the rest as it is; runs are cut at two.

    >>> shape("McDonald's"), shape("2010-07")
    ("XxXxx'x", '00-00')
    """
    out = ""
    for c in form:
        s = "X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c
        if out[-2:] != s + s:
            out += s
    return out


def form_atoms(form: str) -> list[int]:
    lower = form.lower()
    texts = (
        *(form, lower, lower[:3], lower[-3:], shape(form)),
        *(lower[:1], lower[:2], lower[-1:], lower[-2:], lower[-4:]),
    )
    return [hashed(f"{name}:{text}") for name, text in zip(FORM_ATOMS, texts)]


def compiled_templates(
    templates: dict[str, tuple[str, ...]] = TEMPLATES,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64], NDArray]:
    """Templates as the kernels read them: atom columns and offsets (T, 4), salts (T,), where
    each of the ten roles begins (11,), keys of the tags between (64,)."""
    parts = []
    for kind, role in _ROLES:
        parts.append(_compiled(kind, role, templates[kind]))
        if kind == "arc":
            parts[-1] = _joined([parts[-1], _compiled("between", role, templates["between"])])
    bounds = np.cumsum([0, *(len(part[0]) for part in parts)])
    return *_joined(parts), bounds, _keys("between", 64)


def tag_templates() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray, NDArray]:
    """The tagger's templates: columns, offsets, salts, and salts with the tags before (5,)."""
    return *_compiled("tag", 0, TEMPLATES["tag"]), _keys("tags before", 5)


def label_templates() -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray, NDArray]:
    """Those for relations: columns, offsets and salts role after role, and distance keys (16,)."""
    roles = [_compiled("label", role, TEMPLATES["label"]) for role in range(4)]
    return *_joined(roles), _keys("distance", 16)


def _compiled(kind: str, role: int, rows: Sequence[str]) -> _Compiled:
    columns = np.full((len(rows), 4), -1, dtype=np.int64)
    offsets = np.zeros((len(rows), 4), dtype=np.int64)
    for t, row in enumerate(rows):
        atoms = row.split("|")[role : role + 1]  # none where a row ends before
        for c, name in enumerate(" ".join(atoms).split()):
            columns[t, c], offsets[t, c] = ATOMS.index(name[0]), int(name[1:] or 0)
    return columns, offsets, _keys(f"template {kind} {role}", len(rows))


def _joined(parts: Sequence[_Compiled]) -> _Compiled:
    columns, offsets, salt = (np.concatenate(part) for part in zip(*parts))
    return columns, offsets, salt


def _keys(name: str, n: int) -> NDArray[np.uint64]:
    return np.array([hashed(f"{name} {k}") for k in range(n)], dtype=np.uint64)


def class_keys(n: int) -> NDArray[np.uint64]:
    """A key for each class of a tagger, and one for the place before the sentence, (n + 1,)."""
    return _keys("class", n + 1)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Sentences as numbers: rows of an encoder's tables."""

    start: NDArray[np.int64]  # (S + 1,), where each sentence's tokens begin in the others
    words: NDArray[np.int32]  # (tokens,), and so on
    upos: NDArray[np.int32]
    xpos: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def tokens(self) -> tuple[NDArray[np.int64], NDArray, NDArray, NDArray]:
        """As the kernels take them."""
        return self.start, self.words, self.upos, self.xpos


class Encoder:
    """Numbers for forms and tags, with the atoms of each. It grows in use: one for each thread.

    Parameters
    ----------
    tags : the UPOS tags that the model tells apart between head and modifier, at most 63
    most : how many forms are remembered before all are forgotten, so that memory is bounded
    """

    def __init__(self, tags: Sequence[str], most: int = 1 << 20) -> None:
        self.tags, self._most = tuple(tags), most
        self._numbers = {tag: 1 + k % 63 for k, tag in enumerate(self.tags)}
        self._root = np.array([hashed(f"{name}:<root>") for name in ATOMS], dtype=np.uint64)
        self._upos, self._xpos = _FeatureTable(_tag_atoms("u")), _FeatureTable(_tag_atoms("x"))
        self._forms = _FeatureTable(form_atoms)

    def encode(self, sentences: Sequence[Sentence]) -> Encoded:
        """Sentences with the tags they have."""
        if len(self._forms) > self._most:
            self._forms = _FeatureTable(form_atoms)
        start = np.zeros(len(sentences) + 1, dtype=np.int64)
        np.cumsum([len(s) for s in sentences], out=start[1:])
        tags = [tag for s in sentences for tag in s.upos]
        fine = map(_fine, tags, chain.from_iterable(s.xpos for s in sentences))
        words = self._forms.numbers(chain.from_iterable(s.forms for s in sentences))
        return Encoded(start, words, self._upos.numbers(tags), self._xpos.numbers(fine))

    def check(self, data: Encoded) -> None:
        """Raise ModelError unless kernels can read these sentences in this encoder's tables.

        They take for granted that every sentence has a word, that all arrays are as long as
        ``start`` says, and that each number in them is a row of its table.
        """
        start, n = data.start, len(data.words)
        ends = len(start) > 0 and start[0] == 0 and start[-1] == n
        if start.dtype != np.int64 or not ends or (np.diff(start) < 1).any():
            raise ModelError("sentences must have at least one word each, one after the other")
        for what, numbers, table in (
            ("words", data.words, self._forms),
            ("upos", data.upos, self._upos),
            ("xpos", data.xpos, self._xpos),
        ):
            if numbers.dtype != np.int32 or numbers.shape != (n,):
                raise ModelError(f"{what} must be int32 of shape ({n},), one for each word")
            if n and (numbers.min() < 0 or numbers.max() >= len(table)):
                raise ModelError(
                    f"{what} has numbers of another encoder: encode the sentences with this one, "
                    "in this thread"
                )

    def tag_numbers(
        self, classes: Sequence[tuple[str, str]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows of UPOS and XPOS for each class of a tagger."""
        coarse, fine = [u for u, _ in classes], [_fine(u, x) for u, x in classes]
        return self._upos.numbers(coarse), self._xpos.numbers(fine)

    def tables(self) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        """Atoms of forms (V, 10), UPOS and XPOS keys, atoms of the root, numbers of UPOS tags."""
        numbers = np.array([self._numbers.get(tag, 0) for tag in self._upos], dtype=np.int64)
        upos, xpos = self._upos.atoms()[:, 0].copy(), self._xpos.atoms()[:, 0].copy()
        return self._forms.atoms(), upos, xpos, self._root, numbers


class _FeatureTable(dict[str, int]):
    """Strings by number in order of appearance, and an array of their atoms."""

    def __init__(self, atoms_of) -> None:  # type: ignore[no-untyped-def]
        self._of = atoms_of
        self._rows = np.empty((1024, len(atoms_of("?"))), dtype=np.uint64)

    def __missing__(self, text: str) -> int:
        k = self[text] = len(self)
        if k == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[k] = self._of(text)
        return k

    def numbers(self, texts: Iterable[str]) -> NDArray[np.int32]:
        return np.array(list(map(self.__getitem__, texts)), dtype=np.int32)

    def atoms(self) -> NDArray[np.uint64]:
        """(len, K); at least one row, so that kernels see an array."""
        return self._rows[: max(1, len(self))]


def _fine(upos: str, xpos: str) -> str:
    """XPOS, or something that tells UPOS where there is none."""
    return xpos if xpos != "_" else "_" + upos


def _tag_atoms(name: str):  # type: ignore[no-untyped-def]
    return lambda tag: [hashed(f"{name}:{tag}")]
