"""The outside world of these tests: the fake service that ships with the product."""

from ops.testing.outside import Outside

__all__ = ["Fx"]


class Fx(Outside):
    """One running service; see ``ops.testing.outside.client``."""
