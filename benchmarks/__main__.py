"""``python -m benchmarks [--rounds N] [--quick]``: measure, print, write the page of results."""

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks import report
from benchmarks.contestants import BareLoop, Contestant, Onward, PlainChain
from benchmarks.floor import Floor
from benchmarks.meters import Measure
from benchmarks.stand import ROOT, Mode, Stand
from benchmarks.tables import (
    BARE,
    HOP,
    ONE_COMMIT,
    PLAIN,
    STICKY,
    TWO_COMMITS,
    Results,
    measures_table,
    ratios_table,
)
from benchmarks.work import RUNS

#: On the checkout's disk: temporary directories are often in memory, where a commit costs nothing.
PLACE = ROOT / "build" / "bench"

WORKERS: tuple[Contestant, ...] = (
    PlainChain(PLAIN),
    Onward(HOP, sticky=False),
    Onward(STICKY, sticky=True),
    BareLoop(BARE),
)
FLOORS: tuple[Contestant, ...] = (Floor(ONE_COMMIT, commits=1), Floor(TWO_COMMITS, commits=2))
MODES = (
    Mode(concurrency=8, events=False),
    Mode(concurrency=8, events=True),
    Mode(concurrency=2, events=False),
)


def main() -> int:
    """Run a session. A quick one shows that everything works; its figures are not written down."""
    arguments = _arguments()
    quick = bool(arguments.quick)
    rounds = arguments.rounds or (1 if quick else 5)
    runs, modes = (40, MODES[:1]) if quick else (RUNS, MODES)
    with Stand(PLACE) as stand:
        if arguments.model_calls or arguments.artifacts:
            return _only(stand, model_calls=arguments.model_calls, artifacts=arguments.artifacts)
        load = os.getloadavg()[0]
        results = _rounds(stand, modes, rounds=rounds, runs=runs)
        if quick:
            return 0
        from benchmarks import artifacts, extras, model_calls  # noqa: PLC0415 - read their settings

        session = report.Session(
            command=" ".join(["python -m benchmarks", *sys.argv[1:]]), rounds=rounds, runs=runs,
            results=results, latencies=extras.latencies(stand), submissions=extras.submission_rate(),
            recovery=extras.recovery(stand), model_calls=model_calls.measure(stand.home.path / "models"),
            artifacts=artifacts.artifact_costs(), load=(load, os.getloadavg()[0]),
        )  # fmt: skip
        report.write(session, stand)
    print(f"written to {report.PLACE}")
    return 0


def _rounds(stand: Stand, modes: Sequence[Mode], *, rounds: int, runs: int) -> Results:
    """Every contestant once a round; the next round goes the other way about."""
    results = Results()
    for round_ in range(rounds):
        for mode in modes:
            contestants = WORKERS if mode.events else WORKERS + FLOORS
            for contestant in contestants if round_ % 2 == 0 else contestants[::-1]:
                measure = contestant.measure(stand, mode, runs=runs)
                results.add(mode, contestant.name, measure)
                print(_line(round_ + 1, mode, contestant.name, measure), flush=True)
    for mode in modes:
        print("", f"At {mode}:", *ratios_table(results, mode), "", sep="\n")
        print(*measures_table(results, mode), sep="\n")
    return results


def _only(stand: Stand, *, model_calls: bool, artifacts: bool) -> int:
    from benchmarks import artifacts as large  # noqa: PLC0415 - read their settings
    from benchmarks import model_calls as asked  # noqa: PLC0415

    if model_calls:
        print(*asked.lines(asked.measure(stand.home.path / "models")), sep="\n")
    if artifacts:
        print(*large.table(large.artifact_costs()), sep="\n")
    return 0


def _line(round_: int, mode: Mode, name: str, measure: Measure) -> str:
    return (
        f"round {round_}, {mode}: {name:16} {measure.seconds:6.2f} s {measure.steps_per_second:6.0f} steps/s, "
        f"{measure.cpu:.2f} ms of processor, {measure.commits:.2f} commits, {measure.wal_bytes:.0f} B of WAL, "
        f"{measure.broker_commands:.2f} broker commands a step"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--rounds", type=int, metavar="N", help="how often everything is measured")
    parser.add_argument("--quick", action="store_true", help="one short round, nothing written")
    parser.add_argument(
        "--model-calls", action="store_true", help="only what recording costs a model call; printed"
    )
    parser.add_argument(
        "--artifacts", action="store_true", help="only what 50 MB beside the journal cost; printed"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
