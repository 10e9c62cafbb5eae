"""XMLBIF 0.3, also called BIFXML: ``.xmlbif``, ``.bifxml``, and ``.xml`` where its root is BIF.

    <BIF VERSION="0.3"><NETWORK><NAME>garden</NAME>
      <VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME>
      </VARIABLE>
      <VARIABLE TYPE="nature"><NAME>wet</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME>
      </VARIABLE>
      <DEFINITION><FOR>rain</FOR><TABLE>0.8 0.2</TABLE></DEFINITION>
      <DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>0.9 0.1 0.2 0.8</TABLE></DEFINITION>
    </NETWORK></BIF>

In a table the variable itself runs fastest, the first given one slowest. Properties are skipped;
decision and utility variables, and tables of several variables, are refused by name.
"""

from __future__ import annotations

from html import escape

from minfer.errors import RefusedError, visible
from minfer.graph import FactorGraph
from minfer.io.elements import UNWRITABLE, ElementTree
from minfer.io.networks import Draft, conditionals, in_words, names_of
from minfer.io.opening import parsed
from minfer.io.text import PathLike, write_bytes

_TAGS = frozenset(
    ["NETWORK", "VARIABLE", "NAME", "OUTCOME", "DEFINITION", "PROBABILITY", "FOR", "GIVEN", "TABLE"]
)


def read_xmlbif(path: PathLike) -> FactorGraph:
    """Read a Bayesian network in XMLBIF; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_xmlbif)


def parse_xmlbif(name: str, data: bytes) -> FactorGraph:
    """The network in the XML ``data``; ``name`` is the file for messages."""
    tree = ElementTree(name, data, _TAGS)
    root = tree.root
    assert root is not None  # expat refuses a file without one
    if root.tag != "BIF":
        advice = ": this is GeNIe's format, name it .xdsl" if root.tag == "smile" else ""
        tree.fail(root, f"the root of an XMLBIF file is <BIF>{advice}")
    network = tree.one(root, "NETWORK")
    draft = Draft(tree.n_bytes, tree.fail)
    for variable in network.all("VARIABLE"):
        called = tree.one(variable, "NAME").text
        kind = variable.attributes.get("TYPE", "nature")
        if kind != "nature":
            tree.fail(
                variable,
                f"{visible(called)!r} is a {visible(kind[:40])} node; only chance nodes are read",
            )
        draft.variable(called, [state.text for state in variable.all("OUTCOME")], variable)
    for definition in network.all("DEFINITION", "PROBABILITY"):
        child = tree.one(definition, "FOR")
        given = list(definition.all("GIVEN"))
        scope = draft.scope(child.text, [g.text for g in given], child, given)
        table = tree.one(definition, "TABLE")
        draft.table(scope, tree.numbers(table), table)
    return draft.graph()


def write_xmlbif(graph: FactorGraph, path: PathLike) -> None:
    """Write a Bayesian network in XMLBIF, with names, states and the order of parents.

    Models that are not Bayesian networks, or contain evidence, are refused.
    """
    write_bytes(path, format_xmlbif(graph))


def format_xmlbif(graph: FactorGraph) -> bytes:
    """The text of an XMLBIF file."""
    tables = list(conditionals(graph, "XMLBIF"))
    names = [_text(n) for n in names_of(graph)]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<BIF VERSION="0.3">', "<NETWORK>"]
    lines.append("<NAME>unknown</NAME>")
    for v, name in enumerate(names):
        lines += ['<VARIABLE TYPE="nature">', f"  <NAME>{name}</NAME>"]
        lines += [f"  <OUTCOME>{_text(s)}</OUTCOME>" for s in graph.states(v)]
        lines.append("</VARIABLE>")
    for child, parents, table in tables:
        lines += ["<DEFINITION>", f"  <FOR>{names[child]}</FOR>"]
        lines += [f"  <GIVEN>{names[p]}</GIVEN>" for p in parents]
        lines.append("  <TABLE>")
        rows = table.reshape(-1, table.shape[-1]).tolist()
        lines += [f"    {in_words(row, ' ')}" for row in rows]
        lines += ["  </TABLE>", "</DEFINITION>"]
    lines += ["</NETWORK>", "</BIF>", ""]
    return "\n".join(lines).encode()


def _text(name: str) -> str:
    """A name as text of an element, if it would be read back as it is."""
    if not name or name != name.strip() or UNWRITABLE.search(name):
        raise RefusedError(
            f"the name {visible(name)!r} is empty, has white space around it or a character that "
            "XML cannot hold: rename it, or write .minfer"
        )
    return escape(name, quote=False)
