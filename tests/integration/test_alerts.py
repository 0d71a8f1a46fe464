"""Alerts reach a real command and a real HTTP service, once when all goes well and again when not."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from models.journal import rescue, workers
from models.settings import settings
from models.states import BlockReason
from recovery import alerts
from recovery.alerts import AlertFailed, StaleSweep
from tests.support.journal import Journal, row_of, submit_run


class Hook(HTTPServer):
    """Keeps what it is told; answers what the test wants."""

    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing to say."""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with Hook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configure(monkeypatch, ALERT_WEBHOOK=f"http://127.0.0.1:{server.server_port}/hook")
        yield server
        server.shutdown()
    settings.cache_clear()


def configure(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"ONWARD_{name}", value)
    settings.cache_clear()


def blocked_run(journal: Journal) -> str:
    """A run that has been blocked for a while."""
    run_id = submit_run(row_of("a"))
    assert rescue.block(journal.ref(run_id), BlockReason.POISON_STEP, detail="it dies", failed=True)
    return run_id


@pytest.fixture(autouse=True)
def _old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.journal.alerts.SETTLING", 0.0)


def test_each_newly_blocked_run_is_told_once_and_in_order(journal: Journal, hook: Hook) -> None:
    assert alerts.tell_blocked() == 0
    first, second = blocked_run(journal), blocked_run(journal)
    assert alerts.tell_blocked() == 2
    assert alerts.tell_blocked() == 0
    assert [told["run_id"] for told in hook.told] == [first, second]
    told = hook.told[0]
    assert (told["kind"], told["workflow"]) == ("run_blocked", "toy")
    assert told["detail"] == "poison_step: it dies"
    third = blocked_run(journal)
    assert alerts.tell_blocked() == 1
    assert hook.told[2]["run_id"] == third


def test_what_was_blocked_before_anyone_listened_is_no_news(journal: Journal, hook: Hook) -> None:
    blocked_run(journal)
    assert alerts.tell_blocked() == 0
    assert hook.told == []


def test_an_alert_that_was_refused_is_tried_again(journal: Journal, hook: Hook) -> None:
    alerts.tell_blocked()
    run_id = blocked_run(journal)
    hook.status = 503
    assert alerts.tell_blocked() == 0
    hook.status = 204
    assert alerts.tell_blocked() == 1
    assert [told["run_id"] for told in hook.told] == [run_id, run_id]


def test_a_block_whose_elders_may_still_commit_waits(
    journal: Journal, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts.tell_blocked()
    blocked_run(journal)
    monkeypatch.setattr("models.journal.alerts.SETTLING", 3600.0)
    assert alerts.tell_blocked() == 0


def test_nobody_who_wants_to_know_is_nobody_told(journal: Journal) -> None:
    blocked_run(journal)
    assert alerts.tell_blocked() == 0
    assert journal.one("SELECT count(*) FROM pass") == 0


def test_a_command_gets_the_alert_on_its_standard_input(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, ALERT_COMMAND=f"tee {tmp_path / 'told'}")
    alerts.tell_blocked()
    run_id = blocked_run(journal)
    assert alerts.tell_blocked() == 1
    assert json.loads((tmp_path / "told").read_text())["run_id"] == run_id
    settings.cache_clear()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ALERT_COMMAND": "/no/such/command"}, "No such file"),
        ({"ALERT_COMMAND": f"{sys.executable} -c 'raise SystemExit(\"not today\")'"}, "not today"),
        ({"ALERT_COMMAND": "sleep 60", "ALERT_TIMEOUT": "0.1"}, "timed out"),
        ({"ALERT_COMMAND": "say 'it"}, "No closing quotation"),
        ({"ALERT_COMMAND": " "}, "names no command"),
        ({"ALERT_COMMAND": r"sh -c 'printf \\377 >&2; exit 1'"}, "ended with 1"),
        ({"ALERT_WEBHOOK": "http://127.0.0.1:1/"}, "refused"),
        ({"ALERT_WEBHOOK": "file:///etc/passwd"}, "neither http"),
    ],
)
def test_what_cannot_be_delivered_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str
) -> None:
    configure(monkeypatch, **values)
    with pytest.raises(AlertFailed, match=said):
        alerts.deliver({"kind": "sweep_stale"})
    settings.cache_clear()


def test_a_webhook_that_answers_nonsense_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        configure(monkeypatch, ALERT_WEBHOOK=f"http://127.0.0.1:{listening.getsockname()[1]}/")

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"nonsense\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(AlertFailed, match="nonsense"):
            alerts.deliver({"kind": "sweep_stale"})
    settings.cache_clear()


def test_a_sweep_that_stands_still_is_told_once_until_it_moves(
    journal: Journal, hook: Hook
) -> None:
    sweep = StaleSweep()
    assert sweep.look()
    assert not sweep.look()
    workers.begin_pass("sweep")
    workers.end_pass("sweep", seconds=0, detail="")
    assert not sweep.look()
    journal.look.execute("UPDATE pass SET completed_at = now() - interval '1 hour'")
    assert sweep.look()
    assert [told["kind"] for told in hook.told] == ["sweep_stale", "sweep_stale"]
