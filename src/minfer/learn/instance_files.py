"""Instances in Arrow or Parquet files: shards that workers load where they are.

A row is an instance: its graph in the native format, X as a sparse matrix, its labels. Or a row is
a sample of one and the same model, and columns are variables: :func:`sample_shards`.

    write_instances(instances, "train.parquet")
    fit(shards("train-*.parquet"), "trw", workers=4)
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minfer.basics.checks import check_type, load
from minfer.errors import FormatError, MinferError, ModelError, SettingsError
from minfer.io.native import format_native, parse_native
from minfer.io.text import PathLike, atomic_write
from minfer.learn.model import Instance

_COLUMNS = ("graph", "indptr", "indices", "data", "n_weights", "labels", "rows", "name")
_ARROW = (".arrow", ".feather", ".ipc")


def write_instances(instances: Sequence[Instance], path: PathLike) -> None:
    """Write instances to a Parquet file, or to an Arrow file (``.arrow``), whole or not at all."""
    from scipy import sparse

    name = os.fspath(path)
    if not name.endswith((*_ARROW, ".parquet")):
        raise SettingsError(f"{name}: instances are written to .parquet or .arrow files")
    pa = load("pyarrow")
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for one in instances:
        check_type(one, Instance, "write_instances: instances are a list of Instance")
        x = sparse.csr_array(one.features)
        columns["graph"].append(format_native(one.graph))
        columns["indptr"].append(x.indptr.astype(np.int64))
        columns["indices"].append(x.indices.astype(np.int64))
        columns["data"].append(x.data)
        columns["n_weights"].append(one.n_weights)
        columns["labels"].append(one.labels.ravel())
        columns["rows"].append(len(one.labels))
        columns["name"].append(one.name)
    large = pa.large_list
    schema = pa.schema(
        {
            "graph": pa.large_binary(), "indptr": large(pa.int64()), "indices": large(pa.int64()),
            "data": large(pa.float64()), "n_weights": pa.int64(), "labels": large(pa.int32()),
            "rows": pa.int64(), "name": pa.string(),
        }
    )  # fmt: skip
    table = pa.table(columns, schema=schema)
    with atomic_write(path) as file:
        if os.fspath(path).endswith(_ARROW):
            with pa.ipc.new_file(file, schema) as writer:
                writer.write_table(table)
        else:
            load("pyarrow.parquet").write_table(table, file)


def read_instances(path: PathLike) -> list[Instance]:
    """Read what :func:`write_instances` wrote."""
    from scipy import sparse

    table = _table(path)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise FormatError(f"{path}: not a file of instances, it has no column {missing[0]}")
    out = []
    for k, row in enumerate(table.to_pylist()):
        where = row["name"] or f"{path}, row {k}"
        try:
            graph = parse_native(where, row["graph"])
            shape = (int(graph.weight_offsets[-1]), int(row["n_weights"]))
            x = sparse.csr_array((row["data"], row["indices"], row["indptr"]), shape=shape)
            labels = np.array(row["labels"], dtype=np.int32).reshape(row["rows"], -1)
            out.append(Instance(graph, x, labels, row["name"]))
        except (ValueError, TypeError) as error:
            if isinstance(error, MinferError):
                raise
            raise FormatError(f"{where}: {error}") from None
    return out


@dataclass(frozen=True)
class InstanceShard:
    """A file of instances, as a portion for :func:`minfer.learn.fit`."""

    path: str

    def __call__(self) -> list[Instance]:
        return read_instances(self.path)


@dataclass(frozen=True, eq=False)
class SampleShard:
    """A file of samples, a column for each variable, of the model of an instance."""

    path: str
    like: Instance

    def __repr__(self) -> str:
        return f"SampleShard({self.path!r})"

    def __call__(self) -> list[Instance]:
        graph = self.like.graph
        table = _table(self.path)
        names = [graph.name(v) for v in range(graph.n_variables)]
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise FormatError(f"{self.path}: there is no column {missing[0]}")
        columns = []
        for name in names:
            column = table.column(name)
            filled = column.fill_null(-1).to_numpy()
            if filled.dtype.kind not in "iu":
                raise ModelError(
                    f"{self.path}: column {name} must have states by number, not {column.type}"
                )
            columns.append(filled)
        return [Instance(graph, self.like.features, np.stack(columns, axis=1), self.path)]


def shards(paths: str | Sequence[PathLike]) -> list[InstanceShard]:
    """Files of instances, by names or a pattern, as portions for :func:`minfer.learn.fit`.

    A text that is the name of a file is that file, and no pattern.
    """
    return [InstanceShard(path) for path in _paths(paths)]


def sample_shards(paths: str | Sequence[PathLike], like: Instance) -> list[SampleShard]:
    """Files of samples, as portions for :func:`minfer.learn.fit`; nulls are hidden states."""
    return [SampleShard(path, like) for path in _paths(paths)]


def _paths(paths: str | Sequence[PathLike]) -> list[str]:
    """Names in a fixed order: a pattern's sorted, a list's as given."""
    if isinstance(paths, str):
        found = [paths] if os.path.exists(paths) else sorted(glob.glob(paths))
    else:
        found = [os.fspath(p) for p in paths]
    if not found:
        raise ModelError(f"shards: there is no file {paths}")
    return found


def _table(path: PathLike) -> Any:
    name = os.fspath(path)
    pa = load("pyarrow")
    try:
        if name.endswith(_ARROW):
            with pa.memory_map(name) as file:
                return pa.ipc.open_file(file).read_all()
        return load("pyarrow.parquet").read_table(name)
    except FileNotFoundError:
        raise FormatError(f"{name}: there is no such file") from None
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{name}: {error}") from None
