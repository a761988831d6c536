"""The rows of the tables as frozen values, a module for each file of `data/`, where the keys are explained.

Structs and not dataclasses: making a dataclass takes half a millisecond, and there are forty of them at every start.
"""
