"""The rows of the tables as frozen values, a module for each file of `data/`, where the keys are explained."""
