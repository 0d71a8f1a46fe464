"""``onward effects``, and what other commands say of effects: over a journal without workers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from models.journal import effects, rescue, stories
from models.journal.values import Claimed
from models.states import BlockReason
from tests.support.commands import Onward, commands_here
from tests.support.intents import KEY, asking, at_work, effect, put, send, settlement
from tests.support.journal import Journal, Worker

PERSON = "it can neither be repeated nor asked about"


@pytest.fixture
def onward(
    journal: Journal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Onward]:
    with commands_here("tests.agents.deciding", capsys=capsys, monkeypatch=monkeypatch) as onward:
        yield onward


def lost(
    journal: Journal, *, tool: str = "text", effect_class: str = "once", **row: Any
) -> Claimed:
    """A step whose one effect of this tool waits for a person."""
    claimed = at_work()
    send(claimed, asking(tool=f"deciding.{tool}"))
    effects.doubt(KEY, claimed, error="the answer was lost", call_over=True)
    Worker().interrupt(claimed)
    put(journal, person=PERSON, effect_class=effect_class, **row)
    rescue.block(
        journal.ref(claimed.run_id), BlockReason.UNKNOWN_EFFECT, detail=f"{KEY}: {PERSON}", failed=False
    )  # fmt: skip
    return claimed


@pytest.mark.parametrize(
    ("tool", "recorded"),
    [
        ("text", '"17"'),
        ("number", "17"),
        ("nothing", "null"),
        ("anything", '"17"'),
        ("identified", '{"resource_id":"17","size":1}'),
        ("one-field", '{"name":"17","note":""}'),
    ],
)
def test_an_id_is_enough_where_it_makes_a_result(
    onward: Onward, journal: Journal, tool: str, recorded: str
) -> None:
    claimed = lost(journal, tool=tool)
    said = onward("effects", "resolve", KEY, "--found", "17", "--reason", "seen", "--json").json
    assert said["resolved"]["finding"] == "found as 17"
    row = settlement(journal)
    assert (row["result"], row["source"]) == (recorded, "person")
    assert (row["actor"], row["reason"]) == ("tester", "seen")
    assert journal.run(claimed.run_id)["state"] == "running"


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("number", "it is int, which is no text"),
        ("whole", "it is Sized, which needs id, size"),
        ("unnamed", "it is Found, which needs at, by"),
        ("many", "it is list[str], which is no text"),
    ],
)
def test_where_it_does_not_the_fields_are_named(
    onward: Onward, journal: Journal, tool: str, told: str
) -> None:
    lost(journal, tool=tool)
    said = onward("effects", "resolve", KEY, "--found", "srv-1")
    assert said.code == 1
    assert told in said.err
    assert "Give all of it with --result, as JSON." in said.err
    assert effect(journal)["state"] == "unknown"


def test_a_whole_result_is_held_against_the_tools_type(onward: Onward, journal: Journal) -> None:
    lost(journal, tool="whole")

    def found(result: str) -> Any:
        return onward("effects", "resolve", KEY, "--found", "srv-1", "--result", result)

    assert "--result is not JSON" in found("{").err
    refused = found('{"id": "srv-1", "size": "huge"}')
    assert (refused.code, effect(journal)["state"]) == (1, "unknown")
    assert "$.size" in refused.err
    assert found('{"id": "srv-1", "size": 3}').code == 0
    assert settlement(journal)["result"] == '{"id":"srv-1","size":3}'


def test_a_tool_that_is_not_here_is_named(onward: Onward, journal: Journal) -> None:
    lost(journal, tool="gone")
    said = onward("effects", "resolve", KEY, "--found", "srv-1")
    assert said.code == 1
    assert "no tool is called 'deciding.gone'" in said.err
    assert "ONWARD_AGENTS" in said.err
    assert onward("effects", "resolve", KEY, "--absent").code == 0


def test_absent_and_abandoned(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal)
    said = onward("effects", "resolve", KEY, "--absent", "--by", "bob", "--reason", "looked twice")
    assert said.code == 0
    assert said.out.startswith(f"{KEY}: absent. step 'a'")
    assert "a request that was sent may still arrive until" in said.err
    assert effect(journal)["request_digest"] is None
    abandoned = onward("effects", "resolve", KEY, "--abandon", "--json").json
    assert (abandoned["resolved"]["run_id"], abandoned["why"]) == (claimed.run_id, "no_worker")
    again = onward("effects", "resolve", KEY, "--absent")
    assert again.code == 1
    assert "was abandoned at" in again.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "none"), 1, "There is no effect 'none'; `onward effects list` shows those"),
        (("resolve", "none", "--absent"), 1, "There is no effect 'none'"),
        (("resolve", "none", "--found", "x"), 1, "There is no effect 'none'"),
        (("list", "--run", "none"), 1, "There is no run 'none'"),
        (("resolve", KEY), 2, "Say one of --found ID, --absent and --abandon."),
        (("resolve", KEY, "--absent", "--abandon"), 2, "Say one of"),
        (("resolve", KEY, "--absent", "--result", "1"), 2, "--result belongs to --found ID"),
        (("list", "--state", "lost"), 2, "lost"),
    ],
)
def test_what_is_refused(onward: Onward, words: tuple[str, ...], code: int, told: str) -> None:
    said = onward("effects", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.err


def test_effects_are_listed_and_shown(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal)
    (listed,) = onward("effects", "list", "--needs-person", "--json").json
    assert (listed["key"], listed["state"], listed["person"]) == (KEY, "unknown", PERSON)
    assert onward("effects", "list", "--state", "absent", "--json").json == []
    assert len(onward("effects", "list", "--run", claimed.run_id, "--json").json) == 1
    assert f"needs a person: {PERSON}" in onward("effects", "list").out
    shown = onward("effects", "show", KEY).out
    assert f"It needs a person ({PERSON}): `onward effects resolve {KEY} --found ID`" in shown
    assert onward("effects", "show", KEY, "--json").json["effect"]["key"] == KEY


def told(journal: Journal, claimed: Claimed, kind: str, words: str) -> None:
    """What a verb of the reconciler leaves behind."""
    journal.look.execute(
        "INSERT INTO event (run_id, step_key, token, kind, detail) VALUES (%s, 'a', 1, %s, %s)",
        (claimed.run_id, kind, f"{KEY}: {words}"),
    )


def test_a_story_is_told_in_order(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal)
    told(journal, claimed, "effect_looked", "nothing there yet")
    told(journal, claimed, "effect_looked", "the provider does not answer")
    told(journal, claimed, "effect_needs_person", PERSON)
    assert onward("effects", "resolve", KEY, "--found", "srv-1", "--by", "ada").code == 0
    kinds = [
        "effect_intended", "effect_sent", "effect_unknown", "effect_looked", "effect_looked",
        "effect_needs_person", "effect_resolved", "effect_settled",
    ]  # fmt: skip
    assert [line.kind for line in stories.story(claimed.run_id, KEY)] == kinds
    history = onward("history", claimed.run_id, "--json").json
    assert [line["kind"] for line in history if line["effect"] == KEY] == kinds
    assert history[0]["kind"] == "run_submitted"
    words = [
        "intended", "sent", "lost", "looked up", "looked up", "needs a person", "resolved", "settled"
    ]  # fmt: skip
    for command in (("effects", "show", KEY), ("runs", "show", claimed.run_id)):
        lines = [line[27:41].strip() for line in onward(*command).out.splitlines()]
        assert [line for line in lines if line in words] == words, command
    shown = onward("runs", "show", claimed.run_id)
    assert "effects: 1 settled by a person" in shown.out
    assert 'found by ada, not sent again (no reason given): "srv-1"' in shown.out
    answer = onward("runs", "show", claimed.run_id, "--json").json
    assert [line["kind"] for line in answer["story"]] == kinds
    assert answer["effects"][0]["actor"] == "ada"


def test_a_run_says_whom_it_waits_for(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal)
    shown = onward("runs", "show", claimed.run_id).out
    assert f"needs a person: effect {KEY} of deciding.text in doubt since 20" in shown
    assert f"({PERSON}) -> `onward effects resolve {KEY} --found ID`" in shown
    put(journal, person=None, checks=2, due_at="2100-01-01Z")
    journal.make(claimed.run_id, block_reason=None)
    journal.look.execute("UPDATE run SET state = 'running', reason = NULL")
    journal.look.execute(
        "INSERT INTO worker (start_id, name, host, pid, pid_started, pid_space, queues, concurrency)"
        " SELECT 's', 'w', 'h', 1, 1, '', ARRAY[queue], 1 FROM live"
    )
    told(journal, claimed, "effect_looked", "nothing there yet")
    why = onward("runs", "show", claimed.run_id, "--json").json
    assert (why["why"], why["stuck"]) == ("unknown_effect", False)
    assert f"step 'a': effect {KEY} of deciding.text in doubt since" in why["why_sentence"]
    assert "(2 looks, last: nothing there yet)" in why["why_sentence"]


def test_a_conflict_says_how_it_ends(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal)
    journal.make(claimed.run_id, state="failed", block_reason="idempotency_conflict")
    journal.look.execute(
        "UPDATE run SET reason = 'idempotency_conflict', detail = 'another request'"
    )
    shown = onward("runs", "show", claimed.run_id).out
    assert "blocked: another request. When what it is bound to did not happen" in shown
    assert "cancel the run, or correct what the step asks for" in shown
    put(journal, person=None, state="refused")
    advice = onward("effects", "show", KEY, "--json").json["advice"]
    assert f"`onward effects resolve {KEY} --absent` frees the key" in advice


def test_resuming_says_what_is_asked(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal, effect_class="queryable")
    preview = onward("runs", "resume", claimed.run_id, "--dry-run", "--json").json["preview"]
    assert (preview["again"], preview["asked"], preview["left"]) == ([], ["a"], [])
    assert preview["questions"] == [f"deciding.text: did {KEY} happen?"]
    assert (
        f"asks deciding.text: did {KEY}"
        in onward("runs", "resume", claimed.run_id, "--dry-run").out
    )
    said = onward("runs", "resume", claimed.run_id, "--yes")
    assert "Goes on with a." in said.out
    assert effect(journal)["person"] is None
    assert journal.run(claimed.run_id)["state"] == "running"


def test_resuming_leaves_to_a_person_what_is_his(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal)
    preview = onward("runs", "resume", claimed.run_id, "--dry-run", "--json").json["preview"]
    assert (preview["again"], preview["asked"], preview["questions"]) == ([], [], [])
    (left,) = preview["left"]
    assert f"`onward effects resolve {KEY}`" in left
    refused = onward("runs", "resume", claimed.run_id, "--yes")
    assert refused.code == 1
    assert "`onward effects resolve KEY` says what became of it" in refused.err


def test_recovering_a_batch_asks_too(onward: Onward, journal: Journal) -> None:
    claimed = lost(journal, effect_class="queryable")
    journal.look.execute("INSERT INTO batch (batch_id, label) VALUES ('b', 'b')")
    journal.look.execute("UPDATE run SET batch_id = 'b'")
    preview = onward("batch", "recover", "b", "--dry-run", "--json").json["preview"]
    assert (preview["again"], preview["asked"]) == ([], [claimed.run_id])
    assert preview["questions"] == [f"deciding.text: did {KEY} happen?"]
    done = onward("batch", "recover", "b", "--yes", "--json").json
    assert done["sent_back"] == {claimed.run_id: ["a"]}
    assert (
        json.loads(onward("batch", "retry-failed", "b", "--dry-run", "--json").out)["preview"][
            "asked"
        ]
        == []
    )


def test_a_rewind_is_declared(onward: Onward, journal: Journal) -> None:
    claimed = at_work()
    for wrong, words in (
        ("yesterday", "is no moment in ISO 8601"),
        ("2026-01-01T00:00:00", "has no time zone"),
        ("2100-01-01T00:00:00Z", "is in the future by the journal's clock"),
    ):
        said = onward("db", "declare-rewind", wrong)
        assert said.code != 0
        assert words in said.err
    assert journal.rows("SELECT 1 FROM rewind") == []
    said = onward(
        "db", "declare-rewind", "2026-01-01T02:00:00+02:00", "--by", "ada", "--reason", "disk"
    )
    assert "the journal went back to 2026-01-01T00:00:00" in said.out
    assert "1 unfinished runs" in said.out
    (event,) = journal.rows("SELECT * FROM event WHERE kind = 'journal_rewound'")
    assert (event["run_id"], event["actor"]) == (claimed.run_id, "ada")
    (listed,) = onward("db", "rewinds", "--json").json
    assert (listed["actor"], listed["reason"], listed["runs"]) == ("ada", "disk", 1)
    assert "journal_rewound" in onward("history", claimed.run_id).out
