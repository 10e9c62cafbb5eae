"""Arrays in numpy's ``.npz`` files, believed only as far as the bytes go.

numpy makes room for what an array's header declares before it reads on; here the two are compared
first, and objects, which would be unpickled, are refused.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from io import BytesIO

from numpy.lib import format as npy
from numpy.typing import NDArray

from minfer.errors import FormatError
from minfer.io.text import MAX_BYTES, PathLike, shown

#: What zipfile and numpy make of damaged files.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
)


def read_npz(path: PathLike, names: tuple[str, ...]) -> list[NDArray]:
    """The arrays of these names."""
    try:
        with zipfile.ZipFile(path) as file:
            missing = [name for name in names if f"{name}.npy" not in file.namelist()]
            if missing:
                raise ValueError(f"it has no array {missing[0]}")
            return [_read(file, f"{name}.npy") for name in names]
    except FileNotFoundError:
        raise FormatError(f"{shown(path)}: there is no such file") from None
    except _DAMAGE as error:
        raise FormatError(
            f"{shown(path)}: {error}; a .npz file with arrays {' and '.join(names)} is needed"
        ) from None


def _read(file: zipfile.ZipFile, name: str) -> NDArray:
    size = file.getinfo(name).file_size
    if size > MAX_BYTES:
        raise ValueError(f"{name} expands to more than the limit of {MAX_BYTES:,} bytes")
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
