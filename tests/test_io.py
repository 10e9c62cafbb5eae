"""Files: round trips, every error with its place, real files, atomic output, pipes."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import math
import os
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import minfer
from draws import draws, few
from minfer import (
    BeliefPropagation,
    ContradictionError,
    EvidenceError,
    FactorGraph,
    Features,
    FormatError,
    MinferError,
    RefusedError,
)
from minfer.errors import DiskFullError, visible
from minfer.io import atomic_write, opening, read, read_mar, read_pr, write
from minfer.io.fg import format_fg, parse_fg
from minfer.io.native import _PREFIX, VERSION, format_native, lay_out, parse_native, seal
from minfer.io.npz import read_npz
from minfer.io.tables import DECLARED
from minfer.io.text import write_bytes
from minfer.io.uai import format_uai, parse_uai
from minfer.parsing import read_conllu, write_conllu
from minfer.pictures import read_picture, write_picture
from minfer.solvers.base import Marginals
from oracle import lists, models
from oracle import truth as naive
from refused import refused

DATA, REAL, needs_data = lists.UAI, lists.UAI_MODELS, lists.needs_data

UAI = b"MARKOV\n2\n2 3\n2\n1 0\n2 1 0\n\n2\n 0.5 2\n\n6\n 1 2 3\n 4 0 6\n"
FG = b"# two factors\n2\n\n1\n0\n2\n2\n0 0.5\n1 2\n\n2\n1 0\n3 2\n5\n0 1\n1 3\n3 2\n4 4\n5 6\n"


@st.composite
def graphs(draw):
    """Drawn tables with zeros and evidence; perhaps a shared one, a feature, a field and names."""
    graph = draw(models.table_graphs(max_variables=4, scale=3.0))
    assume(all(np.isfinite(graph.log_table(i)).any() for i in range(graph.n_factors)))
    rng, n = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), graph.n_variables
    binary = np.flatnonzero(graph.n_states == 2)
    if len(binary) > 1 and draw(st.booleans()):
        a, b = binary[:2]
        graph = graph.add_tables(np.array([[a, b], [b, a]]), rng.normal(size=(1, 2, 2)))
    if len(binary) and draw(st.booleans()):
        scope = rng.permutation(binary)[: draw(st.integers(1, 3))]
        truth = rng.random((2,) * len(scope)) < 0.5
        graph = graph.add_features(scope[None], rng.normal(), truth)
    if n and draw(st.booleans()):
        graph = graph.tilt(20 * rng.uniform(-1, 1, int(graph.offsets[-1])))
    names = draw(st.none() | st.lists(st.text(max_size=5), min_size=n, max_size=n, unique=True))
    return replace(graph, names=names if names is None else tuple(names))


def same_scores(a, b):
    np.testing.assert_allclose(naive.log_scores(b), naive.log_scores(a), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("format_", "parse"), [(format_uai, parse_uai), (format_fg, parse_fg)])
@given(graph=graphs())
@settings(max_examples=draws(150), deadline=None)
def test_text_round_trip(format_, parse, graph):
    first = format_(graph)
    again = parse("m", first)
    assert again.n_states.tolist() == graph.n_states.tolist()
    same_scores(graph, again)
    assert format_(again) == first


@given(graphs())
@settings(max_examples=draws(150), deadline=None)
def test_native_round_trip_is_bit_for_bit(graph):
    first = format_native(graph)
    again = parse_native("m.minfer", first)
    assert format_native(again) == first == format_native(graph)
    assert again.names == graph.names
    assert again.n_states.tobytes() == graph.n_states.tobytes()
    assert (again._field is None) == (graph._field is None)
    assert again.field.tobytes() == graph.field.tobytes()
    assert len(again.groups) == len(graph.groups)
    for g, h in zip(graph.groups, again.groups):
        assert type(g) is type(h)
        assert g.shape == h.shape
        assert g.ids.tobytes() == h.ids.tobytes()
        assert g.scope.tobytes() == h.scope.tobytes()
        assert h._ids.flags.writeable  # as kernels want them
        assert h._scope.flags.writeable
        assert h._scope.flags.c_contiguous
        if isinstance(g, Features):
            assert np.array_equal(g.truth, h.truth)
            assert g.theta.tobytes() == h.theta.tobytes()
        else:
            assert g.shared == h.shared
            assert g._log_psi.tobytes() == h._log_psi.tobytes()


@pytest.mark.drawn
@pytest.mark.parametrize("low", [-1.5, -700])
def test_linear_tables_do_not_creep(low):
    """Many entries, also near powers of 2, where exp(log(x)) repeated would wander."""
    n = draws(200_000)
    values = np.random.default_rng(0).uniform(low, -low, n)
    graph = FactorGraph.from_tables([n], [[0]], [values])
    first = format_uai(graph)
    again = parse_uai("m.uai", first)
    assert format_uai(again) == first
    np.testing.assert_allclose(again.log_table(0), values, rtol=0, atol=1e-15)


@pytest.mark.parametrize("suffix", ["uai", "fg", "minfer", "uai.gz", "fg.gz", "minfer.gz", "UAI"])
def test_formats_by_suffix(tmp_path, suffix):
    graph = parse_uai("m.uai", UAI)
    path = tmp_path / f"model.{suffix}"
    minfer.write(graph, path)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == suffix.endswith(".gz")
    same_scores(graph, minfer.read(str(path)))
    before = path.read_bytes()
    time.sleep(0.01)
    minfer.write(graph, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_uai_layout():
    """Row-major over the scope as written; both preambles; any whitespace."""
    graph = parse_uai("m.uai", UAI)
    assert graph.scope(1).tolist() == [1, 0]
    np.testing.assert_allclose(np.exp(graph.log_table(1)), [[1, 2], [3, 4], [0, 6]])
    with pytest.warns(UserWarning, match="says BAYES, but its last variables"):
        same_scores(graph, parse_uai("m.uai", UAI.replace(b"MARKOV", b"BAYES")))
    for data in (
        UAI.replace(b"\n", b"\r\n"),
        UAI.replace(b" ", b"\t \x0b"),
        b" \n" + b" ".join(UAI.split()),
    ):
        same_scores(graph, parse_uai("m.uai", data))
    odd = parse_uai("m", b"MARKOV 2 1 2 4 2 0 1 1 1 1 1 0  2 1 2  2 3 4  2 5 6e0  1 7")
    assert odd.arity.tolist() == [2, 1, 1, 0]
    assert np.exp(odd.log_score([0, 1])) == pytest.approx(2 * 4 * 6 * 7)
    assert parse_uai("m", b"MARKOV 0 0").n_variables == 0
    empty = parse_uai("m", b"MARKOV\n2\n2 3\n0\n")
    assert empty.n_states.tolist() == [2, 3]
    assert parse_uai("m", format_uai(empty)).n_factors == 0
    # exp(log(3)) is 3.0000000000000004, but a file that says 3 is written with 3 again
    numbers = [3.0, 0.1, 7.0, 1e-6, 123456.789, 0.7, 1 / 3, 2.5e10]
    words = format_uai(FactorGraph.from_tables([8], [[0]], [np.log(numbers)])).split()[-8:]
    assert [float(w) for w in words] == numbers
    graph = parse_uai("m", UAI).with_evidence({1: 2}).with_soft_evidence({0: [0.25, 1.0]})
    assert format_uai(graph) == (
        b"MARKOV\n2\n2 3\n4\n1 0\n2 1 0\n1 0\n1 1\n\n2\n0.5 2.0\n\n"
        b"6\n1.0 2.0 3.0 4.0 0.0 6.0\n\n2\n0.25 1.0\n\n3\n0.0 0.0 1.0\n"
    )


def test_fg_layout():
    """The first variable runs fastest; labels become names; every variable is kept."""
    graph = parse_fg("m.fg", FG)
    same_scores(parse_uai("m.uai", UAI), graph)
    assert graph.names is None
    assert parse_fg("m.fg", format_fg(graph)).log_table(1)[2, 0] == -np.inf
    data = b"2\n\n1\n7\n2\n2\n0 1.0\n1 2.0\n\n2\n7 3\n2 2\n1\n3 1.0\n"
    graph = parse_fg("m.fg", data)
    assert graph.names == ("x3", "x7")
    assert graph.scope(1).tolist() == [1, 0]
    assert format_fg(graph) == data
    graph = parse_fg("m.fg", format_fg(FactorGraph.empty([2, 3])))
    assert graph.n_states.tolist() == [2, 3]
    assert not graph.log_score([1, 1])
    assert parse_fg("m.fg", b"0\n").n_variables == 0


UAI_ERRORS = {
    "empty": (b"", FormatError, "line 1", "empty"),
    "preamble": (b"\nMARKOW\n1", FormatError, "line 2, column 1, token 'MARKOW'", "MARKOV"),
    "binary": (bytes(range(256)), FormatError, "this is not text", "zero bytes"),
    "only preamble": (b"MARKOV\n", FormatError, "line 1", "ends too early"),
    "truncated": (UAI[:-3], FormatError, "line 13", "factor 1 of 2 is incomplete"),
    "truncated scopes": (b"MARKOV\n2\n2 2\n1\n2 0", FormatError, "line 4", "wrong count"),
    "negative": (UAI.replace(b"3\n 4", b"-3\n 4"), FormatError, "line 12, column 6", "negative"),
    "nan": (UAI.replace(b"0.5", b"nan"), FormatError, "line 9, column 2, token 'nan'", "NaN"),
    "overflow": (UAI.replace(b"0.5", b"1e400"), FormatError, "token '1e400'", "too large"),
    "word": (UAI.replace(b"0.5", b"half"), FormatError, "line 9, column 2, token 'half'", "number"),
    "glued": (UAI.replace(b"0.5", b"0.5-1"), FormatError, "line 9", "expected a number"),
    "utf-8": (UAI.replace(b"0.5", b"\xff5"), FormatError, r"token '\xff5'", "number"),
    "endless": (UAI.replace(b"0.5", b"5" * 5000), FormatError, "line 9", "5,000 characters"),
    "count": (UAI.replace(b"6\n 1", b"5\n 1"), FormatError, "line 11", "should have 6 entries"),
    "junk": (UAI + b"7 8", FormatError, "line 14, column 1, token '7'", "last table"),
    "comment": (UAI + b"/* end", FormatError, "line 14, column 1, token '/*'", "never closed"),
    "twice": (UAI.replace(b"2 1 0", b"2 1 1"), FormatError, "line 6, column 5", "twice"),
    "range": (UAI.replace(b"2 1 0", b"2 1 2"), FormatError, "line 6, column 5", "0 to 1"),
    "no states": (UAI.replace(b"2 3\n", b"2 0\n"), FormatError, "line 3, column 3", "one state"),
    "arity": (UAI.replace(b"2 1 0", b"3 1 0"), FormatError, "line 6", "integer from 0 to 2"),
    "zeros": (UAI.replace(b"0.5 2", b"0 0"), ContradictionError, "line 8", "factor 0 is all zeros"),
    "many variables": (b"MARKOV 1000000000 2", FormatError, "token '1000000000'", "can hold"),
    "huge states": (b"MARKOV 1 2000000000 0", FormatError, "token '2000000000'", "14.9 GiB"),
    "huge table": (
        b"MARKOV 3 1000000 1000000 1000000 1 3 0 1 2 8 1", FormatError, "token '8'",
        "1e+18 entries",
    ),
    "wide": (
        b"MARKOV 40" + b" 1" * 40 + b" 1 40 " + b" ".join(b"%d" % i for i in range(40)) + b" 1 1",
        FormatError, "token '40'", "from 0 to 32",
    ),
}  # fmt: skip

FG_ERRORS = {
    "empty": (b"# nothing\n", FormatError, "line 1", "empty"),
    "word": (FG.replace(b"0.5", b"x"), FormatError, "line 8, column 3, token 'x'", "number"),
    "inline comment": (FG.replace(b"0.5", b"0.5 # half"), FormatError, "token '#'", "number"),
    "truncated": (FG[:-5], FormatError, "line 14", "can hold"),
    "missing factor": (FG.replace(b"2\n\n1", b"3\n\n1"), FormatError, "line 19", "factor 2 of 3"),
    "states": (FG.replace(b"3 2\n5", b"3 3\n5"), FormatError, "line 13, column 3", "2 states"),
    "twice": (FG.replace(b"1 0\n3 2", b"0 0\n2 2"), FormatError, "line 12, column 3", "twice"),
    "index": (FG.replace(b"5 6", b"6 6"), FormatError, "line 19, column 1", "from 0 to 5"),
    "entry twice": (FG.replace(b"5 6", b"1 6"), FormatError, "line 19, column 1", "twice"),
    "zeros": (b"1\n\n1\n0\n2\n0\n", ContradictionError, "line 3", "factor 0 is all zeros"),
    "arity": (FG.replace(b"2\n1 0", b"33\n1 0"), FormatError, "token '33'", "from 0 to 32"),
    "dense": (b"1\n\n2\n0 1\n100000 100000\n1\n0 1\n", FormatError, "line 3", "1e+10 entries"),
    "overflow": (
        b"1\n\n3\n0 1 2\n2000000000 2000000000 2000000000\n1\n0 1\n", FormatError, "line 3",
        "8e+27",
    ),
}  # fmt: skip


def _error(path, kind, *parts):
    start = time.perf_counter()
    with pytest.raises(kind) as caught:
        minfer.read(path)
    assert time.perf_counter() - start < 1
    assert type(caught.value) is kind
    for part in (visible(str(path)), *parts):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "name"), [*(("uai", n) for n in UAI_ERRORS), *(("fg", n) for n in FG_ERRORS)]
)
def test_errors_say_where(tmp_path, suffix, name):
    data, kind, *parts = {"uai": UAI_ERRORS, "fg": FG_ERRORS}[suffix][name]
    (tmp_path / f"bad.{suffix}").write_bytes(data)
    _error(tmp_path / f"bad.{suffix}", kind, *parts)


def test_unknown_content_and_unreadable_paths(tmp_path):
    (tmp_path / "bad").write_bytes(b"\n\x89PNG")
    _error(tmp_path / "bad", FormatError, "neither UAI")
    (tmp_path / "bad").write_bytes(b"")
    _error(tmp_path / "bad", FormatError, "empty")
    for name in ("bad", "bad.uai", "bad.fg"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
        _error(tmp_path / name, FormatError, "this is not text")
    _error(tmp_path / "none.uai", FormatError, "cannot read", "No such file")
    _error(tmp_path, FormatError, "cannot read", "directory")


def test_broken_gzip(tmp_path):
    path, whole = tmp_path / "m.uai.gz", gzip.compress(UAI)
    for data, words in (
        (whole[:-12], "truncated"),
        (whole[:-6] + b"\0" + whole[-5:], "corrupt gzip"),
        (whole[:20] + b"\xff\xff" + whole[22:], "corrupt gzip"),
        (whole + b"junk", "corrupt gzip"),
    ):
        path.write_bytes(data)
        _error(path, FormatError, words)


@pytest.mark.parametrize("name", ["a\0b.uai", "a\0b.minfer.gz", "\0", "a\ud800.fg"])
def test_a_name_that_no_file_can_have(tmp_path, name):
    """The operating system's own complaint is a ValueError without a place."""
    path, graph = f"{tmp_path}/{name}", FactorGraph.pairwise([0.0], [], [])
    calls = [lambda: minfer.read(path), lambda: minfer.read_evidence(path, graph),
             lambda: minfer.write_uai(graph, path), lambda: minfer.write_native(graph, Path(path)),
             lambda: write_bytes(path, b""), lambda: list(read_conllu(path)),
             lambda: write_conllu([], path)]  # fmt: skip
    if minfer.io.formats.format_of(path):
        calls.append(lambda: minfer.write(graph, path))
    if importlib.util.find_spec("PIL"):
        picture = f"{path}.png"
        calls += [lambda: read_picture(picture), lambda: write_picture(picture, np.eye(2))]
    for call in calls:
        refused(FormatError, r"cannot (read|write) .* hold a (NUL|character)", call)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_no_permission(tmp_path):
    (tmp_path / "m.uai").write_bytes(UAI)
    (tmp_path / "m.uai").chmod(0)
    _error(tmp_path / "m.uai", FormatError, "cannot read", "Permission denied")


