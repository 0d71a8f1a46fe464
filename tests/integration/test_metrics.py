"""Every metric over a journal with known contents, as Prometheus reads it."""

import http.client
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from models import database
from models.journal import metrics
from models.settings import settings
from ops import metrics as served
from ops.metrics import STUCK, UP, Server, render
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.waiting import wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples() -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(render().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sample.labels.values())] = sample.value
    return found


def settled(
    journal: Journal, key: str, *, source: str = "answer", effect_class: str = "queryable",
    token: int = 1, sends: int = 1, undoes: str | None = None, step: str = "a", run: str = "run-1",
) -> None:  # fmt: skip
    journal.look.execute(
        """
        INSERT INTO effect_settlement (key, run_id, step_key, branch, queue, tool, tool_version, effect_class,
            undoes, request, request_digest, outcome, result, result_digest, source, token, attempt, sends,
            worker, created_at, first_sent_at)
        VALUES (%s, %s, %s, '0', 'q', 't', '1', %s, %s, '{}', 'd', 'settled', '1', 'd', %s, %s, 1, %s, 'w',
                now(), now())""",
        (key, run, step, effect_class, undoes, source, token, sends),
    )


def unknown(journal: Journal, key: str, *, person: str | None = None) -> None:
    journal.look.execute(
        """
        INSERT INTO effect (key, run_id, step_key, branch, queue, tool, tool_version, effect_class, request,
            state, token, attempt, start_id, worker, pid, pid_started, pid_space, first_sent_at, sent_at,
            send_by, person)
        VALUES (%s, 'run-1', 'a', '0', 'q', 't', '1', 'queryable', '{}', 'unknown', 1, 1, 's', 'w', 1, 1, 'p',
                now(), now(), now(), %s)""",
        (key, person),
    )


def finished(
    journal: Journal, run: str, step: str, *, state: str = "completed", token: int = 2
) -> None:
    journal.look.execute(
        "INSERT INTO step (run_id, step_key, branch, state, output, output_digest, attempt, token)"
        " VALUES (%s, %s, '0', %s, '1', 'd', 1, %s)",
        (run, step, state, token),
    )


def ended(
    journal: Journal, run: str, outcome: str, *, step: str = "a", token: int = 1, worked: float = 0
) -> None:
    journal.look.execute(
        "INSERT INTO attempt (run_id, step_key, token, outcome, attempt, branch, started_at, ended_at)"
        " VALUES (%s, %s, %s, %s, 1, '0', now() - make_interval(secs => %s), now())",
        (run, step, token, outcome, worked),
    )


