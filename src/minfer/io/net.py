"""NET, Hugin's format for Bayesian networks.

    net { }
    node rain { states = ("no" "yes"); }
    node wet { states = ("no" "yes"); label = "wet grass"; }
    potential (rain) { data = (0.8 0.2); }
    potential (wet | rain) { data = ((0.9 0.1) (0.2 0.8)); }

States are strings, or plain words as pyAgrum writes them. In ``data`` the variable itself runs
fastest and the first parent slowest; inner parentheses may be left out, but where they stand they
hold whole rows. ``%`` begins a comment. The name of a node is its identifier, not its label. A
network may stand in a ``class``; instances of other classes, continuous, utility, decision and
function nodes, and potentials that give only a ``model_data`` expression, are refused by name.

Hugin's identifiers are letters, digits and underscores. A node of any other name is written under
one that is made up, and its true name in the attribute ``minfer_name``, which we read back and
Hugin ignores.
"""

from __future__ import annotations

import re
from typing import NoReturn

from minfer.basics.words import counted
from minfer.errors import FormatError, visible
from minfer.graph import FactorGraph
from minfer.io.networks import Draft, check_one_line, conditionals, in_words, names_of, quoted
from minfer.io.opening import parsed
from minfer.io.text import PathLike, write_bytes
from minfer.io.tokens import STRING, Tokens

_TOKEN = re.compile(STRING + r'|[{}()=;|]|[^\s,{}()=;|"]+')
_COMMENT = r"%[^\n]*"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: What may stand for a name that is not an identifier.
TRUE_NAME = "minfer_name"

_CHANCE = {"node", "discrete"}
_REFUSED = {
    "continuous": "a continuous node",
    "utility": "a utility node",
    "decision": "a decision node",
    "function": "a function node",
    "instance": "an instance of another class",
    "temporal": "a node of a dynamic network",
}
_KEYWORDS = {"net", "class", "potential", "node", "discrete", *_REFUSED}


