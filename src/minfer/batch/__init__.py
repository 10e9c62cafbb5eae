"""Millions of sentences, models and pictures: jobs over record batches, and engines to run them.

A job is one function, Arrow record batch in, Arrow record batch out (:mod:`minfer.batch.jobs`);
:func:`run` takes it over files of any size, resumes where it was stopped, and uses the processes
of this machine or Ray. Needs the extra ``batch`` (pyarrow). docs/reference/batch.md has the
details. Independent parts of rules over tables are run by ``minfer.batch.rules.infer_rules``.
"""

from minfer.errors import RefusedError

try:
    import pyarrow  # noqa: F401
except ImportError:
    raise RefusedError(
        "batches need pyarrow, which is not installed: pip install 'minfer[batch]'"
    ) from None

from minfer.batch.driver import Progress, run, status
from minfer.batch.jobs import DenoisePictures, Job, ParseSentences, PredictRows, RunModels

__all__ = [
    "DenoisePictures",
    "Job",
    "ParseSentences",
    "PredictRows",
    "Progress",
    "RunModels",
    "run",
    "status",
]
