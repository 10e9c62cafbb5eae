"""Bayesian networks in BIF, XMLBIF, NET and XDSL: read, written, refused with the place."""

from __future__ import annotations

import gzip
import re
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minfer
from draws import draws
from minfer import FactorGraph, FormatError, RefusedError, interop
from minfer.io.bif import format_bif, parse_bif
from minfer.io.net import format_net, parse_net
from minfer.io.uai import format_uai, parse_uai
from minfer.io.xdsl import parse_xdsl
from minfer.io.xmlbif import format_xmlbif, parse_xmlbif
from refused import refused
from test_cli import call

PARSE = {"bif": parse_bif, "xmlbif": parse_xmlbif, "net": parse_net, "xdsl": parse_xdsl}
FORMAT = {"bif": format_bif, "xmlbif": format_xmlbif, "net": format_net}

BIF = b"""// a garden
network "the garden" { property "author; me" ; }
variable rain { type discrete [ 2 ] { no, yes }; property position = (1, 2) ; }
variable "wet grass" { /* two
lines */ type discrete[3] { dry "quite wet" <1/2 }; }
variable c-4.5+x { type discrete [2] { 0, 1 }; }
probability ( rain ) { table 0.8, .2; }
probability ( c-4.5+x | "wet grass" rain ) {
  property "made up";
  default 0.5 5e-1;
  (<1/2, yes) 0.0, 1.0;
  ("quite wet" , "no") 0.25 0.75;
}
probability ( "wet grass" | rain ) { table 0.7 0.1  0.2 0.3  0.1 0.6; }
"""

XMLBIF = b"""<?xml version="1.0"?>
<!-- a garden -->
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*> <!ATTLIST BIF VERSION CDATA #REQUIRED>
  <!ATTLIST VARIABLE TYPE (nature|decision|utility) "nature">
]>
<BIF VERSION="0.3" xmlns="http://www.cs.ubc.ca/labs/lci/fopi/ve/XMLBIFv0_3">
<NETWORK><NAME>garden</NAME><PROPERTY>x</PROPERTY>
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME>
  <PROPERTY>position = (1,2)</PROPERTY></VARIABLE>
<VARIABLE><NAME>wet &amp; cold</NAME><OUTCOME> dry </OUTCOME><OUTCOME>&lt;1/2</OUTCOME></VARIABLE>
<DEFINITION><FOR>wet &amp; cold</FOR><GIVEN>rain</GIVEN>
  <TABLE>0.9 0.1 <!-- rain: --> 0.2
  0.8</TABLE></DEFINITION>
<DEFINITION><FOR>rain</FOR><TABLE>0.8 2e-1</TABLE></DEFINITION>
</NETWORK></BIF>
"""

NET = b"""% a garden
net { node_size = (80 40); name = "garden; 1"; }
node rain { label = "50% rain"; position = (1 2); states = ("no" "yes"); }
discrete node wet { states = ("dry" "<1/2" "a \\"b\\""); subtype = label; }
node c { states = ("0" "1"); }
potential (rain | ) { data = (0.8 0.2); }
potential (wet | rain) { data = (( 0.7 0.2 0.1 ) % no
  ( 0.1 0.3 0.6 )); }
potential (c | wet rain) {
  model_nodes = ();
  data = (((0.5 0.5) (0.5 0.5)) ((0.25 0.75) (0.5 0.5)) ((0.5 0.5) (0.0 1)));
}
"""


def probabilities(graph: FactorGraph, variable: str) -> np.ndarray:
    v = graph.index(variable)
    return np.exp(next(graph.log_table(i) for i in range(graph.n_factors) if graph.child(i) == v))


def parents(graph: FactorGraph, variable: str) -> list[str]:
    v = graph.index(variable)
    i = next(i for i in range(graph.n_factors) if graph.child(i) == v)
    return [graph.name(u) for u in graph.scope(i) if u != v]


def same(a: FactorGraph, b: FactorGraph) -> None:
    """Names, states, children, the order of parents, and every number to the last bit."""
    assert a.names == b.names
    assert [a.states(v) for v in a.names] == [b.states(v) for v in b.names]
    for i in range(a.n_factors):
        assert a.child(i) == b.child(i)
        assert a.scope(i).tolist() == b.scope(i).tolist()
        assert np.array_equal(a.log_table(i), b.log_table(i))


