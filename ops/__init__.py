"""Everything a person touches: command line, client, local stack, doctor.

``ops`` may import ``recovery``, ``tasks`` and ``models``; nothing of them imports ``ops``.
"""
