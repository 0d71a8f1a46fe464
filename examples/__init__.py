"""Agents that show how Onward is used: each a package that imports the authoring API only."""