def test_bif():
    g = parse_bif("m.bif", BIF)
    assert g.directed
    assert g.names == ("rain", "wet grass", "c-4.5+x")
    assert g.states("wet grass") == ("dry", "quite wet", "<1/2")
    assert parents(g, "c-4.5+x") == ["wet grass", "rain"]
    c = probabilities(g, "c-4.5+x")
    np.testing.assert_allclose(c[2, 1], [0, 1], atol=0)
    np.testing.assert_allclose(c[1, 0], [0.25, 0.75], rtol=1e-15)
    np.testing.assert_allclose(c[[0, 0, 1, 2], [0, 1, 1, 0]], 0.5)
    # a table under parents lists the variable itself slowest
    wet = probabilities(g, "wet grass")
    np.testing.assert_allclose(wet, [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], rtol=1e-15)
    text = b"""network x { } variable a { type discrete [3] { p, q, r }; }
    probability ( a ) { table 0.3333333, 0.3333333, 0.3333333; }"""
    g = parse_bif("m.bif", text)
    np.testing.assert_allclose(probabilities(g, "a"), 1 / 3, rtol=1e-15)


PLAIN_BIF = b"""network unknown { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable wet { type discrete [ 3 ] { dry, damp, 1_0 }; }
variable c-4.5+x { type discrete [ 2 ] { 0, 1 }; }
probability ( rain ) { table 0.8, .2; }
probability ( c-4.5+x | wet, rain ) {
  (dry, no) 0.5, 0.5; (damp, no) 0.25, 0.75; (1_0, no) 1, 0;
  (dry,yes) 0.1, 0.9; (damp yes) 0, 1e0; (1_0, yes) 0.125, 0.875;
}
probability ( wet | rain ) { table 0.7, 0.1, 0.2, 0.3, 0.1, 0.6; }
"""


def by_tokens(data: bytes, monkeypatch) -> FactorGraph:
    with monkeypatch.context() as patch:
        patch.setattr(minfer.io.bif, "_plain", lambda data: None)
        return parse_bif("f", data)


def test_plain_bif_is_what_the_tokens_say(monkeypatch):
    found = minfer.io.bif._plain(PLAIN_BIF)
    assert found is not None
    same(found, by_tokens(PLAIN_BIF, monkeypatch))
    assert probabilities(found, "c-4.5+x")[1].tolist() == [[0.25, 0.75], [0.0, 1.0]]
    # whatever is changed: if the plain reader takes it, it reads what the tokens say
    rng = np.random.default_rng(0)
    pieces = [b"", b" ", b",", b";", b"(", b")", b"{", b"}", b"|", b'"', b"0", b"1", b"-", b"e",
              b"_", b"no", b"wet", b"\n", b"\xc2\xa0", b"\xd9\xa1", b"nan", b"inf", b"default",
              b"table", b"[", b"]", b"//", b"property x;"]  # fmt: skip
    n_plain = 0
    for _ in range(1500):
        text = PLAIN_BIF
        for _ in range(int(rng.integers(1, 3))):
            a = int(rng.integers(len(text)))
            b = a + int(rng.integers(0, 4)) * int(rng.integers(0, 8))
            text = text[:a] + pieces[int(rng.integers(len(pieces)))] + text[b:]
        found = minfer.io.bif._plain(text)
        if found is not None:
            n_plain += 1
            same(found, by_tokens(text, monkeypatch))
    assert n_plain > 30


def test_xmlbif():
    g = parse_xmlbif("m.xmlbif", XMLBIF)
    assert g.directed
    assert g.names == ("rain", "wet & cold")
    assert g.states(1) == ("dry", "<1/2")
    np.testing.assert_allclose(probabilities(g, "wet & cold"), [[0.9, 0.1], [0.2, 0.8]])
    assert [g.child(i) for i in range(2)] == [1, 0]  # tables in the order of the file


def test_net():
    g = parse_net("m.net", NET)
    assert g.directed
    assert g.names == ("rain", "wet", "c")
    assert g.states("wet") == ("dry", "<1/2", 'a "b"')
    assert parents(g, "c") == ["wet", "rain"]
    np.testing.assert_allclose(probabilities(g, "c")[1], [[0.25, 0.75], [0.5, 0.5]])
    flat = NET.replace(b"((0.25 0.75) (0.5 0.5))", b"0.25 0.75 0.5 0.5")
    same(g, parse_net("m.net", flat))
    in_class = b"class garden { inputs = (); outputs = (rain); " + NET.split(b"}", 1)[1] + b"}\n"
    same(g, parse_net("m.net", in_class))


@pytest.mark.parametrize(
    ("suffix", "data"),
    [(".bif", BIF), (".xmlbif", XMLBIF), (".bifxml", XMLBIF), (".xml", XMLBIF), (".net", NET),
     ("", BIF), ("", XMLBIF), ("", NET)],
)  # fmt: skip
def test_read_by_suffix_or_content_and_compressed(tmp_path, suffix, data):
    (tmp_path / f"m{suffix}").write_bytes(data)
    (tmp_path / f"m{suffix}.gz").write_bytes(gzip.compress(data))
    g = minfer.read(tmp_path / f"m{suffix}")
    assert g.directed
    same(g, minfer.read(tmp_path / f"m{suffix}.gz"))
    assert minfer.read(tmp_path / f"m{suffix}", evidence={"rain": "yes"}).n_observed == 1


