"""``onward certify`` on real workers: planted faults are found and named, and its counts are the world's own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ops.testing.certify.faults import OF_A_STEP, FaultKind
from ops.testing.certify.report import Case, Report, Verdict
from ops.testing.outside import Outside
from tests.support.cli import cli_for
from tests.support.programs import ROOT

pytestmark = pytest.mark.timeout(400)

LIMIT = 300.0  #: seconds in which a planted double effect is to be found

Certified = tuple[int, Report]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with Outside(tmp_path / "outside") as service:
        yield service


@pytest.fixture
def certify(tmp_path: Path, outside: Outside) -> Callable[..., Certified]:
    """``certify("planted", "--points", "P3")``: exit code and report."""

    def run(agent: str, *options: str) -> Certified:
        target = f"tests.agents.planted:{agent}"
        given = ("--input", '{"name": "{case}"}', *options)
        return run_certify(tmp_path, target, *given, ONWARD_TEST_FX=outside.url)

    return run


def run_certify(directory: Path, *arguments: str, **environment: str) -> Certified:
    command, env = cli_for(directory, **environment).command("certify", *arguments, "--json")
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, Report.from_json(found)


def verdicts(case: Case) -> dict[str, Verdict]:
    return {sighting.subject.tool: sighting.verdict for sighting in case.sightings}


def kinds_with(report: Report, verdict: Verdict) -> set[FaultKind]:
    return {case.fault.kind for case in report.cases if verdict in verdicts(case).values()}


def test_a_planted_double_effect_is_found_in_time_and_named(
    certify: Callable[..., Certified], outside: Outside
) -> None:
    code, report = certify("planted")
    assert code == 1
    assert report.seconds < LIMIT
    assert all(case.fired and case.rested for case in report.cases)
    assert {case.fault.kind for case in report.cases} == set(FaultKind)
    doubled = {FaultKind.P3, FaultKind.E4, FaultKind.DROP, FaultKind.DELAY, FaultKind.ERROR}
    assert kinds_with(report, Verdict.TWICE) == doubled
    assert not kinds_with(report, Verdict.LOST)
    named = [
        problem for problem in report.problems if "P3 (killed with the request applied" in problem
    ]
    assert [problem.partition(", effect")[0] for problem in named] == [
        "tool lying.order in step place_lying"
    ]
    for case in report.cases:
        (sighting,) = case.sightings
        assert sighting.seen == outside.made(case.run_id), (
            f"the service's own count after {case.fault}"
        )


def test_an_agent_without_a_fault_is_certified(
    certify: Callable[..., Certified], outside: Outside
) -> None:
    code, report = certify("clean", "--only", "pay", "--only", "notify")
    assert (code, report.problems) == (0, ())
    assert report.seconds < LIMIT
    assert {(case.fault.step_key, case.fault.kind) for case in report.cases} >= {
        ("notify", kind) for kind in FaultKind
    }
    in_doubt = {case.fault.kind for case in report.cases if case.state == "blocked"}
    assert in_doubt == {
        FaultKind.E1, FaultKind.P2, FaultKind.P3, FaultKind.E4, FaultKind.DROP, FaultKind.DELAY,
        FaultKind.ERROR,
    }, "a tool with neither key nor look-up goes to a person, whatever really happened"  # fmt: skip
    for case in report.cases:
        ordered, paid = outside.made(case.run_id), outside.made(f"pay-{case.run_id}")
        assert (ordered, paid) == (1, 1), case
        noted = outside.made(f"note-{case.run_id}")
        assert noted == (0 if case.fault.kind in (FaultKind.E1, FaultKind.P2) else 1) or (
            case.fault.step_key != "notify" and noted == 1
        ), case


def test_loops_groups_and_calls_at_the_same_time_are_reached(
    certify: Callable[..., Certified], outside: Outside
) -> None:
    code, report = certify("busy", "--points", "P3,E4,P5,duplicate")
    assert (code, report.problems) == (0, ())
    effects = {case.fault.effect for case in report.cases if case.fault.kind is FaultKind.E4}
    assert effects == {
        "place:honest.order:1", "place#2:honest.order:1", "settle:keyed.pay::0", "settle:keyed.pay::1",
        "settle:honest.order:1", "settle:honest.order:2", "again:honest.order:1", "again#2:honest.order:1",
    }  # fmt: skip
    for case in report.cases:
        made = outside.all_made(case.run_id) | outside.all_made(f"pay-{case.run_id}")
        assert set(made.values()) == {1} | ({2} if case.run_id in made else set())
        assert made[case.run_id] == 2, "the two members of the group order under one name"


@pytest.mark.parametrize(
    ("agent", "points", "verdict"),
    [("boasting", "E1,P2", Verdict.LOST), ("keyless", "P3,drop", Verdict.TWICE)],
)
def test_a_promise_that_is_not_kept_is_found(
    certify: Callable[..., Certified], agent: str, points: str, verdict: Verdict
) -> None:
    code, report = certify(agent, "--points", points)
    assert code == 1
    assert kinds_with(report, verdict) == {FaultKind(point) for point in points.split(",")}


def test_what_leaves_outside_a_tool_is_told(certify: Callable[..., Certified]) -> None:
    code, report = certify("loose", "--points", "P3")
    assert code == 1
    read = [(one.step_key, one.untracked) for one in report.undeclared if one.seen]
    assert read == [("blurt", False), ("mutter", True)]
    assert [one.step_key for one in report.undeclared if not one.seen] == ["blurt"]
    words = {case.fault.step_key: case.word for case in report.cases}
    assert words == {"blurt": "twice", "mutter": "person"}


def test_a_fault_that_did_not_fire_is_no_certificate(certify: Callable[..., Certified]) -> None:
    code, report = certify("fickle", "--points", "E4", "--patience", "30")
    assert code == 1
    (problem,) = (one for one in report.problems if "did not fire" in one)
    assert problem.startswith("E4 at effect waver:honest.order:1 did not fire")


def test_the_users_counter_decides(certify: Callable[..., Certified], outside: Outside) -> None:
    counter = "tests.agents.planted:orders_of"
    code, report = certify(
        "planted", "--points", "P3,P4", "--counter", counter, "--only", "place_lying"
    )
    assert code == 1
    seen = {case.fault.kind: [one.seen for one in case.sightings] for case in report.cases}
    assert seen == {FaultKind.P3: [2], FaultKind.P4: [1]}
    assert {one.subject.tool for case in report.cases for one in case.sightings} == {"lying.order"}


def test_a_transactional_step_is_counted_where_it_writes(certify: Callable[..., Certified]) -> None:
    code, report = certify(
        "bookish", "--only", "book", "--counter", "tests.agents.planted:bookings_of",
        "--setup", "tests.agents.planted:make_bookings",
    )  # fmt: skip
    assert (code, report.problems) == (0, ())
    seen = {
        case.fault.kind: [(one.verdict, one.seen) for one in case.sightings]
        for case in report.cases
    }
    assert seen == {kind: [(Verdict.ONCE, 1)] for kind in OF_A_STEP}


def test_the_contract_example_is_certified_in_time(tmp_path: Path) -> None:
    code, report = run_certify(
        tmp_path, "examples.contract_review:contract_review",
        "--input", '{"uri": "corpus:activestate-komodo-edit"}',
    )  # fmt: skip
    assert (code, report.problems) == (0, ())
    assert report.seconds < LIMIT
    assert len(report.steps) == 8
    assert not report.undeclared
    assert all(verdicts(case) == {"registry.file": Verdict.ONCE} for case in report.cases)


def test_a_run_that_fails_by_itself_cannot_be_certified(tmp_path: Path) -> None:
    cli = cli_for(tmp_path)
    sentence = cli(
        "certify", "examples.contract_review:contract_review", "--input", '{"uri": "nowhere"}'
    ).sentence
    assert "Without any fault" in sentence
    assert "nowhere" in sentence
    assert "no fault 'P9'" in cli("certify", "a:b", "--points", "P9").sentence
    assert "cannot be imported" in cli("certify", "no_such_module:b").sentence


TEST_OF_A_USER = """
from tests.agents.planted import planted

def test_planted(certify):
    report = certify(planted, input={"name": "{case}"}, points=["P3", "P6"], only=["place_lying"])
    assert [case.fault.kind for case in report.cases if case.ok] == ["P6"]
    assert report.ok, str(report)
"""


def test_a_users_own_test_certifies(tmp_path: Path, outside: Outside) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ops.testing.plugin"]\n')
    (tmp_path / "test_agent.py").write_text(TEST_OF_A_USER)
    environment: Mapping[str, str] = {
        **os.environ, "ONWARD_TEST_FX": outside.url, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:valkey", "-p", "no:cacheprovider", "-q", "test_agent.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "planted version 1, 2 faults: not certified" in done.stdout, done.stdout
    assert "tool lying.order in step place_lying" in done.stdout, done.stdout
