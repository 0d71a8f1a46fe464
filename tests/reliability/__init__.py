"""``make reliability``: real SIGKILLs between an effect and its settlement, counted at the service itself.

    kills     where a kill lands, which of them a run gets, by seed
    hook      loaded by the workers: dies at the instants that only they can see
    stage     servers, workers and the outside world, all real
    playing   submits the runs, kills what the service holds, waits for rest
    looking   what journal and service say afterwards
    judging   whether anything happened twice or was lost
    report    the table, and docs/results/reliability.md

No part of ``make test``: it takes minutes. ``tests/faults/test_reliability.py`` plays a few of its kills.
"""
