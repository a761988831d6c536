"""Reading at a place, words for people, findings, JSON."""
