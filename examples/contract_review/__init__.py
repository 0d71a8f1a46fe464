"""An agent that reads a contract, asks an LLM three times and files a checked conclusion.

The agent is ``examples.contract_review.agent``; that is what ``ONWARD_AGENTS`` names. Beside it lie
its two outside services, ``model_server`` and ``registry``: processes of their own that load
nothing of Onward, so this file imports nothing either. Workers import the agent, and with it the
SDK, once before they fork.
"""
