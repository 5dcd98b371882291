"""The migrations make the tables that the code knows, can be taken back, and never wait for ever."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import NullPool, create_engine, exc, inspect, text

from migrations.run import downgrade, migrate, newest_revision, present_revision
from pipeline.persistence.ledger.tables import METADATA

pytestmark = pytest.mark.services

MIGRATE = "import sys; from migrations.run import migrate; migrate(sys.argv[1])"


@contextmanager
def inspected(url: str) -> Iterator[Any]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """Another session reads the table and stays in its transaction, as a careless report would."""
    with inspected(url) as connection, connection.begin():
        connection.execute(text(f"LOCK TABLE {table} IN ACCESS SHARE MODE"))
        yield


def tables(url: str) -> set[str]:
    with inspected(url) as connection:
        return set(inspect(connection).get_table_names())


def test_the_migrations_make_what_the_code_knows(empty_url: str) -> None:
    migrate(empty_url)

    with inspected(empty_url) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []


def test_checks_and_sequences_are_there_too(empty_url: str) -> None:
    migrate(empty_url)

    with inspected(empty_url) as connection:
        inspector = inspect(connection)
        checks = {check["name"] for table in METADATA.tables for check in inspector.get_check_constraints(table)}
        assert checks == {"deliveries_state"}
        # The others are the identities of the two tables that are only added to.
        assert set(inspector.get_sequence_names()) - {"case_events_id_seq", "result_reads_id_seq"} == {"publish_no"}


def test_partial_indexes_leave_out_what_the_code_says(empty_url: str) -> None:
    migrate(empty_url)

    with inspected(empty_url) as connection:
        rows = connection.execute(text("SELECT indexname, indexdef FROM pg_indexes WHERE indexdef LIKE '%WHERE%'")).all()
    predicates = {row.indexname: row.indexdef.partition(" WHERE ")[2] for row in rows}
    assert predicates == {"cases_open": "(ended_at IS NULL)", "deliveries_due": "(state = 'pending'::text)"}


def test_the_tables_that_change_all_the_time_leave_room_for_it_and_are_cleaned_however_long_they_are(empty_url: str) -> None:
    migrate(empty_url)

    with inspected(empty_url) as connection:
        rows = connection.execute(text("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL AND relkind = 'r'")).all()
    by_count = {"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=1000"}
    assert {row.relname: set(row.reloptions) for row in rows} == {
        "cases": {"fillfactor=70"} | by_count,
        "deliveries": {"fillfactor=80"} | by_count,
    }


def test_a_ledger_knows_its_revision(empty_url: str) -> None:
    before = present_revision(empty_url)
    migrate(empty_url)

    assert (before, present_revision(empty_url)) == (None, newest_revision())


def test_migrating_again_changes_nothing(empty_url: str) -> None:
    migrate(empty_url)
    with inspected(empty_url) as connection, connection.begin():
        connection.execute(text("INSERT INTO tenants (id, name) VALUES (gen_random_uuid(), 'kept')"))

    migrate(empty_url)

    with inspected(empty_url) as connection:
        assert connection.execute(text("SELECT name FROM tenants")).scalars().all() == ["kept"]


def test_all_the_way_down_and_up_again(empty_url: str) -> None:
    migrate(empty_url)

    downgrade(empty_url, "base")

    assert tables(empty_url) == {"alembic_version"}
    with inspected(empty_url) as connection:
        assert inspect(connection).get_sequence_names() == []
    migrate(empty_url)
    assert tables(empty_url) == {"alembic_version", *METADATA.tables}


def test_two_processes_that_start_together_both_find_the_ledger_migrated(empty_url: str) -> None:
    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", MIGRATE, empty_url]) for _ in range(2)]

    assert [process.wait(timeout=20) for process in processes] == [0, 0]
    assert present_revision(empty_url) == newest_revision()


def test_a_migration_gives_up_on_a_lock_and_leaves_everything_as_it_was(empty_url: str) -> None:
    migrate(empty_url)

    # A table that the newest revision touches: each revision is a transaction of its own.
    with locked(empty_url, "model_reports"):
        started = time.monotonic()
        with pytest.raises(exc.OperationalError, match="lock timeout"):
            downgrade(empty_url, "base")
        waited_s = time.monotonic() - started

    assert 1.9 < waited_s < 10
    assert present_revision(empty_url) == newest_revision()
    assert tables(empty_url) == {"alembic_version", *METADATA.tables}


def test_a_migration_that_failed_does_not_stand_in_the_way_of_the_next(empty_url: str) -> None:
    with inspected(empty_url) as connection, connection.begin():
        connection.execute(text("CREATE TABLE cases ()"))
    with pytest.raises(exc.ProgrammingError, match="already exists") as failed:
        migrate(empty_url)
    with inspected(empty_url) as connection, connection.begin():
        connection.execute(text("DROP TABLE cases"))

    # Its error is still held here, and with it its frames: what they hold in the server would be waited for.
    assert failed.value is not None
    with inspected(empty_url) as connection:
        held = connection.execute(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")).scalar_one()
    assert held == 0
    migrate(empty_url)
