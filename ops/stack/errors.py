"""What can go wrong with the local stack. Every message is meant for the person at the terminal."""


class StackError(Exception):
    """The local stack could not do what was asked."""


class HomeInUse(StackError):
    """Another process runs the stack of this home."""


class ServerMissing(StackError):
    """No usable server program is installed."""


class StartFailed(StackError):
    """A process ended or stayed silent while it was being started."""
