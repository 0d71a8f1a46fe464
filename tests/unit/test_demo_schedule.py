"""When which fault comes."""

import pytest

from ops.demo.schedule import WORKER_FAULTS, FaultKind, fitting, plan_faults

ALL = tuple(FaultKind)


@pytest.mark.parametrize("seed", range(50))
def test_every_fault_comes_once_and_a_worker_fault_at_document_89(seed: int) -> None:
    planned = plan_faults(137, seed=seed, kinds=ALL)
    assert sorted(fault.kind for fault in planned) == sorted(ALL)
    places = [fault.document for fault in planned]
    assert places == sorted(places)
    assert 0 < places[0] < places[-1] < 0.85 * 137
    at_89 = [fault.kind for fault in planned if fault.document == 89]
    assert len(at_89) == 1
    assert at_89[0] in WORKER_FAULTS


def test_the_seed_decides_and_nothing_else() -> None:
    once, again = (plan_faults(137, seed=7, kinds=kinds) for kinds in (ALL, ALL[::-1]))
    assert once == again
    assert len({plan_faults(137, seed=seed, kinds=ALL) for seed in range(20)}) > 10


@pytest.mark.parametrize("documents", [1, 2, 8, 20])
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_small_batches_have_every_fault_before_their_end(documents: int, count: int) -> None:
    planned = plan_faults(documents, seed=1, kinds=ALL[:count])
    assert len(planned) == count
    assert all(0 <= fault.document < max(2, documents) for fault in planned)


def test_a_batch_gets_as_many_faults_as_it_has_room_for() -> None:
    assert fitting(137) == ALL
    assert fitting(1) == (FaultKind.CHILD_SIGKILL,)
    assert fitting(40) == ALL[:5]
