"""TLS contexts, one for a process and HTTP library: reading the system's certificates takes 50 ms of CPU."""

import importlib
import os
from functools import lru_cache
from typing import Any


def tls_context(library: str = "httpx2") -> Any:
    """The library's default ``ssl.SSLContext``; each forked child makes its own."""
    return _made(library, os.getpid())


@lru_cache(maxsize=4)
def _made(library: str, _pid: int) -> Any:
    return importlib.import_module(library).create_ssl_context()
