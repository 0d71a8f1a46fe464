"""A journal that went back in time: declared, noticed by its pulse, and restored for real."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pytest
import redis

from models import database
from models.journal import effects, rewinds, runs
from models.journal.effect_values import Granted, InDoubt
from models.journal.errors import Refused
from models.journal.rewinds import Server
from models.settings import settings
from recovery import rewind, watch
from tests.support.backups import dump, restore
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    QUERYABLE,
    again,
    asking,
    at_work,
    effect,
    intend,
    send,
)
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.threads import at_once


@pytest.fixture
def broker(
    journal: Journal, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator["redis.Redis"]:
    """The broker that remembers this journal."""
    monkeypatch.setenv("ONWARD_BROKER_URL", broker_url)
    settings.cache_clear()
    with redis.Redis.from_url(broker_url, decode_responses=True) as client:
        yield client


def remembered(broker: "redis.Redis") -> dict[str, int]:
    return {str(key): int(str(broker.get(key))) for key in broker.keys("*pulse*")}


def pulse(journal: Journal) -> dict[str, object]:
    (row,) = journal.rows("SELECT * FROM pulse")
    return row


def test_a_declaration_is_for_every_unfinished_run(journal: Journal) -> None:
    alive, over = submit_run(row_of("a")), submit_run(row_of("a"))
    Worker().do(over, "a")
    moment = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    found = rewinds.declare(moment, actor="ada", reason="a disk\x00 died")
    assert (found.rewound_to, found.actor, found.runs) == (moment, "ada", 1)
    assert found.reason == "a disk\\x00 died"
    (event,) = journal.rows("SELECT * FROM event WHERE kind = 'journal_rewound'")
    assert (event["run_id"], event["actor"]) == (alive, "ada")
    assert "2026-01-01" in event["detail"]
    assert rewinds.list_rewinds() == [found]


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        (datetime(2026, 1, 1), "2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        (datetime(2100, 1, 1, tzinfo=UTC), "is in the future by the journal's clock"),
    ],
)
def test_what_cannot_be_is_not_declared(journal: Journal, moment: datetime, told: str) -> None:
    submit_run(row_of("a"))
    with pytest.raises(Refused, match=told):
        rewinds.declare(moment, actor="ada", reason="")
    assert journal.rows("SELECT 1 FROM rewind") == []
    assert journal.rows("SELECT 1 FROM event WHERE kind = 'journal_rewound'") == []


def test_a_run_whose_server_had_a_fast_clock_is_older_all_the_same(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"))
    journal.look.execute("UPDATE run SET created_at = onward_now() + interval '5 s'")
    rewinds.declare(datetime(2026, 1, 1, tzinfo=UTC), actor="ada", reason="")
    assert isinstance(intend(Worker().take(run_id, "a")), InDoubt)


def test_a_key_counts_as_honoured_from_its_first_possible_send(journal: Journal) -> None:
    """Sent at once, and not again when the first send may be longer ago than the key is kept."""
    journal.freeze()
    claimed = at_work()
    moment = journal.one("SELECT onward_now() - interval '3500 s'")
    journal.advance(1)
    rewinds.declare(moment, actor="ada", reason="")
    assert send(claimed, asking(promise=IDEMPOTENT)) == Granted(1)
    assert effect(journal)["resend_until"] == moment + timedelta(seconds=3600)
    second = again(journal, claimed)
    assert send(second, asking(promise=IDEMPOTENT)) == Granted(2)
    journal.advance(100)
    third = again(journal, second)
    assert isinstance(intend(third, asking(promise=IDEMPOTENT)), InDoubt)


def test_a_key_that_may_be_forgotten_is_not_sent_by_the_next_attempt_either(
    journal: Journal,
) -> None:
    journal.freeze()
    claimed = at_work()
    moment = journal.one("SELECT onward_now() - interval '3601 s'")
    journal.advance(1)
    rewinds.declare(moment, actor="ada", reason="")
    assert isinstance(intend(claimed, asking(promise=IDEMPOTENT)), InDoubt)
    assert isinstance(intend(again(journal, claimed), asking(promise=IDEMPOTENT)), InDoubt)


def test_a_step_is_unseen_until_a_person_has_looked(journal: Journal) -> None:
    run_id, moment = submit_run(row_of("a", "b")), datetime(2026, 1, 1, tzinfo=UTC)
    assert rewinds.unseen_since(run_id, "a") is None
    rewinds.declare(moment, actor="ada", reason="")
    assert rewinds.unseen_since(run_id, "a") == moment
    Worker().fail(Worker().take(run_id, "a"))
    runs.send_back(run_id, by="ada")
    assert rewinds.unseen_since(run_id, "a") is None
    assert rewinds.unseen_since(run_id, "b") == moment
    rewinds.declare(moment, actor="ada", reason="again")
    assert rewinds.unseen_since(run_id, "a") == moment
    assert rewinds.unseen_since(submit_run(row_of("a")), "a") is None


def test_the_first_beat_is_no_evidence(journal: Journal, broker: "redis.Redis") -> None:
    assert rewind.beat_once() is None
    row = pulse(journal)
    assert (row["beat"], remembered(broker)) == (1, {f"onward.pulse.{row['name']}": 1})
    assert len(str(row["system_id"])) > 10
    assert row["timeline"] == 1
    assert rewind.beat_once() is None
    assert remembered(broker) == {f"onward.pulse.{row['name']}": 2}


def test_the_mark_carries_the_deployments_prefix(
    broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_KEY_PREFIX", "team-a.")
    settings.cache_clear()
    rewind.beat_once()
    (key,) = remembered(broker)
    assert key.startswith("team-a.onward.pulse.")


def test_a_journal_behind_its_broker_is_noticed_once(
    journal: Journal, broker: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    run_id = submit_run(row_of("a", "b"))
    for _ in range(5):
        rewind.beat_once()
    journal.look.execute("UPDATE pulse SET beat = beat - 2")
    at = pulse(journal)["at"]
    found = rewind.beat_once()
    assert found is not None
    assert (found.rewound_to, found.actor, found.runs) == (at, "onward", 1)
    assert found.reason == "the broker remembers beat 5 of this journal, whose own last beat is 3"
    assert (pulse(journal)["beat"], *remembered(broker).values()) == (6, 6)
    assert "The journal went back in time" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert journal.events(run_id) == ["journal_rewound"]
    assert rewind.beat_once() is None
    assert isinstance(intend(Worker().take(run_id, "a")), InDoubt)
    assert isinstance(intend(at_work(), asking("of a younger run")), Granted)


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("system_id", "42", "another database system"),
        ("timeline", "0", "on timeline 1 and was on 0"),
    ],
)
def test_another_server_is_noticed_once(
    journal: Journal, broker: "redis.Redis", *, column: str, value: str, told: str
) -> None:
    rewind.beat_once()
    journal.look.execute(f"UPDATE pulse SET {column} = '{value}'".encode())  # noqa: S608
    found = rewind.beat_once()
    assert found is not None
    assert told in found.reason
    assert rewind.beat_once() is None


def test_what_a_person_has_declared_is_not_declared_again(
    journal: Journal, broker: "redis.Redis"
) -> None:
    for _ in range(5):
        rewind.beat_once()
    journal.look.execute("UPDATE pulse SET beat = 1, system_id = '42'")
    rewind.acknowledge()
    assert (pulse(journal)["beat"], *remembered(broker).values()) == (6, 6)
    assert rewind.beat_once() is None
    assert rewinds.list_rewinds() == []


def test_a_broker_that_forgot_is_no_evidence(journal: Journal, broker: "redis.Redis") -> None:
    for _ in range(3):
        rewind.beat_once()
    broker.flushdb()
    assert rewind.beat_once() is None
    assert list(remembered(broker).values()) == [4]


def test_another_journal_on_the_same_broker_is_another(
    journal: Journal, broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        rewind.beat_once()
    journal.look.execute("DELETE FROM pulse")
    assert rewind.beat_once() is None
    assert sorted(remembered(broker).values()) == [1, 3]


@pytest.mark.parametrize("url", ["amqp://guest@127.0.0.1:1//", "redis://127.0.0.1:1/0"])
def test_a_broker_that_remembers_nothing_stops_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("ONWARD_BROKER_URL", url)
    settings.cache_clear()
    assert [rewind.beat_once() for _ in range(3)] == [None] * 3
    assert pulse(journal)["beat"] == 3
    journal.look.execute("UPDATE pulse SET timeline = 7")
    assert rewind.beat_once() is not None


def test_beats_side_by_side_look_like_no_loss(journal: Journal, broker: "redis.Redis") -> None:
    def beat() -> list[object]:
        return [rewind.beat_once() for _ in range(10)]

    assert at_once(*[beat] * 4) == [[None] * 10] * 4
    assert pulse(journal)["beat"] == 40


def test_a_loss_is_declared_once_by_beats_side_by_side(
    journal: Journal, broker: "redis.Redis"
) -> None:
    for _ in range(5):
        rewind.beat_once()
    journal.look.execute("UPDATE pulse SET beat = 1")
    found = at_once(*[rewind.beat_once] * 4)
    assert sum(one is not None for one in found) == 1


def test_a_server_behind_the_clock_of_the_last_is_no_ground_to_refuse(
    journal: Journal, broker: "redis.Redis"
) -> None:
    rewind.beat_once()
    journal.look.execute("UPDATE pulse SET at = '2100-01-01Z', timeline = 7")
    assert rewind.beat_once() is not None


def test_a_role_that_may_not_ask_who_the_server_is_still_beats(
    journal: Journal, broker: "redis.Redis"
) -> None:
    journal.look.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    journal.look.execute("CREATE ROLE plain LOGIN")
    try:
        journal.look.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO plain")
        database.connection().execute("SET ROLE plain")
        assert rewinds.server() == Server()
        assert rewind.beat_once() is None
        journal.look.execute("UPDATE pulse SET beat = 0")
        assert rewind.beat_once() is not None
    finally:
        database.close()
        journal.look.execute("DROP OWNED BY plain")
        journal.look.execute("DROP ROLE plain")


def test_the_watch_beats(journal: Journal, broker: "redis.Redis") -> None:
    watch.watch_once()
    assert pulse(journal)["beat"] == 1


def test_a_worker_beats_before_its_first_message(
    journal: Journal, broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    rewind.beat_before_work()
    assert pulse(journal)["beat"] == 1
    monkeypatch.setenv("ONWARD_DATABASE_URL", "postgresql+psycopg://onward@127.0.0.1:1/onward")
    settings.cache_clear()
    rewind.beat_before_work()


@pytest.mark.parametrize("beats_meanwhile", [1, 4])
def test_a_restored_backup_is_noticed_and_asks_before_it_sends(
    journal: Journal, broker: "redis.Redis", tmp_path: Path, *, beats_meanwhile: int
) -> None:
    run_id = submit_run(row_of("a", "b"))
    rewind.beat_once()
    backup = dump(journal.url, tmp_path / "backup")
    claimed = Worker().take(run_id, "a")
    send(claimed)
    effects.settle(KEY, claimed, result='"srv-1"')
    Worker().complete(claimed)
    younger = submit_run(row_of("a", "b"))
    for _ in range(beats_meanwhile):
        rewind.beat_once()
    journal.look.close()
    database.close()

    restore(backup, journal.url)
    after = Journal(journal.url)
    try:
        assert after.rows("SELECT 1 FROM run WHERE run_id = %s", younger) == []
        found = rewind.beat_once()
        assert found is not None
        assert (found.runs, found.rewound_to) == (1, found.rewound_to)
        again_claimed = Worker("worker-2", "start-2").take(run_id, "a")
        assert isinstance(intend(again_claimed, asking(promise=QUERYABLE)), InDoubt)
        assert rewind.beat_once() is None
    finally:
        after.look.close()


def test_a_restore_into_another_database_is_noticed_too(
    journal: Journal, broker: "redis.Redis", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewind.beat_once()
    backup = dump(journal.url, tmp_path / "backup")
    rewind.beat_once()
    other = f"{journal.url}_restored"
    restore(backup, other)
    try:
        monkeypatch.setenv("ONWARD_DATABASE_URL", other)
        settings.cache_clear()
        database.close()
        assert rewind.beat_once() is not None
    finally:
        database.close()
        with psycopg.connect(journal.conninfo, autocommit=True) as link:
            link.execute(f"DROP DATABASE {other.rpartition('/')[2]} WITH (FORCE)".encode())