# anything but line ends, zeros and the surrogates that UTF-8 cannot hold
_names = st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=6)

_xml_names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cn", "Z")), min_size=1, max_size=6
)


@st.composite
def networks(draw, names=_names):
    n = draw(st.integers(1, 4))
    called = draw(st.lists(names, min_size=n, max_size=n, unique=True))
    states = [draw(st.lists(names, min_size=1, max_size=3, unique=True)) for _ in range(n)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    order = rng.permutation(n)
    tables = {}
    for k, v in enumerate(order):
        own = rng.permutation(order[:k])[: rng.integers(0, k + 1)]
        shape = (*(len(states[p]) for p in own), len(states[v]))
        p = rng.dirichlet(np.full(shape[-1], 0.5), shape[:-1])
        p[rng.random(p.shape) < 0.3] = 0
        p[..., 0] += p.sum(axis=-1) == 0
        tables[called[v]] = ([called[p] for p in own], p / p.sum(axis=-1, keepdims=True))
    return FactorGraph.network(dict(zip(called, states)), tables)


@pytest.mark.parametrize("kind", FORMAT)
@given(data=st.data())
@settings(max_examples=draws(100), deadline=None)
def test_round_trip(kind, data):
    graph = data.draw(networks(_xml_names if kind == "xmlbif" else _names))
    format_, parse = FORMAT[kind], PARSE[kind]
    first = format_(graph)
    again = parse("m", first)
    assert again.names == graph.names
    assert format_(again) == first
    same(again, parse("m", format_(again)))
    for i in range(graph.n_factors):
        assert again.states(graph.child(i)) == graph.states(graph.child(i))
        assert again.scope(i).tolist() == graph.scope(i).tolist()
        ours, theirs = np.exp(graph.log_table(i)), np.exp(again.log_table(i))
        np.testing.assert_allclose(theirs, ours, rtol=1e-15, atol=0)  # zeros stay zeros


@given(graph=networks())
@settings(max_examples=draws(50), deadline=None)
def test_uai_keeps_direction(graph):
    data = format_uai(graph)
    assert data.startswith(b"BAYES")
    again = parse_uai("m.uai", data)
    assert again.directed
    assert [again.child(i) for i in range(again.n_factors)] == [
        graph.child(i) for i in range(graph.n_factors)
    ]
    assert format_uai(again) == data
    if graph.n_states[0] > 1 and np.isfinite(graph.log_table(0)).all():
        assert format_uai(graph.with_evidence({graph.name(0): 0})).startswith(b"MARKOV")


def test_one_format_to_another(tmp_path):
    g = parse_bif("m.bif", BIF)
    for name in ("a.net", "b.xmlbif.gz", "c.xml", "d.bif.gz", "e.minfer"):
        minfer.write(g, tmp_path / name)
        g = minfer.read(tmp_path / name)
    same(g, parse_bif("m.bif", BIF))
    assert b"node x_c_4_5_x" in (tmp_path / "a.net").read_bytes()


def test_what_the_network_formats_cannot_hold(tmp_path):
    g = parse_bif("m.bif", BIF)
    markov = FactorGraph.pairwise([0.5, 1.0], [[0, 1]], [1.0])
    two = g.add_tables([[0]], [[0.0, 0.0]])
    for name in ("m.bif", "m.xmlbif", "m.net", "m.xdsl"):
        for model in (markov, two, g.with_weights(g.weights + 0.1)):
            with pytest.raises(RefusedError, match=r"Bayesian networks.*\.uai or \.minfer"):
                minfer.write(model, tmp_path / name)
        for seen in (g.with_evidence({"rain": 1}), g.with_soft_evidence({"rain": [0.2, 0.8]})):
            with pytest.raises(RefusedError, match=r"evidence in this model.*\.minfer"):
                minfer.write(seen, tmp_path / name)
    odd = FactorGraph.network({"a\nb": 2}, {"a\nb": [0.5, 0.5]})
    for format_ in (format_bif, format_net):
        refused(RefusedError, "line end", format_, odd)
    for name in ("", " a", "a\x01"):
        with pytest.raises(RefusedError, match="XML cannot hold"):
            format_xmlbif(FactorGraph.network({name: 2}, {name: [0.5, 0.5]}))
    assert not list(tmp_path.iterdir())


# what FAULTS has for every format is not repeated here
_BAD_BIF = [
    ("( rain ) { table 0.8, .2", "( rain ) { table 0.8, .1", "line 7, column 30, token '0.8': the "
     "probabilities of rain sum to 0.9"),
    ("(<1/2, yes) 0.0, 1.0", "(<1/2, yes) 0.1, 1.0", r"line 11, column 3, token '\('.*given "
     "wet grass=<1/2, rain=yes sum to 1.1"),
    ("0.3  0.1 0.6", "0.3  0.1 0.5", "line 14, column 48, token '0.1': the probabilities of wet"),
    ("(<1/2, yes)", "(<1/3, yes)", "line 11, column 4, token '<1/3'.*the states dry, quite wet"),
    ("(<1/2, yes)", "(<1/2)", "line 11, column 3.*1 states for 2 parents"),
    ("(<1/2, yes) 0.0, 1.0", "(<1/2, yes) 1.0", "line 11.*1 numbers follow.*2 states"),
    ("default 0.5 5e-1;", "", "line 8.*2 of 6 rows.*missing are 4, as the one given "
     "wet grass=dry, rain=no"),
    ('("quite wet" , "no")', "(<1/2 yes)", "line 12, column 3.*given before"),
    ("5e-1", "5f-1", "line 10, column 15, token '5f-1': expected a number"),
    ("[ 2 ] { no", "[ 3 ] { no", "line 3.*3 states, but 2 are named"),
    ("type discrete [ 2 ]", "type continuous [ 2 ]", "line 3.*rain is not discrete"),
    ('"wet grass" rain )', "rain rain )", "this parent twice"),
    ('"wet grass" | rain )', '"wet grass" | c-4.5+x )', "needs 2 x 3 = 6|cycle"),
    ("( rain ) {", "( rain, c-4.5+x ) {", "one variable, given its parents"),
    ("probability ( rain ) { table 0.8, .2; }", "", "line 3.*rain has no table"),
    ("lines */", "lines", "line 4, column 24: this comment is never closed"),
    ('"wet grass" {', '"wet grass {', "not closed on its line"),
    ("network", "netwark", "line 2, column 1, token 'netwark'"),
]  # fmt: skip


_BAD_NET = [
    ("(0.8 0.2)", "(0.8 0.1)", "line 6, column 31, token '0.8': the probabilities of rain .*0.9"),
    ("(0.8 0.2)", "(0.8 0.2", "never closed"),
    ("(0.8 0.2)", "0.8 0.2", "line 6, column 30.*expected '\\('"),
    ("(0.25 0.75)", "(0.25) (0.75)", "row should have 2 numbers"),
    ('states = ("no" "yes");', "", "rain has no states"),
    ('states = ("no" "yes");', 'states = ("no" = "yes");', "a state should stand here"),
    ("node c ", "utility c ", "line 5, column 1.*'c' is a utility node"),
    ("discrete node wet", "continuous node wet", "'wet' is a continuous node"),
    ("net {", "class x { instance a : b (c); ", "instance"),
    ("data = (0.8 0.2);", "", "no data"),
    ("data = (0.8 0.2);", "model_data = (Noisy(1));", "given by an expression"),
    ("(wet | rain)", "(wet rain)", "one variable, given its parents"),
    ("potential (rain | )", "potential (c)", "two tables|needs"),
]  # fmt: skip


_BAD_XML = [
    ("</NETWORK></BIF>", "", "not well-formed XML: no element found"),
    ("<BIF VERSION", "<BIV VERSION", "mismatched|root"),
    ("0.8 2e-1", "0.8 x", "line 15.*number 2, 'x': expected a number"),
    ("<NAME>rain</NAME>", "", "one <NAME>, and has 0"),
    ('TYPE="nature"', 'TYPE="utility"', "line 9.*'rain' is a utility node"),
    ("&lt;1/2", "&bomb;", "undefined entity"),
    ("<!DOCTYPE BIF [", '<!DOCTYPE BIF SYSTEM "http://example.org/x.dtd" [', "not fetched"),
    ("<!DOCTYPE BIF [", '<!DOCTYPE BIF [<!ENTITY x "y">', "entities are not read"),
    ("<!DOCTYPE BIF [", '<!DOCTYPE BIF [<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;',
     "entities are not read"),
    ('utility) "nature"', 'utility|' + "n" * 300 + ') "' + "n" * 300 + '"', "defaults"),
]  # fmt: skip


def test_entity_bombs_never_unfold():
    lines = "".join(f'<!ENTITY e{k} "{f"&e{k - 1};" * 10}">' for k in range(1, 12))
    bomb = f'<!DOCTYPE BIF [<!ENTITY e0 "lol">{lines}]><BIF><NETWORK>&e11;</NETWORK></BIF>'
    for parse in (parse_xmlbif, parse_xdsl):
        refused(FormatError, "line 1, column 28: entities are not read", parse, "m", bomb.encode())
    deep = b"<BIF>" * 5000 + b"</BIF>" * 5000
    refused(FormatError, "inside one another", parse_xmlbif, "m", deep)


_BAD_XDSL = [
    ('<deterministic id="Starts">', '<utility id="Starts">', "mismatched"),
    ("Yes No Yes", "Yes No", "5 states for 6 rows"),
    ("Yes No Yes", "Yes No x", "'x' is not a state of Starts"),
    ("<strengths>1 0 0 1 2", "<strengths>1 0 0 1 1", "should be 0 to 2"),
    ("0.01 0.04 0.95", "0.01 0.04", "17 numbers.*need 18"),
    ("0.01 0.04 0.95", "0.01 0.04 0.85", "distribution 6 sums to 0.9"),
    ("0.1 0 0 0 1 0.7", "0.1 0 0 1 0 0.7", "'Empty' of Fuel, must have the distribution 0 ... 0 1"),
    ('<cpt id="Battery">', "<cpt>", "has no id"),
    ('app="GeNIe 4.1.3402.0 ACADEMIC"', 'app="aGrUM 3.3.1"', "save the network as BIFXML"),
]  # fmt: skip


#: As GeNIe saves it: attributes, properties, costs and cases beside the tables, Latin-1, and in
#: <extensions> how it is drawn, submodels (which group nodes and change nothing) included.
GENIE = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!-- This network was created in GeNIe Academic, for research and teaching only -->
<smile version="1.0" id="Network1" numsamples="10000" discsamples="10000">
	<nodes>
		<cpt id="Fuel" diagtype="observation" ranked="true" mandatory="true">
			<state id="Empty" fault="true" /><state id="Full" default="true" />
			<probabilities>0.05 0.95</probabilities>
			<property id="Quelle">Prüfbericht Müller</property>
		</cpt>
		<cpt id="Battery">
			<state id="Flat" /><state id="Weak" /><state id="Good" />
			<probabilities>0.1 0.2 0.7</probabilities>
		</cpt>
		<noisymax id="Trouble">
			<state id="Severe" /><state id="Slight" /><state id="None" />
			<parents>Fuel Battery</parents>
			<strengths>1 0 0 1 2</strengths>
			<parameters>0.9 0.1 0 0 0 1 0.7 0.2 0.1 0.1 0.5 0.4 0 0 1 0.01 0.04 0.95</parameters>
		</noisymax>
		<deterministic id="Starts">
			<state id="No" /><state id="Yes" />
			<parents>Trouble Fuel</parents>
			<resultingstates>No No No Yes No Yes</resultingstates>
		</deterministic>
	</nodes>
	<observationcost><node id="Fuel"><cost>1.5</cost></node></observationcost>
	<cases><case name="seen"><evidence node="Fuel" state="Full" /></case></cases>
	<extensions>
		<genie version="1.0" app="GeNIe 4.1.3402.0 ACADEMIC" name="Wagen Ö">
			<node id="Fuel">
				<name>Füllstand</name><interior color="e5f6f7" /><outline color="000080" />
				<font color="000000" name="Arial" size="8" /><position>54 11 138 62</position>
				<barchart active="true" width="128" height="64" />
			</node>
			<submodel id="Sub1">
				<name>Symptoms</name><position>250 150 500 400</position>
				<node id="Trouble"><name>Trouble</name><position>1 2 3 4</position></node>
				<submodel id="Sub2"><node id="Starts"><name>Starts</name></node></submodel>
			</submodel>
			<textbox><caption>nodes, states and parents</caption><state id="no state" /></textbox>
		</genie>
	</extensions>
</smile>
"""


def test_xdsl_as_genie_saves_it(tmp_path):
    path = tmp_path / "car.xdsl"
    path.write_bytes(GENIE.encode("latin-1"))
    (tmp_path / "car").write_bytes(gzip.compress(path.read_bytes()))
    g = minfer.read(path)
    same(g, minfer.read(tmp_path / "car"))
    assert g.directed
    assert g.names == ("Fuel", "Battery", "Trouble", "Starts")
    assert g.states("Battery") == ("Flat", "Weak", "Good")
    assert parents(g, "Trouble") == ["Fuel", "Battery"]
    fuel = [[0, 0, 1], [0.9, 0.1, 0]]  # strengths 1 0: Full is the strong state
    battery = [[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0, 0, 1]]
    want = np.zeros((2, 3, 3))
    for f, b in product(range(2), range(3)):
        for i, j, k in product(range(3), repeat=3):
            want[f, b, min(i, j, k)] += fuel[f][i] * battery[b][j] * [0.01, 0.04, 0.95][k]
    np.testing.assert_allclose(probabilities(g, "Trouble"), want, atol=1e-15)
    starts = probabilities(g, "Starts")[..., 1]
    np.testing.assert_array_equal(starts, [[0, 0], [0, 1], [0, 1]])


TEXT = {"bif": BIF.decode(), "net": NET.decode(), "xmlbif": XMLBIF.decode(),
        "xdsl": GENIE.replace("ISO-8859-1", "UTF-8")}  # fmt: skip
BAD = {"bif": _BAD_BIF, "net": _BAD_NET, "xmlbif": _BAD_XML, "xdsl": _BAD_XDSL}


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"), [(kind, *one) for kind in BAD for one in BAD[kind]]
)
def test_bad_files(kind, old, new, message):
    """A FormatError that names the file, line and column, and says what is wrong."""
    assert old in TEXT[kind]
    with pytest.raises(FormatError, match=message) as caught:
        PARSE[kind](f"m.{kind}", TEXT[kind].replace(old, new, 1).encode())
    assert re.match(rf"m\.{kind}: line \d+, column \d+", str(caught.value))


@pytest.mark.parametrize(
    ("tag", "words"),
    [("equation", "an equation node"), ("utility", "a utility node"),
     ("decision", "a decision node"), ("mau", "a multi-attribute utility node"),
     ("noisyadder", "a noisy-adder node"), ("truthtable", "a truth table"),
     ("demorgan", "a DeMorgan node")],
)  # fmt: skip
def test_what_else_genie_saves_is_refused_by_name(tag, words):
    node = f'<{tag} id="X"><state id="a" /><parents>Fuel</parents></{tag}>'
    text = GENIE.replace("\t</nodes>", f"{node}\n\t</nodes>")
    with pytest.raises(FormatError, match=rf"m.xdsl: line 25, column 1, <{tag}>: 'X' is {words}"):
        parse_xdsl("m.xdsl", text.encode("latin-1"))
    dynamic = GENIE.replace("\t<cases>", '\t<dynamic numslices="5"></dynamic><cases>')
    with pytest.raises(FormatError, match=r"line 27.*a network through time: minfer.Dynamic.load"):
        parse_xdsl("m.xdsl", dynamic.encode("latin-1"))


Node = tuple[str, list[str], list[str], str]  # name, states, parents, numbers


def as_bif(nodes: list[Node]) -> str:
    text = "network x { }\n"
    for name, states, _, _ in nodes:
        said = f"[ {len(states)} ] {{ {', '.join(states)} }}"
        text += f"variable {name} {{ type discrete {said}; }}\n"
    for name, _, own, numbers in nodes:
        given = f" | {', '.join(own)}" if own else ""
        text += f"probability ( {name}{given} ) {{ table {numbers.replace(' ', ', ')}; }}\n"
    return text


def as_net(nodes: list[Node]) -> str:
    text = "net { }\n"
    for name, states, _, _ in nodes:
        listed = " ".join(f'"{s}"' for s in states)
        text += f"node {name} {{ states = ({listed}); }}\n"
    for name, _, own, numbers in nodes:
        given = f" | {' '.join(own)}" if own else ""
        text += f"potential ({name}{given}) {{ data = ({numbers}); }}\n"
    return text


def as_xmlbif(nodes: list[Node]) -> str:
    text = '<BIF VERSION="0.3"><NETWORK>\n'
    for name, states, _, _ in nodes:
        outcomes = "".join(f"<OUTCOME>{s}</OUTCOME>" for s in states)
        text += f'<VARIABLE TYPE="nature"><NAME>{name}</NAME>{outcomes}</VARIABLE>\n'
    for name, _, own, numbers in nodes:
        given = "".join(f"<GIVEN>{p}</GIVEN>" for p in own)
        text += f"<DEFINITION><FOR>{name}</FOR>{given}<TABLE>{numbers}</TABLE></DEFINITION>\n"
    return text + "</NETWORK></BIF>\n"


def as_xdsl(nodes: list[Node]) -> str:
    text = '<smile version="1.0"><nodes>\n'
    for name, states, own, numbers in nodes:
        listed = "".join(f'<state id="{s}" />' for s in states)
        given = f"<parents>{' '.join(own)}</parents>" if own else ""
        text += f'<cpt id="{name}">{listed}{given}<probabilities>{numbers}</probabilities></cpt>\n'
    return text + "</nodes></smile>\n"


WRITTEN = {"bif": as_bif, "net": as_net, "xmlbif": as_xmlbif, "xdsl": as_xdsl}
A: Node = ("a", ["no", "yes"], [], "0.4 0.6")
B: Node = ("b", ["no", "yes"], ["a"], "0.5 0.5 0.5 0.5")
FAULTS: dict[str, tuple[list[Node], str]] = {
    "cycle": ([("a", ["no", "yes"], ["b"], "0.5 0.5 0.5 0.5"), B], "cycle: a <- b <- a"),
    "own parent": ([("a", ["no", "yes"], ["a"], "0.5 0.5 0.5 0.5")], "own parent"),
    "too few": ([A, ("b", ["no", "yes"], ["a"], "0.5 0.5 0.5")], "3 numbers, but needs 2 x 2 = 4"),
    "too many": ([("a", ["no", "yes"], [], "0.4 0.6 0.1")], "3 numbers, but needs 2"),
    "negative": ([("a", ["no", "yes"], [], "1.5 -0.5")], "negative"),
    "NaN": ([("a", ["no", "yes"], [], "nan 0.5")], "NaN"),
    "infinite": ([("a", ["no", "yes"], [], "1e999 0.5")], "too large"),
    "0.9": ([("a", ["no", "yes"], [], "0.4 0.5")], "probabilities of a sum to 0.9, not 1"),
    "two nodes": ([A, A], "two (variables|nodes) called 'a'"),
    "two states": ([("a", ["no", "no"], [], "0.4 0.6")], "two states called 'no'"),
    "undeclared parent": ([A, ("b", ["no", "yes"], ["z"], "0.5 0.5 0.5 0.5")],
                          "no variable is called 'z'"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", WRITTEN)
def test_every_format_names_the_place_and_nothing_is_written(kind, fault, tmp_path):
    good = tmp_path / f"good.{kind}"
    good.write_text(WRITTEN[kind]([A, B]))
    assert minfer.read(good).directed
    nodes, message = FAULTS[fault]
    bad, out = tmp_path / f"bad.{kind}", tmp_path / "out.net"
    bad.write_text(WRITTEN[kind](nodes))
    with pytest.raises(FormatError, match=message) as caught:
        minfer.read(bad)
    assert re.match(rf"{re.escape(str(bad))}: line \d+, column \d+", str(caught.value))
    result = call("convert", str(bad), str(out))
    assert result.exit_code == 3
    assert not out.exists()


@pytest.mark.parametrize("kind", WRITTEN)
def test_truncated_files_name_the_place_or_say_that_they_end(kind):
    text = WRITTEN[kind]([A, B]).rstrip()
    first = text.index("\n") + 1  # which is a network
    for end in range(first if "x" in kind else 1, len(text) - 1):
        if kind in ("bif", "net") and text[:end].rstrip()[-1] != "}":  # which may end a file
            refused(FormatError, "ends", PARSE[kind], "m", text[:end].encode())
        if end > first:
            refused(FormatError, r"m: line \d+", PARSE[kind], "m", text[:end].encode())


def test_texts_that_are_none():
    for parse in (parse_bif, parse_net):
        refused(FormatError, "line 1: the file is empty", parse, "m", b" \n")
        with pytest.raises(FormatError, match="line 2, column 3: the text is not UTF-8"):
            parse("m", "network\n é".encode() + b"\xe9 { }")
        refused(FormatError, "this is not text", parse, "m", b"network\0")


def test_sizes_are_compared_with_the_file_before_memory_is_asked_for():
    names = [f"v{k}" for k in range(30)]
    nodes = "".join(
        f"variable {n} {{ type discrete [9] {{ a b c d e f g h i }}; }}\n" for n in names
    )
    nine = "0.1 " * 8 + "0.2"
    first = "".join(f"probability ( {n} ) {{ table {nine}; }}\n" for n in names[1:])
    big = f"probability ( v0 | {' '.join(names[1:])} ) {{ default {nine}; }}"
    with pytest.raises(FormatError, match=r"line 61.*numbers that the file does not write down"):
        parse_bif("m", ("network x { }\n" + nodes + first + big).encode())
    rows = big.replace("default", f"({' '.join('a' * 29)})")
    with pytest.raises(FormatError, match=r"1 of 4\.7\d*e\+27 rows"):
        parse_bif("m", ("network x { }\n" + nodes + first + rows).encode())
    many = big.replace("v0 |", "v0 | " + " ".join(names[1:]))
    with pytest.raises(FormatError, match="58 parents"):
        parse_bif("m", ("network x { }\n" + nodes + first + many).encode())


BAYES = b"""BAYES
2 2 3 2
1 0   2 0 1
2 0.25 0.75
6 0.1 0.2 0.7 0.5 0.25 0.25
"""


def test_bayes_tables_know_their_children():
    g = parse_uai("m.uai", BAYES)
    assert g.directed
    assert [g.child(i) for i in range(2)] == [0, 1]
    rounded = parse_uai("m.uai", BAYES.replace(b"0.7 ", b"0.69999 "))
    np.testing.assert_allclose(np.exp(rounded.log_table(1)).sum(axis=1), 1, rtol=1e-15)
    assert parse_uai("m.uai", BAYES.replace(b"BAYES", b"MARKOV"))._child is None


@pytest.mark.parametrize(
    ("old", "new", "message", "children"),
    [(b"0.7 ", b"0.6 ", r"1 of 2 tables are not conditional.*factor 1.*sum to 0\.9", [0, None]),
     (b"1 0   2 0 1", b"1 0   2 1 0", "one to a table", [None, None])],
)  # fmt: skip
def test_bayes_tables_that_are_none_are_noted(old, new, message, children):
    with pytest.warns(UserWarning, match=message):
        g = parse_uai("m.uai", BAYES.replace(old, new))
    assert [g.child(i) for i in range(2)] == children
    assert np.exp(g.log_table(1)).ravel()[2] == pytest.approx(float(new.split()[0]) if children[0]
                                                              == 0 else 0.7)  # fmt: skip


def test_uai_comments(tmp_path):
    told = (b"# made by hand\n/* two\nlines */BAYES// here\n2 2 3 2 # two tables\n"
            b"1 0 2 0 1\n2 0.25 0.75\n6 0.1 0.2 0.7 0.5 0.25 0.25\n//end")  # fmt: skip
    for name in ("m.uai", "m"):
        (tmp_path / name).write_bytes(told)
        same_tables = minfer.read(tmp_path / name)
        for i in range(2):
            assert np.array_equal(same_tables.log_table(i), parse_uai("m", BAYES).log_table(i))
    (tmp_path / "e.evid").write_bytes(b"# seen\n1 1 /* variable 1 */ 2\n")
    assert minfer.read_evidence(tmp_path / "e.evid", same_tables) == {1: 2}
    with pytest.raises(FormatError, match="line 4, column 9, token 'x'"):
        parse_uai("m", told.replace(b"3 2 #", b"3 x  #").replace(b"2 2 3 x", b"2 2  3  x"))
    with pytest.raises(FormatError, match=r"line 2, column 1.*never closed"):
        parse_uai("m", told.replace(b"*/", b""))


def _bundled() -> Path | None:
    found = find_spec("pgmpy")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "utils" / "example_models"


@pytest.mark.parametrize(
    "name",
    ["alarm", "asia", "cancer", "child", "earthquake", "hailfinder", "hepar2", "insurance",
     "sachs", "survey", "win95pts"],
)  # fmt: skip
def test_bnlearns_networks_agree_with_pyagrum(name, tmp_path):
    """What we read and write is what pyAgrum reads and writes (posteriors: test_queries.py)."""
    folder = _bundled()
    if folder is None or not (folder / f"{name}.bif.gz").exists():
        pytest.skip("pgmpy, whose wheel holds bnlearn's networks, is not installed")
    gum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    graph = minfer.read(folder / f"{name}.bif.gz")
    theirs = interop.to_pyagrum(graph)
    states = [s for v in graph.names for s in graph.states(v)]
    words = all(re.fullmatch(r"\w+", s) for s in states)
    plain_words = all(re.fullmatch(r"[A-Za-z_]\w*", s) for s in states)
    if words:  # pyAgrum reads BIF and NET with words for states only, and in single precision
        plain = tmp_path / f"{name}.bif"
        plain.write_bytes(gzip.decompress((folder / f"{name}.bif.gz").read_bytes()))
        same_tables(graph, gum.loadBN(str(plain)), 1e-6)
    for suffix in ("bif", "net", "bifxml") if words else ("bifxml",):
        minfer.write(graph, tmp_path / f"ours.{suffix}")
        tolerance = 1e-12 if suffix == "bifxml" else 1e-6
        same_tables(graph, gum.loadBN(str(tmp_path / f"ours.{suffix}")), tolerance)
        if plain_words:  # it writes no other states, or XML that is none
            path = tmp_path / f"theirs.{suffix}"
            gum.saveBN(theirs, str(path))
            same_tables(minfer.read(path), theirs, 1e-4)  # in few digits


def same_tables(graph, theirs, tolerance):
    assert set(theirs.names()) == set(graph.names)
    for v in graph.names:
        tensor = theirs.cpt(v)
        assert tuple(theirs.variable(v).labels()) == graph.states(v)
        order = [v, *parents(graph, v)]
        assert set(tensor.names) == set(order)
        array = tensor.reorganize(order).toarray()  # the first variable is the last axis
        k = len(order) - 1
        ours = probabilities(graph, v).transpose([*range(k - 1, -1, -1), k])
        np.testing.assert_allclose(ours, array, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "tables",
    [
        "probability ( a ) { table 0.5, 0.5, 0.3; } probability ( b ) { table 0.7; }",
        "probability ( a ) { table 0.5; } probability ( b ) { table 0.5, 0.3, 0.7; }",
        "probability ( a ) { table 0.5, 0.5; } probability ( b | a ) { table 0.5, 0.5, 0.5; }",
        "probability ( b | a ) { table 0.5, 0.5, 0.5, 0.5, 0.1; } probability ( a ) { table 0.9; }",
    ],
)
def test_numbers_of_one_bif_table_do_not_spill_into_the_next(tables):
    head = "network n { } variable a { type discrete [ 2 ] { y, n }; } "
    head += "variable b { type discrete [ 2 ] { y, n }; } "
    for end in ("\n", "// a comment\n"):
        with pytest.raises(FormatError, match=r"numbers?, but needs"):
            parse_bif("n.bif", (head + tables + end).encode())
