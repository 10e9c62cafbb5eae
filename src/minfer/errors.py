"""The errors minfer raises, each naming the place and saying what to do.

All derive from :class:`MinferError`; the command line maps them to exit codes.
"""

from __future__ import annotations


class MinferError(Exception):
    """Base of every error minfer raises on purpose."""

    exit_code = 3


class ModelError(MinferError, ValueError):
    """The model itself is wrong: a shape, a NaN, a variable out of range, a name twice."""


class EvidenceError(MinferError, ValueError):
    """Evidence names an unknown variable or state, or has the wrong shape."""


class ContradictionError(MinferError, ValueError):
    """Every assignment has probability zero: the model, or model and evidence, contradict."""


class FormatError(MinferError, ValueError):
    """A file does not follow its format; the message gives file, line and token."""


class RefusedError(MinferError):
    """A solver declines a model it cannot handle or that would not fit, and names one that can."""

    exit_code = 4


class SettingsError(MinferError, ValueError):
    """A solver's setting is out of its range or unknown."""

    exit_code = 2


class WorkerError(MinferError):
    """A worker process died, of its own accord or because the system killed it."""

    exit_code = 1
