"""Which faults are played where, how they reach the workers, and where in a worker they strike."""

import threading
from pathlib import Path

import pytest

from models.failpoints import FailPoint
from ops.testing.certify.faults import (
    IN_WORDS,
    OF_A_REQUEST,
    OF_A_STEP,
    OF_AN_EFFECT,
    CertifyError,
    Fault,
    FaultKind,
    Request,
    Surface,
    parse_kinds,
    plan_faults,
)
from ops.testing.certify.records import Notebook
from ops.testing.certify.target import Target, count, find_function, find_workflow
from ops.testing.certify.wire import Wire, suffix
from tests.agents import planted

EVERY = frozenset(FaultKind)
CHARGE = "pay:till.charge:1"
REQUEST = Request("POST", "till", 0, "/charges")
SURFACES = [Surface("prepare"), Surface("pay", (CHARGE,), ((CHARGE, REQUEST),))]


def notebook_in(directory: Path) -> Notebook:
    notebook = Notebook(directory / "certify")
    notebook.create()
    return notebook


def test_every_kind_of_fault_has_a_place_and_words() -> None:
    assert {*OF_A_STEP, *OF_AN_EFFECT, *OF_A_REQUEST} == EVERY == set(IN_WORDS)
    instants = {str(kind) for kind in FaultKind if kind.startswith(("P", "E"))}
    assert instants == {str(point) for point in FailPoint if not point.startswith(("S", "L"))}


def test_each_step_effect_and_request_gets_all_of_its_faults() -> None:
    planned = plan_faults(SURFACES, kinds=EVERY, only=())
    assert (
        len(planned)
        == len(set(planned))
        == 2 * len(OF_A_STEP) + len(OF_AN_EFFECT) + len(OF_A_REQUEST)
    )
    assert {fault.kind for fault in planned if fault.step_key == "pay"} == EVERY
    assert planned[0].kind in (FaultKind.E1, FaultKind.P2, FaultKind.DELAY), (
        "the long ones come first"
    )


def test_faults_are_chosen_by_kind_and_step() -> None:
    planned = plan_faults(SURFACES, kinds=parse_kinds("p3, 500"), only=("pay",))
    assert [fault.kind for fault in planned] == [FaultKind.P3, FaultKind.ERROR]
    assert parse_kinds("") == EVERY
    with pytest.raises(CertifyError, match="no fault 'P9'"):
        parse_kinds("P9")
    with pytest.raises(CertifyError, match=r"no step 'play'.*pay, prepare"):
        plan_faults(SURFACES, kinds=EVERY, only=("play",))


def test_a_fault_reaches_the_workers_and_happens_once(tmp_path: Path) -> None:
    notebook = notebook_in(tmp_path)
    fault = Fault(FaultKind.P3, "pay", CHARGE, REQUEST)
    notebook.schedule("run-1", fault)
    elsewhere = Notebook(notebook.directory)
    assert elsewhere.scheduled("run-1") == fault
    assert elsewhere.scheduled("run-2") is None
    assert [notebook.take("run-1"), elsewhere.take("run-1")] == [True, False]
    assert notebook.read().fired == {"run-1"}


def test_a_torn_last_line_is_no_line(tmp_path: Path) -> None:
    notebook = notebook_in(tmp_path)
    notebook.connected("run-1", "pay", "10.0.0.1:25")
    (file,) = (notebook.directory / "lines").iterdir()
    with file.open("ab") as lines:
        lines.write(b'{"connected": "10.0')
    assert notebook.read().unseen("run-1") == {("pay", "10.0.0.1:25")}


@pytest.mark.parametrize(
    ("point", "about", "strikes"),
    [
        (FailPoint.E4, f"run-1:{CHARGE}", True),
        (FailPoint.E4, "run-1:pay:till.charge:2", False),
        (FailPoint.E1, f"run-1:{CHARGE}", False),
        (FailPoint.P4, None, False),
    ],
)
def test_an_instant_of_an_effect_is_that_effects_own(
    tmp_path: Path, point: FailPoint, about: str | None, *, strikes: bool
) -> None:
    notebook = notebook_in(tmp_path)
    notebook.schedule("run-1", Fault(FaultKind.E4, "pay", CHARGE))
    wire = Wire(notebook)
    wire.begin_task("run-1", "prepare")
    assert wire.choose(point, "orders.prepare", about) is None, "another step"
    wire.begin_task("run-2", "pay")
    assert wire.choose(point, "orders.pay", about) is None, "another run"
    wire.begin_task("run-1", "pay")
    assert wire.choose(point, "orders.pay", about) == ("kill" if strikes else None)
    assert wire.choose(point, "orders.pay", about) is None, "once"


