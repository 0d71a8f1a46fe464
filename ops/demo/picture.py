"""The end of a demo as a picture for the README: ``onward demo --svg docs/demo.svg``."""

import io
import re
from pathlib import Path

from rich.console import Console

from ops.demo.naive import NaiveResult
from ops.demo.report import Report
from ops.demo.tables import show

TITLE = "make demo"
COLUMNS = 100  #: what stays readable at the width of a README

#: Rich's pictures name fonts of a foreign host, which a page that shows a picture never loads.
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw(report: Report, naive: NaiveResult | None, path: Path) -> None:
    """Save the report's tables as an SVG that needs nothing of any other host."""
    console = Console(
        file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True,
        color_system="truecolor", highlight=False,
    )  # fmt: skip
    show(console, report, naive)
    path.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title=TITLE, unique_id="demo")
    path.write_text(_FONTS.sub("", svg), encoding="utf-8")
