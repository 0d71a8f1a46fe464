"""What certify makes of what it saw: counted from outside, held against the run without faults."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from models.states import EffectClass, EffectState
from ops.testing.certify.counting import Seen, Subject, Times, subjects_of, times
from ops.testing.certify.faults import Fault, FaultKind, Request
from ops.testing.certify.judging import Witnessed, sightings, subjects, uncounted
from ops.testing.certify.observing import EffectSeen, Standing
from ops.testing.certify.records import Exchange
from ops.testing.certify.report import Case, Report, Undeclared, Verdict
from ops.testing.certify.tables import by_effect, by_step, verdict

CHARGE = "pay:till.charge:1"
COMPLETED, BLOCKED, FAILED = Standing("completed"), Standing("blocked"), Standing("failed")


def sent(path: str = "/charges", **changes: object) -> Exchange:
    """A request of the tool that was applied, unless told otherwise."""
    exchange = Exchange(
        run_id="run-1", step_key="pay", effect=CHARGE, tool="till.charge", via="execute",
        method="POST", host="till", path=path, key="", carries_effect_key=False, passed=True,
        status=201,
    )  # fmt: skip
    return replace(exchange, **changes)  # type: ignore[arg-type]


def raw(path: str = "/notes", **changes: object) -> Exchange:
    """The same from a step itself."""
    return sent(path, effect="", tool="", via="step", **changes)


def effect(
    state: EffectState = EffectState.SETTLED, kind: EffectClass = EffectClass.QUERYABLE
) -> EffectSeen:
    return EffectSeen(CHARGE, "pay", "till.charge", kind, state, "answer", "")


def witnessed(
    *exchanges: Exchange, known: EffectSeen | None = None, counted: Mapping[str, int] | None = None
) -> Witnessed:
    seen = known or effect()
    parts = subjects_of(exchanges, {seen.name: seen.subject})
    return Witnessed(parts, [seen], counted or {})


def judged(case: Witnessed, measure: Witnessed, standing: Standing = COMPLETED) -> list[Verdict]:
    return [one.verdict for one in sightings(case, measure, standing=standing)]


def test_what_was_sent_once_is_to_be_seen_once() -> None:
    measure = witnessed(sent())
    assert judged(witnessed(sent()), measure) == [Verdict.ONCE]
    assert judged(witnessed(sent(), sent()), measure) == [Verdict.TWICE]
    assert judged(witnessed(), measure) == [Verdict.LOST]


def test_another_body_does_not_make_it_another_effect() -> None:
    again = sent(digest="another time stamp")
    assert judged(witnessed(sent(), again), witnessed(sent())) == [Verdict.TWICE]


def test_only_what_the_real_server_applied_counts() -> None:
    never = [sent(passed=False, status=None), sent(status=409), sent(status=500)]
    assert judged(witnessed(*never, sent()), witnessed(sent())) == [Verdict.ONCE]


def test_a_request_whose_process_died_under_it_is_neither_a_loss_nor_a_second_time() -> None:
    undecided = sent(status=None)
    assert judged(witnessed(undecided), witnessed(sent())) == [Verdict.ONCE]
    assert judged(witnessed(undecided, sent()), witnessed(sent())) == [Verdict.ONCE]


def test_a_stopped_run_tells_of_what_is_missing() -> None:
    measure = witnessed(sent())
    never, once, twice = (
        replace(witnessed(*sends, known=effect(EffectState.UNKNOWN)), blocked={"pay"})
        for sends in ([], [sent()], [sent(), sent()])
    )
    assert judged(never, measure, BLOCKED) == [Verdict.PERSON]
    assert judged(once, measure, BLOCKED) == [Verdict.PERSON]
    assert judged(twice, measure, BLOCKED) == [Verdict.TWICE]
    assert judged(never, measure, Standing("running")) == [Verdict.OPEN]
    assert judged(replace(never, blocked=()), measure, FAILED) == [Verdict.NOT_DONE]
    assert judged(replace(once, blocked=()), measure, FAILED) == [Verdict.ONCE]


def test_what_is_settled_waits_for_nobody_though_the_run_does() -> None:
    measure = witnessed(sent())
    assert judged(replace(witnessed(sent()), blocked={"pay"}), measure, BLOCKED) == [Verdict.ONCE]
    assert judged(replace(witnessed(), blocked={"pay"}), measure, BLOCKED) == [Verdict.LOST]


def test_a_settlement_of_what_nobody_saw_is_a_loss_even_where_the_run_failed() -> None:
    assert judged(witnessed(), witnessed(sent()), FAILED) == [Verdict.LOST]


def test_a_refusal_of_what_was_applied_is_a_lie_of_the_tool() -> None:
    measure, refused = witnessed(sent()), effect(EffectState.REFUSED)
    assert judged(witnessed(sent(), known=refused), measure, FAILED) == [Verdict.DENIED]
    assert judged(witnessed(known=refused), measure, FAILED) == [Verdict.NOT_DONE]


def test_an_effect_of_several_requests_is_counted_by_its_parts() -> None:
    measure = witnessed(sent("/drafts"), sent("/drafts"), sent("/drafts/send"))
    assert judged(measure, measure) == [Verdict.ONCE]
    first_half_again = witnessed(*[sent("/drafts")] * 3, sent("/drafts/send"))
    assert judged(first_half_again, measure) == [Verdict.TWICE]
    assert judged(witnessed(sent("/drafts"), sent("/drafts")), measure) == [Verdict.LOST]


@pytest.mark.parametrize(
    ("seen", "expected", "found"),
    [
        ({("POST", "h", "/a/17"): 1}, {("POST", "h", "/a/5"): 1}, Times(1, 1)),
        ({("POST", "h", "/a/17"): 1, ("POST", "h", "/a/18"): 1}, {("POST", "h", "/a/5"): 1}, Times(2, 2)),
        ({("POST", "h", "/a"): 1, ("DELETE", "h", "/b"): 2}, {("POST", "h", "/a"): 1}, Times(1, 2)),
        ({}, {("POST", "h", "/a"): 1}, Times(0, 0)),
    ],
)  # fmt: skip
def test_paths_with_ids_of_the_outside_world_are_compared_by_their_host(
    seen: Mapping[tuple[str, str, str], int], expected: Mapping[tuple[str, str, str], int], found: Times
) -> None:  # fmt: skip
    assert times(Seen(seen, seen), expected) == found


def test_an_idempotent_tools_requests_are_one_when_they_carry_the_key_and_only_then() -> None:
    known = effect(kind=EffectClass.IDEMPOTENT)
    with_key, without = sent(carries_effect_key=True), sent()
    measure = witnessed(with_key, known=known)
    assert judged(witnessed(with_key, with_key, known=known), measure) == [Verdict.ONCE]
    assert judged(witnessed(without, without, known=known), measure) == [Verdict.TWICE]
    queryable = witnessed(with_key, with_key)
    assert judged(queryable, witnessed(with_key)) == [Verdict.TWICE], "it promises nothing"


def test_traffic_outside_tools_is_counted_unless_it_only_reads() -> None:
    measure = witnessed(sent(), raw())
    assert judged(witnessed(sent(), raw(), raw()), measure) == [Verdict.ONCE, Verdict.TWICE]
    with_key = raw(key="k-1", digest="d")
    assert judged(witnessed(sent(), with_key, with_key), witnessed(sent(), with_key)) == [
        Verdict.ONCE, Verdict.ONCE,
    ]  # fmt: skip
    asking = [raw("/v1/chat"), raw("/v1/chat"), raw("/books", method="GET")]
    assert not subjects_of(asking, {}, reads=("till/v1",))


def test_look_ups_are_no_effects() -> None:
    looking = sent("/search", via="lookup")
    assert judged(witnessed(sent(), looking, looking), witnessed(sent())) == [Verdict.ONCE]


def test_a_tool_whose_requests_are_all_reads_by_their_method_is_counted_by_them() -> None:
    get = sent(method="GET")
    assert judged(witnessed(get, get), witnessed(get)) == [Verdict.TWICE]


def test_the_users_counter_stands_for_the_tools_that_it_names() -> None:
    measure = witnessed(sent(), counted={"till.charge": 1})
    (subject,) = subjects(measure)
    assert (subject.name, subject.step_key, subject.tool) == ("till.charge", "pay", "till.charge")
    doubled = witnessed(sent(), counted={"till.charge": 2})
    assert judged(doubled, measure) == [Verdict.TWICE]
    assert judged(witnessed(sent(), sent(), counted={"till.charge": 1}), measure) == [Verdict.ONCE]
    assert judged(witnessed(sent(), counted={}), measure) == [Verdict.LOST]


def test_what_left_no_trace_is_not_certified() -> None:
    assert [one.tool for one in uncounted(witnessed())] == ["till.charge"]
    assert not uncounted(witnessed(counted={"till.charge": 1}))
    assert not uncounted(witnessed(sent()))


def test_an_effect_that_only_a_disturbed_run_has_is_seen_when_it_is_doubled() -> None:
    stray = raw("/alarms")
    assert judged(witnessed(sent(), stray), witnessed(sent())) == [Verdict.ONCE]
    assert judged(witnessed(sent(), stray, stray), witnessed(sent())) == [
        Verdict.ONCE,
        Verdict.TWICE,
    ]


def case(kind: FaultKind = FaultKind.P3, **changes: object) -> Case:
    fault = Fault(kind, "pay", CHARGE, Request("POST", "till", 0, "/charges"))
    found = Case(
        fault=fault, run_id="run-1", fired=True, rested=True, state="completed", reason="",
        seconds=1.5,
        sightings=sightings(witnessed(sent()), witnessed(sent()), standing=COMPLETED),
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


def doubled() -> Case:
    seen = sightings(witnessed(sent(), sent()), witnessed(sent()), standing=COMPLETED)
    return case(sightings=seen)


def report(*cases: Case, **changes: object) -> Report:
    found = Report(
        workflow="orders", version="1", seconds=12.0, steps=("prepare", "pay"),
        subjects=(effect().subject,), cases=cases,
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


def test_a_report_is_good_when_everything_fired_rested_and_was_seen_once() -> None:
    assert report(case()).ok
    assert report(case(), undeclared=(Undeclared("pay", "POST till/notes", untracked=False),)).ok
    assert not report(case(fired=False)).ok
    assert not report(case(rested=False, state="running")).ok
    assert not report(doubled()).ok
    assert not report(case(), uncounted=(effect().subject,)).ok


def test_a_double_effect_is_named_by_tool_step_and_instant() -> None:
    (problem,) = report(doubled()).problems
    assert problem.startswith("tool till.charge in step pay, effect pay:till.charge:1: ")
    assert "saw it 2 times" in problem
    assert "P3 (killed with the request applied and its answer not received" in problem
    assert "POST till/charges" in problem


def test_a_report_survives_its_json() -> None:
    hidden = Undeclared("pay", "10.0.0.1:25", untracked=False, seen=False)
    found = report(doubled(), case(FaultKind.P0, fired=False), undeclared=(hidden,),
                   uncounted=(Subject("x", "pay", "t", "once"),))  # fmt: skip
    again = Report.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert again.problems == found.problems
    assert found.to_json()["cases"][0]["word"] == "twice"


def test_the_tables_show_the_worst() -> None:
    found = report(case(), doubled(), case(FaultKind.P0), case(FaultKind.P1, fired=False))
    steps = by_step(found)
    assert steps.columns == ("step", "P0", "P1", "P3")
    assert steps.rows == (("pay", "ok", "not fired", "twice"),)
    (row,) = by_effect(found).rows
    assert row[:4] == (CHARGE, "pay", "till.charge", "queryable")
    assert row[4:6] == ("3", "1 (!)")
    assert verdict(found).startswith("Not certified: orders version 1, 4 faults in 12 s, 3 fired")
    assert verdict(report(case(), case(state="blocked"))).endswith("2 fired, 1 runs blocked.")
