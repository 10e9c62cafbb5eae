"""Files made to do harm: right checksums around wrong shapes, types, numbers and names.

``case(rng, number)`` is reproducible on its own. Unlike those of ``fuzzing``, which are broken at
random and mostly noticed at once, these get as far as they can: what a loader accepts goes through
the kernels that it feeds, and the answer is looked at. Only a MinferError may escape, no answer may
be nonsense, and no file may end the process.
"""

from __future__ import annotations

import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minfer
from fuzzing import BYTES, TOKENS, Case, answered, model, network, other_json, read_and_used
from minfer.images.denoising import denoise
from minfer.io import native
from minfer.io.npz import read_npz
from minfer.parsing.conllu import Sentence, read_conllu, tree_fault
from minfer.parsing.learn import _CHECKPOINT, Recipe
from minfer.parsing.model import (
    _HEADER,
    FORMAT,
    TABLES,
    ParserModel,
    Settings,
    _packed,
    features_digest,
    format_tensors,
    pack,
    read_tensors,
)
from minfer.parsing.parser import Parser
from minfer.pictures import LoadedPicture, encode_picture, read_picture
from oracle import causes, lists

Arrays = dict[str, NDArray]
Parts = tuple[Arrays, dict[str, Any]]  # arrays and JSON: what a sealed file is made of


def sentences() -> list[Sentence]:
    """A few words: one alone, a chain, a tree of several levels."""
    out = []
    for tree in (
        "yes/INTJ/0/root",
        "the/DET/2/det dog/NOUN/3/nsubj sleeps/VERB/0/root",
        "a/DET/2/det cat/NOUN/3/nsubj sees/VERB/0/root the/DET/6/det old/ADJ/6/amod dog/NOUN/3/obj",
        "dogs/NOUN/2/nsubj see/VERB/0/root cats/NOUN/2/obj now/ADV/2/advmod",
    ):
        forms, upos, heads, deprels = zip(*(word.split("/") for word in tree.split(" ")))
        plain = Sentence.from_forms(forms, upos)
        out.append(plain.with_parse([int(h) for h in heads], deprels))
    return out


@cache
def parser_model() -> ParserModel:
    """Random weights, small enough that a wrong index soon leaves a table."""
    rng = np.random.default_rng(5)
    used = sentences()
    classes = tuple(sorted({(u, "_") for s in used for u in s.upos}))
    relations = tuple(sorted({name for s in used for name in s.deprels}))
    sizes = {"arcs": (16 << 5,), "pairs": (16 << 4,)}
    sizes |= {"tagger": (32, len(classes)), "labels": (16, len(relations))}
    tables: dict[str, Any] = {
        name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()
    }
    upos = tuple(sorted({u for u, _ in classes}))
    return ParserModel(Settings(), upos, classes, relations, **tables, info={"sentences": 4})


def parser_parts() -> Parts:
    m = parser_model()
    header = {
        "format": FORMAT, "features": features_digest(), "settings": asdict(m.settings),
        "upos": m.upos, "classes": m.classes, "relations": m.relations, "info": m.info,
    }  # fmt: skip
    return pack({name: getattr(m, name) for name in TABLES}), json.loads(json.dumps(header))


RECIPE = Recipe(first_epochs=1, epochs=1, bits=4, tag_bits=4, tag_epochs=1, label_epochs=1, folds=2)


def train(checkpoint: Path) -> Parser:
    return Parser.train(sentences(), sentences(), recipe=RECIPE, checkpoint=checkpoint)


