"""Everything on one machine: which processes run, in which order, with which settings."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import UUID

from pydantic import SecretStr
from uuid6 import uuid7

from migrations.run import migrate
from pipeline.deadline import utc_now
from pipeline.errors import SecondreadError
from pipeline.flow import CELERY_POOLS, FETCH, PREPROCESS, Pool, stages_of
from pipeline.persistence.ledger.admission import ApiKey, add_api_key, add_tenant
from pipeline.persistence.ledger.deliveries import DELIVERY_LEASE_S
from pipeline.persistence.ledger.engine import open_ledger
from workers.access import Access, read_access, write_access
from workers.app import make_app
from workers.embedded.checks import check_all
from workers.embedded.ports import free_port
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.process import EmbeddedServer
from workers.embedded.state import StateFolder
from workers.embedded.transport_checks import PoolTransport, check_transports
from workers.embedded.valkey import EmbeddedValkey
from workers.gateway.keys import SCOPES, hash_key, new_key_text
from workers.replicas import replicas, require_devices, visible
from workers.settings import INFERENCE_VARIABLES, Settings, bare_environment
from workers.supervisor import DOORS, WORKERS, ProcessSpec, ProcessState, Supervisor, server_spec
from workers.wiring import public_url, secret_of, tensor_dir

LOCAL_TENANT = "local"
DRAIN_S = 20.0
"""Longer than a batch and its hand-over."""
BESIDE_THE_FLOW = 2
"""Sweepers, and guards. One leads; the other takes over within seconds."""

Progress = Callable[[str, ProcessState], None]


class Misconfigured(SecondreadError):
    """A server that the deployment needs is too old or set up so that work could be lost."""

    code = "misconfigured"
    title = "A server is not fit for this work"
    advice = "Change what the sentences say, then start again."


@contextmanager
def deployment(settings: Settings, progress: Progress) -> Iterator["Deployment"]:
    """Prepare the embedded servers that the settings do not replace, and the processes that need them.

    Raises
    ------
    DeviceAbsent
        A device of the settings is not there; nothing was started.
    """
    require_devices(settings)
    with ExitStack() as stack:
        state = stack.enter_context(StateFolder(settings.state_dir))
        servers: list[EmbeddedServer] = []
        if settings.database_url is None:
            servers.append(EmbeddedPostgres(state.postgres))
        if settings.redis_url is None:
            servers.append(EmbeddedValkey(state.valkey))
        specs = [server_spec(server) for server in servers]
        for server in servers:
            stack.callback(server.stop)
        settings = _completed(settings, state, servers)
        stack.callback(_leave_no_empty_folder, tensor_dir(settings))
        specs += _process_specs(settings, state.folder("ready"))
        running = Deployment(settings, state.folder("logs"), {server.name for server in servers}, progress)
        supervisor = Supervisor(specs, log_folder=state.folder("logs"), on_change=running.on_change)
        running.supervisor = stack.enter_context(supervisor)
        yield running


class Deployment:
    """A deployment that is being started or runs."""

    supervisor: Supervisor

    def __init__(self, settings: Settings, logs: Path, servers: set[str], progress: Progress) -> None:
        self.settings, self.logs = settings, logs
        self.access: Access | None = None
        self.warnings: list[str] = []
        self._servers_to_come = set(servers)
        self._progress = progress
        self._failure: SecondreadError | None = None

    def start(self) -> bool:
        """Start everything; False if it was asked to stop before all was ready.

        Raises
        ------
        Misconfigured
            A server is not fit.
        ProcessNeverReady
            A process died at its start again and again.
        """
        if not self._servers_to_come:
            self._prepare_ledger()
        is_up = self.supervisor.start()
        if self._failure is not None:
            raise self._failure
        if is_up and self.access is not None:
            # Last: whoever finds the file finds an open door.
            write_access(self.settings.state_dir, self.access)
        return is_up

    def watch(self) -> None:
        """Keep everything alive until a signal asks to stop."""
        self.supervisor.watch()

    def on_change(self, name: str, state: ProcessState) -> None:
        """Show progress; between the servers and the processes, check and migrate."""
        self._progress(name, state)
        if state is ProcessState.READY and name in self._servers_to_come:
            self._servers_to_come.discard(name)
            if not self._servers_to_come:
                try:
                    self._prepare_ledger()
                except SecondreadError as error:
                    self._failure = error
                    self.supervisor.ask_to_stop()

    def _prepare_ledger(self) -> None:
        database_url, redis_url = secret_of(self.settings, "database_url"), secret_of(self.settings, "redis_url")
        found = [
            *check_transports(pool_transports(self.settings)),
            *check_all(redis_url=redis_url, database_url=database_url, now=utc_now),
        ]
        refusals = [each.sentence for each in found if each.level == "refuse"]
        if refusals:
            raise Misconfigured("\n".join(refusals))
        self.warnings = [each.sentence for each in found]
        migrate(database_url)
        self.access = _local_access(self.settings, database_url)


def pool_transports(settings: Settings) -> list[PoolTransport]:
    """Each pool's broker settings beside the longest that its worker holds a message."""
    held_s = {
        Pool.INTAKE: FETCH.limit_s + max(PREPROCESS.limit_s, settings.decode_timeout_s),
        # A ring wakes the model thread and ends at once; the cases wait in the line, not in a message.
        Pool.INFERENCE: 0.0,
        Pool.REPORTING: sum(stage.limit_s for stage in stages_of(Pool.REPORTING)),
        Pool.DELIVERY: DELIVERY_LEASE_S,
    }
    return [PoolTransport(pool.value, make_app(settings, pool).conf.broker_transport_options, held_s[pool]) for pool in CELERY_POOLS]


