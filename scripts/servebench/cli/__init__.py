"""The command line: one thin module a verb, put together in app.py."""