def _header(data):
    length = _PREFIX.unpack_from(data)[2]
    return json.loads(data[_PREFIX.size :][:length]), data[_PREFIX.size + length :]


def _native_with(array="", **changes):
    """A native file with another header, or another offset of an array, and a right checksum."""
    header, arrays = _header(format_native(FactorGraph.pairwise([1.0, 2.0], [[0, 1]], 0.5)))
    if array:
        header["arrays"][array] |= changes
        changes = {}
    return seal(VERSION, json.dumps({**header, **changes}).encode(), arrays)


def _group(**changes):
    return [{"kind": "feature", "count": 2, "shape": [2], **changes}]


NATIVE_ERRORS = {
    "empty": (b"", "empty"),
    "magic": (b"MINFER\n\n" + bytes(90), "magic"),
    "prefix": (b"MINFER\r\n" + bytes(9), "truncated"),
    "version": (seal(3, b"{}", b""), "version 3"),
    "json": (seal(1, b"{", b""), "not JSON"),
    "deep": (seal(1, b"[" * 100_000, b""), "not JSON"),
    "list": (seal(1, b"[]", b""), "'length'"),
    "length": (_native_with(length=10), "announces 10 bytes"),
    "arrays": (_native_with(arrays={}), "'n_states'"),
    "names": (_native_with(names=["a", 1]), "strings"),
    "groups": (_native_with(groups=None), "'groups'"),
    "kind": (_native_with(groups=_group(kind="magic")), "unknown kind"),
    "count": (_native_with(groups=_group(count=10**12)), "group0.ids"),
    "shape": (_native_with(groups=_group(shape=[-2])), "wrong count or shape"),
    "not binary": (_native_with(groups=_group(shape=[3])), "binary"),
    "rows": (_native_with(groups=_group(kind="table", rows=3)), "3 tables for 2 factors"),
    "beyond": (_native_with("group0.theta", offset=10**15), "outside the file"),
}


