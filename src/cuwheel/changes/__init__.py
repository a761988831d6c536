"""Finished binaries and packages, changed: cut, added to, repaired, stamped. Written beside, or undone by a journal."""
