"""Pictures of parses can be read back; calibration and counts of pairs against slow twins."""

from __future__ import annotations

import pickle
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer.errors import ModelError, SettingsError
from minfer.parsing import Parser, Recipe
from minfer.parsing.calibration import arc_probs, calibration
from minfer.parsing.conllu import Sentence
from minfer.parsing.drawing import _DOWN, _LINES, _UP, Drawn, svg, tree_lines
from minfer.parsing.pairs import count_pairs, list_pairs
from minfer.parsing.projective import is_projective, lift
from minfer.parsing.tiny import tiny_treebank
from test_conllu import trees

TREES = trees(max_words=14, single_root=True)


def read_back(lines):
    """The heads that a drawing without crossing lines shows."""
    own = [len(line) - 1 for line in lines]

    def bits(row, x):
        return _LINES.index(lines[row][x]) if x < len(lines[row]) else 0

    heads = []
    for k, line in enumerate(lines):
        x = own[k] - 1
        while x >= 0 and line[x] == "─":
            x -= 1
        head = 0
        for step, there, back in ((1, _DOWN, _UP), (-1, _UP, _DOWN)):
            row = k
            while x >= 0 and not head and bits(row, x) & there:
                row += step
                assert bits(row, x) & back
                head = row + 1 if own[row] == x else 0
        heads.append(head)
    return heads


@given(TREES)
def test_projective_trees_can_be_read_from_their_lines(heads):
    flat = lift(heads).tolist()
    lines = tree_lines(flat)
    assert "┼" not in "".join(lines)
    assert read_back(lines) == flat
    assert len(tree_lines(heads)) == len(heads)
    assert all(line.isascii() for line in tree_lines(heads, ascii_only=True))


@given(TREES, st.text(min_size=1, max_size=5))
def test_svg_is_xml_with_every_arc(heads, form):
    n = len(heads)
    forms = [form] * n
    drawn = Drawn(forms, forms, ["dep"] * n, heads, [0.5] * n, [0] * n, [0.04] * n, 0.1, [1] * n)
    root = ET.fromstring(svg(drawn))
    names = {"s": "http://www.w3.org/2000/svg"}
    arcs = root.findall("s:g", names)
    assert len(arcs) == n
    wrong = sum(arc.get("class") == "wrong" for arc in arcs)
    assert wrong == sum(head != 1 for head in heads)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 12),
)
def test_calibration_is_that_of_its_definition(words, bins):
    probs, right = zip(*words)
    found = calibration(probs, right, bins)
    ece = 0.0
    for k in range(bins):
        inside = [(p, r) for p, r in words if min(int(p * bins), bins - 1) == k]
        assert found.counts[k] == len(inside)
        if inside:
            ece += abs(sum(p for p, _ in inside) - sum(r for _, r in inside)) / len(words)
    assert found.ece == pytest.approx(ece, abs=1e-12)
    assert found.brier == pytest.approx(np.mean([(p - r) ** 2 for p, r in words]))


def test_calibration_refuses_what_it_cannot_use():
    for wrong in ([], [0.5, 0.5], [1.5], [np.nan]):
        with pytest.raises(ModelError):
            calibration(wrong, [True] * (len(wrong) != 2 and len(wrong)))
    with pytest.raises(SettingsError):
        calibration([0.5], [True], bins=0)
    plain = Sentence.from_forms(["a", "b"])
    assert arc_probs(plain) is None
    assert arc_probs(plain.with_parse(misc={"ArcProb": ["0.5", "x"]})) is None
    assert arc_probs(plain.with_parse(misc={"ArcProb": ["0.5", "1"]})).tolist() == [0.5, 1.0]
    heads = next(s.heads.tolist() for s in tiny_treebank() if not is_projective(s.heads))
    assert any("┼" in line for line in tree_lines(heads))


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_pairs_are_counted_as_they_are_listed(n):
    for kind in np.ndindex(2, 2, 2, 2):
        flags = [bool(k) for k in kind]
        assert count_pairs(n, *flags) == len(list_pairs(np.zeros((n + 1, n + 1)), *flags).nodes)


def test_threads_share_a_parser_and_it_pickles():
    sentences = tiny_treebank()
    parser = Parser.train(sentences, recipe=Recipe(bits=12, tag_bits=10, epochs=1))
    words = [s.forms for s in sentences]
    expected = [str(s) for s in parser.parse(words)]
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda k: [str(s) for s in parser.parse(words[k:])], range(8))
        assert all(found == expected[k:] for k, found in enumerate(answers))
    copy = pickle.loads(pickle.dumps(parser))
    assert [str(s) for s in copy.parse(words)] == expected
