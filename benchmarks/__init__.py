"""What Onward costs, beside plain Celery on the same servers and the least that PostgreSQL allows.

``python -m benchmarks`` starts servers and workers of its own, lets the contestants do the same work in
alternating rounds, and writes ``docs/results/performance.md``. Ratios are of runs that followed each
other: the machine's mood divides out of them, and of single figures it does not.
"""
