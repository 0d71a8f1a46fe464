"""``python -m ops.cli``: the same as ``onward``."""

from ops.cli import main

main()
