"""``python -m tests.reliability [--kills N] [--seed N] [--only KIND ...]``: kill, count, write the page.

The exit code is not 0 when anything happened twice, was lost, or is otherwise not as promised, and when
the kills that were asked for did not land. The page is written by sessions of all kinds with 250 or more.
"""

import argparse
import os
import sys
from pathlib import Path

from models import database
from tests.reliability import report
from tests.reliability.kills import Kind
from tests.reliability.report import Circumstances
from tests.reliability.session import play
from tests.reliability.stage import deaths_seen, stage

ROOT = Path(__file__).parents[2]
#: On the checkout's disk: temporary directories are often in memory, where a commit costs nothing.
PLACE = ROOT / "build" / "reliability"
ENOUGH = 250  #: kills of a kind for a page


def main() -> int:
    arguments = _arguments()
    kinds = [Kind(name) for name in arguments.only] or list(Kind)
    load = os.getloadavg()[0]
    with stage(PLACE, keep=arguments.keep) as world:
        outcomes = []
        for kind in kinds:
            outcomes.append(
                play(world, kind, kills=arguments.kills, seed=arguments.seed, say=report.say)
            )
            report.say(report.line(outcomes[-1]))
        database.close()
        circumstances = Circumstances(
            command=" ".join(["python -m tests.reliability", *sys.argv[1:]]), seed=arguments.seed,
            kills=arguments.kills, deaths=deaths_seen(world), load=(load, os.getloadavg()[0]),
            today=report.today(), postgres=report.postgres(), valkey=report.valkey(world.broker),
        )  # fmt: skip
    report.show(outcomes, circumstances)
    if arguments.kills >= ENOUGH and kinds == list(Kind):
        report.write(outcomes, circumstances)
    violations = [one for outcome in outcomes for one in outcome.violations]
    return 1 if violations or report.unseen(outcomes, circumstances) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=ENOUGH, help="of each kind, between effect and settlement"
    )
    parser.add_argument("--seed", type=int, default=1, help="which kills in which order")
    parser.add_argument("--only", nargs="*", default=[], choices=[str(kind) for kind in Kind])
    parser.add_argument(
        "--keep", action="store_true", help="leave logs and stores in build/reliability"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
