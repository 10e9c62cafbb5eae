"""Evidence and variables as people type them: ``x3=1,CVP=LOW``, ``CVP=LOW:0.2,HIGH:0.8``, ``x5``.

Names may have commas and equals signs in them: what can be read in several ways is read in the one
that names a variable of the model, and quotes settle the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minfer.errors import ContradictionError, EvidenceError, ModelError, SettingsError
from minfer.io.evidence import is_json, numbered_evidence, parse_json_evidence
from minfer.model.evidence import typed_variable

if TYPE_CHECKING:
    from minfer.graph import FactorGraph


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def numbers(flag: str, text: str) -> list[float]:
    """A list of numbers, as an option has it.

    >>> numbers("--values", "0,0.5,1")
    [0.0, 0.5, 1.0]
    """
    words = [word for word in text.split(",") if word.strip()]
    if not words or not all(map(is_number, words)):
        raise SettingsError(f"{flag}: {text!r} is not a list of numbers such as 0,0.5,1")
    return [float(word) for word in words]


def evidence_of(
    graph: FactorGraph, evidence: list[str] | None = None, soft: list[str] | None = None
) -> dict[int, Any]:
    """All evidence together, by variables' numbers: states' numbers, or likelihoods (S,).

    Parameters
    ----------
    graph : the model
    evidence : observed states, by index or name: a file (UAI or JSON), or variable=state pairs
        (repeatable; a name with a comma needs quotes, or its own option)
    soft : likelihoods of one variable's states, by name (0 for those left out), or one for each in
        order, as in x3=0.2,0.8 (repeatable). A JSON file for ``evidence`` can hold them too
    """
    out: dict[int, Any] = {}
    for part in _pieces(graph, evidence, soft):
        for v, state in part.items():
            if v not in out:
                out[v] = state
            elif not (isinstance(out[v], int) and isinstance(state, int)):
                raise EvidenceError(f"evidence: {graph.name(v)} is given twice")
            elif out[v] != state:
                raise _two_states(graph, v, out[v], state)
    return out


def do_of(graph: FactorGraph, texts: list[str] | None) -> dict[int, int]:
    """What ``--do`` sets, as variable=state pairs, by variables' and states' numbers."""
    out: dict[int, int] = {}
    for text in texts or ():
        for v, state in parse_pairs(text, graph, "do").items():
            if out.setdefault(v, state) != state:
                raise _two_states(graph, v, out[v], state, "do")
    return out


def _pieces(
    graph: FactorGraph, given: list[str] | None, soft: list[str] | None
) -> Iterator[dict[int, Any]]:
    from minfer.io import read_evidence

    for text in given or ():
        if text == "-" or os.path.exists(text):  # unlike Path.exists, for any length of text
            yield read_evidence(text, graph)
        elif is_json(text):
            yield numbered_evidence(graph, parse_json_evidence(text, "--evidence"))
        elif "=" in text:
            yield parse_pairs(text, graph)
        else:
            raise EvidenceError(
                f"--evidence {text}: there is no such file, and it is not a list such as x3=1,x7=0"
            )
    for text in soft or ():
        yield parse_soft(text, graph)


def _two_states(
    graph: FactorGraph, v: int, one: int, other: int, what: str = "evidence"
) -> ContradictionError:
    names = graph.states(v)
    return ContradictionError(
        f"contradictory {what}: {graph.name(v)} is given two states, {names[one]} and "
        f"{names[other]}"
    )


def parse_soft(text: str, graph: FactorGraph) -> dict[int, Any]:
    """``CVP=LOW:0.2,HIGH:0.8``, or ``CVP=0.2,0,0.8``: likelihoods of one variable's states."""
    cuts = [cut for cut in _cuts(text) if all(cut)]
    if not cuts:
        raise SettingsError(f"--soft: {text!r} is not variable=state:likelihood,...")
    for name, rest in cuts:
        try:
            v = variable(name, graph)
        except ModelError as error:
            failure = error
            continue
        return numbered_evidence(graph, {graph.name(v): _likelihoods(rest, graph, v)})
    raise EvidenceError(f"--soft: {failure}")


