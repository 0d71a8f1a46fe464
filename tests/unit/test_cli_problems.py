"""Every error a user can cause is one sentence and an exit code; what nobody foresaw is neither."""

import psycopg
import pytest
import redis
from kombu.exceptions import OperationalError
from sqlalchemy.exc import ProgrammingError

from examples.contract_review.errors import UnreadableDocument
from models.journal.errors import CommitUnknown, JournalUnavailable, UnknownRun
from models.settings import Settings
from ops.cli.problems import UsageProblem, explain
from ops.stack import StackError
from tasks.errors import AgentsError


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UnknownRun("There is no run 'x'."), 1, "There is no run 'x'."),
        (UsageProblem("--input is not JSON."), 2, "--input is not JSON."),
        (AgentsError("no module\n  named acme"), 1, "no module named acme"),
        (StackError("the home is in use"), 1, "the home is in use"),
        (UnreadableDocument("a.pdf", "it is empty", "Save it again."), 1, "cannot read a.pdf"),
        (redis.ConnectionError("Error 111"), 1, "The broker does not answer: Error 111."),
        (OperationalError("gone\nsecond line"), 1, "The broker does not answer: gone."),
        (psycopg.errors.DiskFull("disk full"), 1, "The database refused: disk full."),
        (
            ProgrammingError("CREATE", {}, psycopg.errors.InsufficientPrivilege("denied")),
            1,
            "The database refused: denied.",
        ),
    ],
)
def test_an_error_is_one_sentence(error: Exception, code: int, said: str) -> None:
    explained = explain(error)
    assert explained is not None
    assert explained[1] == code
    assert said in explained[0]
    assert "\n" not in explained[0]


@pytest.mark.parametrize("error", [JournalUnavailable("It is away."), CommitUnknown("It broke.")])
def test_a_dead_database_says_where_to_look(
    error: JournalUnavailable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONWARD_DATABASE_URL", raising=False)
    monkeypatch.delenv("ONWARD_STACK", raising=False)
    assert "start one with `onward up`" in (explain(error) or ("", 0))[0]
    monkeypatch.setenv("ONWARD_DATABASE_URL", "postgresql://mine")
    assert "is ONWARD_DATABASE_URL right?" in (explain(error) or ("", 0))[0]
    monkeypatch.setenv("ONWARD_STACK", "postgresql://mine")
    assert "postgres.log" in (explain(error) or ("", 0))[0]


def test_a_setting_that_cannot_be_is_named() -> None:
    with pytest.raises(ValueError, match="lease") as raised:
        Settings(lease_ttl="soon")  # type: ignore[arg-type]
    sentence, code = explain(raised.value) or ("", 0)
    assert (code, sentence[:18]) == (2, "ONWARD_LEASE_TTL: ")
    assert "not 'soon'" in sentence
    assert sentence.count("ONWARD_") == 1, "settings derived from it are not to blame"


def test_a_bug_of_ours_is_not_dressed_up() -> None:
    assert explain(AssertionError("unreachable")) is None
    assert explain(KeyError("x")) is None
