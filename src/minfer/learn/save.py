"""Fitted models and checkpoints as files: a JSON header and arrays in an ``.npz``, never a pickle.

Files are written whole or not at all, and believed only as far as their bytes go
(:mod:`minfer.io.npz`).
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import first_twice
from minfer.errors import FormatError, SettingsError
from minfer.io.npz import read_npz
from minfer.io.opening import reading
from minfer.io.text import PathLike, shown, write_bytes

VERSION = 1
MOST_WEIGHT = 1e100


def write_arrays(
    path: PathLike, kind: str, header: dict[str, Any], arrays: dict[str, NDArray]
) -> None:
    """A file of some kind: what is plain in the header, the rest as arrays."""
    text = json.dumps({"kind": kind, "version": VERSION, "arrays": list(arrays), **header})
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_arrays(path: PathLike, kind: str) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Header and arrays of a file of this kind."""
    (raw,) = read_npz(path, ("header",))
    with reading(path, f"a {kind} of version {VERSION} is needed"):
        if raw.dtype != np.uint8:
            raise ValueError(f"the header is of type {raw.dtype}")
        header = json.loads(raw.tobytes())
        names = header["arrays"]
        if header["kind"] != kind or header["version"] != VERSION:
            raise ValueError(f"it is a {header['kind']} of version {header['version']}")
        if not all(isinstance(name, str) for name in names) or first_twice(names) is not None:
            raise ValueError("its arrays have wrong names")
    arrays = dict(zip(names, read_npz(path, names)))
    for name, array in arrays.items():
        if array.dtype.kind not in "biufU":
            raise FormatError(f"{shown(path)}: {name} is of type {array.dtype}, not of numbers")
    return header, arrays


def saved_weights(values: NDArray) -> NDArray[np.float64]:
    """Weights from a file, in a range in which sums of many stay finite."""
    weights = values.astype(np.float64)
    if not (np.abs(weights) <= MOST_WEIGHT).all():
        raise ValueError(f"its weights are not all finite, within {MOST_WEIGHT:g}")
    return weights


def labels_to_save(who: str, labels: NDArray[Any]) -> dict[str, Any]:
    """The classes of a model for its header; :func:`saved_labels` reads them."""
    if labels.dtype.kind not in "iufbU":
        raise SettingsError(f"{who}: only a model whose labels are strings or numbers can be saved")
    return {"classes": labels.tolist(), "dtype": labels.dtype.str}


def saved_labels(header: dict[str, Any]) -> NDArray[Any]:
    """The classes of a model: strings or numbers, all different, (K,)."""
    kind = np.dtype(header["dtype"])
    if kind.kind not in "iufbU":
        raise ValueError(f"its labels are of type {kind}")
    labels = np.array(header["classes"], dtype=kind)
    if labels.ndim != 1 or not len(labels) or len(np.unique(labels)) < len(labels):
        raise ValueError("its labels are not a list of different ones")
    return labels


def digest(*parts: Any) -> str:
    """A fingerprint of texts and arrays."""
    found = hashlib.sha256()
    for part in parts:
        found.update(
            part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        )
        found.update(b"\0")
    return found.hexdigest()[:32]
