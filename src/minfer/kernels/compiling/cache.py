"""A kernel cache that survives damage: a file for each version of a kernel, with a seal.

numba trusts its files: one that was cut short ends the run, and machine code with a flipped bit is
run. Here each file begins with its key (kernel, sources, types of arguments, processor) and ends
with the SHA-256 of what is before it:

* a file that is damaged or cannot be read is removed, and its kernel is compiled anew;
* there is no index: processes that save at once do not meet, and a file that another one has
  removed or replaced meanwhile is a miss, nothing worse;
* a kernel that cannot be written, or that holds a function with a counted name
  (:mod:`minfer.kernels.compiling.identity`), is used and not kept;
* what somebody else can have written is neither read nor replaced nor removed
  (:mod:`minfer.kernels.compiling.trust`).

Each is said once on stderr. What nobody has used for a month is removed by ``minfer warmup``
(:func:`prune`), and nothing but files that have the name of compiled code ever is. Where numba
lacks a name that is used here (:data:`UNAVAILABLE`), kernels are kept by its own cache.

**Machine code that came with the wheel**, for processors that nobody has compiled for yet. A
platform wheel holds a folder ``ready``: for each *variant*, a kind of processor (x86-64,
x86-64-v3), a folder of sealed files as above, and ``about.json``, which says for which numba,
Python and system they are, and what each variant needs of a processor, the best one first. A kernel
is looked for in the user's own cache, then in the first variant that this processor can run; with
any other numba, Python, system or source it is compiled as ever. ``MINFER_READY`` names another
variant to use, or, as 0, none.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import stat
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba

from minfer.kernels.compiling import identity as _identity
from minfer.kernels.compiling.trust import Folder, Untrusted, opened

#: Why numba's own cache is used; empty where it is not.
UNAVAILABLE = ""
try:
    _dumps: Any = import_module("numba.core.serialize").dumps
    _Result: Any = import_module("numba.core.compiler").CompileResult
    _NAMES = _Result._reduce, _Result._rebuild
    _CPU: Any = import_module("numba.core.registry").cpu_target
    _CPU.target_context.codegen().magic_tuple()
except (ImportError, AttributeError) as error:  # another numba
    UNAVAILABLE = str(error)
if "cache" in _identity.WITHOUT:
    UNAVAILABLE = "MINFER_WITHOUT has it"

_T = TypeVar("_T")
_SEAL = 32  # bytes
SUFFIX, REFUSED = ".nbc", ".refused"
SHIPPED = Path(__file__).parents[1] / "ready"
ABOUT = "about.json"


class Fault(NamedTuple):
    """A file of the cache that is damaged, or not ours alone."""

    path: Path
    why: str
    removed: bool


#: What this process came upon, in order: damaged files, and why kernels were not kept.
FAULTS: list[Fault] = []
UNSAVED: list[str] = []
#: Seconds this process has spent loading kernels.
LOADING = [0.0]


class ShippedKernels:
    """The folder of a wheel, if there is one; ``loaded`` counts what was taken from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.loaded = folder, 0

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the folder was made for; empty where there is none."""
        try:
            found = json.loads((self.folder / ABOUT).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) and found.get("variants") else {}

    @cached_property
    def missing(self) -> str:
        """Why it cannot be used, or nothing at all."""
        about = self.about
        asked = os.environ.get("MINFER_READY", "")
        if not about:
            return "this installation has none"
        if asked == "0":
            return "MINFER_READY=0"
        for what, here in described().items():
            if about.get(what) != here:
                return f"it is for {what} {about.get(what)}, and this is {here}"
        known = [variant for variant in about["variants"] if asked in ("", variant["name"])]
        if not known:
            names = ", ".join(variant["name"] for variant in about["variants"])
            return f"MINFER_READY={asked} is not one of {names}"
        if self.variant is None:
            lacking = sorted(set(known[-1]["needs"]) - features())
            return f"this processor has no {', '.join(lacking)}"
        return ""

    @cached_property
    def variant(self) -> dict[str, Any] | None:
        """The first one that this processor can run, or the one that was asked for."""
        asked = os.environ.get("MINFER_READY", "")
        here = features()
        for variant in self.about.get("variants", ()):
            if asked in ("", variant["name"]) and set(variant["needs"]) <= here:
                return dict(variant)
        return None

    @property
    def name(self) -> str:
        return str(self.variant["name"]) if self.variant else ""

    @property
    def place(self) -> Path:
        return self.folder / self.name

    @property
    def target(self) -> tuple[str, ...]:
        """What the variant in use was compiled for, as numba says it."""
        return tuple(self.variant["target"]) if self.variant else ()


def described() -> dict[str, str]:
    """What machine code depends on, of this process."""
    return {
        "numba": numba.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "system": system(),
    }


def system() -> str:
    """The machine and its operating system, as LLVM has them."""
    return str(_llvm("get_process_triple", "unknown"))


def processor() -> str:
    return str(_llvm("get_host_cpu_name", "unknown"))


def features() -> set[str]:
    """What this processor can do, by LLVM's names; nothing where LLVM does not say."""
    return {name for name, there in _llvm("get_host_cpu_features", {}).items() if there}


