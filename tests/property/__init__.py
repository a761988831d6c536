"""Invariants: of the fixtures, their malformed siblings, and inputs that hypothesis makes up."""
