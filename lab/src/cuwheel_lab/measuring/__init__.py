"""Trials, measurements under load, and matrices of builds: run, kept on disk, and told."""
