"""The journal's verbs: every change of state is one function here, guarded, with one typed answer.
On the hot path it is one statement; the few that need several (``expanding``, ``failing.fail``,
``runs.send_back``, ``rescue.block``) are one transaction.

``steps``    the holder's verbs: claim, complete, renew, park, fail. Guarded on token and owner.
``runs``     submit, cancel, retry, settle.
``rescue``   what the sweep does to steps whose owner is gone. Guarded on revision.
``publish``  which rows need a message, handed out one publisher at a time.
``workers``  who is alive, and which pids mean what.
``reads``    answers for people; they change nothing.

Nobody else writes SQL. Lock order: live (children before parents), then run.
"""