@pytest.mark.parametrize("name", NATIVE_ERRORS)
def test_native_errors(tmp_path, name):
    data, part = NATIVE_ERRORS[name]
    (tmp_path / "bad.minfer").write_bytes(data)
    _error(tmp_path / "bad.minfer", FormatError, part)


def test_a_small_file_asks_for_little_memory(tmp_path):
    """Everything is compared with the bytes there are, also what only an answer would need."""
    arrays = {"n_states": np.array([2**31 - 1], "<i4")}
    (tmp_path / "m.minfer").write_bytes(lay_out({"names": None, "groups": []}, arrays))
    assert os.path.getsize(tmp_path / "m.minfer") < 300
    (tmp_path / "m.uai").write_bytes(b"MARKOV 2 2147483647 2 0")
    (tmp_path / "m.fg").write_bytes(b"1\n1\n0\n2147483647\n1\n0 1.0\n")
    table = {"kind": "table", "count": 3000, "shape": [30000], "rows": 1}
    shared = {  # 3,000 variables share one table: 0.3 MB that stand for 0.7 GB
        "n_states": np.full(3000, 30000, "<i4"),
        "group0.ids": np.arange(3000, dtype="<i8"),
        "group0.scope": np.arange(3000, dtype="<i4")[:, None],
        "group0.log_psi": np.zeros((1, 30000), "<f8"),
    }
    (tmp_path / "shared.minfer").write_bytes(lay_out({"groups": [table]}, shared))
    tracemalloc.start()
    try:
        for name in ("m.minfer", "m.uai", "m.fg", "shared.minfer"):
            with pytest.raises(FormatError, match=r"may declare .*: .*build the model in Python"):
                read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_states_without_a_table_are_legal_up_to_a_size(tmp_path):
    for suffix in ("uai", "fg", "minfer"):
        path = tmp_path / f"m.{suffix}"
        write(FactorGraph.empty([100_000, 2]), path)
        assert read(path).n_states.tolist() == [100_000, 2]
    too_many = DECLARED + 1
    for suffix in ("uai", "minfer"):  # .fg writes a table of ones
        with pytest.raises(RefusedError, match="could not be read back"):
            write(FactorGraph.empty([too_many]), tmp_path / f"no.{suffix}")
    table = np.full(too_many, -np.inf)
    table[5] = 0.0
    with pytest.raises(RefusedError, match=r"nearly all of them zeros: write .*\.minfer"):
        write(FactorGraph.from_tables([too_many], [[0]], [table]), tmp_path / "no.fg")
    wide = FactorGraph.empty([too_many]).with_evidence({0: 3})  # its field is written down
    write(wide, tmp_path / "m.minfer")
    assert read(tmp_path / "m.minfer").n_observed == 1


