"""A kernel cache that survives damage: numba's, with a seal on every file.

numba trusts its files. One that was cut short ends the run with an UnpicklingError, and machine
code with a flipped bit is run. Here each file ends with the SHA-256 of what is before it, and data
carry their key:

* a file that is damaged or cannot be read is removed, and its kernel is compiled anew;
* two processes that save two versions of a kernel at once may choose one file name for both (numba
  numbers them): neither version is ever taken for the other;
* a kernel that cannot be written, to a full disk say, is used and not kept.

Kernels of one module of this package are kept in one folder, named after a hash of the sources they
are made of: it serves every copy of the same code, wherever it lies and whenever it was written.
What nobody has used for a month is removed by ``minfer warmup`` (:func:`prune`).

Each is said once on stderr. Any number of processes may do all this at once: a file that another
one has removed or replaced meanwhile is a miss, nothing worse. Nothing but files that have the name
of an index (.nbi) or of compiled code (.nbc) is ever removed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.caching import FunctionCache, IndexDataCacheFile

from minfer.kernels._ready import Ready

_SEAL = 32  # bytes


class Fault(NamedTuple):
    """A damaged file of the cache."""

    path: Path
    why: str
    removed: bool


#: What this process came upon, in order: damaged files, and why kernels were not kept.
FAULTS: list[Fault] = []
UNSAVED: list[str] = []
#: Kernels this process has loaded from the user's cache: folder/file, without the ending.
LOADED: set[str] = set()
#: Seconds this process has spent loading kernels.
LOADING = [0.0]


class KernelCache(FunctionCache):
    """The cache of one kernel, all its versions.

    ``folder`` and ``ready``: of a kernel of this package, where its sources are kept, and what came
    with the wheel. Anyone else's are kept where numba would keep them, by path and time.
    """

    _cache_file: SealedFiles
    inner = False  # what is looked for or saved now is for kernels only (:mod:`._inner`)
    rebuild: Callable[[Any, Any], Any]  # such a kernel, as it was saved

    def __init__(self, function: Any, folder: Path | None = None, ready: Ready | None = None):
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        if folder is not None:
            self._cache_path, stamp = str(folder), None
        name = self._impl.filename_base
        self._cache_file = SealedFiles(self._cache_path, name, stamp)
        self._ready = ready
        self._ready_file = None
        if folder is not None and ready is not None:
            self._ready_file = ShippedFiles(str(ready.folder / folder.name), name, None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        began = time.perf_counter()
        try:
            found = super().load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception as error:  # as it was written, and yet of no use to this numba
            key = self._index_key(sig, target_context.codegen())
            self._cache_file.discard(key, error)
            found = None
        if found is None:
            found = None if self.inner else self._load_ready(sig, target_context)
        else:
            folder = Path(self._cache_path)
            if not self.inner:
                LOADED.add(f"{folder.name}/{self._impl.filename_base}")
            _touch(folder)
        LOADING[0] += time.perf_counter() - began
        return found

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), *(("inner",) if self.inner else ()))

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        if not self.inner:
            return super()._load_overload(sig, target_context)
        data = self._cache_file.load(self._index_key(sig, target_context.codegen()))
        return None if data is None else self.rebuild(target_context, data)

    def _load_ready(self, sig: Any, target_context: Any) -> Any:
        """From the wheel; None where it has nothing that fits, or numba has changed its ways."""
        ready = self._ready
        files = self._ready_file
        if ready is None or files is None or ready.missing:
            return None
        try:
            data = files.load(ready.key(self._index_key(sig, target_context.codegen())))
            found = None if data is None else self._impl.rebuild(target_context, data)
        except MemoryError:
            raise
        except Exception as error:
            ready.missing = _reason(error)
            return None
        ready.loaded += found is not None
        return found

    def _save_overload(self, sig: Any, data: Any) -> None:
        """As numba does it, to the folder that was chosen; without the annotated source."""
        if self._enabled and self._impl.check_cachable(data):
            data = data._replace(type_annotation="")
            Path(self._cache_path).mkdir(parents=True, exist_ok=True)
            self._cache_file.save(self._index_key(sig, data.codegen), self._impl.reduce(data))

    def has_any(self, target_context: Any) -> bool:
        """Whether there is a version for this processor."""
        codegen = target_context.codegen()
        keys = self._cache_file._load_index()
        if any(key == self._index_key(key[0], codegen) for key in keys):
            return True
        ready, files = self._ready, self._ready_file
        return bool(files and ready and not ready.missing and files._load_index())

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            why = _reason(error)
            if not UNSAVED:
                _say(
                    f"compiled kernels cannot be kept in {self._cache_path} ({why}): this run goes "
                    "on, the next compiles them again"
                )
            UNSAVED.append(why)


class SealedFiles(IndexDataCacheFile):
    """The index of a kernel and the compiled code of each of its versions.

    ``ours``: it is for us to remove what is damaged.
    """

    ours = True

    def load(self, key: Any) -> Any:
        name = self._load_index().get(key)
        found = None if name is None else read(Path(self._data_path(name)), self.ours)
        return found[1] if found is not None and found[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def discard(self, key: Any, error: Exception) -> None:
        """Remove one version."""
        name = self._load_index().get(key)
        if name is not None:
            discard(Path(self._data_path(name)), error)

    def _load_index(self) -> dict[Any, str]:
        found = read(Path(self._index_path), self.ours)
        return found[1] if found is not None and found[0] == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._source_stamp, overloads))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        body = self._dump(content)
        with self._open_for_write(path) as file:  # beside it, then renamed
            file.write(body + hashlib.sha256(body).digest())


class ShippedFiles(SealedFiles):
    """Those of a wheel: nothing there is ours to change."""

    ours = False


def read(path: Path, remove: bool = True) -> Any:
    """What a sealed file holds, or None: there is no such file, or it was damaged and is gone."""
    try:
        content = memoryview(path.read_bytes())
        body, seal = content[:-_SEAL], content[-_SEAL:]
        if hashlib.sha256(body).digest() != seal:
            raise ValueError("cut short or altered")
        return pickle.loads(body)
    except FileNotFoundError:
        return None
    except MemoryError:
        raise
    except Exception as error:
        if remove:
            discard(path, error)
        return None


def discard(path: Path, error: Exception) -> None:
    """Remove a damaged file, remember it, and say so if it is the first."""
    try:
        path.unlink(missing_ok=True)  # never a folder, and of a link the link
        removed = True
    except OSError:
        removed = False
    fault = Fault(path, _reason(error), removed)
    if not FAULTS:
        done = (
            "was damaged; it is removed and compiled anew"
            if removed
            else "is damaged and cannot be removed; its kernel is compiled in each run"
        )
        _say(f"an entry of the kernel cache {done} ({path}: {fault.why}); see `minfer doctor`")
    FAULTS.append(fault)


def load_all(folder: Path, kernels: Iterable[Any]) -> int:
    """Read every file of a cache, and load what it holds for these kernels; how many versions.

    Files that are damaged are discarded, and added to ``FAULTS``.
    """
    for path in sorted(folder.rglob("*.nb[ic]")):
        read(path)
    loaded = 0
    for kernel in kernels:
        cache, context = kernel._cache, kernel.targetctx
        for key in cache._cache_file._load_index():
            if key == cache._index_key(key[0], context.codegen()):  # for this processor
                loaded += cache.load_overload(key[0], context) is not None
    return loaded


#: A folder unused for so many seconds is old, and so is one with so many newer ones of its kind.
_OLD, _GENERATIONS = 30 * 86_400, 10
_CACHE = re.compile(r"kernels-[0-9a-f]{12}")  # of one numba and Python, or of sources, once
_MODULE = re.compile(r"(\w+)[-_][0-9a-f]{16,40}")  # in one of them
_FILE = re.compile(r".*\.nb[ic](\.tmp\.[0-9a-f]+)?")


def prune(current: Path, keep: Iterable[Path]) -> tuple[int, int]:
    """Remove what is old beside and in a cache folder; how many folders and bytes.

    ``keep``: folders in it that are in use. Only folders and files with the names we give them are
    removed, and a folder that holds anything else stays.
    """
    kinds: defaultdict[str, list[Path]] = defaultdict(list)
    for place in current.parent.iterdir():
        if _CACHE.fullmatch(place.name) and place.is_dir() and not place.is_symlink():
            if place != current:
                kinds[""].append(place)
                continue
            for folder in place.iterdir():
                match = _MODULE.fullmatch(folder.name)
                if match and folder.is_dir() and not folder.is_symlink():
                    kinds[match[1]].append(folder)
    kept, gone, freed = set(keep), 0, 0
    for folders in kinds.values():
        folders.sort(key=_last_used, reverse=True)
        for rank, folder in enumerate(folders):
            old = time.time() - _last_used(folder) > _OLD or rank >= _GENERATIONS
            if old and folder not in kept:
                freed += _remove(folder)
                gone += not folder.exists()
    return gone, freed


def _last_used(folder: Path) -> float:
    """When it, or a folder in it, was last written to or loaded from."""
    with suppress(OSError):
        inner = [entry.stat().st_mtime for entry in os.scandir(folder) if entry.is_dir()]
        return max([folder.stat().st_mtime, *inner])
    return 0.0


def _remove(folder: Path) -> int:
    """Remove our files in a folder and in folders of modules there; the bytes freed."""
    freed = 0
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_symlink():
                continue
            if entry.is_dir():
                freed += _remove(entry) if _MODULE.fullmatch(entry.name) else 0
            elif _FILE.fullmatch(entry.name):
                size = entry.stat().st_size
                entry.unlink()
                freed += size
        folder.rmdir()
    return freed


def _touch(folder: Path) -> None:
    """Note that a folder is in use, once a day."""
    with suppress(OSError):
        if time.time() - folder.stat().st_mtime > 86_400:
            os.utime(folder)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _say(text: str) -> None:
    print(f"minfer: {text}", file=sys.stderr, flush=True)
