"""A trained parser's weights, and its file.

One file in the safetensors format, with what the model is and was trained on as JSON in its header:
nothing in it is executed when it is loaded. A line of a table is kept as its scale, largest weight
/ 127, and those of its weights that are not zero as multiples of it in one byte each; training
rounds to them at its end, so that a loaded model parses as the trained one did. A checksum over all
of it tells a damaged file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.errors import FormatError, RefusedError
from minfer.io.text import PathLike, atomic_write, read_bytes, shown
from minfer.parsing.features import TEMPLATES

FORMAT = 2
_HEADER = "minfer_parser"
TABLES = ("arcs", "pairs", "tagger", "labels")
_LINE = 16  # weights in a line of the tables of arcs and pairs
_UNIT = 1024.0  # scales are kept times this, so that small ones are no subnormal numbers


@dataclass(frozen=True)
class Settings:
    """What kind of parser it is.

    Attributes
    ----------
    projective : whether arcs may not cross
    single_root : whether exactly one word has head 0
    gp, sib : whether there are grandparent and sibling factors
    tags : ``gold`` or ``predicted``, the tags it was trained with
    theta_low, theta_high : bounds on the weights of pairs, which are clipped to them
    temper : exponent of the probabilities that are reported, see ``Parser.calibrated``
    """

    projective: bool = True
    single_root: bool = True
    gp: bool = True
    sib: bool = True
    tags: str = "predicted"
    theta_low: float = -8.0
    theta_high: float = 8.0
    temper: float = 1.0


@dataclass(frozen=True, eq=False)
class Model:
    """Weights and what they belong to.

    Attributes
    ----------
    settings : Settings
    upos : UPOS tags in the training data
    classes : pairs (UPOS, XPOS), the classes of the tagger
    relations : classes of the labeller
    arcs, pairs : (lines * 16,) float32, tables of first- and second-order features
    tagger, labels : (lines, classes) float32
    info : what it was trained on, for people
    """

    settings: Settings
    upos: tuple[str, ...]
    classes: tuple[tuple[str, str], ...]
    relations: tuple[str, ...]
    arcs: NDArray[np.float32]
    pairs: NDArray[np.float32]
    tagger: NDArray[np.float32]
    labels: NDArray[np.float32]
    info: dict[str, Any] = field(default_factory=dict)

    def rounded(self) -> Model:
        """The same with weights as a file holds them."""
        tables: dict[str, Any] = {n: _unpacked(*_packed(getattr(self, n))) for n in TABLES}
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
    def load(cls, path: PathLike) -> Model:
        tables, header = read_tensors(path, _HEADER, "parser", "copy it again, or train again")
        name = shown(path)
        if header.get("format") != FORMAT or header.get("features") != features_digest():
            version = header.get("info", {}).get("minfer", "another version")
            raise FormatError(
                f"{name}: a parser trained with minfer {version}, whose features differ from this "
                "version's: train it again, or install that version"
            )
        try:
            return cls(
                Settings(**header["settings"]),
                tuple(header["upos"]),
                tuple((u, x) for u, x in header["classes"]),
                tuple(header["relations"]),
                **unpack(tables, TABLES),
                info=header["info"],
            )
        except (KeyError, TypeError, ValueError):
            raise FormatError(f"{name}: the parser is incomplete: train again") from None


def features_digest() -> str:
    """Stands for the templates: weights fit no others."""
    text = json.dumps(TEMPLATES, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------------- files


def write_tensors(
    path: PathLike, header: str, arrays: dict[str, NDArray], content: dict[str, Any]
) -> None:
    """Write arrays to a safetensors file, with JSON and a checksum in its header under a name."""
    save = require_safetensors().save
    text = json.dumps({**content, "checksum": _checksum(arrays, content)})
    with atomic_write(path) as file:
        file.write(save(arrays, metadata={header: text}))


def read_tensors(
    path: PathLike, header: str, what: str, remedy: str
) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays of a safetensors file and the JSON in its header under a name.

    what, remedy : what such a file is, and what to do about one that is damaged, for messages
    """
    load = require_safetensors().load
    data = read_bytes(path)
    if json.dumps(header).encode() not in data:
        raise FormatError(f"{shown(path)}: not a {what} that minfer saved")
    try:
        size = int.from_bytes(data[:8], "little")
        content = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][header])
        arrays = load(data)
        whole = content.pop("checksum") == _checksum(arrays, content)
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
    """The tables of these names, rounded."""
    return {
        name: _unpacked(*(arrays[f"{name}.{part}"] for part in _Packed._fields)) for name in names
    }


class _Packed(NamedTuple):
    """A table as its file holds it.

    Attributes
    ----------
    shape : int64, of the table
    scale : float16 (lines,), times 1024
    places : uint8, one bit per weight: whether it is there
    values : int8, those that are
    """

    shape: NDArray[np.int64]
    scale: NDArray[np.float16]
    places: NDArray[np.uint8]
    values: NDArray[np.int8]


def empty_table(size: int) -> NDArray[np.float32]:
    """Zeros that begin where a cache line does, so that a line of 16 weights never lies in two."""
    raw = np.zeros(size + _LINE, dtype=np.float32)
    first = -(raw.ctypes.data // raw.itemsize) % _LINE
    return raw[first : first + size]


def _packed(table: NDArray[np.float32]) -> _Packed:
    lines = table.reshape(-1, _LINE) if table.ndim == 1 else table
    most = np.maximum(lines.max(axis=1), -lines.min(axis=1))
    scale = np.minimum(most / 127 * _UNIT, 6e4).astype(np.float16)
    scale[scale < np.finfo(np.float16).smallest_normal] = 0  # such weights are nothing
    step = np.where(scale > 0, scale, np.inf).astype(np.float32) / _UNIT
    steps = lines / step[:, None]
    np.clip(np.rint(steps, out=steps), -127, 127, out=steps)
    whole = steps.astype(np.int8).ravel()
    there = whole != 0
    return _Packed(np.array(table.shape), scale, np.packbits(there), whole[there])


def _unpacked(
    shape: NDArray[np.int64],
    scale: NDArray[np.float16],
    places: NDArray[np.uint8],
    values: NDArray[np.int8],
) -> NDArray[np.float32]:
    table = empty_table(int(shape.prod()))
    table[np.unpackbits(places, count=len(table)).view(bool)] = values
    table.reshape(len(scale), -1)[:] *= scale.astype(np.float32)[:, None] / _UNIT
    return table.reshape(shape)


def require_safetensors() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import safetensors.numpy as library
    except ImportError:
        raise RefusedError(
            "parser files need safetensors, which is not installed: pip install 'minfer[parsing]'"
        ) from None
    return library