def test_native_arrays_may_not_share_bytes(tmp_path):
    header, arrays = _header(format_native(FactorGraph.pairwise([1.0, 2.0], [[0, 1]], 0.5)))
    one = {**header["arrays"]["n_states"], "offset": 0}
    groups = [{"kind": "feature", "count": 2, "shape": [2]}] * 500
    table = {"n_states": one}
    for k in range(500):
        table[f"group{k}.ids"] = {"dtype": "<i8", "shape": [2], "offset": 0}
        table[f"group{k}.scope"] = {"dtype": "<i4", "shape": [2, 1], "offset": 0}
        table[f"group{k}.truth"] = {"dtype": "|u1", "shape": [2], "offset": 1}
        table[f"group{k}.theta"] = {"dtype": "<f8", "shape": [2], "offset": 0}
    content = {**header, "groups": groups, "arrays": table}
    (tmp_path / "m.minfer").write_bytes(seal(VERSION, json.dumps(content).encode(), arrays))
    _error(tmp_path / "m.minfer", FormatError, "over one another")


@pytest.mark.parametrize("data", [
    b"MARKOV 4 65536 65536 65536 65536 1 4 0 1 2 3 0",
    b"MARKOV 4 65536 65536 65536 65536 1 4 0 1 2 3 18446744073709551616 1",
    b"1\n4\n0 1 2 3\n65536 65536 65536 65536\n0\n",
    b"1\n32\n" + b" ".join(b"%d" % k for k in range(32)) + b"\n" + b"99999 " * 32 + b"\n0\n",
])  # fmt: skip
def test_table_sizes_beyond_64_bits(tmp_path, data):
    """2^16 to the fourth power is 0 for an integer of 64 bits."""
    path = tmp_path / "m"
    path.write_bytes(data)
    refused(FormatError, r"m: line \d+.*(entries|incomplete)", read, path)


