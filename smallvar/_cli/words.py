"""Errors, and names of columns and files: told apart, escaped and quoted for a shell."""

import csv
import io
import re
import shlex
import unicodedata

# Control characters, directions of writing and line separators can hide or change what a terminal
# shows. The joiners among them are part of the spelling of some languages.
HIDDEN = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])
JOINERS = "\u200c\u200d"


class UserError(Exception):
    """Something only the user can put right: told in one line, without a traceback."""


def visible(text, keep=""):
    """Text in which control characters, also those for the direction of writing, are escaped.

    Escapes are those of Python: ``\\x1b``, ``\\u202e``, ``\\n``. Characters in ``keep`` stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char in keep or char in JOINERS or unicodedata.category(char) not in HIDDEN
        else char.encode("unicode_escape").decode()
        for char in text
    )


def option_of_names(option, names):
    """An option with names of columns as its argument, to be copied to a command line.

    Commas join the names; csv quotes hold those with a comma in them: ``--exclude 'a,"b, c"'``.
    """
    text = io.StringIO()
    csv.writer(text).writerow(names)
    argument = shlex.quote(text.getvalue().removesuffix("\r\n"))
    # an argument that begins like an option must be joined to its own
    return f"{option}{'=' if names[0].startswith('-') else ' '}{argument}"


def names_of_option(option, argument):
    """Take apart the names, from `option_of_names`, that an option has as its argument."""
    try:
        return next(csv.reader([argument], skipinitialspace=True))
    except csv.Error as error:
        raise UserError(f"{option}: {error}") from error


def unlike_names(names):
    """Names of columns, those that are there before with .1, .2, ... after them, as in pandas.

    Empty ones stay so. Also returns a note for each name that occurs more than once, to stand
    behind the name of the file.
    """
    taken, numbers, new, later = set(names), {}, [], {}
    for name in names:
        if name and name in numbers:
            first = name
            while name in taken:
                numbers[first] += 1
                name = f"{first}.{numbers[first]}"
            later.setdefault(first, []).append(name)
            taken.add(name)
        numbers.setdefault(name, 0)
        new.append(name)
    return new, [
        f" has {len(others) + 1} columns {name!r}; after the first they are called "
        f"{', '.join(map(repr, others[:4]))}{', ...' if len(others) > 4 else ''}"
        for name, others in later.items()
    ]


def counted(count, noun):
    """Put a number before a noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def option_of(name):
    """The option whose value has this name in the parsed arguments."""
    return f"--{name.replace('_', '-')}"


def in_one_line(text):
    """Text in one line: line breaks become spaces."""
    return re.sub(r"\s*[\r\n]\s*", " ", text).strip()


def in_ranges(lines):
    """The argument of ``--skip-rows`` for lines: 3,7-9."""
    ranges = []
    for line in sorted(set(lines)):
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges)
