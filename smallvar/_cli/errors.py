"""Errors of the user, which end a command in one line."""


class UserError(Exception):
    """Something only the user can put right: told in one line, without a traceback."""


class NotNumbersError(UserError):
    """A word or a missing value, where numbers are wanted."""


class WordsError(NotNumbersError):
    """Columns of words, where numbers are wanted."""


class UnevenError(NotNumbersError):
    """A row with another number of cells than the first."""