def test_npz_files_are_believed_as_far_as_their_bytes_go(tmp_path):
    np.savez(tmp_path / "a.npz", labels=np.zeros(3), noisy=np.ones(2))
    labels, noisy = read_npz(tmp_path / "a.npz", ("labels", "noisy"))
    assert len(labels), len(noisy) == (3, 2)
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    for data, message in (
        (file.getvalue().replace(b"(3,)", b"(%d,)" % 2**34), "declares (17179869184,)"),
        (file.getvalue()[:50], "array"),
        (b"text", "magic"),
    ):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as packed:
            packed.writestr("labels.npy", data)
        with pytest.raises(FormatError, match=r"a\.npz: .*labels") as caught:
            read_npz(tmp_path / "a.npz", ("labels",))
        assert message in str(caught.value)
    (tmp_path / "a.npz").write_bytes(b"no zip")
    refused(FormatError, "not a zip file", read_npz, tmp_path / "a.npz", ("labels",))


def test_native_every_truncation_and_damage_is_noticed():
    data = format_native(parse_uai("m", UAI))
    for k in range(len(data)):
        refused(FormatError, "", parse_native, "m", data[:k])
        refused(FormatError, "", parse_native, "m", data[:k] + bytes([data[k] ^ 4]) + data[k + 1 :])


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        *((f"m.{suffix}", RefusedError, "global factor") for suffix in ("uai", "fg", "minfer")),
        ("m.txt", FormatError, r"\.uai, \.fg, \.minfer, \.bif"),
        ("m.PR", RefusedError, "log Z"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, name, error, words):
    graph = FactorGraph.empty([2, 2]).add_global([0, 1], lists.exactly_one())
    unsure = Marginals.from_probs(FactorGraph.empty([1]), [1.0], "t")
    write, what = (minfer.write_pr, unsure) if name == "m.PR" else (minfer.write, graph)
    refused(error, words, write, what, tmp_path / name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [-900.0, 800.0])
