"""What many tests share: small data, configurations, a real Prefect server."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores; threads of torch and numpy beyond that wait for each other by
    # spinning, which takes three times the time. Before they are imported, and for all children.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import settings

from dpal.config.campaign import CampaignConfig, parse_config
from dpal.errors import DpalError
from dpal.planning.campaign_spec import CampaignSpec
from dpal.randomness import Words

if TYPE_CHECKING:
    from prefect.context import SettingsContext

    from tests.forked import Forks

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("DPAL_DATA", ROOT.parent / "shared" / "data"))

os.environ.update(
    DO_NOT_TRACK="1",
    DVC_NO_ANALYTICS="1",
    MLFLOW_DISABLE_TELEMETRY="true",
    MLFLOW_LOGGING_LEVEL="ERROR",
    DPAL_MLFLOW_PATIENCE_SECONDS="5",  # a server that a test killed does not come back by itself
    MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR="false",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL="CRITICAL",
    # Each of Prefect's clients reads all authorities first, and no server here has a certificate.
    PREFECT_API_SSL_CERT_FILE=str(ROOT / "tests" / "no_authority.pem"),
)

# Else each of some hundred commands compiles all modules for itself, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores it, and so would all programs that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How many examples hypothesis looks for, where a test does not say it itself.
settings.register_profile("default suite", max_examples=50)
settings.register_profile("thorough", max_examples=300)
settings.load_profile("default suite")

# Of what is imported while tests are collected nothing is garbage, and to look takes a quarter of
# that time.
gc.disable()

CLASSES, WIDTH = 3, 8
PUBLIC = {"public": True, "why": "made up for tests"}


# Rooms of long files, which are handed out first: workers then end at about the same time.
_LONG_FIRST = ("flows", "runs", "store", "audit", "certificate", "ledger", "tasks", "training")


# Where files of the default suite lie, which writes 1 GiB, if there is room for much more:
# `dpal doctor` calls less than 5 GiB little.
_MEMORY, _ROOM, _SUITE = Path("/dev/shm"), 2**33, "dpal-tests-"


def pytest_configure(config: pytest.Config) -> None:
    """Files of quick tests lie in memory: of a disk they wait for 10,000 writes to be on it.

    Whether anything survives a power failure no test can see; slow tests use the disk, also as
    programs in memory may not be run everywhere. PYTEST_DEBUG_TEMPROOT names another place.
    """
    quick = config.getoption("markexpr") == "not slow" and not config.getoption("collectonly")
    elsewhere = config.getoption("basetemp") or "PYTEST_DEBUG_TEMPROOT" in os.environ
    if not quick or elsewhere or not os.access(_MEMORY, os.W_OK):
        return
    for left in _MEMORY.glob(f"{_SUITE}*"):  # of a suite that failed or was killed
        if not psutil.pid_exists(int(left.name.removeprefix(_SUITE))):
            shutil.rmtree(left, ignore_errors=True)
    if shutil.disk_usage(_MEMORY).free > _ROOM:
        config.option.basetemp = str(_MEMORY / f"{_SUITE}{os.getpid()}")


def pytest_sessionfinish(exitstatus: int) -> None:
    """What lies in memory stays there for whoever looks why a test failed, until the next suite."""
    if exitstatus == 0:
        shutil.rmtree(_MEMORY / f"{_SUITE}{os.getpid()}", ignore_errors=True)


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores, as each waits for servers now and then, and eight at most."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min((allowed or 1) + 1, 8)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of the whole default suite, what talks to the Prefect server goes to few workers."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS  # a few files or rooms
    if named or config.getoption("markexpr") != "not slow":
        return None  # as pytest-xdist does it
    from tests.shared_server import SharedServer

    return SharedServer(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts whole campaigns before quick tests; within a room the order stays."""
    order = {room: place for place, room in enumerate(_LONG_FIRST)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))


def pytest_collection_finish() -> None:
    """Garbage is looked for again, and not among what stays to the end."""
    gc.freeze()
    gc.enable()


class RepeatableBits:
    """A bit source that repeats, so that a statistical test fails always or never."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, count: int) -> Words:
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ledgers of this session are anchored: never in the home of who runs the tests."""
    home = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(home)  # also for the commands that tests start
    return home


