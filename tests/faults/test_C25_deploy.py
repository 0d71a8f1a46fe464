"""C25: a deploy in the middle: SIGTERM, a grace, and a new worker under the old name."""
