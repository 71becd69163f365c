"""Provide the command line: one thin module for each verb, joined in app.py."""
