"""Which faults the plain chains are given."""

from ops.demo.naive import comparable
from ops.demo.records import FaultRecord
from ops.demo.schedule import FaultKind, PlannedFault


def record(kind: FaultKind, document: int) -> FaultRecord:
    return FaultRecord(kind=kind, document=document, at_seconds=1.0, victim="somebody")


def test_chains_take_the_same_blows_and_lose_the_broker_s_data_last() -> None:
    faults = [
        record(FaultKind.VALKEY_WIPED, 10),
        record(FaultKind.BEAT_SIGKILL, 20),
        record(FaultKind.CHILD_SIGKILL, 30),
        record(FaultKind.POSTGRES_RESTART, 40),
        record(FaultKind.WORKER_SIGKILL_GONE, 50),
    ]
    assert comparable(faults) == [
        PlannedFault(FaultKind.CHILD_SIGKILL, 10),
        PlannedFault(FaultKind.WORKER_SIGKILL_GONE, 30),
        PlannedFault(FaultKind.VALKEY_WIPED, 50),
    ]
