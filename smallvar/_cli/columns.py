"""The columns of a table: which are used, and refusals of those that are not of numbers."""

from typing import NamedTuple

from smallvar._cli.errors import UserError
from smallvar._cli.words import counted, names_of_option, option_of_names


class PickedColumns(NamedTuple):
    """The columns to use, by their positions from 0; and the position of that of the times."""

    positions: list[int]
    titles: list[str]
    clock: int | None


def pick_columns(source, wanted, names, d):
    """Find the columns that ``--columns``, ``--exclude``, ``--id`` and ``--time`` ask for.

    There are d columns called ``names`` (None: their positions from 1). Without ``--columns``, all
    but those of the times and of ``--id`` are picked.
    """
    titles = [str(i + 1) for i in range(d)] if names is None else names
    clock = None
    if wanted.time is not None:
        clock = position_of(source, titles, wanted.time.strip(), f"--time {wanted.time}")
    ids = pick_ids(source, wanted, names, d)
    if wanted.columns is None:
        picked = [i for i in range(d) if i != clock]
        if d == 1 and not picked:
            raise UserError(f"--time {wanted.time}: {source} has no other column")
    else:
        picked = positions_of(source, titles, "--columns", wanted.columns)
    for option, spec, excluded in (
        ("--id", wanted.id, ids),
        ("--exclude", wanted.exclude, None),
    ):
        if spec is None:
            continue
        excluded = positions_of(source, titles, option, spec) if excluded is None else excluded
        picked = [i for i in picked if i not in excluded]
        if not picked:
            raise UserError(f"{option} {spec}: leaves no column of {source}")
    return PickedColumns(picked, [titles[i] for i in picked], clock)


def pick_ids(source, wanted, names, d):
    """Find the positions of the columns that ``--id`` names, as for `pick_columns`."""
    titles = [str(i + 1) for i in range(d)] if names is None else names
    return [] if wanted.id is None else positions_of(source, titles, "--id", wanted.id)


def position_of(source, titles, title, option):
    """Find the position of a column by its title."""
    if titles.count(title) != 1:
        count = titles.count(title) or "no"
        noun = "column" if count == "no" else "columns"
        raise UserError(
            f"{option}: {source} has {count} {noun} {title!r}, but {columns_in_short(titles)}"
        )
    return titles.index(title)


def positions_of(source, titles, option, spec):
    """Find the positions of the columns that an option lists."""
    option, columns = f"{option} {spec}", []
    items = names_of_option(option, spec)
    if not items and "" in titles:  # a column without a name
        items = [""]
    for part in items:
        first, colon, last = map(str.strip, part.partition(":"))
        if colon and part.strip() not in titles:
            start = position_of(source, titles, first, option) if first else 0
            end = position_of(source, titles, last, option) if last else len(titles) - 1
            columns += range(start, end + 1)
        elif not part.strip() and "" in titles:
            columns += [j for j, title in enumerate(titles) if not title]
        else:
            columns.append(position_of(source, titles, part.strip(), option))
    if not columns or len(set(columns)) < len(columns):
        raise UserError(f"{option}: names {'a column twice' if columns else 'no column'}")
    return columns


def not_numeric(words, titles, hint=""):
    """Refuse columns that do not hold numbers, in words to stand behind the name of the file.

    ``words`` are names of columns, and in brackets what they hold; ``titles`` the names of all
    such columns, for the option that leaves them out; ``hint`` is more advice.
    """
    more = f" and {len(words) - 5} more" if len(words) > 5 else ""
    noun, them = ("column", "it") if len(words) == 1 else ("columns", "them")
    without = ""
    if len(set(titles)) == len(titles):  # otherwise no option can name them
        without = f"; without {them}: {option_of_names('--exclude', titles)}"
    return (
        f": {noun} {', '.join(words[:5])}{more} not numeric; choose others with --columns or "
        f"--exclude{hint}{without}"
    )


def advice_for_infinite(value):
    """Text: the option that takes an infinite value as missing."""
    return f"; {option_of_names('--na', [f'{value:g}'])} takes it as missing"


def empty_columns(titles):
    """Say that columns have no values, and how they are left out."""
    noun, them = ("column", "it") if len(titles) == 1 else ("columns", "them")
    verb = "is" if len(titles) == 1 else "are"
    option = option_of_names("--exclude", titles)
    return f"{noun} {', '.join(titles)} {verb} empty; {option} leaves {them} out"


def in_types(titles, types, is_numeric):
    """The columns that are not numeric: with their types, and their names alone; or None."""
    columns = zip(titles, types, strict=True)
    refused = [(title, kind) for title, kind in columns if not is_numeric(kind)]
    if not refused:
        return None
    return [f"{title} ({kind})" for title, kind in refused], [title for title, _ in refused]


def refuse_twins(path, names):
    """Refuse columns of one name, which pandas cannot read from .parquet files."""
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path} has {names.count(name)} columns {name!r}; rename all but one")


def columns_in_short(titles):
    """Say how many columns there are and what they are called."""
    shown = titles if len(titles) <= 6 else [*titles[:4], "...", titles[-1]]
    return f"{counted(len(titles), 'column')}: {', '.join(shown)}"
