"""Steps that treat their process badly, or are treated so."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_serializer

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import create, earlier_notes, note
from tests.support.programs import is_gone


class Unencodable(BaseModel):
    """A result that takes more memory to write down than there is."""

    size: int

    @field_serializer("size")
    def _explode(self, _size: int) -> int:
        raise MemoryError("no room for the encoded result")


@step
def die(ctx: Context, how: str) -> str:
    note(ctx)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segv":
        ctypes.string_at(0)
    else:
        _exhaust_memory()
    return how


def _exhaust_memory() -> None:
    """Allocate past a limit that stands close above what the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + 32 * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@step
def encode(ctx: Context, size: int) -> Unencodable:
    note(ctx)
    return Unencodable(size=size)


@workflow("rough-die", version="1")
def dying(how: str) -> Canvas:
    return die.s(how)


@workflow("rough-encode", version="1")
def encoding(size: int) -> Canvas:
    return encode.s(size)


@step
def spawn(ctx: Context, intent: str) -> dict[str, Any]:
    """Leave a subprocess running, and tell whether that of an earlier attempt still does."""
    note(ctx)
    earlier = [int(str(one["child"])) for one in earlier_notes(ctx, "child")]
    alive = [pid for pid in earlier if not is_gone(pid)]
    if not earlier:
        waiting = [sys.executable, "-c", "import time; time.sleep(300)"]
        child = subprocess.Popen(waiting, start_new_session=True)
        note(ctx, "child", child=child.pid)
    create(ctx, intent)
    return {"earlier": earlier, "alive": alive}


@workflow("rough-spawn", version="1")
def spawning(intent: str) -> Canvas:
    return spawn.s(intent)
