"""The local stack: real PostgreSQL and Valkey from wheels, workers, beats, Flower on one machine.

``Servers`` runs the two servers of one home directory, ``Supervisor`` keeps any set of processes
alive, ``services`` says which processes Onward consists of, ``LocalStack`` puts them together for
``onward up``. What is authoritative: the lock of the home says whether someone runs it,
``state.json`` beside it says who. Nothing that is started here outlives the process that started
it: an orderly end stops everything in order, and after a ``kill -9`` the kernel tells every child
(``launch.py``).
"""

from ops.stack.errors import HomeInUse, StackError
from ops.stack.events import EventKind, ProcessEvent
from ops.stack.home import Home
from ops.stack.process import Program, Stage
from ops.stack.servers import Servers
from ops.stack.supervisor import Restart, Supervisor

__all__ = [
    "EventKind",
    "Home",
    "HomeInUse",
    "ProcessEvent",
    "Program",
    "Restart",
    "Servers",
    "StackError",
    "Stage",
    "Supervisor",
]
