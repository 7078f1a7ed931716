"""The report of a command: first the answer, then what sets it apart, what to do next, the rest.

What other programs may read is in lines ``name  value``; everything else begins with a number or
is a sentence. With ``--verbose`` the details of the fit follow.
"""

from typing import Any, NamedTuple

import numpy as np

from smallvar._cli.output import out_in_words, say
from smallvar._cli.profiles import named
from smallvar._cli.words import option_of_names, visible

NAMED_COLUMNS = 5  # columns at most that a next step names one by one


class Answer(NamedTuple):
    """What a command has found.

    ``sentence`` says it in words, ``facts`` (name: value) is for programs; ``tables`` are texts
    between the facts and ``steps``, the texts of what to do next. ``about`` are facts on the data,
    ``details`` those on the fit, for ``--verbose``. Facts of None are left out.
    """

    sentence: str
    facts: dict[str, Any]
    about: dict[str, Any]
    details: dict[str, Any]
    tables: tuple[str | None, ...] = ()
    steps: tuple[str, ...] = ()
    out: str = "labels"  # what the file of --out holds

    def tell(self, args, appendix=None):
        """Print all of it; ``appendix`` is a text at the end."""
        about = {**self.about, self.out: out_in_words(args), "picture": args.plot}
        blocks = [
            present(self.facts),
            [("next", step) for step in self.steps],
            present(about),
            present(self.details) if args.verbose else [],
        ]
        width = max(len(name) for block in blocks for name, _ in block) + 2
        first, *rest = [
            "\n".join(f"{name:<{width}}{visible(str(value))}" for name, value in block)
            for block in blocks
        ]
        parts = [visible(self.sentence), first, *self.tables, *rest, appendix]
        say("\n\n".join(filter(None, parts)))


def present(facts):
    """Pairs of the names and values that are not None."""
    return [(name, value) for name, value in facts.items() if value is not None]


def number_facts(k, confidence):
    """The facts on a number of clusters: how sure it is only where that is known."""
    known = confidence is not None and not np.isnan(confidence)
    return {"K": k, "confidence": f"{confidence:.2f}" if known else None}


def steps_by_number(choice):
    """Another number of clusters to look at where the one chosen is not clear, as texts."""
    if choice.is_clear:
        return []
    if choice.second is not None:
        return [f"--n-clusters {choice.second}: fits about as well"]
    return []


def steps_by_columns(path, titles):
    """What columns may have to do with a number that is not clear, as texts."""
    steps = []
    few, skewed = ([titles[j] for j in getattr(path, name)] for name in ("few_valued", "skewed"))
    skewed = named(skewed)
    if few and len(few) < len(titles):
        reason = f"{'has' if len(few) == 1 else 'have'} few values, which may be what splits rows"
        if len(few) <= NAMED_COLUMNS:
            it = "this column" if len(few) == 1 else "these columns"
            steps.append(f"{option_of_names('--exclude', few)}: {it} {reason}")
        else:
            steps.append(f"leave out columns: {in_few(named(few))} {reason}")
    if skewed:
        verb = "is" if len(skewed) == 1 else "are"
        steps.append(
            f"transform columns: {in_few(skewed)} {verb} skewed or with values far away; "
            "their logarithms may be better to cluster"
        )
    return steps


def in_few(names):
    """The first names, and how many more there are."""
    more = len(names) - NAMED_COLUMNS
    return ", ".join(names[:NAMED_COLUMNS]) + (f" and {more} more" if more > 0 else "")


def steps_by_files(args, drawn=True):
    """What to write and to draw, as texts; ``drawn`` is whether there can be a picture."""
    texts = [
        "--out FILE writes the cluster of each row" if args.out is None else "",
        "--plot draws the clusters" if args.plot is None and drawn else "",
    ]
    texts = list(filter(None, texts))
    return ["; ".join(texts)] if texts and args.data is not None else []
