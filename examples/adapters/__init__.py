"""One small agent for each framework that Onward has an adapter for: docs/adapters.md."""
