"""C26: five thousand steps in a row with a kill near the end, plans too deep, and circles."""
