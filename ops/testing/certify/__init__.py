"""The fault kit for users: their own workflow, killed and disturbed at every instant, counted from outside.

``runner.certify`` plays it on a stack of its own, ``report.Report`` says what came of it. ``hook`` and what
it loads (``wire``, ``http_client``, ``httpx_transport``, ``records``) run inside the workers; the rest runs
in the process of ``onward certify``. What a fault does is decided in ``wire``, what it is worth in
``judging``.
"""