def read_net(path: PathLike) -> FactorGraph:
    """Read a Bayesian network in Hugin's NET; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_net)


def parse_net(name: str, data: bytes) -> FactorGraph:
    """The network in the text ``data``; ``name`` is the file for messages."""
    text = Tokens(name, data, _TOKEN, _COMMENT if b"%" in data else "")
    if not len(text):
        raise FormatError(f"{name}: line 1: the file is empty; it should hold a network")
    return _Net(text).graph()


class _Net:
    """Goes through the declarations: nodes first, then potentials."""

    def __init__(self, text: Tokens) -> None:
        self.text, self.draft = text, Draft(text.n_bytes, text.fail)
        self.named: dict[str, str] = {}  # identifiers and the names they stand for
        self.potentials: list[int] = []

    def graph(self) -> FactorGraph:
        text, k, in_class = self.text, 0, False
        while k < len(text):
            word = text.words[k]
            if word in _CHANCE:
                k = self._node(k)
            elif word in _REFUSED:
                self._refuse(k)
            elif word == "potential":
                self.potentials.append(k)
                k = text.find("{", k, "this potential")
                k = self._skip_block(k + 1)
            elif word == "net":
                k = self._skip_block(text.expect(k + 1, "{"))
            elif word == "class" and not in_class:
                in_class = True
                k = text.expect(k + 2, "{")
            elif word == "}" and in_class:
                if k + 1 < len(text):
                    text.fail(k + 1, "nothing may follow the class: one network to a file")
                break
            elif in_class and k + 1 < len(text) and text.words[k + 1] == "=":
                k = text.find(";", k, "this attribute") + 1
            else:
                text.fail(k, "expected net, node or potential")
        else:
            if in_class:
                text.ends("the class has no '}'")
        for k in self.potentials:
            self._potential(k + 1)
        return self.draft.graph()

    def _refuse(self, k: int) -> NoReturn:
        text, word = self.text, self.text.words[k]
        name_at = k + 1
        while name_at < len(text) and text.words[name_at] in ("node", "utility", "function"):
            name_at += 1
        name = f"{visible(text.words[name_at])!r} " if name_at < len(text) else "this "
        text.fail(k, f"{name}is {_REFUSED[word]}; only discrete chance nodes are read")

    def _skip_block(self, k: int) -> int:
        while self.text.get(k, "a '}'") != "}":
            k = self.text.find(";", k, "this attribute") + 1
        return k + 1

    def _node(self, k: int) -> int:
        text = self.text
        k += text.words[k] == "discrete"
        if text.get(k, "node") in _REFUSED:
            self._refuse(k)
        at = text.expect(k, "node")
        identifier = text.string(at, "a node's name")
        k, states, name = text.expect(at + 1, "{"), None, identifier
        while text.get(k, "an attribute") != "}":
            end = text.find(";", k, "this attribute")
            if text.words[k] == "states":
                if states is not None:
                    text.fail(k, f"{visible(identifier)} has two lists of states")
                first = text.expect(k + 1, "=", "(")
                text.expect(end - 1, ")")
                states = [text.string(j, "a state") for j in range(first, end - 1)]
            elif text.words[k] == TRUE_NAME:
                name = text.string(text.expect(k + 1, "="), "a name")
            else:
                text.expect(k + 1, "=")
            k = end + 1
        if states is None:
            text.fail(at, f"{visible(identifier)} has no states")
        if identifier in self.named:
            text.fail(at, f"there are two nodes called {visible(identifier)!r}")
        self.named[identifier] = name
        self.draft.variable(name, states, at)
        return k + 1

    def _potential(self, k: int) -> None:
        text = self.text
        at = text.expect(k, "(")
        end = text.find(")", at, "the scope")
        child = self._name(at)
        first = at + 1
        if first < end and text.words[first] != "|":
            text.fail(first, "expected '|' or ')': the table of one variable, given its parents")
        places = range(first + 1, end)
        scope = self.draft.scope(child, [self._name(j) for j in places], at, places)
        k, data, model = text.expect(end + 1, "{"), None, None
        while text.get(k, "an attribute") != "}":
            end = text.find(";", k, "this attribute")
            begin = text.expect(k + 1, "=")
            if text.words[k] == "data":
                if data is not None:
                    text.fail(k, f"{visible(child)} has a second data")
                data = begin, end
            elif text.words[k] in ("model_data", "samples_per_interval"):
                model = k
            k = end + 1
        if data is None:
            if model is not None:
                text.fail(model, f"{visible(child)} is given by an expression; only data are read")
            text.fail(at, f"the potential of {visible(child)} has no data")
        size, numbers = self.draft.shape(scope)[-1], self._data(scope, *data)
        self.draft.table(scope, text.numbers_at(numbers), at, lambda r: numbers[r * size])

    def _name(self, k: int) -> str:
        identifier = self.text.string(k, "a node")
        return self.named.get(identifier, identifier)

    def _data(self, scope: list[int], begin: int, end: int) -> list[int]:
        """Where numbers stand between parentheses, which must match and hold whole rows."""
        text, size = self.text, self.draft.shape(scope)[-1]
        text.expect(begin, "(")
        numbers: list[int] = []
        depth, opened = 0, begin
        for k in range(begin, end):
            word = text.words[k]
            if word == "(":
                if depth and len(numbers) % size:
                    text.fail(k, f"a parenthesis inside a row of {counted(size, 'number')}")
                depth, opened = depth + 1, k
            elif word == ")":
                depth -= 1
                if depth and len(numbers) % size:
                    text.fail(opened, f"a row should have {counted(size, 'number')}")
                if depth < 0 or (not depth and k < end - 1):
                    text.fail(k, "a parenthesis too many")
            else:
                numbers.append(k)
        if depth:
            text.fail(opened, "this parenthesis is never closed")
        return numbers


def write_net(graph: FactorGraph, path: PathLike) -> None:
    """Write a Bayesian network in NET, with names, states and the order of parents.

    Models that are not Bayesian networks, or contain evidence, are refused.
    """
    write_bytes(path, format_net(graph))


def format_net(graph: FactorGraph) -> bytes:
    """The text of a NET file."""
    tables = list(conditionals(graph, "NET"))
    check_one_line(graph, "NET")
    names = names_of(graph)
    identifiers = _identifiers(names)
    lines = ["net", "{", "}"]
    for v, (name, identifier) in enumerate(zip(names, identifiers)):
        states = " ".join(quoted(s) for s in graph.states(v))
        lines += [f"node {identifier}", "{", f"  states = ({states});"]
        if identifier != name:
            lines += [f"  label = {quoted(name)};", f"  {TRUE_NAME} = {quoted(name)};"]
        lines.append("}")
    for child, parents, table in tables:
        given = f" | {' '.join(identifiers[p] for p in parents)}" if parents else ""
        rows = [f"({in_words(r, ' ')})" for r in table.reshape(-1, table.shape[-1]).tolist()]
        for n in reversed(table.shape[:-1]):  # a pair of parentheses for each state of a parent
            rows = [f"({' '.join(rows[k : k + n])})" for k in range(0, len(rows), n)]
        lines += [f"potential ({identifiers[child]}{given})", "{", f"  data = {rows[0]};", "}"]
    return ("\n".join(lines) + "\n").encode()


def _identifiers(names: list[str]) -> list[str]:
    """Names as Hugin takes them, all different."""
    plain = [bool(_IDENTIFIER.fullmatch(n)) and n not in _KEYWORDS for n in names]
    used = {n for n, fine in zip(names, plain) if fine}
    out = []
    for name, fine in zip(names, plain):
        made = name
        if not fine:
            stem = made = "x_" + re.sub(r"[^A-Za-z0-9_]", "_", name)[:40]
            k = 2
            while made in used:
                made, k = f"{stem}_{k}", k + 1
            used.add(made)
        out.append(made)
    return out