@pytest.fixture(scope="session", autouse=True)
def owners_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The list of what runs from Prefect may use: empty, and never that of who runs the tests."""
    file = tmp_path_factory.mktemp("owner") / "allow.yaml"
    os.environ["DPAL_ALLOW"] = str(file)
    return file


@pytest.fixture
def bits() -> RepeatableBits:
    return RepeatableBits(20260101)


def write_blobs(
    path: Path, rows: int, *, seed: int, prefix: str = "r", labeled: bool = True
) -> Path:
    """Writes records around three centres, `rows` of them, with ids such as r-00007."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, rows)
    centres = 2.0 * np.eye(CLASSES, WIDTH)
    values = (centres[labels] + generator.normal(0, 0.5, (rows, WIDTH))).astype(np.float32)
    columns: dict[str, Any] = {
        "id": pa.array([f"{prefix}-{i:05d}" for i in range(rows)]),
        "features": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), WIDTH),
    }
    if labeled:
        columns["label"] = pa.array(labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def mislabel(path: Path) -> None:
    """Calls four fifths of the records of a pool the first class, whatever they are."""
    table = pq.read_table(path)
    rng = np.random.default_rng(4)
    labels = np.where(rng.random(table.num_rows) < 0.8, 0, rng.integers(0, CLASSES, table.num_rows))
    column = table.schema.get_field_index("label")
    field = table.schema.field(column)
    pq.write_table(table.set_column(column, field, pa.array(labels, field.type)), path)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a small pool and a validation set."""
    write_blobs(tmp_path / "pool.parquet", 600, seed=1)
    write_blobs(tmp_path / "validation.parquet", 300, seed=2, prefix="v")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small_values(**overrides: Any) -> dict[str, Any]:
    """Settings of a campaign that runs in seconds; overrides have dotted keys with __."""
    values: dict[str, Any] = {
        "name": "small",
        "data": {"pool": "pool.parquet", "validation": "validation.parquet"},
        "validation": dict(PUBLIC),
        # Hidden selection, the default, asks for larger queries than seconds allow.
        "privacy": {"selection": "visible"},
        "schedule": {"initial": 100, "queries": [40, 40], "batch_size": 50, "epochs_per_phase": 3},
        "model": {"name": "logistic"},
        "training": {"optimizer": "sgd", "learning_rate": 0.5, "max_grad_norm": 1.0},
    }
    for key, value in overrides.items():
        *path, last = key.split("__")
        section = values
        for name in path:
            section = section.setdefault(name, {})
        section[last] = value
    return values


def small_spec(pool_size: int = 600, **overrides: Any) -> CampaignSpec:
    """What a small campaign asks for, on a pool of `write_blobs`."""
    config = parse_config(small_values(**overrides))
    return config.to_spec(pool_size=pool_size, input_shape=(WIDTH,), classes=CLASSES)


@pytest.fixture(scope="session")
def mlflow_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One MLflow database for the tests that do not look into it: making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'shared.sqlite'}"


@pytest.fixture
def small(mlflow_uri: str) -> Callable[..., CampaignConfig]:
    """Configurations of small campaigns."""

    def config(**overrides: Any) -> CampaignConfig:
        return parse_config(small_values(**{"runtime__mlflow_uri": mlflow_uri, **overrides}))

    return config


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests' Prefect server keeps its database."""
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture(scope="session")
def prefect_api(
    prefect_home: Path, tmp_path_factory: pytest.TempPathFactory, mlflow_tables: None
) -> Iterator[str]:
    """A real Prefect server of its own, on a free port.

    Its tables are made by the migrations of the first one, and copied for those of pytest's other
    workers.
    """
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made, own = shared / "prefect.sqlite", prefect_home / "prefect.db"
    with ExitStack() as alone:
        fcntl.flock(alone.enter_context((shared / "prefect.lock").open("w")), fcntl.LOCK_EX)
        if made.exists():
            _copy_database(made, own)
            alone.close()
        with _prefect_server(prefect_home) as url:
            if not made.exists():
                _copy_database(own, made)
            alone.close()
            try:
                yield url
            finally:
                # Logs and events still on their way would be retried for a minute after the end.
                APILogWorker.drain_all(timeout=10)
                EventsWorker.drain_all()


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


@contextmanager
def _prefect_server(home: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)],
            env={
                **os.environ,
                "PREFECT_HOME": str(home),
                "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
                "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # as for servers of `dpal run`
                "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
                # What is looked for every five seconds, and by no test.
                "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "60",
                "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_LOOP_SECONDS": "60",
            },
            stdout=log,
            stderr=log,
        )
        url = f"http://127.0.0.1:{port}/api"
        try:
            _await_health(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(30)


def _await_health(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 600
    with httpx.Client(timeout=2) as client:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                if client.get(f"{url}/health").is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.5)
    raise RuntimeError("the Prefect server of the tests did not start")


@cache
def _settings_for(api: str) -> SettingsContext:
    from prefect.context import SettingsContext, get_settings_context
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY

    given = get_settings_context()
    # Whoever calls a flow waits for the thread of its heartbeats, half a second on average.
    settings = given.settings.copy_with_update(
        updates={PREFECT_API_URL: api, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    )
    return SettingsContext(profile=given.profile, settings=settings)


def flows_at(api: str) -> SettingsContext:
    """A context in which flows called in this process talk to a server.

    The settings are made once, as Prefect checks all that it has each time.
    """
    return _settings_for(api).model_copy()


@pytest.fixture(scope="session")
def mlflow_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MLflow's tables are made once, by its migrations, and copied into each new SQLite file.

    A second of fifty migrations for every folder in which a test tells MLflow something. Commands
    in processes of their own migrate as ever.
    """
    import mlflow.store.db.utils as store
    import sqlalchemy as sa

    migrate, made = store._initialize_tables, tmp_path_factory.mktemp("tables") / "mlflow.sqlite"

    def copy(engine: sa.Engine) -> None:
        if engine.dialect.name != "sqlite" or sa.inspect(engine).get_table_names():
            migrate(engine)
            return
        if not made.exists():
            migrate(first := sa.create_engine(f"sqlite:///{made}"))
            first.dispose()
        _copy_database(made, Path(str(engine.url.database)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_initialize_tables", copy)
        yield


@pytest.fixture
def orchestrated(prefect_api: str) -> Iterator[str]:
    """Flows called in this process talk to the test server."""
    with flows_at(prefect_api):
        yield prefect_api


@pytest.fixture(scope="session")
def forked() -> Iterator[Forks]:
    """Runs scripts in processes of their own that begin in milliseconds."""
    from tests.forked import forks

    with forks() as running:
        yield running


_DPAL = """
import sys
from flows.cli.main import main
sys.argv = ["dpal", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="session")
def dpal(prefect_api: str, forked: Forks) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `dpal` as a person would, in a process of its own."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run(_DPAL, *arguments, PREFECT_API_URL=prefect_api, COLUMNS="200")

    return call


def command() -> str:
    """Path of the installed `dpal` command."""
    beside = Path(sys.executable).with_name("dpal")
    found = str(beside) if beside.exists() else shutil.which("dpal")
    assert found, "the dpal command is not installed"
    return found


def write_config(path: Path, **overrides: Any) -> Path:
    """Writes a small campaign's YAML."""
    path.write_text(yaml.safe_dump(small_values(**overrides)), encoding="utf-8")
    return path


@contextmanager
def owner_reads(kind: type[DpalError], match: str) -> Iterator[pytest.ExceptionInfo[DpalError]]:
    """Expects an error of ours, and looks at all of its message, as the data's owner sees it."""
    with pytest.raises(kind) as caught:
        yield caught
    assert re.search(match, caught.value.for_owner()), caught.value.for_owner()


def nothing_released(error: DpalError) -> bool:
    """Whether an error says that nothing was; for `pytest.raises(..., check=nothing_released)`."""
    assert str(error).count(f"; {error.closing}") == 1, str(error)
    return error.released is False


def having(**fields: object) -> Callable[[DpalError], bool]:
    """Expects an error with these fields; for `pytest.raises(..., check=having(...))`."""

    def has_them(error: DpalError) -> bool:
        assert {name: getattr(error, name) for name in fields} == fields, str(error)
        return True

    return has_them


def shared_file(name: str) -> Path:
    """A real data set, or a loud skip where it is not there."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: set DPAL_DATA to the folder with the real data sets")
    return path


def allow(*configs: Any, file: Path | None = None) -> Path:
    """Lets runs from Prefect use what configurations need, as `dpal allow` does."""
    from flows.cli.allow import extended_for
    from tasks.allow_list import allow_file, read_allow_list, write_allow_list

    place = file or allow_file()
    write_allow_list(place, extended_for(read_allow_list(place), configs))
    return place
