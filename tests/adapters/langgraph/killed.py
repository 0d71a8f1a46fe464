"""The agent of the example, killed after each of its calls."""

from examples.adapters.langgraph import answer
from tests.adapters.killing import killed_after_each_call

killed_after_each_call("langgraph", answer)