@contextmanager
def serving() -> Iterator[str]:
    server = Server("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()
        thread.join()


def ask(url: str) -> http.client.HTTPResponse:
    answer: http.client.HTTPResponse = urllib.request.urlopen(url, timeout=10)  # noqa: S310
    return answer


def test_every_metric_is_defined_in_the_document_and_nothing_else_is() -> None:
    documented = set(re.findall(r"^\| `(onward_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert documented == {metric.name for metric in metrics.METRICS} | {UP, STUCK}


def test_counters_are_named_as_counters_are() -> None:
    for metric in metrics.METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name


def test_an_empty_journal_has_figures_and_no_ratio(journal: Journal) -> None:
    found = samples()
    assert found["onward_up", ()] == 1
    assert found["onward_unknown_effects", ("person",)] == 0
    assert not [name for name, _ in found if name == "onward_recovery_success_ratio"]


def test_what_became_of_steps_that_lost_an_owner(journal: Journal) -> None:
    for number, fate in enumerate(("completed", "completed", "completed", "failed"), start=1):
        ended(journal, f"run-{number}", "died" if number % 2 else "expired", worked=10)
        finished(journal, f"run-{number}", "a", state=fate)
    ended(journal, "run-1", "expired", token=2)
    ended(journal, "run-9", "failed", worked=1000)
    found = samples()
    assert found["onward_recovered_steps", ("completed",)] == 3
    assert found["onward_recovered_steps", ("failed",)] == 1
    assert found["onward_recovery_success_ratio", ()] == 0.75
    assert found["onward_lost_owners_total", ("died",)] == 2
    assert found["onward_lost_owners_total", ("expired",)] == 3
    assert found["onward_recovery_extra_seconds_total", ()] == pytest.approx(40, abs=1)


def test_an_owner_that_comes_back_was_alive(journal: Journal) -> None:
    ended(journal, "run-1", "expired")
    ended(journal, "run-1", "superseded")
    ended(journal, "run-2", "died")
    ended(journal, "run-2", "superseded")
    assert samples()["onward_live_owner_takeovers_total", ()] == 1


def test_effects_are_counted_by_who_said_so_and_what_would_have_happened_twice(
    journal: Journal,
) -> None:
    settled(journal, "first")
    settled(journal, "found", source="lookup", step="b")
    settled(journal, "late", source="late_answer", step="b")
    settled(journal, "resent", effect_class="idempotent", sends=2, step="b")
    settled(journal, "replayed", token=1, step="c")
    settled(journal, "pure", effect_class="pure", token=1, step="c")
    settled(journal, "undo", undoes="first", source="answer", step="b")
    finished(journal, "run-1", "a", token=1)
    finished(journal, "run-1", "c", token=2)
    unknown(journal, "asked")
    unknown(journal, "waits", person="ask me")
    found = samples()
    assert found["onward_effects_total", ("queryable", "answer")] == 2
    assert found["onward_effects_total", ("queryable", "lookup")] == 1
    assert found["onward_effects_undone_total", ()] == 1
    assert found["onward_duplicate_effects_prevented_total", ("found",)] == 2
    assert found["onward_duplicate_effects_prevented_total", ("same_key",)] == 1
    assert found["onward_duplicate_effects_prevented_total", ("replayed",)] == 1
    assert found["onward_unknown_effects", ("lookup",)] == 1
    assert found["onward_unknown_effects", ("person",)] == 1


def test_steps_in_motion_and_runs_that_are_stuck(journal: Journal) -> None:
    running, lost, blocked = (submit_run(row_of("a")) for _ in range(3))
    for run_id in (running, lost):
        assert Worker("w").claim(run_id, "a") is not None
    journal.look.execute(
        "UPDATE live SET claimed_at = now() - interval '60 s' WHERE run_id = %s", (running,)
    )
    journal.make(lost, state="unknown", owner=None, lease_expires_at=None, claimed_at="2000-01-01Z")
    journal.look.execute(
        "UPDATE run SET state = 'blocked', reason = 'poison_step', detail = 'x' WHERE run_id = %s", (blocked,)
    )  # fmt: skip
    found = samples()
    assert found["onward_checkpoint_lag_seconds", ("longest",)] == pytest.approx(60, abs=5)
    assert found["onward_checkpoint_lag_seconds", ("together",)] == pytest.approx(60, abs=5)
    assert found["onward_unknown_steps", ()] == 1
    assert found["onward_live_steps", ("running",)] == 1
    assert found["onward_runs", ("blocked",)] == 1
    assert found["onward_stuck_runs", ("poison_step",)] == 1


def test_a_scrape_is_answered_over_http(journal: Journal) -> None:
    submit_run(row_of("a"))
    with serving() as url, ask(f"{url}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert b'onward_runs{state="pending"} 1.0' in answer.read()
    with serving() as url:
        assert ask(f"{url}/health").status == 200
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(f"{url}/elsewhere")


def test_one_who_connects_and_asks_nothing_keeps_nobody_waiting(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served._Quiet, "timeout", 2.0)
    with serving() as url:
        address = urlsplit(url)
        with socket.create_connection((str(address.hostname), int(address.port or 0)), 5) as silent:
            assert ask(f"{url}/health").status == 200
            silent.setblocking(False)
            with pytest.raises(BlockingIOError):  # it was not hung up on to make room
                silent.recv(1)
            silent.settimeout(10)
            assert silent.recv(1) == b""


def test_two_scrapes_in_a_row_read_the_journal_once(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "FRESH", 3600.0)
    with serving() as url:
        before = ask(f"{url}/metrics").read()
        submit_run(row_of("a"))
        assert ask(f"{url}/metrics").read() == before
        monkeypatch.setattr(served, "FRESH", 0.0)
        assert ask(f"{url}/metrics").read() != before


def test_without_a_journal_the_scrape_says_so(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/none")
    settings.cache_clear()
    database.close()
    try:
        assert samples() == {("onward_up", ()): 0.0}
    finally:
        monkeypatch.undo()
        settings.cache_clear()
        database.close()


def test_the_server_tells_of_a_sweep_that_stands_still(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    monkeypatch.setenv("ONWARD_ALERT_COMMAND", f"tee -a {told}")
    settings.cache_clear()
    monkeypatch.setattr(served, "LOOK_PERIOD", 0.05)
    try:
        with serving():
            wait_until(lambda: told.exists() and told.read_text(), what="the alert")
        assert "No sweep has ever completed" in told.read_text()
        assert told.read_text().count("sweep_stale") == 1
    finally:
        monkeypatch.undo()
        settings.cache_clear()
