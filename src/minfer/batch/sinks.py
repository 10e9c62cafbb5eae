"""Where answers go: one file per shard, complete or not there at all, and one for what went wrong.

``part-000007.conllu`` holds the answers of shard 7 in the order of its records, and
``part-000007.errors.jsonl`` its bad records with place and reason, if there are any. Equal input
gives equal bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from minfer.batch.arrow import pa, pq
from minfer.batch.folder import PICTURES, written
from minfer.errors import SettingsError
from minfer.io.owned import json_line

if TYPE_CHECKING:
    from minfer.batch.shards import Shard


class Sink(Protocol):
    """Takes batches of answers."""

    def __call__(self, batch: pa.RecordBatch) -> None: ...


def part_name(number: int, format: str) -> str:
    """The file of a shard's answers."""
    return f"part-{number:06d}.{'jsonl' if format == 'png' else format}"


def errors_name(number: int) -> str:
    """The file of a shard's bad records."""
    return f"part-{number:06d}.errors.jsonl"


def picture_name(id: str) -> str:
    """The file of a clean picture, below the folder of the output."""
    return os.path.join(PICTURES, os.path.splitext(id)[0] + ".png")


def names_of(shard: Shard, format: str) -> list[str]:
    """All files that a shard may write."""
    pictures = [picture_name(name) for _, name in shard.files] if format == "png" else []
    return [part_name(shard.number, format), errors_name(shard.number), *pictures]


@contextmanager
def open_sink(folder: str, number: int, format: str, schema: pa.Schema) -> Iterator[Sink]:
    """Where to put the answers of a shard; its file is there when the block has ended."""
    with ExitStack() as stack:
        file = stack.enter_context(written(folder, part_name(number, format)))
        if format == "parquet":
            yield stack.enter_context(pq.ParquetWriter(file, schema)).write_batch
        elif format.startswith("conllu"):
            yield lambda batch: file.writelines(
                f"{text}\n\n".encode() for text in batch.column("conllu").to_pylist()
            )
        elif format.startswith("jsonl"):
            yield lambda batch: file.writelines(map(json_line, batch.to_pylist()))
        elif format == "png":
            yield lambda batch: _write_pictures(folder, file, batch)
        else:
            raise SettingsError(f"there is no output format {format!r}")


def _write_pictures(folder: str, file: BinaryIO, batch: pa.RecordBatch) -> None:
    """Each picture under its own name, so that a shard done twice leaves what it left once."""
    for row in batch.to_pylist():
        name = picture_name(row["id"])
        with written(folder, name) as picture:
            picture.write(row.pop("clean"))
        file.write(json_line({**row, "picture": name}))


class Errors:
    """The bad records of a shard; no file if there are none."""

    def __init__(self, folder: str, number: int) -> None:
        self.folder, self.name, self.count = folder, errors_name(number), 0
        self._stack = ExitStack()

    def __call__(self, place: str, id: str | None, reason: str) -> None:
        if not self.count:
            self._file = self._stack.enter_context(written(self.folder, self.name))
        self.count += 1
        self._file.write(json_line({"place": place, "id": id, "error": reason}))

    def __enter__(self) -> Errors:
        return self

    def __exit__(self, *failure: Any) -> bool | None:
        return self._stack.__exit__(*failure)