@cache
def checkpoint_bytes(folder: Path) -> bytes:
    """A training that was interrupted after its first epoch."""

    class Stop(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.epoch == 2 and progress.stage == "pairs":
            raise Stop

    path = folder / "honest.checkpoint"
    path.unlink(missing_ok=True)
    with suppress(Stop):
        Parser.train(sentences(), sentences(), recipe=RECIPE, checkpoint=path, report=stop)
    return path.read_bytes()


@cache
def native_models() -> list[minfer.FactorGraph]:
    """A network, factors of every kind, and first the model of ``fuzzing``.

    Without its evidence, and with a variable in no factor.
    """
    graph = model()
    n_states = np.append(graph.n_states, 3)
    first = minfer.FactorGraph(n_states, graph.groups, (*(graph.names or ()), "free"))
    labels = minfer.FactorGraph.empty([4, 4, 4]).add_label_distances(
        [[0, 1], [1, 2]], [0.0, -1.0, -1.5], [0.5, -1.0]
    )
    return [
        first,
        network(),
        labels,
        causes.network(6),
        *lists.every_kind().values(),
        *lists.logical().values(),
    ]


def native_parts(graph: minfer.FactorGraph | None = None) -> Parts:
    """The arrays and the header of a native file, by default of the first model."""
    graph = native_models()[0] if graph is None else graph
    data = native.format_native(graph)
    length = native._PREFIX.unpack_from(data)[2]
    header = json.loads(data[native._PREFIX.size :][:length])
    body = data[native._PREFIX.size + length :]
    arrays = {}
    for name, entry in header.pop("arrays").items():
        count = int(np.prod(entry["shape"]))
        flat = np.frombuffer(body, entry["dtype"], count, entry["offset"])
        arrays[name] = flat.reshape(entry["shape"]).copy()
    del header["length"]
    return arrays, header


def picture_bytes() -> dict[str, bytes]:
    from PIL import Image

    values = np.random.default_rng(1).random((6, 7))
    grey = Image.fromarray((255 * values).astype(np.uint8))
    out = {"png": encode_picture(values)}
    for kind, mode in (
        ("bmp", "RGB"), ("ppm", "RGB"), ("tiff", "L"), ("gif", "P"), ("jpeg", "L"),
    ):  # fmt: skip
        file = BytesIO()
        grey.convert(mode).save(file, format=kind)
        out[kind] = file.getvalue()
    return out


_NUMBERS = [-1, 0, 1, 2, 3, 7, 15, 17, 31, 33, 2**20, 2**31 - 1, 2**34, 2**62, 2**63 - 1, -(2**63)]
_REALS = [0.0, -1.0, 1.0, np.nan, np.inf, -np.inf, 1e-300, 1e4, 6e4, 1e38, 1e308, -1e308]
_KINDS = ["i1", "u1", "i2", "i4", "i8", "f2", "f4", "f8", "u8", "?"]


def other_array(r: random.Random, array: NDArray) -> NDArray:
    """The same with other numbers, of another shape, or of another type."""
    how = r.randrange(8)
    with np.errstate(all="ignore"):
        if how < 3 and array.size:
            out = array.copy()
            flat = out.reshape(-1)
            for _ in range(r.choice((1, 1, 3, len(flat)))):
                value = r.choice(_REALS if array.dtype.kind == "f" else _NUMBERS)
                flat[r.randrange(len(flat))] = np.array(value).astype(array.dtype)
            return out
        if how == 3:
            return array[: r.randint(0, len(array))] if array.ndim else array
        if how == 4:
            return np.concatenate([array, array[: r.choice((1, 1, len(array)))]])
        if how == 5:
            return array.reshape(r.choice([(-1,), (-1, 1), (1, -1), (1, 1, -1)]))
        if how == 6:
            return array.astype(r.choice(_KINDS))
        size = r.choice((0, 1, 2, 3, 5, 16, 48, 64, 100, 1000))
        return np.frombuffer(r.randbytes(8 * size), array.dtype)[:size]


def other_values(r: random.Random, parts: Parts) -> Parts:
    """Other numbers that could well be there: most such files are accepted."""
    arrays = dict(parts[0])
    name = r.choice([n for n in arrays if arrays[n].dtype.kind == "f" or n.endswith(".values")])
    array = arrays[name] = arrays[name].copy()
    likely: list[float] = [0, 1, 2, 30]
    if array.dtype.kind == "f":
        likely += [0.5, 3.25, *([-700.0, 700.0, -np.inf] if array.dtype == "f8" else [])]
    flat = array.reshape(-1)
    for _ in range(r.choice((1, 3, len(flat)))):
        flat[r.randrange(len(flat))] = r.choice(likely)
    return arrays, parts[1]


def other_arrays(r: random.Random, parts: Parts) -> Parts:
    arrays, header = dict(parts[0]), parts[1]
    names = list(arrays)
    for _ in range(r.choice((1, 1, 2))):
        name = r.choice(names)
        how = r.randrange(10)
        if how == 0:
            arrays.pop(name, None)
        elif how == 1:
            arrays[name] = arrays.get(r.choice(names), np.zeros(3))
        elif name in arrays:
            arrays[name] = other_array(r, arrays[name])
    return arrays, header


def other_header(r: random.Random, parts: Parts) -> Parts:
    return parts[0], other_json(r, parts[1])


def other_table(r: random.Random, parts: Parts) -> Parts:
    """A whole table of another shape, packed as it should be: only its size is wrong, if it is."""
    name = r.choice(TABLES)
    lines, columns = r.choice((1, 2, 3, 8, 16, 31, 32, 64)), r.choice((1, 2, 3, 5, 6, 8, 9, 16))
    flat = r.random() < 0.2
    if name in ("arcs", "pairs"):
        columns, flat = 16, not flat
    elif r.random() < 0.5:
        columns = len(parts[1]["classes" if name == "tagger" else "relations"] or "x")
    noise = np.random.default_rng(r.getrandbits(32)).normal(size=(lines, columns))
    packed = _packed((noise * r.choice((0, 1, 30, 3000))).astype(np.float32))
    arrays = {f"{name}.{part}": array for part, array in packed._asdict().items()}
    if flat:
        arrays[f"{name}.shape"] = np.array([lines * columns])
    return {**parts[0], **arrays}, parts[1]


def other_names(r: random.Random, parts: Parts) -> Parts:
    """More, fewer or stranger tags and relations, with tables that fit, or not."""
    what = r.choice(("upos", "classes", "relations"))
    names = list(parts[1][what] or ["x"])
    odd: list[Any] = ["new", "root", "", "a\tb", "a\nb", "\ud800", "\x1b[2J", 7, None, "ü" * 99]
    word = r.choice(odd)
    word = [word, "_"] if what == "classes" else word
    how = r.randrange(3)
    if how == 0:
        names.insert(r.randint(0, len(names)), word)
    elif how == 1:
        names[r.randrange(len(names))] = word
    else:
        names = names[: r.randint(0, len(names))]
    parts = parts[0], {**parts[1], what: names}
    table = {"classes": "tagger", "relations": "labels"}.get(what)
    if table and names and r.random() < 0.7:
        packed = _packed(np.ones((16, len(names)), np.float32))
        arrays = {f"{table}.{part}": array for part, array in packed._asdict().items()}
        parts = {**parts[0], **arrays}, parts[1]
    return parts


def other_settings(r: random.Random, parts: Parts) -> Parts:
    """Settings of another kind of parser, or of none."""
    name = r.choice(list(asdict(Settings())))
    odd = [True, False, True, False, "gold", "predicted", 0.5, 1, -8.0, 8.0, 100, 1e9, -1, None]
    odd += [float("nan"), float("inf"), 10**400, "x", [], 0]
    return parts[0], {**parts[1], "settings": {**parts[1]["settings"], name: r.choice(odd)}}


def other_groups(r: random.Random, parts: Parts) -> Parts:
    """A native model whose groups say something else, in one place or with an array that fits."""
    arrays, header = dict(parts[0]), json.loads(json.dumps(parts[1]))
    k = r.randrange(len(header["groups"]))
    group = header["groups"][k]
    shape = [r.choice((1, 2, 3, 7, 65536, 2**31 - 1, 2**33)) for _ in group["shape"]]
    how = r.randrange(4)
    if how == 0:
        group["shape"] = shape
    elif how == 1:  # variables of other sizes, and a table for them
        scope = arrays[f"group{k}.scope"]
        arrays["n_states"] = arrays["n_states"].copy()
        for row in scope:
            arrays["n_states"][row] = np.minimum(shape, 2**31 - 1)
        group["shape"] = shape
        size = int(np.prod(np.minimum(shape, 8)))
        arrays[f"group{k}.log_psi"] = np.zeros((min(group.get("rows", 1), 1000), size))
    elif how == 2:
        n = r.choice((0, 1, 2, 3, 1000))
        group["count"] = n
        arrays[f"group{k}.ids"] = np.arange(n)
    else:
        v = r.randrange(len(arrays["n_states"]))
        arrays["n_states"] = arrays["n_states"].copy()
        arrays["n_states"][v] = r.choice((1, 2, 4, 10**5, 10**7, 2**31 - 1))
    return arrays, header


def other_indices(r: random.Random, parts: Parts) -> Parts:
    """A native model with wrong numbers of factors, variables, literals or children."""
    arrays = dict(parts[0])
    names = [n for n in arrays if n.endswith(("ids", "scope", "literal", "step")) or n == "child"]
    name = r.choice(names)
    array = arrays[name] = arrays[name].copy()
    flat = array.reshape(-1)
    for _ in range(r.choice((1, 1, 3))):
        flat[r.randrange(len(flat))] = r.choice([-(2**31), -2, -1, 0, 1, 2, 3, 4, 5, 99, 2**31 - 1])
    return arrays, parts[1]


Mutation = Callable[[random.Random, Parts], Parts]

SEALED: list[Mutation] = [other_values, other_arrays, other_header]
PARSER: list[Mutation] = [*SEALED, other_table, other_names, other_settings]
CHECKPOINT: list[Mutation] = [other_values, other_arrays, other_arrays, other_header]
NATIVE: list[Mutation] = [*SEALED, other_groups, other_indices]


def _mutated(r: random.Random, parts: Parts, mutations: list[Mutation]) -> Parts:
    for _ in range(r.choice((1, 1, 2, 3))):
        try:
            parts = r.choice(mutations)(r, parts)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError):
            break  # too strange already for this one
    return parts


