"""Treebank files come back as they were, errors name their line; lifting, scores and pictures."""

from __future__ import annotations

import gzip
import io
import pickle
import subprocess
import sys
import tracemalloc
import unicodedata
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import few
from minfer.errors import FormatError, ModelError, SettingsError
from minfer.io import opening
from minfer.parsing import Parser, Recipe, treebank
from minfer.parsing.calibration import arc_probs
from minfer.parsing.conllu import (
    BrokenSentence,
    Sentence,
    parse_sentence,
    read_conllu,
    tree_fault,
    write_conllu,
)
from minfer.parsing.drawing import _DOWN, _LINES, _UP, Drawn, svg, tree_lines
from minfer.parsing.evaluation import Scores, bootstrap_difference, evaluate, is_punctuation
from minfer.parsing.graphs import count_pairs, list_pairs
from minfer.parsing.projective import count_trees, is_projective, lift, non_projective_arcs
from minfer.parsing.tiny import tiny_treebank
from minfer.prediction.calibration import calibration
from oracle import lists
from refused import refused

TREEBANKS = sorted((lists.UAI.parent / "treebanks").glob("*/*.conll*.gz"))
needs_treebanks = pytest.mark.skipif(
    not TREEBANKS, reason="no treebanks here: set MINFER_DATA to a folder with treebanks/"
)

PLAIN = """\
# sent_id = 1
# text = Dogs don't bark, café\t\tcats.
1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t4\tnsubj\t4:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t4:aux\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t4:advmod\t_
4\tbark\tbark\tVERB\tVB\t_\t0\troot\t0:root\tSpaceAfter=No
5\t,\t,\tPUNCT\t,\t_\t6\tpunct\t6:punct\t_
5.1\tdo\tdo\tAUX\t_\t_\t_\t_\t6:aux\tCopyOf=2
6\tcafé cats\tcat\tNOUN\tNNS\t_\t4\tnmod:poss\t4:conj\tGloss=x|SpaceAfter=No
7\t...\t.\tPUNCT\t.\t_\t4\tpunct\t4:punct\t_

1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\t_

"""
CONLLX = """\
1\tHan\than\tP\tPP\tmsd=PP\t2\tsubj\t_\t_
2\tsover\tsove\tV\tVA\tmsd=VA\t0\tROOT\t_\t_
3\t.\t.\tX\tXP\tmsd=XP\t0\tpnct\t_\t_

"""


def table(*rows: str) -> str:
    """Lines from short rows ``id head``."""
    return "".join("\t".join([*_row(row), "_", "_"]) + "\n" for row in rows) + "\n"


def _row(row: str) -> list[str]:
    name, head = row.split()
    return [name, f"w{name}", "_", "X", "_", "_", head, "dep"]


def texts(sentences) -> str:
    out = io.StringIO()
    write_conllu(sentences, out)
    return out.getvalue()


def read_text(text: str, **options):
    return list(read_conllu(io.StringIO(text), **options))


def test_columns():
    first, second = read_text(PLAIN)
    assert first.forms == ("Dogs", "do", "n't", "bark", ",", "café cats", "...")
    assert (first.lemmas[0], first.upos[3], first.xpos[3]) == ("dog", "VERB", "VB")
    assert (first.feats[0], first.deprels[5]) == ("Number=Plur", "nmod:poss")
    assert first.misc[5] == "Gloss=x|SpaceAfter=No"
    assert first.heads.dtype == np.int32
    assert first.heads.tolist() == [4, 4, 4, 0, 6, 4, 4]
    assert first.comments == PLAIN.split("\n")[:2]
    assert (first.line, second.line) == (1, 13)
    assert first.dialect == second.dialect == "conllu"
    assert "Dogs do n't" in repr(first)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        b"\n\n\n" + PLAIN.replace("\n\n", "\n\n\n\n").encode() + b"\n",
        PLAIN.encode()[:-2],  # neither an empty line nor a line end after the last sentence
        gzip.compress(PLAIN.encode()),
        gzip.compress(PLAIN.encode()[:100]) + gzip.compress(PLAIN.encode()[100:]) + b"\0" * 8,
        gzip.compress(b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode()),
    ],
    ids=["plain", "bom", "crlf", "blanks", "no-end", "gzip", "members", "all"],
)
@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 16])
def test_reads_what_people_have(data, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "_CHUNK", chunk)
    path = tmp_path / "a"
    path.write_bytes(data)
    assert texts(read_conllu(path)) == PLAIN
    assert texts(read_conllu(io.BytesIO(data))) == PLAIN


