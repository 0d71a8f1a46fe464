"""Ready-made ways of reaching the outside world. Import what you use:

* ``tasks.toolkit.http``: a tool for an HTTP API, described and not programmed;
* ``tasks.toolkit.gateway``: a de-duplication ledger for a gateway of your own.
"""
