"""Values as parts of a test's name: the same in every process, which addresses and the order of sets are not."""

import re

from models.messages import safe_repr

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def shown(value: object) -> str:
    """``repr`` without what differs from process to process."""
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(shown, value)))})"
    return _ADDRESS.sub("", safe_repr(value))
