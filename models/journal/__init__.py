"""The journal's verbs: every change of state is one function here, guarded, with one typed answer.
On the hot path it is one statement; those that need several (``expanding``, ``failing.fail``, ``rescue.block``,
whatever decides an effect in doubt) are one transaction.

``steps``    the holder's verbs: claim, complete, renew, park, fail. Guarded on token and owner.
``runs``     submit, cancel, retry, settle.
``losing``   running steps whose owner is gone become unknown.
``rescue``   what the sweep does to those. Guarded on revision.
``effects``  the holder's verbs about effects: intend, settle, refuse, doubt.
``doubts``   which effects are to be looked up before anything of a step is repeated or given up.
``lookups``  looking them up: whose turn it is, and what was found. Guarded on looker and revision.
``untracked``  the same of untracked steps that can be asked whether they were done.
``publish``  which rows need a message, handed out one publisher at a time.
``workers``  who is alive, and which pids mean what.
``reads``    answers for people; they change nothing.

Nobody else writes SQL. Lock order: live (children before parents), effect, run.
"""