def test_a_message_is_sent_again_while_its_step_runs_and_after_it(tmp_path: Path) -> None:
    notebook = notebook_in(tmp_path)
    notebook.schedule("run-1", Fault(FaultKind.DUPLICATE, "pay"))
    wire = Wire(notebook)
    wire.begin_task("run-1", "pay")
    assert [point for point in FailPoint if wire.duplicates(point)] == [FailPoint.P1, FailPoint.P7]
    assert all(wire.choose(point, "orders.pay", None) is None for point in FailPoint)


def test_the_thread_that_a_tool_starts_sends_for_it(tmp_path: Path) -> None:
    notebook = notebook_in(tmp_path)
    wire = Wire(notebook)
    wire.begin_task("run-1", "pay")
    with wire.calling(tool="till.charge", function="execute", key=f"run-1:{CHARGE}", timeout=1):
        thread = threading.Thread(target=wire.begin, args=("POST", "http://till/charges", {}))
        thread.start()
        thread.join()
    wire.begin("POST", "http://till/notes", {})
    assert [one.via for one in notebook.read().of("run-1")] == ["execute", "step"]


def test_a_call_that_was_given_up_is_not_taken_for_the_next_task(tmp_path: Path) -> None:
    notebook = notebook_in(tmp_path)
    wire = Wire(notebook)
    wire.begin_task("run-1", "pay")
    with wire.calling(tool="till.charge", function="execute", key=f"run-1:{CHARGE}", timeout=1):
        wire.begin_task("run-2", "pay")
        thread = threading.Thread(target=wire.begin, args=("POST", "http://till/notes", {}))
        thread.start()
        thread.join()
        wire.begin("POST", "http://till/charges", {})
    (of_step,), (late,) = notebook.read().of("run-2"), notebook.read().of("run-1")
    assert (of_step.via, of_step.step_key) == ("step", "pay")
    assert (late.via, late.effect, late.step_key) == ("execute", CHARGE, "")


def test_requests_are_told_apart_by_their_place_not_by_their_address(tmp_path: Path) -> None:
    notebook = notebook_in(tmp_path)
    asked = Request("POST", "till", 1, "/orders/5/confirm")
    notebook.schedule("run-1", Fault(FaultKind.DROP, "pay", "", asked))
    wire = Wire(notebook)
    wire.begin_task("run-1", "pay")
    passing = [wire.begin("POST", f"http://till/orders/{number}", {}) for number in (17, 18, 19)]
    twists = [one.answered(200, body=b"", timeout=1.0) for one in passing if one is not None]
    assert [twist is not None for twist in twists] == [False, True, False]
    paths = {exchange.path for exchange in notebook.read().of("run-1")}
    assert paths == {"/orders/17", "/orders/18", "/orders/19"}


def test_an_effects_name_is_the_same_in_every_run() -> None:
    assert suffix(f"run-1:{CHARGE}", "run-1") == CHARGE
    long = ["run-1:pay:till.charge:" + "x" * 40 + f"~{digest}" for digest in ("ab", "cd")]
    assert len({suffix(key, "run-1") for key in long}) == 1


def test_a_workflow_is_named_by_its_function() -> None:
    assert find_workflow("tests.agents.planted:clean") is planted.clean
    assert find_workflow("examples.contract_review:contract_review").name == "contract-review"
    for wrong in (
        "tests.agents.planted",
        "tests.agents.planted:place",
        "tests.agents.planted:none",
    ):
        with pytest.raises(CertifyError, match="workflow"):
            find_workflow(wrong)
    with pytest.raises(CertifyError, match="no_such_module"):
        find_workflow("no_such_module:clean")


def test_what_is_to_differ_between_runs_is_marked_in_the_input() -> None:
    target = Target(planted.clean, {"name": "order-{case}", "more": [{"n": 1, "at": "{case}"}]})
    assert target.input_for("c-7") == {"name": "order-c-7", "more": [{"n": 1, "at": "c-7"}]}
    assert target.agents == "tests.agents.planted"


def test_a_counter_returns_counts() -> None:
    assert count(None, "run-1") == {}
    assert count(lambda run_id: {run_id: 2}, "run-1") == {"run-1": 2}
    with pytest.raises(CertifyError, match="instead of counts"):
        count(lambda _: {"charges": "2"}, "run-1")  # type: ignore[dict-item]
    assert find_function("tests.agents.planted:orders_of") is planted.orders_of
    with pytest.raises(CertifyError, match="names no function"):
        find_function("tests.agents.planted:nothing")
