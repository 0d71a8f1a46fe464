"""The fake external service: what it counts, and every fault it plays, over real HTTP."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ops.testing.outside.client import OutsideError
from tests.support.fx import Fx
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        return value


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fx]:
    with Fx(tmp_path_factory.mktemp("fx")) as fx:
        yield fx


@pytest.fixture
def fx(running: Fx) -> Fx:
    running.behave()
    running.clear_faults()
    return running


def ask(
    fx: Fx, method: str, path: str, *, key: str = "", body: object = None, timeout: float = 10,
    headers: dict[str, str] | None = None,
) -> Answer:  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", fx.port, timeout=timeout)
    sent = {"Idempotency-Key": key} if key else {}
    try:
        connection.request(method, path, json.dumps(body or {}), {**sent, **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read().decode())
    finally:
        connection.close()


def create(fx: Fx, name: str, *, mode: str = "plain", **options: Any) -> Answer:
    return ask(fx, "POST", f"/{mode}/{name}", **options)


def items(fx: Fx, query: str) -> list[str]:
    return [one["id"] for one in ask(fx, "GET", f"/resources?{query}").body["items"]]


def test_a_key_makes_one_resource_where_keys_are_honoured_and_many_where_they_are_not(
    fx: Fx,
) -> None:
    first = create(fx, "honoured", mode="idempotent", key="k-1").body
    again = create(fx, "honoured", mode="idempotent", key="k-1").body
    other = create(fx, "honoured", mode="idempotent", key="k-1", body={"servers": 10})
    assert first == again
    assert other.status == 409
    assert (fx.calls("honoured"), fx.effects("honoured")) == (3, 1)

    made = {create(fx, "ignored", key="k-2").body["id"] for _ in range(2)}
    assert len(made) == 2
    assert (fx.calls("ignored"), fx.effects("ignored")) == (2, 2)
    assert fx.keys("ignored") == ["k-2"]
    assert sorted(made) == sorted(items(fx, "key=k-2"))


def test_a_key_is_forgotten_after_its_retention_or_by_order(fx: Fx) -> None:
    create(fx, "kept", mode="idempotent", key="k-3")
    fx.behave(key_retention=3600)
    create(fx, "kept", mode="idempotent", key="k-3")
    assert fx.effects("kept") == 1
    fx.behave(key_retention=0)
    create(fx, "kept", mode="idempotent", key="k-3")
    assert fx.effects("kept") == 2

    fx.behave()
    fx.forget_keys("kept")
    assert len(items(fx, "key=k-3")) == 2, "forgotten for sending, not for looking up"
    fx.forget_keys("kept", in_lookups=True)
    assert items(fx, "key=k-3") == []
    create(fx, "kept", mode="idempotent", key="k-3")
    assert fx.effects("kept") == 3


def test_look_ups_go_through_pages_by_cursor_link_and_number(fx: Fx) -> None:
    made = [create(fx, "pages", body={"order": n % 2}).body["id"] for n in range(5)]
    fx.behave(page_size=2)
    page = ask(fx, "GET", "/resources?name=pages")
    assert [one["id"] for one in page.body["items"]] == made[:2]
    assert page.headers["Link"] == f'<{page.body["next"]}>; rel="next"'
    last = ask(fx, "GET", f"/resources?name=pages&cursor=after-{made[3].removeprefix('res-')}")
    assert (last.body["next_cursor"], last.body["next"]) == (None, None)
    assert items(fx, f"name=pages&cursor={page.body['next_cursor']}") == made[2:4]
    assert items(fx, "name=pages&page=3") == made[4:]
    assert items(fx, "name=pages&page=4") == []
    assert items(fx, "name=pages&order=1") == [made[1], made[3]]
    assert fx.lookups("pages") == 6


def test_a_renamed_resource_is_found_by_its_key_and_counted_under_its_old_name(fx: Fx) -> None:
    made = create(fx, "draft", key="k-4").body["id"]
    fx.rename(made, "final")
    assert items(fx, "name=draft") == []
    assert items(fx, "name=final") == items(fx, "key=k-4") == [made]
    assert (fx.effects("draft"), fx.effects("final")) == (1, 0)


def test_undoing_is_counted_and_done_once(fx: Fx) -> None:
    gone, kept = (create(fx, "undone").body["id"] for _ in range(2))
    assert ask(fx, "DELETE", f"/resources/{gone}").status == 200
    assert ask(fx, "DELETE", f"/resources/{gone}").status == 404
    assert ask(fx, "GET", f"/resources/{gone}").status == 404
    assert (fx.made("undone"), fx.effects("undone"), fx.deletes("undone")) == (2, 1, 2)

    assert ask(fx, "POST", f"/resources/{kept}/cancel").body["status"] == "cancelled"
    assert ask(fx, "POST", f"/resources/{kept}/cancel").status == 409
    assert ask(fx, "GET", f"/resources/{kept}").body["status"] == "cancelled"
    assert (fx.effects("undone"), fx.deletes("undone")) == (0, 4)

    by_hand = create(fx, "undone").body["id"]
    fx.remove(by_hand)
    assert (fx.effects("undone"), fx.deletes("undone")) == (0, 4)


@pytest.mark.parametrize(
    ("fault", "effects"),
    [("drop_response", 1), ("drop_request", 0), ("hang", 0)],
)
def test_a_cut_connection_says_nothing_about_the_effect(fx: Fx, fault: Any, effects: int) -> None:
    name = f"cut-{fault}"
    fx.fault(name, fault, seconds=0.2)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        create(fx, name)
    assert (fx.calls(name), fx.effects(name)) == (1, effects)
    assert create(fx, name).status == 200, "ordered once"


@pytest.mark.parametrize(
    ("fault", "options", "status", "effects"),
    [
        ("5xx_after_apply", {"status": 502}, 502, 1),
        ("5xx_before_apply", {"status": 503}, 503, 0),
        ("429", {"retry_after": 7}, 429, 0),
        ("refuse", {"status": 402}, 402, 0),
        ("redirect", {"status": 308, "location": "/plain/elsewhere"}, 308, 0),
    ],
)
def test_an_ordered_answer(
    fx: Fx, fault: Any, options: dict[str, Any], status: int, effects: int
) -> None:
    name = f"answer-{fault}"
    fx.fault(name, fault, times=2, **options)
    answers = [create(fx, name) for _ in range(3)]
    assert [one.status for one in answers] == [status, status, 200]
    assert fx.effects(name) == 2 * effects + 1
    assert answers[0].headers.get("Retry-After") == ("7" if fault == "429" else None)
    assert answers[0].headers.get("Location") == options.get("location")


def test_garbled_is_applied_and_unreadable(fx: Fx) -> None:
    fx.fault("garbled", "garbled")
    answer = create(fx, "garbled")
    assert answer.status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.text)
    assert fx.effects("garbled") == 1


@pytest.mark.parametrize("connection", ["cut", "hold"])
def test_an_effect_that_lands_after_its_caller_has_gone(fx: Fx, connection: str) -> None:
    name = f"late-{connection}"
    fx.fault(name, "apply_delay", seconds=1.0, connection=connection)
    began = time.monotonic()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError, TimeoutError)):
        create(fx, name, timeout=0.3)
    assert time.monotonic() - began < 1.0
    assert fx.effects(name) == 0, "not yet"
    wait_until(lambda: fx.effects(name) == 1, what="the late request lands")


def test_what_was_made_is_missed_and_then_provisioning_and_then_ready(fx: Fx) -> None:
    fx.fault("slow", "hidden", seconds=0.4)
    fx.fault("slow", "provisioning", seconds=0.8)
    made = create(fx, "slow", key="k-5").body
    assert made["status"] == "provisioning"
    assert items(fx, "key=k-5") == []
    assert ask(fx, "GET", f"/resources/{made['id']}").status == 404
    assert fx.effects("slow") == 1, "it exists all the same"
    wait_until(lambda: items(fx, "key=k-5") == [made["id"]], what="look-ups see it")
    wait_until(
        lambda: ask(fx, "GET", f"/resources/{made['id']}").body["status"] == "ready",
        what="it is ready",
    )


def test_look_ups_and_undoing_fail_by_order(fx: Fx) -> None:
    made = create(fx, "hard", key="k-6").body["id"]
    fx.fault("hard", "429", on="lookup")
    fx.fault("hard", "5xx_after_apply", on="delete")
    assert ask(fx, "GET", "/resources?key=k-6").status == 429, "a key leads to its name"
    assert items(fx, "key=k-6") == [made]
    assert ask(fx, "DELETE", f"/resources/{made}").status == 500
    assert fx.effects("hard") == 0
    fx.fault("*", "5xx_before_apply", on="lookup")
    assert ask(fx, "GET", "/resources?name=whatever").status == 500
    fx.fault("*", "5xx_before_apply", on="lookup")
    fx.clear_faults()
    assert ask(fx, "GET", "/resources?name=whatever").status == 200


def test_held_look_ups(fx: Fx) -> None:
    fx.hold("watched", "before", on="lookup")
    looking = threading.Thread(target=items, args=(fx, "name=watched"))
    looking.start()
    fx.wait_held("watched")
    assert fx.release("watched") == 1
    looking.join(timeout=10)
    assert not looking.is_alive()


def test_only_who_is_authorized_is_let_in(fx: Fx) -> None:
    fx.behave(authorization="Bearer right")
    assert create(fx, "guarded").status == 401
    assert create(fx, "guarded", headers={"Authorization": "Bearer right"}).status == 200
    assert (fx.calls("guarded"), fx.effects("guarded")) == (2, 1)


def test_a_name_with_anything_in_it_is_one_name(fx: Fx) -> None:
    assert ask(fx, "POST", "/plain/a%2Fb%20%25_c").status == 200
    assert (fx.effects("a/b %_c"), fx.all_effects("a/b %")) == (1, {"a/b %_c": 1})
    assert fx.all_effects("a/b x") == {}


def test_an_order_that_makes_no_sense_is_refused(fx: Fx) -> None:
    with pytest.raises(OutsideError, match="no such order"):
        fx.fault("any", "explode")  # type: ignore[arg-type]


def test_what_was_counted_survives_the_service(tmp_path: Path) -> None:
    with Fx(tmp_path / "fx") as fx:
        made = create(fx, "durable", mode="idempotent", key="k-7").body["id"]
        fx.hold("durable", "after")
        caller = threading.Thread(target=_ignoring_death, args=(fx, "durable"))
        caller.start()
        fx.wait_held("durable")
        port = fx.port
        fx.kill()
        caller.join(timeout=10)
        with pytest.raises(ConnectionRefusedError):
            create(fx, "durable")
        fx.start()
        assert fx.port == port
        assert (fx.calls("durable"), fx.effects("durable")) == (2, 2)
        again = create(fx, "durable", mode="idempotent", key="k-7").body["id"]
        assert again == made


def _ignoring_death(fx: Fx, name: str) -> None:
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        create(fx, name)
