"""The agents of the examples, killed after each of their calls."""

from examples.adapters.anthropic_sdk import answer as ask_anthropic
from examples.adapters.openai_sdk import answer as ask_openai
from tests.adapters.killing import killed_after_each_call

desk = killed_after_each_call("openai-sdk", ask_openai)
other = killed_after_each_call("anthropic-sdk", ask_anthropic)
