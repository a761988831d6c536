"""A built wheel given its name, its description and its guard."""
