"""A trained parser's weights, and its file.

One file in the safetensors format, with what the model is and was trained on as JSON in its header:
nothing in it is executed when it is loaded. A line of a table is kept as its scale, largest weight
/ 127, and those of its weights that are not zero as multiples of it in one byte each; training
rounds to them at its end, so that a loaded model parses as the trained one did. A checksum over all
of it tells a damaged file.

A checksum can be made for anything, so nothing in a file is believed: what the arrays declare is
compared with the bytes there are before a table is made, and :func:`validate` looks at every
model, however it was made, before a kernel sees it.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import check_choice, check_number, load
from minfer.errors import FormatError, MinferError, ModelError, RefusedError, SettingsError
from minfer.io.opening import read_bytes, reading
from minfer.io.text import PathLike, shown, write_bytes
from minfer.parsing.features import TEMPLATES

FORMAT = 2
_HEADER = "minfer_parser"
TABLES = ("arcs", "pairs", "tagger", "labels")
_LINE = 16  # weights in a line of the tables of arcs and pairs
_UNIT = 1024.0  # scales are kept times this, so that small ones are not subnormal

MOST_LINES = 1 << 26  # of a table
MOST_WEIGHT = 1e4  # of a feature; a file holds up to 8,188
MOST_THETA = 100.0  # bound on the weights of pairs
MOST_TEMPER = 10.0


@dataclass(frozen=True)
class Settings:
    """What kind of parser it is."""

    projective: bool = True  # whether arcs may not cross
    single_root: bool = True  # whether exactly one word has head 0
    gp: bool = True  # whether there are grandparent factors, and sibling factors
    sib: bool = True
    tags: str = "predicted"  # or "gold": the tags it was trained with
    theta_low: float = -8.0  # bounds on the weights of pairs, which are clipped to them
    theta_high: float = 8.0
    temper: float = 1.0  # exponent of the probabilities that are reported (Parser.calibrated)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type == "bool" and not isinstance(value, bool):
                raise SettingsError(f"{item.name} must be True or False, not {value!r}")
            if item.type == "float":
                check_number(item.name, value)
        check_choice("tags", self.tags, ("predicted", "gold"))
        if not -MOST_THETA <= self.theta_low <= self.theta_high <= MOST_THETA:
            raise SettingsError(
                f"theta_low and theta_high must increase within +-{MOST_THETA:g}, "
                f"not {self.theta_low} and {self.theta_high}"
            )
        what = f"above 0 and at most {MOST_TEMPER:g}"
        check_number("temper", self.temper, most=MOST_TEMPER, above=0.0, what=what)


@dataclass(frozen=True, eq=False)
class ParserModel:
    """Weights and what they belong to; :func:`validate` says what they must satisfy."""

    settings: Settings
    upos: tuple[str, ...]  # tags in the training data
    classes: tuple[tuple[str, str], ...]  # of the tagger: UPOS and XPOS
    relations: tuple[str, ...]  # classes of the labeller
    arcs: NDArray[np.float32]  # (lines * 16,), of first-order features
    pairs: NDArray[np.float32]  # (lines * 16,), of second-order features
    tagger: NDArray[np.float32]  # (lines, classes)
    labels: NDArray[np.float32]  # (lines, classes)
    info: dict[str, Any] = field(default_factory=dict)  # what it was trained on, for people

    def __post_init__(self) -> None:
        validate(self)

    def rounded(self) -> ParserModel:
        """The same with weights as a file holds them."""
        tables: dict[str, Any] = {n: _unpacked(n, _packed(getattr(self, n))) for n in TABLES}
        return replace(self, **tables)

    def save(self, path: PathLike) -> None:
        header = {
            "format": FORMAT,
            "features": features_digest(),
            "settings": asdict(self.settings),
            "upos": self.upos,
            "classes": self.classes,
            "relations": self.relations,
            "info": self.info,
        }
        write_tensors(path, _HEADER, pack({name: getattr(self, name) for name in TABLES}), header)

    @classmethod
    def load(cls, path: PathLike) -> ParserModel:
        name, remedy = shown(path), "copy it again, or train again"
        tables, header = read_tensors(path, _HEADER, "parser", remedy)
        if header.get("format") != FORMAT or header.get("features") != features_digest():
            raise FormatError(
                f"{name}: a parser trained with minfer {_version(header)}, whose features differ "
                "from this version's: train it again, or install that version"
            )
        try:
            with reading(path, f"the parser is incomplete: {remedy}"):
                return cls(
                    Settings(**header["settings"]),
                    _names(header, "upos"),
                    tuple((u, x) for u, x in header["classes"]),
                    _names(header, "relations"),
                    **unpack(tables, TABLES),
                    info=header["info"],
                )
        except MinferError as error:
            said = str(error)
            raise FormatError(
                said if said.startswith(name) else f"{name}: {said}: {remedy}"
            ) from None


def _names(header: dict[str, Any], key: str) -> tuple[str, ...]:
    if not isinstance(header[key], list):
        raise FormatError(f"{key} is not a list")
    return tuple(header[key])


def _version(header: dict[str, Any]) -> str:
    info = header.get("info")
    version = info.get("minfer") if isinstance(info, dict) else None
    known = isinstance(version, str) and re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", version)
    return str(version) if known else "of another version"


def validate(model: ParserModel) -> None:
    """Raise ModelError unless a model is as the kernels take it to be.

    They look at none of this, and read and write wherever it leads them:

    * A feature's line is the first log2(lines) bits of a hash, ``hash >> (64 - bits)``. So a table
      has 2, 4, 8, ... lines: with 3 the hash names a fourth, and a shift by 64 bits, which one line
      would need, is not defined. At most 2^26, which is what a recipe can ask for.
    * ``arcs`` and ``pairs`` are flat, 16 weights a line; ``tagger`` has a column for each class and
      ``labels`` one for each relation, of which there is at least one: columns are found by the
      number of a class, of the relation ``root`` for one, and the best column is the number of one.
    * Tables are float32 in C order and writable: what the kernels were compiled for.
    * Weights are finite and at most 1e4 in size. A NaN, or sums so large that differences between
      them vanish, leave a sentence without a best tree, whose heads are then numbers nobody set.
    * ``settings`` checks itself: with |theta| up to 100 all messages stay finite.

    What is not for kernels: names of tags and relations can stand in a column of a CoNLL-U file.
    """
    if not isinstance(model.settings, Settings):
        raise ModelError(f"settings must be Settings, not {type(model.settings).__name__}")
    if not isinstance(model.classes, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in model.classes
    ):
        raise ModelError("classes must be a tuple of pairs (UPOS, XPOS)")
    named = {"upos": model.upos, "relations": model.relations}
    named |= {"classes": tuple(name for pair in model.classes for name in pair)}
    for what, names in named.items():
        if not isinstance(names, tuple):
            raise ModelError(f"{what} must be a tuple of strings, not {type(names).__name__}")
        for name in names:
            if not _is_cell(name):
                raise ModelError(f"{what}: {name!r} cannot stand in a column of a CoNLL-U file")
    for what in ("classes", "relations"):
        if not getattr(model, what):
            raise ModelError(f"{what} must have at least one entry")
    if not isinstance(model.info, dict) or not _is_finite(model.info.get("sentences", 0)):
        raise ModelError("info must be a dict, with a number of sentences if it has one")
    for name, columns in zip(TABLES, (None, None, len(model.classes), len(model.relations))):
        table = getattr(model, name)
        check_table(name, table, columns)
        if not table.flags.c_contiguous or not table.flags.writeable:
            raise ModelError(f"{name} must be writable and in C order: pass {name}.copy()")


def check_table(name: str, table: NDArray[np.float32], columns: int | None = None) -> None:
    """Raise ModelError if a table is not as :func:`validate` has it; ``columns`` None is flat."""
    if not isinstance(table, np.ndarray) or table.dtype != np.float32:
        kind = table.dtype if isinstance(table, np.ndarray) else type(table).__name__
        raise ModelError(f"{name} must be an array of float32, not {kind}")
    width = _LINE if columns is None else columns
    lines = table.size // width
    want = (lines * width,) if columns is None else (lines, width)
    if table.shape != want or lines.bit_count() != 1 or not 2 <= lines <= MOST_LINES:
        shape = f"(lines * {width},)" if columns is None else f"(lines, {width})"
        raise ModelError(
            f"{name} has shape {table.shape}, not {shape} with a number of lines that is a power "
            f"of two from 2 to {MOST_LINES:,}"
        )
    low, high = float(table.min()), float(table.max())
    if not -MOST_WEIGHT <= low <= high <= MOST_WEIGHT:
        raise ModelError(
            f"{name} has weights from {low} to {high}: they must be finite, "
            f"within +-{MOST_WEIGHT:,.0f}"
        )


def _is_cell(name: Any) -> bool:
    """Whether it is a string that may stand in a column: UTF-8, no tab, no line end."""
    if not isinstance(name, str) or any(c in name for c in "\t\r\n"):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: Any) -> bool:
    try:
        return type(value) is not bool and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def features_digest() -> str:
    """Stands for the templates: weights fit no others."""
    text = json.dumps(TEMPLATES, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------------- files


def write_tensors(
    path: PathLike, header: str, arrays: dict[str, NDArray], content: dict[str, Any]
) -> None:
    """Write arrays to a safetensors file, with JSON and a checksum in its header under a name."""
    write_bytes(path, format_tensors(header, arrays, content))


def format_tensors(header: str, arrays: dict[str, NDArray], content: dict[str, Any]) -> bytes:
    """The bytes of such a file."""
    text = json.dumps({**content, "checksum": _checksum(arrays, content)})
    return require_safetensors().save(arrays, metadata={header: text})


def read_tensors(
    path: PathLike, header: str, what: str, remedy: str
) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays of a safetensors file and the JSON in its header under a name; for messages ``what``
    it is, and the ``remedy`` of a damaged one."""
    load = require_safetensors().load
    data = read_bytes(path)
    if json.dumps(header).encode() not in data:
        raise FormatError(f"{shown(path)}: not a {what} that minfer saved; is it the right file?")
    try:
        size = int.from_bytes(data[:8], "little")
        content = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][header])
        arrays = load(data)
        whole = content.pop("checksum") == _checksum(arrays, content)
    except MemoryError:
        raise RefusedError(f"{shown(path)}: there is not enough memory to read it") from None
    except Exception:  # the library has its own error type, and raises others too
        whole = False
    if not whole:
        raise FormatError(f"{shown(path)}: the file is damaged or cut off: {remedy}")
    return arrays, content


