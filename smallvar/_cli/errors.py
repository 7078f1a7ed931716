"""Errors of the user, which end a command in one line."""


class UserError(Exception):
    """Something only the user can put right: told in one line, without a traceback."""