@pytest.mark.parametrize("format_", [format_uai, format_fg])
def test_log_values_beyond_doubles_and_tables_that_forbid_everything_are_refused(format_, value):
    with pytest.raises(RefusedError, match=r"factor 1 has log-value .* \.minfer"):
        format_(FactorGraph.from_tables([2], [[0], [0]], [[0, 1], [0, value]]))
    with pytest.raises(RefusedError, match=r"evidence on x0 .* \.minfer"):
        format_(FactorGraph.empty([2]).tilt([0, value]))
    graph = FactorGraph.pairwise([value], [], 1.0)
    assert parse_native("m", format_native(graph)).log_score([1]) == value
    with pytest.raises(ContradictionError, match="factor 0"):
        format_(FactorGraph.from_tables([2], [[0]], [[-np.inf, -np.inf]]))
    with pytest.raises(ContradictionError, match="evidence on x0"):
        format_(FactorGraph.empty([2]).tilt([-np.inf, -np.inf]))


def _evidence(tmp_path, content):
    path = tmp_path / "m.evid"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (b"0", {}),
        (b"1\n0\n", {}),
        (b"2 0 1 1 2 \r\n", {0: 1, 1: 2}),
        (b"1\n2 0 1 1 2", {0: 1, 1: 2}),
        (b"2 0 1 0 1", {0: 1}),
    ],
)
def test_evidence_variants(tmp_path, content, want):
    path = _evidence(tmp_path, content)
    graph = parse_uai("m", UAI)
    assert minfer.read_evidence(path, graph) == want
    model = tmp_path / "m.uai"
    model.write_bytes(UAI)
    for evidence in (path, str(path), want):
        observed = minfer.read_uai(model, evidence)
        assert np.array_equal(observed.field, graph.with_evidence(want).field)
        assert np.array_equal(minfer.read(model, evidence).field, observed.field)


