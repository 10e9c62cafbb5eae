"""What all tests share: Hypothesis without deadlines, Ctrl-C that is heard, lines of any width."""

import contextlib
import functools
import gc
import importlib
import os
import random
import signal
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from browser import Browser, find_chromium
from draws import thorough

settings.register_profile("thorough", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("everyday", settings.get_profile("thorough"), max_examples=14)
settings.load_profile("everyday")  # --hypothesis-profile=thorough draws seven times as many

# A shell script starts its background jobs deaf to Ctrl-C, and their children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("COLUMNS", None)  # which processes of pytest-xdist have, and tables would heed

# The command line is built from its functions once, and not at each of a thousand calls.
typer.testing._get_command = functools.cache(typer.testing._get_command)


@pytest.fixture(params=["host", pytest.param("card", marks=pytest.mark.device)])
def there(request, monkeypatch):
    """A device: this processor, as one, or a card."""
    from minfer.solvers import on_device

    if request.param == "card":
        from minfer.device.cuda import cuda

        return cuda()
    from host_device import Host

    host = Host()
    monkeypatch.setattr(on_device, "device", lambda: host)
    return host


@pytest.fixture(scope="module")
def cluster():
    """Ray, with two cores and the modules of this folder."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, places))}}
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(num_cpus=2, runtime_env=environment, **quiet)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    assert program is not None, "MINFER_BROWSER_TESTS=1, but there is no Chromium"
    with Browser(program) as it:
        yield it


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "backwards or shuffled: what is compiled first differs, and answers must not"
    parser.addoption("--order", choices=["backwards", "shuffled"], help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = config.getoption("--order")
    if order == "backwards":
        items.reverse()
    elif order == "shuffled":  # the same in all processes
        random.Random(0).shuffle(items)


def pytest_sessionstart(session: pytest.Session) -> None:
    _read_no_sources()
    _load_in_turn(session)


def _read_no_sources() -> None:
    """Every day Hypothesis does not read the sources of all that is loaded, for numbers to try.

    That takes seconds in each process, and makes examples depend on which tests are loaded.
    """
    if not thorough():
        with contextlib.suppress(ImportError, AttributeError):  # another Hypothesis: it may
            providers = importlib.import_module("hypothesis.internal.conjecture.providers")
            nothing = providers.Constants()
            providers._get_local_constants = lambda: nothing


def _load_in_turn(session: pytest.Session) -> None:
    """Of several processes each loads another part of the files first, all of them later on.

    pytest rewrites the assertions of each file that it meets for the first time, which takes as
    long as all else before the tests; what one process has rewritten the others only read.
    """
    given = getattr(session.config, "workerinput", None)
    if given is None or session.config.args != session.config.getini("testpaths"):
        return
    names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    start = int(given["workerid"].removeprefix("gw")) * len(names) // given["workercount"]
    for name in names[start:] + names[:start]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection will say so
            importlib.import_module(name)


def pytest_collection_finish() -> None:
    """Thousands of tests and the libraries they load stay: no collection of garbage need walk."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # some libraries look at what is left at the end