def _leave_no_empty_folder(tensors: Path) -> None:
    """What still waits in the store is found again at the next start; an empty folder in /dev/shm is litter."""
    with suppress(OSError):
        tensors.rmdir()


def _completed(settings: Settings, state: StateFolder, servers: list[EmbeddedServer]) -> Settings:
    """The settings with every place filled in, as the processes get them."""
    urls = {("database_url" if server.name == "postgres" else "redis_url"): SecretStr(server.url) for server in servers}
    metrics_dir = state.folder("metrics")
    # Numbers of processes that are gone would be added up for ever.
    for old in metrics_dir.iterdir():
        old.unlink()
    places = {
        "gateway_port": settings.gateway_port or free_port(),
        "metrics_port": settings.metrics_port or free_port(),
        "uploads_url": settings.uploads_url or str(state.folder("uploads")),
        "metrics_dir": metrics_dir,
    }
    return settings.model_copy(update=urls | places)


def _process_specs(settings: Settings, ready: Path) -> list[ProcessSpec]:
    specs = [_spec(settings, name, f"workers.{name}", ready, WORKERS) for name in ("intake", "reporting", "delivery")]
    specs += [
        _spec(settings.model_copy(update={"device": replica.device}), replica.name, "workers.inference", ready, WORKERS)
        for replica in replicas(settings)
    ]
    specs += [
        _spec(settings, f"{name}-{number}", f"workers.{name}", ready, WORKERS)
        for name in ("sweeper", "guard")
        for number in range(1, BESIDE_THE_FLOW + 1)
    ]
    return [*specs, _spec(settings, "gateway", "workers.gateway", ready, DOORS)]


def _spec(settings: Settings, name: str, module: str, ready: Path, order: int) -> ProcessSpec:
    ready_file = ready / name
    mine = settings.model_copy(update={"ready_file": ready_file})
    environment = bare_environment() | mine.as_environment() | {"PROMETHEUS_MULTIPROC_DIR": str(settings.metrics_dir)}
    if module == "workers.inference":
        environment |= INFERENCE_VARIABLES | visible(settings.device)
    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-m", module),
        env=environment,
        ready=ready_file,
        order=order,
        stop_grace_s=DRAIN_S,
    )


def _local_access(settings: Settings, database_url: str) -> Access:
    """The local tenant's key: the one that the command has already, or a new one."""
    known = read_access(settings.state_dir)
    text = known.api_key if known else new_key_text()
    ledger = open_ledger(database_url, connections=1, application="secondread up")
    try:
        tenant_id = add_tenant(ledger, UUID(bytes=uuid7().bytes), LOCAL_TENANT)
        add_api_key(ledger, ApiKey(UUID(bytes=uuid7().bytes), tenant_id, frozenset(SCOPES)), name="local", key_hash=hash_key(text))
    finally:
        ledger.close()
    return Access(
        url=public_url(settings),
        metrics_url=f"http://{settings.gateway_host}:{settings.metrics_port}",
        api_key=text,
        redis_url=secret_of(settings, "redis_url"),
        database_url=database_url,
        models_dir=settings.models_dir,
    )