@pytest.mark.parametrize(
    ("content", "kind", "parts"),
    [
        (b"", FormatError, ["line 1", "empty"]),
        (b"2 0 1", FormatError, ["line 1", "3 numbers"]),
        (b"1 0 0.5", FormatError, ["column 5", "integer"]),
        (b"1000000000 0 1", FormatError, ["token '1000000000'", "3 numbers"]),
        (b"2\n1 0 1\n1 0 0", FormatError, ["line 1", "2 evidence sets"]),
        (b"2 0 1\n5 0", EvidenceError, ["line 2, column 1, token '5'", "unknown variable"]),
        (b"2 0 1\n1 3", EvidenceError, ["line 2, column 3", "states 0 to 2"]),
        (b"2 0 1\n0 0", ContradictionError, ["line 2, column 3", "contradictory"]),
    ],
)
def test_evidence_errors(tmp_path, content, kind, parts):
    path = _evidence(tmp_path, content)
    with pytest.raises(kind) as caught:
        minfer.read_evidence(path, parse_uai("m", UAI))
    for part in (visible(str(path)), *parts):
        assert part in str(caught.value)


def test_marginals_and_partition_function(tmp_path):
    answer = Marginals.from_probs(
        FactorGraph.empty([2, 1, 3]), [0.1, 0.9, 1.0, 0.25, 1 / 3, 1 - 0.25 - 1 / 3], "t", -3.5
    )
    minfer.write_mar(answer, tmp_path / "m.MAR")
    minfer.write_pr(answer, tmp_path / "m.PR.gz")
    text = (tmp_path / "m.MAR").read_text()
    assert text.startswith("MAR\n3 2 0.1 0.9 1 1.0 3 0.25 0.3333333333333333 ")
    assert [p.tolist() for p in read_mar(tmp_path / "m.MAR")] == [p.tolist() for p in answer]
    assert read_pr(tmp_path / "m.PR.gz") == -3.5 / math.log(10)
    # and after a number of evidence sets
    (tmp_path / "m.MAR").write_bytes(b"MAR\n1\n2 2 0.1 0.9 1 1\n")
    (tmp_path / "m.PR").write_bytes(b"PR\n1\n-2.5\n")
    assert [p.tolist() for p in read_mar(tmp_path / "m.MAR")] == [[0.1, 0.9], [1]]
    assert read_pr(tmp_path / "m.PR") == -2.5


MAR = [b"", b"MAR", b"PR 1", b"MAR 2 2 0.5", b"MAR 1 2 0.5 0.5 7", b"MAR 1000000000 1 1",
       b"MAR 1 2 x y"]  # fmt: skip
PR = [b"", b"PR", b"PR x", b"PR 2 3", b"PR 1 2 3", b"PR nan"]


@pytest.mark.parametrize(
    ("read", "content"), [*((read_mar, c) for c in MAR), *((read_pr, c) for c in PR)]
)
def test_bad_answers(tmp_path, read, content):
    (tmp_path / "m").write_bytes(content)
    refused(FormatError, "line 1", read, tmp_path / "m")