def _llvm(name: str, otherwise: Any) -> Any:
    try:
        return getattr(import_module("llvmlite.binding"), name)()
    except (ImportError, AttributeError, RuntimeError):
        return otherwise


class KernelCache:
    """The cache of one kernel, all its versions, and what came with the wheel: what numba asks of
    a cache."""

    loaded: Any = None  # the latest version that was taken from it, or from the wheel

    def __init__(self, function: Any, folder: Path, ready: ShippedKernels | None = None) -> None:
        self.folder, self._ready = folder, ready
        self._name = f"{function.__qualname__}-{function.__code__.co_firstlineno}"

    @property
    def cache_path(self) -> str:
        return str(self.folder)

    def enable(self) -> None:
        pass

    def disable(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A version as it was compiled by this user, or else for the wheel; None without one."""
        began = time.perf_counter()
        target_context.refresh()
        found = self._load_own(sig, target_context)
        if found is None:
            found = self._load_ready(sig, target_context)
        LOADING[0] += time.perf_counter() - began
        self.loaded = found
        return found

    def _load_own(self, sig: Any, target_context: Any) -> Any:
        key = self.key(sig, target_context)
        return _within(self.folder, partial(self._load_from, target_context, key), None)

    def _load_from(self, target_context: Any, key: Any, folder: Folder) -> Any:
        content = read(folder, self.file(key))
        if content is None or content[0] != key:
            return None
        _touch(folder)
        try:
            return _Result._rebuild(target_context, *content[1])
        except MemoryError:
            raise
        except Exception as error:  # as it was written, and yet of no use to this numba
            discard(folder, self.file(key), error)
            return None

    def _load_ready(self, sig: Any, target_context: Any) -> Any:
        """From the wheel; None where it has nothing that fits, or numba has changed its ways."""
        ready = self._ready
        if ready is None or ready.missing or self._is_refused(sig, target_context):
            return None
        key = self.key(sig, target_context, ready.target)
        content = _shipped(ready.place / self.folder.name / self.file(key))
        if content is None or content[0] != key:
            return None
        try:
            found = _Result._rebuild(target_context, *content[1])
        except MemoryError:
            raise
        except Exception as error:
            ready.missing = _reason(error)
            return None
        ready.loaded += 1
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a version, without its annotated source; say so once if that cannot be done."""
        try:
            content = data._replace(type_annotation="")._reduce()
            self._check(data, content)
            key = self.key(sig, data)
            write(self.folder, self.file(key), (key, content))
        except (OSError, _NotKept) as error:
            why = _reason(error)
            if isinstance(error, Untrusted):
                distrust(error)
            elif not UNSAVED:
                say(
                    f"compiled kernels cannot be kept in {self.folder} ({why}): this run goes on, "
                    "the next compiles them again"
                )
            UNSAVED.append(why)

    def _check(self, data: Any, content: Any) -> None:
        """Refuse what another process could not use, or would take for something else."""
        name = data.fndesc.qualname
        if data.lifted or data.library.has_dynamic_globals:
            raise _NotKept(f"{name} holds addresses of this process")
        counted = _identity.counted(content[0][2][0])
        if counted:
            raise _NotKept(f"{name} holds a function that was compiled before: {counted}")

    def key(self, sig: Any, home: Any, target: Any = None) -> tuple[str, Any, Any]:
        """Kernel and sources, types of arguments, processor; ``home`` has a code generator."""
        codegen = home.codegen() if callable(home.codegen) else home.codegen
        types = tuple(getattr(sig, "args", sig))
        processor = tuple(target or codegen.magic_tuple())
        return f"{self.folder.name}/{self._name}", types, processor

    def file(self, key: Any) -> str:
        types, target = (hashlib.sha256(str(part).encode()).hexdigest() for part in key[1:])
        return f"{self._name}-{target[:8]}-{types[:16]}{SUFFIX}"

    def _own(self, target_context: Any) -> list[str]:
        names = _within(self.folder, Folder.names, list[str]())
        return self._matching(names, self.key((), target_context))

    def _others(self, target_context: Any) -> list[Path]:
        """The files of all versions for this processor in the wheel."""
        ready = self._ready
        if ready is None or ready.missing:
            return []
        place = ready.place / self.folder.name
        with suppress(OSError):
            key = self.key((), target_context, ready.target)
            return [place / name for name in self._matching(sorted(os.listdir(place)), key)]
        return []

    def _matching(self, names: list[str], key: Any) -> list[str]:
        mark = self.file(key).rpartition("-")[0]
        return [name for name in names if name.startswith(mark) and name.endswith(SUFFIX)]

    def has_any(self, target_context: Any) -> bool:
        return bool(self._own(target_context) or self._others(target_context))

    def signatures(self, target_context: Any) -> list[Any]:
        """The types of arguments of all versions for this processor, here and in the wheel."""
        names = self._own(target_context)
        found = _within(self.folder, lambda folder: [read(folder, n) for n in names], [])
        found += [_shipped(path) for path in self._others(target_context)]
        return list(dict.fromkeys(content[0][1] for content in found if content is not None))

    def refuse(self, sig: Any, target_context: Any, why: str) -> bool:
        """Load a version no more: remove it, and pass over the wheel's; whether it is done."""
        key = self.key(sig, target_context)
        try:
            with opened(self.folder.parent, make=True).inner(self.folder.name, make=True) as folder:
                folder.remove(self.file(key))
            write(self.folder, self._refusal(key), (key, why))
        except OSError:
            return False
        return True

    def _is_refused(self, sig: Any, target_context: Any) -> bool:
        """Whether a file of ours says that the wheel's version is wrong."""
        name = self._refusal(self.key(sig, target_context))
        return _within(self.folder, lambda folder: folder.own(name), False)

    def _refusal(self, key: Any) -> str:
        return self.file(key).removesuffix(SUFFIX) + REFUSED


class _NotKept(Exception):
    """Why a kernel stays in this process."""


def _within(path: Path, do: Callable[[Folder], _T], otherwise: _T) -> _T:
    """What is done in the folder of a module; ``otherwise`` if there is none, or not ours alone."""
    try:
        with opened(path.parent).inner(path.name) as folder:
            return do(folder)
    except Untrusted as error:
        distrust(error)
    except OSError:
        pass
    return otherwise


def write(path: Path, name: str, content: Any) -> None:
    body = _dumps(content)
    with opened(path.parent, make=True).inner(path.name, make=True) as folder:
        folder.write(name, body + hashlib.sha256(body).digest())


def read(folder: Folder, name: str, within: Callable[[bytes], Any] | None = None) -> Any:
    """What a sealed file holds, or None: it is not there, damaged and gone, or not ours."""
    try:
        return (within or _unsealed)(folder.read(name))
    except FileNotFoundError:
        return None
    except MemoryError:
        raise
    except Untrusted as error:
        distrust(error)
    except Exception as error:
        discard(folder, name, error)
    return None


def _shipped(path: Path) -> Any:
    """What a sealed file of the wheel holds, which is trusted as all of this package is."""
    try:
        return _unsealed(path.read_bytes())
    except MemoryError:
        raise
    except Exception:
        return None


def _unsealed(data: bytes) -> Any:
    return pickle.loads(_intact(data))


def _intact(data: bytes) -> memoryview:
    """What is sealed, as bytes: it may be another version's, with classes that are not here."""
    content = memoryview(data)
    body, seal = content[:-_SEAL], content[-_SEAL:]
    if hashlib.sha256(body).digest() != seal:
        raise ValueError("cut short or altered")
    return body


def discard(folder: Folder, name: str, error: Exception) -> None:
    """Remove a damaged file, remember it, and say so if it is the first."""
    try:
        folder.remove(name)
        removed = True
    except OSError:
        removed = False
    fault = Fault(folder.path / name, _reason(error), removed)
    if not FAULTS:
        done = (
            "was damaged; it is removed and compiled anew"
            if removed
            else "is damaged and cannot be removed; its kernel is compiled in each run"
        )
        say(f"an entry of the kernel cache {done} ({fault.path}: {fault.why}); see `minfer doctor`")
    FAULTS.append(fault)


def distrust(error: Untrusted) -> None:
    """Remember what others can have written, and say so if it is the first."""
    fault = Fault(Path(error.filename), str(error.strerror), False)
    if not FAULTS:
        say(
            f"a part of the kernel cache is not used, and kernels are compiled in each run: {error}"
        )
    if fault not in FAULTS:
        FAULTS.append(fault)


class Version(NamedTuple):
    """A compiled version of a kernel."""

    kernel: Any
    signature: Any
    made: Any  # numba's result of the compilation
    origin: str  # "the cache" or "the wheel"


def load_all(folder: Path, kernels: Iterable[Any]) -> list[Version]:
    """Check every seal of a cache, discard what is damaged, and load what these kernels have."""
    for place, _ in _folders(folder):
        _within(place, _read_all, None)
    loaded = []
    for kernel in kernels:
        cache, context = kernel._cache, kernel.targetctx
        if not isinstance(cache, KernelCache):  # numba's own
            continue
        for signature in cache.signatures(context):
            before = cache._ready.loaded if cache._ready else 0
            made = cache.load_overload(signature, context)
            if made is not None:
                shipped = cache._ready and cache._ready.loaded > before
                origin = "the wheel" if shipped else "the cache"
                loaded.append(Version(kernel, signature, made, origin))
    return loaded


#: A folder unused for so many seconds is old, and so is one with so many newer ones of its kind.
_OLD, _GENERATIONS = 30 * 86_400, 10
_CACHE = re.compile(r"kernels-[0-9a-f]{12}")  # of one numba and Python, or of sources, once
_MODULE = re.compile(r"(\w+)[-_][0-9a-f]{16,40}")  # in one of them
_FILE = re.compile(r".*\.(nb[ic]|refused)(\.tmp\.[0-9a-f]+)?")


def prune(current: Path, keep: Iterable[Path]) -> tuple[int, int]:
    """Remove what is old beside and in a cache folder; how many folders and bytes.

    ``keep``: folders in use. Only what is ours and has a name we give is removed, by its handle.
    """
    kinds: defaultdict[str, list[tuple[float, Path]]] = defaultdict(list)
    for place, used in _folders(current.parent):
        if _CACHE.fullmatch(place.name) and place != current:
            inner = [at for _, at in _folders(place)]
            kinds[""].append((max([used, *inner]), place))
    for folder, used in _folders(current):
        if match := _MODULE.fullmatch(folder.name):
            kinds[match[1]].append((used, folder))
    kept, gone, freed = set(keep), 0, 0
    for folders in kinds.values():
        folders.sort(reverse=True)
        for rank, (used, folder) in enumerate(folders):
            old = time.time() - used > _OLD or rank >= _GENERATIONS
            if old and folder not in kept:
                with suppress(OSError):
                    outer = opened(folder.parent)
                    with outer.inner(folder.name) as inside:
                        freed += _emptied(inside)
                    outer.remove_folder(folder.name)
                    gone += 1
    return gone, freed


def _folders(path: Path) -> Iterator[tuple[Path, float]]:
    """The folders in one, links aside, and when each was last written to or loaded from."""
    with suppress(OSError):
        folder = opened(path)
        for name in folder.names():
            found = folder.look(name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                yield path / name, found.st_mtime


def _read_all(folder: Folder) -> None:
    for name in folder.names():
        if name.endswith(SUFFIX):
            read(folder, name, _intact)


def _emptied(folder: Folder) -> int:
    """Remove our files in a folder and in folders of modules there; the bytes freed."""
    freed = 0
    for name in folder.names():
        with suppress(OSError):
            found = folder.look(name)
            if found is None:
                continue
            if stat.S_ISDIR(found.st_mode) and _MODULE.fullmatch(name):
                with folder.inner(name) as inside:
                    freed += _emptied(inside)
                folder.remove_folder(name)
            elif stat.S_ISREG(found.st_mode) and _FILE.fullmatch(name):
                folder.remove(name)
                freed += found.st_size
    return freed


def _touch(folder: Folder) -> None:
    """Note that a folder is in use, once a day."""
    with suppress(OSError):
        if time.time() - folder.last_used() > 86_400:
            folder.mark_used()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def say(text: str) -> None:
    print(f"minfer: {text}", file=sys.stderr, flush=True)
