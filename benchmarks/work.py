"""The work, the same for everyone: runs of sequential steps that do nothing and return 200 bytes."""

from typing import Final

RUNS: Final = 200
STEPS: Final = 10

RESULT: Final[dict[str, object]] = {
    "ok": True,
    "tool": "search",
    "tokens": 812,
    "text": "x" * 136,
}
