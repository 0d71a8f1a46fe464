"""The helper of acceptance and fault tests starts and kills real Celery processes."""

import signal
from collections.abc import Callable

from tests.support.cluster import Cluster
from tests.support.programs import is_gone
from tests.support.waiting import wait_until


def test_a_cluster_recovers_sweeps_and_dies(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(agents="")
    cluster.recovery()
    wait_until(
        lambda: "recovery.sweep" in cluster.logs("control"),
        what="a sweep",
        details=lambda: cluster.tail("control"),
    )
    pid = cluster.worker("worker-1")
    cluster.kill("worker-1")
    assert is_gone(pid)
    assert cluster.worker("worker-1") != pid
    cluster.kill("worker-1", signal.SIGTERM)
    assert set(cluster.pids) == {"control", "beat-1"}
