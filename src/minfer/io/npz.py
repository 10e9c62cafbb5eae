"""Arrays in numpy's ``.npz`` files, believed only as far as the bytes go.

numpy makes room for what an array's header declares before it reads on; here the two are compared
first, and objects, which would be unpickled, are refused.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from io import BytesIO

from numpy.lib import format as npy
from numpy.typing import NDArray

from minfer.basics.words import counted
from minfer.io.opening import check_unfolded, max_bytes, opened, reading
from minfer.io.text import PathLike, shown


def read_npz(path: PathLike, names: Sequence[str]) -> list[NDArray]:
    """The arrays of these names."""
    needed = f"a .npz file with {counted(len(names), 'array')} is needed"
    if len(names) < 4:
        needed = f"a .npz file with arrays {' and '.join(names)} is needed"
    with reading(path, needed), opened(path, pipes=False) as raw, zipfile.ZipFile(raw) as file:
        there = set(file.namelist())
        if missing := [name for name in names if f"{name}.npy" not in there]:
            raise ValueError(f"it has no array {missing[0]}")
        unfolded = sum(file.getinfo(f"{name}.npy").file_size for name in names)
        check_unfolded(shown(path), unfolded, os.fstat(raw.fileno()).st_size)
        return [_read(file, f"{name}.npy") for name in names]


def _read(file: zipfile.ZipFile, name: str) -> NDArray:
    size = file.getinfo(name).file_size
    if size > max_bytes():
        raise ValueError(f"{name} expands to more than the limit of {max_bytes():,} bytes")
    data = BytesIO(file.read(name))
    version = npy.read_magic(data)
    header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if header is None:
        raise ValueError(f"{name} is of version {version}")
    shape, _, dtype = header(data)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != size - data.tell():
        raise ValueError(f"{name} declares {shape} of {dtype}, which is not what follows")
    data.seek(0)
    return npy.read_array(data, allow_pickle=False)
