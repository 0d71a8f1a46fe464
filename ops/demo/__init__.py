"""The demo: a batch of real contracts reviewed while processes are killed, and the proof afterwards.

``stage`` runs the processes, ``batch`` submits, ``schedule`` says when which fault comes, ``scripts``
plays each fault against processes that hold a step, ``evidence`` reads the journal and ``witnesses``
asks the outside world; ``report`` holds the two against each other. Nothing here heals anything: what
recovers does so by the product's own means.
"""
