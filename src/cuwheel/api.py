"""The verbs as functions: each sequences the stages and returns the value that report and JSON show."""

from __future__ import annotations
