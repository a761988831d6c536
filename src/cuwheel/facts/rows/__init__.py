"""The rows of the tables as frozen values, a module for each file of `data/`, where the keys are explained.

Apart, because most verbs need one table: making forty classes takes longer than reading a library.
"""
