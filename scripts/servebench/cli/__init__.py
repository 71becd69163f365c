"""Provide the command line: options and help in verbs.py, one module for the work of each verb."""