def test_standard_input_and_output():
    code = (
        "from minfer.parsing.conllu import read_conllu, write_conllu; "
        "write_conllu(read_conllu('-'), '-')"
    )
    data = gzip.compress(PLAIN.encode())
    out = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert out.stdout == PLAIN.encode()
    # A sentence comes out before the next one has been written.
    code = (
        "from minfer.parsing.conllu import read_conllu\n"
        "for s in read_conllu('-'): print(len(s), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdin.write(PLAIN.encode())
        child.stdin.flush()
        assert child.stdout.readline() == b"7\n"
        child.stdin.close()
        assert child.stdout.readline() == b"1\n"


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "a.conllu.gz"
    write_conllu(read_text(PLAIN) * 2000, path)
    tracemalloc.start()
    assert sum(len(s) for s in read_conllu(path)) == 16000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.8e6  # the file has 1.4e6 bytes


def test_dialects_unparsed_and_odd_input():
    (sentence,) = read_text(CONLLX, multi_root=True)
    assert sentence.dialect == "conllx"
    assert (sentence.upos[0], sentence.xpos[0]) == ("P", "PP")
    assert texts([sentence]) == CONLLX
    assert read_text(CONLLX, multi_root=True, dialect="conllu")[0].dialect == "conllu"
    assert "A=1" in str(sentence.with_parse(misc={"A": ["1"] * 3}))  # column 10 is free
    with_labels = CONLLX.replace("subj\t_\t_", "subj\t2\tsubj")
    (sentence,) = read_text(with_labels, multi_root=True)
    refused(FormatError, "PDEPREL", sentence.with_parse, misc={"A": ["1"] * 3})
    (sentence,) = read_text(table("1 _", "2 _"))
    assert sentence.heads is None
    assert sentence.with_parse([2, 0]).heads.tolist() == [2, 0]
    made = Sentence.from_forms(["a", "b"], upos=["X", "X"], xpos=["Y", "Z"])
    assert made.heads is None
    assert read_text(texts([made]))[0].xpos == ("Y", "Z")
    refused(ModelError, "at least one", Sentence.from_forms, [])
    assert read_text(table("1 0", "2 0"), multi_root=True)[0].heads.tolist() == [0, 0]
    text = "\n\n" + PLAIN.replace("\n\n", "\n\n\n\n") + "\n\n" + table("1 0")
    lines = text.split("\n")  # of which empty ones count
    for sentence in read_text(text):
        assert lines[sentence.line - 1] == sentence.text.split("\n")[0]


GOOD = table("1 0", "2 1")
ERRORS = {
    "too few columns": ("1\ta\n\n", 1, "2 columns instead of 10"),
    "spaces": ("1 a a X _ _ 0 root _ _\n\n", 1, "separated by tabs"),
    "blanks": (GOOD[:-1] + "  \n" + GOOD, 3, "only blanks"),
    "no form": (GOOD.replace("w2", ""), 2, "FORM is empty"),
    "id": (GOOD.replace("2\tw", "b\tw"), 2, "ID 'b'"),
    "id order": (table("1 0", "3 1", "2 1"), 2, "where word 2 should"),
    "late range": (table("1 0", "1-2 _", "2 1"), 2, "1-2 stands where word 2"),
    "long range": (table("1-5 _", "1 0", "2 1"), 3, "ends at 5"),
    "ranges overlap": (table("1-3 _", "1 0", "2-3 _", "2 1", "3 1"), 3, "2-3 stands"),
    "empty node": (table("1 0", "3.1 _", "2 1"), 2, "3.1 stands"),
    "only comments": ("# a\n# b\n\n", 1, "without words"),
    "head": (GOOD.replace("\t1\tdep", "\tx\tdep"), 2, "HEAD 'x'"),
    "head missing": (table("1 0", "2 _"), 2, "HEAD is _"),
    "head out of range": (table("1 0", "2 7"), 2, "word 2 has head 7, but the words are 1 to 2"),
    "own head": (table("1 0", "2 2"), 2, "its own head"),
    "cycle": (table("1 0", "2 3", "3 4", "4 2"), 2, "2 -> 3 -> 4 -> 2"),
    "no root": (table("1 2", "2 1"), 1, "no word has head 0"),
    "two roots": (table("1 0", "2 0"), 2, "words 1 and 2 both have head 0"),
    "cut off": (GOOD[:-8], 2, "ends inside a line"),
    "not utf-8": (GOOD.replace("w2", "\xe9"), 2, "0xe9 is not UTF-8"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_file_and_line(name, tmp_path):
    text, line, message = ERRORS[name]
    before = PLAIN + "\n"
    data = before.encode() + text.encode("latin-1")
    path = tmp_path / "bad.conllu"
    path.write_bytes(data)
    sentences = read_conllu(path)
    assert [len(next(sentences)), len(next(sentences))] == [7, 1]
    with pytest.raises(FormatError) as error:
        next(sentences)
    assert f"{path}: line {before.count(chr(10)) + line}: " in str(error.value)
    assert message in str(error.value)

    # one bad sentence loses nothing of the rest
    cut = name.startswith("cut off")
    if not cut:
        data += b"# end\n" + GOOD.encode()
        path.write_bytes(data)
    seen: list[BrokenSentence] = []
    kept = list(read_conllu(path, on_error="keep", report=seen.append))
    assert [s for s in kept if isinstance(s, BrokenSentence)] == seen
    assert str(seen[0].error) == str(error.value)
    out = tmp_path / "out.conllu"
    write_conllu(kept, out)
    tail = b"\n\n" if cut else b""
    assert out.read_bytes() == data.replace(b"\n\n\n", b"\n\n") + tail
    with pytest.warns(UserWarning, match="sentence skipped"):
        skipped = list(read_conllu(path, on_error="skip"))
    assert [str(s) for s in skipped] == [str(s) for s in kept if isinstance(s, Sentence)]


@given(
    st.lists(
        st.tuples(st.integers(0, 600), st.integers(0, 4), st.sampled_from(b"\t\n\r#-.019_\xff a")),
        max_size=4,
    )
)
def test_any_bytes_are_read_or_refused(edits):
    data = PLAIN.encode()
    for at, drop, byte in edits:
        data = data[:at] + bytes([byte]) + data[at + drop :]
    for sentence in read_conllu(io.BytesIO(data), on_error="keep", multi_root=True):
        if isinstance(sentence, Sentence):
            assert str(sentence.with_parse(sentence.heads)) == sentence.text
            again = parse_sentence(str(sentence), multi_root=True)
            assert again.columns == sentence.columns
        else:
            assert "<stream>: line " in str(sentence.error)


def test_errors_of_the_file(tmp_path, monkeypatch):
    packed = gzip.compress(PLAIN.encode())
    refused(SettingsError, "on_error", read_conllu, "-", on_error="stop")
    refused(SettingsError, "dialect", read_conllu, "-", dialect="conll09")
    monkeypatch.setattr(treebank, "MAX_SENTENCE", 1000)
    for data, words in (
        (tmp_path / "nowhere", r"cannot read .*nowhere"),
        (packed[:-12], "ends too early"),
        (packed[:20] + b"xxxx" + packed[24:], "corrupt gzip"),
        (b"x\n" * 1000, "no empty line"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this is not text"),
        (PLAIN.encode("utf-16"), "UTF-16"),
    ):
        source = io.BytesIO(data) if isinstance(data, bytes) else data
        refused(FormatError, words, list, read_conllu(source, on_error="keep"))
    assert list(read_conllu(io.BytesIO(b""))) == list(read_conllu(io.BytesIO(b"\n\n"))) == []


def test_a_parse_changes_its_columns_only():
    first, second = read_text(PLAIN)
    heads, deprels = [4, 3, 4, 0, 4, 5, 4], list("abcdefg")
    parsed = first.with_parse(heads, deprels)
    assert parsed.heads.tolist() == heads
    assert first.heads.tolist() == [4, 4, 4, 0, 6, 4, 4]
    expected = PLAIN.split("\n\n")[0].split("\n")
    for place, head, deprel in zip([2, 4, 5, 6, 7, 9, 10], heads, deprels):
        row = expected[place].split("\t")
        expected[place] = "\t".join([*row[:6], str(head), deprel, *row[8:]])
    assert str(parsed) == "\n".join(expected)
    tagged = parsed.with_parse(upos=["A"] * 7, xpos=["B"] * 7)
    assert (tagged.upos[2], tagged.xpos[2], tagged.deprels[2]) == ("A", "B", "c")
    assert read_text(texts([tagged]))[0].columns == tagged.columns
    assert pickle.loads(pickle.dumps(tagged)).columns == tagged.columns
    assert str(second.with_parse([0])) == str(second)
    first, _ = read_text(PLAIN)
    parsed = first.with_parse(misc={"Prob": ["0.5"] * 6 + [None], "Next": list("0123456")})
    assert parsed.misc[0] == "Prob=0.5|Next=0"
    assert parsed.misc[3] == "SpaceAfter=No|Prob=0.5|Next=3"
    assert parsed.misc[5:] == ("Gloss=x|SpaceAfter=No|Prob=0.5|Next=5", "Next=6")
    again = parsed.with_parse(misc={"Prob": ["0.7"] * 7, "Next": [None] * 7})
    assert again.misc[:4] == ("Prob=0.7",) * 3 + ("SpaceAfter=No|Prob=0.7",)
    assert first.with_parse(misc={"A": [None] * 7}).misc == first.misc


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": [0]}, "shape"),
        ({"heads": [2, 1, 0, 0, 0, 0, 0]}, "cycle"),
        ({"heads": [8, 0, 0, 0, 0, 0, 0]}, "word 1 has head 8"),
        ({"deprels": ["a"] * 6}, "6 deprels for 7"),
        ({"upos": [""] + ["a"] * 6}, "upos of word 1"),
        ({"xpos": ["a\n"] * 7}, "xpos of word 1"),
        ({"misc": {"A": ["1"]}}, "1 values of A"),
        ({"misc": {"A": ["1|2"] * 7}}, "MISC A"),
        ({"misc": {"A=B": ["1"] * 7}}, "MISC A=B"),
    ],
)
def test_wrong_parses_are_refused(options, message):
    refused(ModelError, message, read_text(PLAIN)[0].with_parse, **options)


def test_targets_and_a_failed_run(tmp_path):
    sentences = read_text(PLAIN)
    assert write_conllu(sentences, tmp_path / "a.conllu") == 2
    assert (tmp_path / "a.conllu").read_bytes() == PLAIN.encode()
    write_conllu(sentences, tmp_path / "a.conllu.gz")
    assert gzip.decompress((tmp_path / "a.conllu.gz").read_bytes()) == PLAIN.encode()
    binary = io.BytesIO()
    broken = BrokenSentence(b"\xff", 1, FormatError(""))
    write_conllu([*sentences, broken], binary)
    assert binary.getvalue() == PLAIN.encode() + b"\xff\n\n"
    assert "\ufffd" in texts([broken])
    out = tmp_path / "out.conllu"
    out.write_text("old")
    refused(FormatError, "", write_conllu, read_conllu(io.StringIO(PLAIN + table("1 1"))), out)
    assert out.read_text() == "old"
    assert {path.suffix for path in tmp_path.iterdir()} == {".conllu", ".gz"}


@st.composite
def trees(draw, max_words=9, single_root=False):
    n = draw(st.integers(1, max_words))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    near = draw(st.sampled_from([1, 3, n]))
    order = rng.permutation(n) + 1
    heads = np.zeros(n, dtype=int)
    for k in range(1, n):
        head = order[rng.integers(max(0, k - near), k)]
        heads[order[k] - 1] = 0 if rng.random() < 0.1 and not single_root else head
    return heads.tolist()


def descends(heads, word, from_word):
    while word != from_word and word:
        word = heads[word - 1]
    return word == from_word


def naive_non_projective(heads):
    return [
        m
        for m, h in enumerate(heads, 1)
        if not all(descends(heads, k, h) for k in range(min(h, m) + 1, max(h, m)))
    ]


def naive_lift(heads):
    heads = list(heads)
    while arcs := naive_non_projective(heads):
        m = min(arcs, key=lambda m: (abs(heads[m - 1] - m), min(heads[m - 1], m)))
        heads[m - 1] = heads[heads[m - 1] - 1]
    return heads


@given(trees(), trees(max_words=20, single_root=True))
def test_lifting(heads, rooted):
    assert tree_fault(heads, multi_root=True) is None
    arcs = naive_non_projective(heads)
    assert non_projective_arcs(heads) == arcs
    assert is_projective(heads) == (not arcs)
    lifted = lift(np.array(heads, dtype=np.int32))
    assert lifted.dtype == np.int32
    assert is_projective(lifted)
    assert tree_fault(lifted.tolist(), multi_root=True) is None
    assert lifted.tolist() == naive_lift(heads)
    assert arcs or lifted.tolist() == heads
    assert all(descends(heads, m, h) for m, h in enumerate(lifted.tolist(), 1))
    kept = lift(rooted).tolist()
    assert (kept.count(0), kept.index(0)) == (1, rooted.index(0))


def test_trees_that_are_none_and_counts_of_trees():
    for function in (is_projective, lift, non_projective_arcs):
        refused(ModelError, "cycle", function, [2, 1])
    assert is_projective([])
    assert lift([]).shape == (0,)
    counts = count_trees([[2, 0], [0, 0], [3, 4, 0, 3]])
    assert (counts.sentences, counts.words, counts.longest, counts.several_roots) == (3, 8, 4, 1)
    assert (counts.non_projective, counts.arcs, counts.lifted) == (1, 1, 1)
    assert count_trees([]).sentences == 0
    assert all(map(is_punctuation, [".", "...", "«", "''", "-", "—", "¿", "%"]))
    assert not any(map(is_punctuation, ["$", "+", "`", "a.", "", "^", "€"]))


def naive_scores(gold, predicted, no_punct, by, subtypes):
    n = heads = labels = 0
    for a, b in zip(gold, predicted):
        for k in range(len(a)):
            if by == "upos":
                punct = a.upos[k] == "PUNCT"
            else:
                punct = all(unicodedata.category(c).startswith("P") for c in a.forms[k])
            if no_punct and punct:
                continue
            n += 1
            heads += a.heads[k] == b.heads[k]
            x, y = a.deprels[k], b.deprels[k]
            if not subtypes:
                x, y = x.split(":")[0], y.split(":")[0]
            labels += a.heads[k] == b.heads[k] and x == y
    return (100 * heads / n, 100 * labels / n) if n else (np.nan, np.nan)


@st.composite
def scored(draw):
    """Sentences with gold and predicted parses."""
    labels = st.sampled_from(["a", "b", "a:x", "a:y"])
    forms = st.sampled_from(["w", ".", "...", "$", "-", "a.", "«", "`"])
    gold, predicted = [], []
    for _ in range(draw(st.integers(1, 4))):
        heads = draw(trees(max_words=4))
        n = len(heads)
        column = [draw(st.lists(s, min_size=n, max_size=n)) for s in (forms, labels, labels)]
        tags = draw(st.lists(st.sampled_from(["PUNCT", "X"]), min_size=n, max_size=n))
        sentence = Sentence.from_forms(column[0], upos=tags)
        gold.append(sentence.with_parse(heads, column[1]))
        other = draw(trees(max_words=4).filter(lambda t, n=n: len(t) == n) | st.just(heads))
        predicted.append(sentence.with_parse(other, column[2]))
    return gold, predicted


@given(scored(), st.sampled_from(["form", "upos"]), st.booleans())
def test_scores_against_a_naive_count(sentences, by, subtypes):
    gold, predicted = sentences
    scores = evaluate(iter(gold), iter(predicted), punctuation=by, subtypes=subtypes)
    all_words = naive_scores(gold, predicted, False, by, subtypes)
    words = naive_scores(gold, predicted, True, by, subtypes)
    np.testing.assert_allclose([scores.uas, scores.las], all_words)
    np.testing.assert_allclose([scores.uas_no_punct, scores.las_no_punct], words)
    assert scores.n == sum(map(len, gold))
    whole = [np.array_equal(a.heads, b.heads) for a, b in zip(gold, predicted)]
    np.testing.assert_allclose(scores.exact, 100 * np.mean(whole))
    assert evaluate(gold, gold).exact_labelled == 100


def test_evaluation_refuses_other_sentences():
    gold = read_text(table("1 0", "2 1") + table("1 0"))
    refused(ModelError, "treebank has more sentences than the 1", evaluate, gold, gold[:1])
    refused(ModelError, "parse has more", evaluate, gold[:1], gold)
    with pytest.raises(ModelError, match=r"sentence 1 \(line 1 and line 4\) has 2 words"):
        evaluate(gold[:1], gold[1:])
    with pytest.raises(ModelError, match="word 2 is 'w2' in the treebank, 'x'"):
        evaluate(gold[:1], [Sentence.from_forms(["w1", "x"])])
    refused(ModelError, "parse has no heads", evaluate, gold[1:], [Sentence.from_forms(["w1"])])
    refused(ModelError, "treebank has no heads", evaluate, [Sentence.from_forms(["w1"])], gold[1:])
    refused(SettingsError, "form or upos", evaluate, gold, gold, punctuation="xpos")


def test_bootstrap_of_a_difference():
    rng = np.random.default_rng(0)
    words = rng.integers(1, 30, size=400)
    right = [rng.binomial(words, p) for p in (0.9, 0.88)]
    a, b = (Scores(np.stack([words, r, r, words, r, r], axis=1)) for r in right)
    found = bootstrap_difference(a, b, 1)
    assert found == bootstrap_difference(a, b, np.random.default_rng(1))
    np.testing.assert_allclose(found.difference, a.uas - b.uas)
    assert found.low < found.difference < found.high
    # against the normal interval of a ratio of sums
    shift = right[0] - right[1]
    residual = shift - words * shift.sum() / words.sum()
    spread = 100 * np.sqrt((residual**2).sum()) / words.sum()
    np.testing.assert_allclose(found.high - found.low, 2 * 1.96 * spread, rtol=0.15)
    wide = bootstrap_difference(a, b, 1, level=0.99)
    assert wide.high - wide.low > found.high - found.low
    same = bootstrap_difference(a, a, 1, n=10, measure="exact")
    assert (same.difference, same.low, same.high) == (0, 0, 0)
    assert str(same) == "+0.00 [+0.00, +0.00] (95 %)"
    refused(SettingsError, "two Scores, not 2", bootstrap_difference, a, 2, 1)
    refused(ModelError, "same sentences", bootstrap_difference, a, Scores(b.counts[1:]), 1)
    with pytest.raises(ModelError, match="no words"):
        bootstrap_difference(Scores(a.counts[:0]), Scores(a.counts[:0]), 1)
    refused(SettingsError, "level", bootstrap_difference, a, b, 1, level=95)
    refused(SettingsError, "unknown measure", a.of, "mla")


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
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60), st.integers(1, 12)
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


@pytest.mark.drawn
@pytest.mark.parametrize("path", few(TREEBANKS, 5), ids=lambda p: p.name.partition(".")[0])
def test_treebanks_come_back_byte_for_byte(path):
    data = gzip.decompress(path.read_bytes())
    multi_root = path.name.startswith("danish_ddt_cdt")
    sentences = list(read_conllu(path, multi_root=multi_root))
    assert {s.dialect for s in sentences} == {"conllx" if ".conll." in path.name else "conllu"}
    for rows in (sentences, [s.with_parse(s.heads, s.deprels) for s in sentences]):
        out = io.BytesIO()
        write_conllu(rows, out)
        assert out.getvalue() == data
    if path.name == "en_ewt-ud-dev.conllu.gz":
        assert evaluate(sentences, sentences).las_no_punct == 100


@needs_treebanks
@pytest.mark.parametrize(
    ("name", "sentences", "words", "longest", "non_projective", "lifted"),
    [
        ("en_ewt-ud-train", 12544, 204577, 159, 288, 357),
        ("en_ewt-ud-dev", 2001, 25147, 75, 31, 36),
        ("en_ewt-ud-test", 2077, 25094, 81, 26, 27),
        ("it_isdt-ud-dev", 564, 11907, 80, 15, 16),
        ("nl_alpino-ud-dev", 718, 11541, 62, 68, 88),
        ("it_partut-ud-train", 1781, 48934, 290, 38, 42),
        ("nl_lassysmall-ud-test", 350, 4562, 68, 107, 281),
    ],
)
def test_counts_of_treebanks(name, sentences, words, longest, non_projective, lifted):
    path = next(path for path in TREEBANKS if path.name.startswith(name))
    counts = count_trees(s.heads for s in read_conllu(path))
    assert (counts.sentences, counts.words, counts.longest) == (sentences, words, longest)
    assert (counts.non_projective, counts.lifted) == (non_projective, lifted)