def _checksum(arrays: Mapping[str, NDArray], content: dict[str, Any]) -> int:
    total = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        total = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def pack(tables: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Tables as a file holds them, each in some arrays."""
    return {
        f"{name}.{part}": array
        for name, table in tables.items()
        for part, array in zip(_Packed._fields, _packed(table))
    }


def unpack(arrays: Mapping[str, NDArray], names: Iterable[str]) -> dict[str, Any]:
    """The tables of these names, rounded; FormatError if the arrays do not make them."""
    out = {}
    for name in names:
        parts = [f"{name}.{part}" for part in _Packed._fields]
        if missing := [part for part in parts if part not in arrays]:
            raise FormatError(f"{missing[0]} is missing")
        out[name] = _unpacked(name, _Packed(*(arrays[part] for part in parts)))
    return out


class _Packed(NamedTuple):
    """A table as its file holds it."""

    shape: NDArray[np.int64]  # of the table
    scale: NDArray[np.float16]  # (lines,), times 1024
    places: NDArray[np.uint8]  # one bit per weight: whether it is there
    values: NDArray[np.int8]  # those that are


def empty_table(size: int) -> NDArray[np.float32]:
    """Zeros that begin where a cache line does, so that a line of 16 weights never lies in two."""
    raw = np.zeros(size + _LINE, dtype=np.float32)
    first = -(raw.ctypes.data // raw.itemsize) % _LINE
    return raw[first : first + size]


def _packed(table: NDArray[np.float32]) -> _Packed:
    """The table, from its lines that are not all zeros: after a small treebank these are few."""
    lines = table.reshape(-1, _LINE) if table.ndim == 1 else table
    used = lines.any(axis=1)
    scale = np.zeros(len(lines), dtype=np.float16)
    whole = np.zeros(lines.shape, dtype=np.int8)
    scale[used], whole[used] = _quantised(lines[used])
    there = whole != 0
    return _Packed(np.array(table.shape), scale, np.packbits(there), whole[there])


def _quantised(lines: NDArray[np.float32]) -> tuple[NDArray[np.float16], NDArray[np.int8]]:
    """A scale for each line, and its weights in steps of that."""
    most = np.maximum(lines.max(axis=1), -lines.min(axis=1))
    scale = np.minimum(most / 127 * _UNIT, 6e4).astype(np.float16)
    scale[scale < np.finfo(np.float16).smallest_normal] = 0  # such weights are nothing
    step = np.where(scale > 0, scale, np.inf).astype(np.float32) / _UNIT
    steps = lines / step[:, None]
    np.clip(np.rint(steps, out=steps), -127, 127, out=steps)
    return scale, steps.astype(np.int8)


def _unpacked(name: str, packed: _Packed) -> NDArray[np.float32]:
    """The table, made only if what its arrays declare is what they hold."""
    for part, kind in zip(_Packed._fields, ("int64", "float16", "uint8", "int8")):
        array = getattr(packed, part)
        if array.dtype != kind or array.ndim != 1:
            raise FormatError(
                f"{name}.{part} should be a row of {kind}, not {array.dtype} of shape {array.shape}"
            )
    shape = tuple(packed.shape[:3].tolist())
    if len(shape) not in (1, 2) or min(shape) < 1:
        raise FormatError(f"{name}.shape is {shape}: it should be one or two positive numbers")
    size = math.prod(shape)
    lines = shape[0] if len(shape) == 2 else size // _LINE
    whole = len(shape) == 2 or size == lines * _LINE
    if not whole or len(packed.places) != -(-size // 8) or len(packed.scale) != lines:
        raise FormatError(
            f"{name}.shape declares {size:,} weights in {lines:,} lines, but the file has "
            f"{len(packed.scale):,} scales, and places for {8 * len(packed.places):,}"
        )
    there = np.unpackbits(packed.places, count=size).view(bool)
    if np.count_nonzero(there) != len(packed.values):
        raise FormatError(f"{name} has {len(packed.values):,} values, but not as many places")
    if not np.isfinite(packed.scale).all():
        raise FormatError(f"{name} has a scale that is not finite")
    table = empty_table(size)
    table[there] = packed.values
    table.reshape(lines, -1)[:] *= packed.scale.astype(np.float32)[:, None] / _UNIT
    return table.reshape(shape)


def require_safetensors() -> Any:
    """The library, or an error that says how to get it."""
    return load("safetensors.numpy", "parser files need safetensors", "parsing")