def _likelihoods(text: str, graph: FactorGraph, v: int) -> list[float] | dict[str, float]:
    parts = split_list(text)
    if all(is_number(part) for part in parts):
        return [float(part) for part in parts]
    out: dict[str, float] = {}
    for part in parts:
        state, colon, number = part.rpartition(":")
        state = unquoted(state)
        if not colon or not state or not is_number(number):
            raise SettingsError(f"--soft: {part!r} is not state:likelihood, as in x3=a:0.2,b:0.8")
        if state in out:
            raise EvidenceError(f"--soft: {graph.name(v)}: the state {state} is given twice")
        out[state] = float(number)
    return out


def parse_pairs(text: str, graph: FactorGraph, what: str = "evidence") -> dict[int, int]:
    """``x3=1,CVP=LOW`` as states' numbers by variables' numbers.

    What has a comma in it goes in quotes, or alone, as one ``--evidence``.
    """
    whole = _pair(text, graph, what)
    if not isinstance(whole, Exception):
        return dict([whole])
    evidence: dict[int, int] = {}
    for pair in split_list(text):
        found = _pair(pair, graph, what)
        if isinstance(found, Exception):
            raise found
        v, state = found
        if evidence.setdefault(v, state) != state:
            raise _two_states(graph, v, evidence[v], state, what)
    return evidence


def _cuts(pair: str) -> Iterator[tuple[str, str]]:
    """Every way to read ``variable=state``: names may have an = in them."""
    at = pair.find("=")
    while at >= 0:
        yield unquoted(pair[:at]), unquoted(pair[at + 1 :])
        at = pair.find("=", at + 1)


def _pair(
    pair: str, graph: FactorGraph, what: str
) -> tuple[int, int] | SettingsError | EvidenceError:
    """Variable and state, or what is wrong with it: a state, before a variable."""
    no_variable = no_state = None
    for name, state in _cuts(pair):
        try:
            v = variable(name, graph)
        except ModelError as error:
            no_variable = error if name and state else no_variable
            continue
        try:
            return v, graph.state(v, state)
        except ModelError as error:
            no_state = no_state or (error if name and state else None)
    if no_variable is no_state is None:
        return SettingsError(f"--{what}: {pair!r} is not variable=state")
    return EvidenceError(f"{what}: {no_state or no_variable}")


def split_list(text: str) -> list[str]:
    """Parts between commas that stand in no quotes."""
    parts, quote, part = [], "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (not part.strip() or part.rstrip().endswith("=")):
            quote = letter
        elif letter == ",":
            parts.append(part)
            part = ""
            continue
        part += letter
    return [p.strip() for p in [*parts, part] if p.strip()]


def unquoted(text: str) -> str:
    """Without the quotes around it, if it has any."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def listed(texts: list[str] | None) -> list[str]:
    """Names from ``A,B`` options, quoted where they have a comma in them."""
    return [unquoted(name) for text in texts or () for name in split_list(text)]


def parse_query(texts: list[str] | None, graph: FactorGraph, flag: str) -> list[int] | None:
    """``x5,x9`` as variable numbers; None asks for all of them. ``flag`` is what they are for."""
    if not texts:
        return None
    names: list[str] = []
    for text in texts:
        names += [text] if text in graph._index else map(unquoted, split_list(text))
    if not names:
        raise SettingsError(f"{flag}: name at least one variable, as in x5,x9")
    return list(dict.fromkeys(variable(name, graph) for name in names))


def variable(text: str, graph: FactorGraph) -> int:
    """A variable by name, by ``x`` and number, or by bare number."""
    return graph.index(typed_variable(graph, text))


def evidence_beside(model: str) -> Path | None:
    """An evidence file that lies beside a model under the usual name."""
    path = Path(model)
    if model == "-" or not path.exists():
        return None
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    stems = dict.fromkeys([path, plain, plain.with_suffix("")])
    for stem in stems:
        for suffix in (".evid", ".evid.gz"):
            beside = stem.with_name(stem.name + suffix)
            if beside.is_file():
                return beside
    return None
