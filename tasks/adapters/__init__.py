"""Agent frameworks and SDKs inside a step: their model calls are recorded, their tools go through the ledger.

One module a framework, which alone imports it: ``tasks.adapters.pydantic_ai``, ``openai_sdk``,
``anthropic_sdk``, ``openai_agents``, ``langgraph``. Each does two things: it puts the framework's own client on
the recording transport of ``ctx``, and it refuses, before the first request, an agent with tools of which nobody
could say after a crash whether they happened.
"""
