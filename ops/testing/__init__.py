"""What a user needs to try an agent against faults before the world does."""