def _tensors(header: str, parts: Parts) -> bytes:
    arrays = {name: np.ascontiguousarray(array) for name, array in parts[0].items()}
    return format_tensors(header, arrays, parts[1] if isinstance(parts[1], dict) else {})


def _parser(r: random.Random, folder: Path) -> bytes:
    return _tensors(_HEADER, _mutated(r, parser_parts(), PARSER))


def _checkpoint(r: random.Random, folder: Path) -> bytes:
    honest = folder / "honest.checkpoint"
    if not honest.exists():
        checkpoint_bytes(folder)
    arrays, header = read_tensors(honest, _CHECKPOINT, "checkpoint", "")
    parts = dict(sorted(arrays.items())), header  # the library gives them in any order
    return _tensors(_CHECKPOINT, _mutated(r, parts, CHECKPOINT))


def _native(r: random.Random, folder: Path) -> bytes:
    which = native_models()
    first = r.choice(which[:2])
    parts = native_parts(first if r.random() < 0.5 else r.choice(which))
    arrays, header = _mutated(r, parts, NATIVE)
    little = {name: a.astype(a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    return native.lay_out(header if isinstance(header, dict) else {"groups": header}, little)


def _picture(r: random.Random, folder: Path) -> bytes:
    kind, data = r.choice(list(picture_bytes().items()))
    if kind == "png" and r.random() < 0.5:  # another size, with a right checksum
        size = struct.pack(">II", *(r.choice((0, 1, 6, 7, 8, 9999, 2**20, 2**31)) for _ in "ab"))
        chunk = b"IHDR" + size + data[24:29]
        return data[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:]
    for _ in range(r.choice((1, 1, 3))):
        data = r.choice(BYTES)(r, data)
    return data


def _conllu(r: random.Random, folder: Path) -> bytes:
    data = "\n\n".join(map(str, sentences())).encode() + b"\n\n"
    for _ in range(r.choice((1, 1, 3))):
        how = r.random()
        if how < 0.5:
            cells = data.split(b"\t")
            word = r.choice(b"-1 0 1 9 4294967297 1-3 1.1 _ x".split())
            cells[r.randrange(len(cells))] = word
            data = b"\t".join(cells)
        else:
            data = r.choice(BYTES + TOKENS)(r, data)
    return data


def _npz(r: random.Random, folder: Path) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name in ("labels", "noisy"):
            array: NDArray = np.zeros((2, 3, 3))
            if r.random() < 0.3:
                array = other_array(r, array)
            content = BytesIO()
            np.save(content, array)
            data = content.getvalue()
            if r.random() < 0.5:
                shape = tuple(r.choice((0, 1, 2, 3, 2**20, 2**34, 2**62)) for _ in "abc")
                data = data.replace(b"(2, 3, 3), }", (str(shape) + ", }").encode(), 1)
            packed.writestr(zipfile.ZipInfo(f"{name}.npy"), data)  # of 1980, and not of now
    data = file.getvalue()
    return r.choice(BYTES)(r, data) if r.random() < 0.3 else data


def _use_parser(parser: Parser) -> None:
    """Parse with it in every way, and look at what comes out."""
    repr(parser)
    for tags in ("predicted", "gold"):
        parsed = list(parser.parse(sentences(), tags=tags, marginals=True))
        for sentence in parsed:
            assert sentence.heads is not None
            assert tree_fault(sentence.heads.tolist(), multi_root=True) is None
            assert set(sentence.deprels) <= set(parser.model.relations)
            str(sentence)
        for answer in parser.marginals(sentences(), tags=tags):
            assert np.isfinite(answer.log_z)
            assert np.isfinite(answer.probs).all()
            assert (answer.probs > -1e-9).all()
            assert (answer.probs < 1 + 1e-6).all()
    parser.scores(sentences()[2])


def _answer(graph: minfer.FactorGraph) -> None:
    if graph.directed:
        minfer.predict(graph, [{}], targets=[0])
    answered(graph, graph.n_factors + int(graph.offsets[-1]))


def _denoise(picture: LoadedPicture) -> None:
    if picture.values.size <= 4096:
        denoise(picture.values)


@cache
def _fixed() -> Parser:
    return Parser(replace(parser_model(), settings=Settings(tags="gold")))


#: By kind: how often, how a file is made, what it is called, how it is read, how it is used. Only
#: reading is timed: a use may be the first of a kernel, which is compiled then. A checkpoint is
#: read in the training that goes on from it.
KINDS: dict[str, tuple[int, Callable[[random.Random, Path], bytes], str, Callable, Callable]] = {
    "parser": (8, _parser, "p.model", Parser.load, _use_parser),
    "checkpoint": (4, _checkpoint, "p.checkpoint", Path, lambda path: _use_parser(train(path))),
    "native": (5, _native, "m.minfer", lambda path: minfer.read(path).validate(), _answer),
    "picture": (1, _picture, "p.picture", read_picture, _denoise),
    "conllu": (
        *(1, _conllu, "t.conllu", lambda path: list(read_conllu(path))),
        lambda read: list(_fixed().parse(read, marginals=True)),
    ),
    "npz": (1, _npz, "a.npz", lambda path: read_npz(path, ("labels", "noisy")), len),
}
_DRAWN = [kind for kind, (weight, *_) in KINDS.items() for _ in range(weight)]


def case(rng: int, number: int, folder: Path) -> Case:
    """The ``number``-th crafted file of the stream ``rng``; ``folder`` keeps what it is made of."""
    r = random.Random(f"crafted {rng}/{number}")
    kind = r.choice(_DRAWN)
    _, make, name, *_ = KINDS[kind]
    return Case(number, kind, name, make(r, folder))


def honest(folder: Path) -> list[Case]:
    """Files that must be accepted."""
    arrays, header = native_parts()
    contents = {
        "parser": _tensors(_HEADER, parser_parts()),
        "checkpoint": checkpoint_bytes(folder),
        "native": native.lay_out(header, arrays),
        "picture": picture_bytes()["png"],
        "conllu": "\n\n".join(map(str, sentences())).encode() + b"\n\n",
    }
    return [Case(-1, kind, KINDS[kind][2], data) for kind, data in contents.items()]


def check(crafted: Case, folder: Path) -> tuple[str, float]:
    return read_and_used(crafted, folder, *KINDS[crafted.kind][3:])
