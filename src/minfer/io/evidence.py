"""Evidence as JSON: observed states and likelihoods by name, in files, batches and command lines.

    {"HR": "LOW", "CVP": {"LOW": 0.2, "NORMAL": 0.8}, "PAP": [0.1, 0.3, 0.6], "x7": 0}

A state's name or number is hard evidence; likelihoods of states, by name (0 for those left out) or
one for each in order, are soft. null says nothing. Any name can be written so, with commas and
equals signs in it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minfer.basics.checks import first_twice
from minfer.errors import EvidenceError, FormatError, visible
from minfer.model.evidence import numbered, typed_variable
from minfer.model.states import Variables

_LIKE = 'evidence is a JSON object such as {"x3": 1}'


def is_json(data: bytes | str) -> bool:
    """Whether evidence is JSON and not pairs, of numbers or names."""
    start = data.lstrip()[:1]
    return start in (b"{", "{", b"[", "[")


def parse_json_evidence(text: bytes | str, name: str = "") -> dict[str, Any]:
    """{variable: state, or likelihoods of its states}; ``name`` is the file for messages."""
    where = f"{visible(name)}: " if name else ""
    try:
        found = json.loads(text, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{where}line {error.lineno}, column {error.colno}: {_LIKE}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, a name twice, too many digits
        raise FormatError(f"{where}{_LIKE}: {error}") from None
    if not isinstance(found, dict):
        words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        words = words if len(words) <= 80 else f"{words[:77]}..."
        raise EvidenceError(f"{where}{_LIKE}, not {visible(words)}")
    return without_nulls(found)


def without_nulls(evidence: Mapping[Any, Any]) -> dict[Any, Any]:
    """What says something, of states too."""
    return {
        name: without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in evidence.items()
        if value is not None
    }


def numbered_evidence(
    graph: Variables, evidence: Mapping[str, Any], name: str = ""
) -> dict[int, Any]:
    """The same by variables' numbers: a state's number each, or likelihoods, shape (S,)."""
    keys = {typed_variable(graph, key): value for key, value in evidence.items()}
    try:
        hard, soft = numbered(graph, keys)
    except EvidenceError as error:
        raise EvidenceError(f"{visible(name)}: {error}" if name else str(error)) from None
    return {**hard, **soft}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        twice = first_twice(name for name, _ in pairs) or ""
        raise ValueError(f"{visible(twice)!r} is given twice")
    return out