@needs_data
@pytest.mark.drawn
@pytest.mark.parametrize("path", REAL, ids=lambda p: p.name)
def test_real_models(path):
    """And belief propagation ends on them with proper marginals."""
    base = str(path).removesuffix(".gz")
    graph = minfer.read_uai(path, evidence=base + ".evid.gz")
    marginals = read_mar(base + ".MAR.gz")
    assert [len(p) for p in marginals] == graph.n_states.tolist()
    assert np.isfinite(read_pr(base + ".PR.gz"))
    for variable, state in minfer.read_evidence(base + ".evid.gz", graph).items():
        assert marginals[variable][state] == 1
    first = format_uai(graph)
    assert format_uai(parse_uai("again", first)) == first
    if path in few(REAL, 15):
        m = BeliefPropagation(time_limit=3)(graph)
        assert (m.probs >= 0).all()
        np.testing.assert_allclose(np.add.reduceat(m.probs, graph.offsets[:-1]), 1, atol=1e-9)
        assert np.isfinite(m.log_z)


@needs_data
def test_all_real_models_are_there():
    assert len(REAL) == 44


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
@pytest.mark.parametrize("name", ["m.uai", "m.uai.gz"])
def test_interrupted_writing_leaves_no_trace(tmp_path, error, name):
    path = tmp_path / name

    def write_half():
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    refused(error, "", write_half)
    assert os.listdir(tmp_path) == []
    path.write_bytes(b"old")
    refused(error, "", write_half)
    assert os.listdir(tmp_path) == [name]
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(os.name == "nt", reason="modes and links differ on Windows")
def test_mode_and_links_survive(tmp_path):
    (tmp_path / "m.uai").write_bytes(b"old")
    (tmp_path / "m.uai").chmod(0o640)
    (tmp_path / "link.uai").symlink_to("m.uai")
    minfer.write(parse_uai("m", UAI), tmp_path / "link.uai")
    assert (tmp_path / "link.uai").is_symlink()
    assert (tmp_path / "m.uai").stat().st_mode & 0o777 == 0o640
    assert minfer.read(tmp_path / "m.uai").n_factors == 2


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no /dev/null")
def test_devices_are_not_replaced():
    minfer.write_uai(parse_uai("m", UAI), "/dev/null")
    assert not Path("/dev/null").is_file()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_an_error_of_its_own(tmp_path):
    os.symlink("/dev/full", tmp_path / "x.uai")
    with pytest.raises(DiskFullError, match=r"x\.uai: the disk is full"):
        minfer.write(FactorGraph.pairwise([0.0], [], []), tmp_path / "x.uai")
    command = [sys.executable, "-m", "minfer", "--version"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 6
    assert ended.stderr == "minfer: error: the disk is full\n"


def test_unwritable_paths(tmp_path):
    graph = parse_uai("m", UAI)
    (tmp_path / "folder.uai").mkdir()
    for path in (tmp_path / "none" / "m.uai", tmp_path / "folder.uai"):
        refused(MinferError, "cannot write", minfer.write, graph, path)
    assert os.listdir(tmp_path) == ["folder.uai"]


class Pipe:
    def __init__(self, data=b""):
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize(
    "data",
    [UAI, FG, gzip.compress(UAI, mtime=0), format_native(parse_uai("m", UAI))],
    ids=["uai", "fg", "gzip", "native"],
)
def test_standard_input_and_output(monkeypatch, data):
    """What it is, its content tells."""
    monkeypatch.setattr(sys, "stdin", Pipe(data))
    out = Pipe()
    monkeypatch.setattr(sys, "stdout", out)
    graph = minfer.read("-")
    minfer.write(graph, "-")
    same_scores(graph, parse_uai("m", out.buffer.getvalue()))


def test_errors_on_standard_input(monkeypatch):
    for data, words in (
        (UAI + b"junk", "line 14"),
        (UAI, "compressed or piped input is limited to 10 bytes"),
    ):
        monkeypatch.setattr(sys, "stdin", Pipe(data))
        refused(FormatError, f"<stdin>: {words}", minfer.read, "-")
        monkeypatch.setattr(opening, "MAX_BYTES", 10)
