"""Content kept outside the journal: addressed by what it is, checked on every read."""
