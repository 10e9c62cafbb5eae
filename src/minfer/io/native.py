"""The native format, ``.minfer``: a model bit for bit, without pickle.

    8 bytes   magic, MINFER CR LF
    4 bytes   version, 1; 2 of a network through time, kept as the graph of its first two slices
    8 bytes   length of the header
    32 bytes  SHA-256 of all that follows
    header    JSON: the names, the factor groups in order, and of every array dtype, shape, offset
    arrays    raw, little-endian, row-major, each at a multiple of 64 from the end of the header

All integers are little-endian. Kept are the names of variables and states, the field, features,
shared tables, the factors' numbers, and of which variable a factor is the conditional distribution;
the lineage is not, so a graph read back cannot take over another's messages. What the header
declares is compared with the bytes there are before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
import struct
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_graph
from minfer.errors import FormatError, ModelError, visible
from minfer.factors.group import KINDS, FactorGroup
from minfer.graph import FactorGraph
from minfer.io.opening import parsed
from minfer.io.tables import check_readable, states_complaint
from minfer.io.text import PathLike, write_bytes
from minfer.model.directed import ROW_SUM, check_acyclic

MAGIC = b"MINFER\r\n"
VERSION, DYNAMIC = 1, 2

_PREFIX = struct.Struct("<8sIQ32s")
_ALIGN = 64
_I4, _I8, _F8 = "<i4", "<i8", "<f8"


def write_native(graph: FactorGraph, path: PathLike) -> None:
    """Write a model in the native format; global factors are refused."""
    write_bytes(path, format_native(graph))


def write_dynamic(two_slices: FactorGraph, path: PathLike) -> None:
    """Write a network through time by its first two slices (:meth:`minfer.Dynamic.save`)."""
    write_bytes(path, format_native(two_slices, DYNAMIC))


def format_native(graph: FactorGraph, version: int = VERSION) -> bytes:
    """The bytes of a native file: the same for the same model."""
    check_graph(graph, "a native file")
    arrays: dict[str, NDArray] = {"n_states": graph._n_states.astype(_I4)}
    if graph._field is not None:
        arrays["field"] = graph._field.astype(_F8)
    groups = []
    for k, group in enumerate(graph.groups):
        name = f"group{k}"
        arrays[f"{name}.ids"] = group._ids.astype(_I8)
        arrays[f"{name}.scope"] = group._scope.astype(_I4)
        entry = {"kind": group.kind, "count": len(group), "shape": [int(s) for s in group.shape]}
        own: dict[str, NDArray] = {}
        groups.append(entry | group.describe(own.__setitem__))
        arrays |= {f"{name}.{key}": array for key, array in own.items()}
    names = None if graph.names is None else list(graph.names)
    content: dict[str, Any] = {"names": names, "groups": groups}
    if graph._states is not None:
        content["states"] = [None if own is None else list(own) for own in graph._states]
    if graph._child is not None:
        arrays["child"] = graph._child.astype(_I4)
    data = lay_out(content, arrays, version=version)
    if version == DYNAMIC:
        return data
    return check_readable(graph, "native", data)


def lay_out(
    content: dict[str, Any],
    arrays: dict[str, NDArray],
    magic: bytes = MAGIC,
    version: int = VERSION,
) -> bytes:
    """The bytes of a file with these arrays, whatever they are."""
    table, blobs, offset = {}, [], 0
    for name, array in arrays.items():
        table[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": offset}
        blob = array.tobytes()
        blobs.append(blob + bytes(-len(blob) % _ALIGN))
        offset += len(blobs[-1])
    content = {"length": offset, **content, "arrays": table}
    header = json.dumps(content, separators=(",", ":")).encode("ascii")
    return seal(version, header, b"".join(blobs), magic)


def seal(version: int, header: bytes, arrays: bytes, magic: bytes = MAGIC) -> bytes:
    """Prefix and checksum around a header and its arrays."""
    digest = hashlib.sha256(header)
    digest.update(arrays)
    return _PREFIX.pack(magic, version, len(header), digest.digest()) + header + arrays


def read_native(path: PathLike) -> FactorGraph:
    """Read a model in the native format; ``-`` for standard input, gzip is recognised."""
    return parsed(path, parse_native)


def parse_native(name: str, data: bytes, version: int = VERSION) -> FactorGraph:
    """The model in ``data``; ``name`` is the file for messages."""
    try:
        graph = GraphReader(*unseal(data, wanted=version), len(data)).graph()
        _check_conditional(graph)
        return graph
    except (FormatError, ModelError) as error:
        raise FormatError(f"{name}: {error}") from None


def _check_conditional(graph: FactorGraph) -> None:
    """ModelError unless the tables that are said to be conditional distributions are."""
    if graph._child is None:
        return
    for group in graph.groups:
        children = graph._child[group._ids]
        if group.is_conditional and (children == group._scope[:, -1]).all():
            continue  # by its kind
        for axis in range(group.arity):
            rows = np.flatnonzero(children == group._scope[:, axis])
            if not len(rows):
                continue
            if not group.has_tables:
                raise ModelError(f"factor {group._ids[rows[0]]} is no conditional distribution")
            tables = group.log_tables(rows).reshape(len(rows), *group.shape)
            with np.errstate(over="ignore"):
                off = np.abs(np.exp(tables).sum(axis=axis + 1) - 1.0).reshape(len(rows), -1)
            wrong = ~(off.max(axis=1, initial=0.0) <= ROW_SUM)
            if wrong.any():
                k = int(np.argmax(wrong))
                child = visible(graph.name(int(children[rows[k]])))
                raise ModelError(
                    f"factor {group._ids[rows[k]]}: it is said to be the distribution of {child} "
                    f"given its parents, but its rows do not sum to 1 (off by {off[k].max():.3g})"
                )
    given = np.flatnonzero(graph._child >= 0)
    if graph.directed:
        scopes = [graph.scope(i).tolist() for i in given.tolist()]
        own = graph._child[given].tolist()
        check_acyclic(graph, own, [[v for v in s if v != c] for s, c in zip(scopes, own)])


def unseal(data: bytes, magic: bytes = MAGIC, wanted: int = VERSION) -> tuple[Any, memoryview]:
    """The header and the bytes of the arrays, once the checksum holds."""
    if not data:
        raise FormatError("the file is empty")
    if data[:8] != magic:
        raise FormatError("not a native minfer file: its first 8 bytes are not the magic")
    if len(data) < _PREFIX.size:
        raise FormatError(f"truncated: {len(data)} bytes are too few for the prefix")
    _, version, length, digest = _PREFIX.unpack_from(data)
    if {version, wanted} == {VERSION, DYNAMIC}:
        raise FormatError(
            "this is a network through time: minfer.Dynamic.load and `minfer time` read it"
            if version == DYNAMIC
            else "this is a model without time: minfer.read reads it"
        )
    if version != wanted:
        raise FormatError(
            f"version {version} of the native format; this minfer reads {VERSION} and {DYNAMIC}: "
            "update minfer, or have the file written as .uai"
        )
    body = memoryview(data)[_PREFIX.size :]
    if length > len(body):
        raise FormatError(f"truncated: a header of {length:,} bytes, but {len(body):,} are left")
    if hashlib.sha256(body).digest() != digest:
        raise FormatError("truncated or damaged: the checksum does not match")
    try:
        return json.loads(bytes(body[:length])), body[length:]
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the header is not JSON: {error}") from None


class ArrayReader:
    """Takes a header apart, believing nothing."""

    def __init__(self, header: Any, arrays: memoryview, n_bytes: int) -> None:
        self._header, self._data, self._n_bytes = header, arrays, n_bytes
        self._left = len(arrays)  # bytes that no array has taken yet
        if self.item(header, "length", int) != len(arrays):
            raise FormatError(f"the header announces {header['length']} bytes, not {len(arrays)}")
        self._table = self.item(header, "arrays", dict)

    @staticmethod
    def _texts(given: Any, wrong: str) -> tuple[str, ...] | None:
        if given is None:
            return None
        if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
            raise FormatError(wrong)
        return tuple(given)

    def array(self, name: str, dtype: str, shape: list[int]) -> NDArray:
        """A writable copy of one array, if the header and the bytes agree that it is there."""
        entry = self.item(self._table, name, dict)
        if entry.get("dtype") != dtype or entry.get("shape") != shape:
            raise FormatError(f"{name} should be {dtype} of shape {str(shape)[:80]}")
        if not all(type(s) is int and s >= 0 for s in shape):
            raise FormatError(f"{name}: a wrong shape")
        offset = self.item(entry, "offset", int)
        size = prod(shape) * np.dtype(dtype).itemsize
        if offset < 0 or offset + size > len(self._data):
            raise FormatError(f"{name} lies outside the file")
        self._left -= size
        if self._left < 0:
            raise FormatError(f"{name} and the arrays before it lie over one another")
        if size == 0:
            return np.zeros(shape, dtype=dtype)
        flat = np.frombuffer(self._data, dtype=dtype, count=prod(shape), offset=offset)
        return flat.reshape(shape).astype(np.dtype(dtype).newbyteorder("="))

    @staticmethod
    def item(mapping: Any, key: str, kind: type) -> Any:
        """``mapping[key]``, which must be there and of this very type."""
        if not isinstance(mapping, dict) or type(mapping.get(key)) is not kind:
            raise FormatError(f"the header lacks a proper {key!r}")
        return mapping[key]


class GraphReader(ArrayReader):
    """A model."""

    def graph(self) -> FactorGraph:
        groups = self.item(self._header, "groups", list)
        n = self.item(self.item(self._table, "n_states", dict), "shape", list)
        if len(n) != 1:
            raise FormatError("n_states must have one dimension")
        n_states = self.array("n_states", _I4, n)
        if n_states.size and n_states.min() < 1:
            raise FormatError(f"variable {int(np.argmin(n_states))} has no state")
        if complaint := states_complaint(int(n_states.sum(dtype=np.int64)), self._n_bytes):
            raise FormatError(complaint)
        field = None
        if "field" in self._table:
            field = self.array("field", _F8, [int(n_states.sum(dtype=np.int64))])
        parts = tuple(self._group(g, f"group{k}") for k, g in enumerate(groups))
        child = None
        if "child" in self._table:
            child = self.array("child", _I4, [sum(len(g) for g in parts)])
        names = self._texts(self._header.get("names"), "the names must be strings")
        states = self._header.get("states")
        if states is not None:
            wrong = "the state names must be lists of strings"
            if not isinstance(states, list):
                raise FormatError(wrong)
            states = tuple(self._texts(own, wrong) for own in states)
        return FactorGraph(n_states, parts, names, field, _states=states, _child=child).validate()

    def _group(self, entry: Any, name: str) -> FactorGroup:
        kind = self.item(entry, "kind", str)
        count = self.item(entry, "count", int)
        shape = self.item(entry, "shape", list)
        most = len(self._data)  # so that sizes stay numbers that are quickly multiplied
        if count < 1 or not all(type(s) is int and 1 <= s <= most for s in shape):
            raise FormatError(f"{name}: a wrong count or shape")
        ids = self.array(f"{name}.ids", _I8, [count])
        if ids.min() < 0:
            raise FormatError(f"{name}: a negative factor number")
        scope = self.array(f"{name}.scope", _I4, [count, len(shape)])
        if kind not in KINDS:
            raise FormatError(
                f"{name}: unknown kind of factor {kind[:40]!r}; import the module that defines it, "
                "if it is one of your own"
            )

        def get(key: str, dtype: str, size: list[int]) -> NDArray:
            return self.array(f"{name}.{key}", dtype, size)

        try:
            return KINDS[kind].restore(ids, scope, tuple(shape), get, entry)
        except (ModelError, TypeError) as error:
            raise FormatError(f"{name}: {error}") from None
