"""What all tests share: Hypothesis without deadlines, Ctrl-C that is heard, lines of any width."""

import contextlib
import functools
import importlib
import os
import signal

import typer.testing
from hypothesis import settings

from draws import thorough

settings.register_profile("thorough", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("everyday", settings.get_profile("thorough"), max_examples=20)
settings.load_profile("everyday")  # --hypothesis-profile=thorough draws five times as many

# A shell script starts its background jobs deaf to Ctrl-C, and their children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("COLUMNS", None)  # which processes of pytest-xdist have, and tables would heed

# The command line is built from its functions once, and not at each of a thousand calls.
typer.testing._get_command = functools.cache(typer.testing._get_command)


def pytest_sessionstart() -> None:
    """Every day Hypothesis does not read the sources of all that is loaded, for numbers to try:
    that takes seconds in each process, and makes examples depend on which tests are loaded."""
    if not thorough():
        with contextlib.suppress(ImportError, AttributeError):  # another Hypothesis: it may
            providers = importlib.import_module("hypothesis.internal.conjecture.providers")
            nothing = providers.Constants()
            providers._get_local_constants = lambda: nothing
