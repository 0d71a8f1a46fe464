"""What a model call costs the journal, in counts that any machine repeats."""

from models import database
from models.journal import wallets
from tests.support.calling import asked, at_position, charge, hold, record, reservation
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.meter import meter

CALLS = 20


def test_a_call_costs_two_commits_of_one_statement_each(journal: Journal) -> None:
    claimed = at_work()
    wallets.ensure(claimed.run_id)
    with meter(journal) as spent:
        for number in range(CALLS):
            made = hold(claimed, reservation(at_position(number)))
            record(claimed, asked(made.place), reservation=made, charge=charge())
    assert 2 * CALLS <= spent.durable <= 2 * CALLS + 3
    assert spent.statements <= 2.2 * CALLS


def test_every_update_of_a_wallet_is_hot(journal: Journal) -> None:
    claimed = at_work()
    for number in range(CALLS):
        made = hold(claimed, reservation(at_position(number)))
        record(claimed, asked(made.place), reservation=made, charge=charge())
    for connection in (database.connection(), journal.look):
        connection.execute("SELECT pg_stat_force_next_flush()")
    (found,) = journal.rows(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'wallet'"
    )
    assert found["n_tup_upd"] == found["n_tup_hot_upd"] == 2 * CALLS
