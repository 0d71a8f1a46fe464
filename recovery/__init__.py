"""Everything that acts on a run from outside its worker: sweep, wake, watch, verify.

``decide`` is the whole safety policy and does no I/O; the other modules act on what it says. Periodic
jobs run on the control queue, any number of times at once: an advisory lock lets one pass do the work.
"""
