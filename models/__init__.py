"""Everything durable: settings, values, states, rows, the journal's verbs (the only SQL), migrations.

Nothing here knows Celery. ``tasks``, ``recovery`` and ``ops`` build on it; it imports none of them.
"""
