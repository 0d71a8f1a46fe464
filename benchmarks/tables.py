"""What the measurements say: medians, spreads, and ratios of runs that followed each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.meters import Measure
from benchmarks.stand import Mode

PLAIN, HOP, STICKY, BARE = "plain chain", "hop", "sticky", "bare loop"
ONE_COMMIT, TWO_COMMITS = "floor, 1 commit", "floor, 2 commits"


@dataclass(frozen=True, slots=True)
class Ratio:
    """One contestant's speed over another's, with what it is meant to reach at concurrency 8."""

    name: str
    over: str
    target: float | None = None
    stretch: float | None = None


RATIOS = (
    Ratio(HOP, PLAIN, 0.65, 0.8),
    Ratio(STICKY, PLAIN, 2.5, 3.5),
    Ratio(STICKY, ONE_COMMIT, 0.3, 0.45),
    Ratio(HOP, TWO_COMMITS),
    Ratio(BARE, PLAIN),
    Ratio(BARE, ONE_COMMIT),
    Ratio(STICKY, BARE),
)


@dataclass(slots=True)
class Results:
    """Every measurement, by mode and contestant, in the order of the rounds."""

    measures: dict[tuple[Mode, str], list[Measure]] = field(default_factory=dict)

    def add(self, mode: Mode, name: str, measure: Measure) -> None:
        self.measures.setdefault((mode, name), []).append(measure)

    def of(self, mode: Mode, name: str) -> list[Measure]:
        return self.measures.get((mode, name), [])

    def modes(self) -> list[Mode]:
        return list(dict.fromkeys(mode for mode, _ in self.measures))

    def names(self, mode: Mode) -> list[str]:
        return [name for found, name in self.measures if found == mode]

    def paired(self, mode: Mode, ratio: Ratio) -> list[float]:
        """One ratio per round, of the two measurements of that round."""
        pairs = zip(self.of(mode, ratio.name), self.of(mode, ratio.over), strict=False)
        return [mine.steps_per_second / theirs.steps_per_second for mine, theirs in pairs]


def ratios_table(results: Results, mode: Mode) -> list[str]:
    """Markdown: each ratio's median, spread and target."""
    rows = []
    for ratio in RATIOS:
        found = results.paired(mode, ratio)
        if not found:
            continue
        told = "" if mode.concurrency != 8 or mode.events else _target(ratio)
        speed = f"**{median(found):.2f}** ({min(found):.2f}-{max(found):.2f})"
        processor = _processor_ratio(results, mode, ratio)
        rows.append((f"{ratio.name} / {ratio.over}", speed, f"{processor:.2f}", told))
    return _table(("speed", "median (min-max)", "by processor time", "target (stretch)"), rows)


def measures_table(results: Results, mode: Mode) -> list[str]:
    """Markdown: medians per contestant."""
    rows = []
    for name in results.names(mode):
        found = results.of(mode, name)
        speeds = [one.steps_per_second for one in found]
        rows.append(
            (
                name, f"{median(speeds):.0f} ({min(speeds):.0f}-{max(speeds):.0f})",
                f"{median(one.seconds for one in found):.2f}",
                f"{median(one.cpu for one in found):.2f}",
                " / ".join(
                    f"{median(getattr(one, part) for one in found):.2f}"
                    for part in ("cpu_workers", "cpu_postgres", "cpu_valkey", "cpu_driver")
                ),
                f"{median(one.commits for one in found):.2f}",
                f"{median(one.wal_bytes for one in found):.0f}",
                f"{median(one.broker_commands for one in found):.2f}",
            )
        )  # fmt: skip
    head = (
        "", "steps/s (min-max)", "wall s", "processor ms", "workers / postgres / valkey / driver",
        "durable commits", "WAL bytes", "broker commands",
    )  # fmt: skip
    return _table(head, rows)


def _processor_ratio(results: Results, mode: Mode, ratio: Ratio) -> float:
    """How much less processor time a step takes: what the speed would be on a quiet machine."""
    mine, theirs = (
        median(one.cpu for one in results.of(mode, name)) for name in (ratio.name, ratio.over)
    )
    return theirs / mine


def _target(ratio: Ratio) -> str:
    if ratio.target is None:
        return ""
    return f"{ratio.target:g} ({ratio.stretch:g})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
