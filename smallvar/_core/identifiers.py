"""Columns that only number or name the rows of a table: they tell nothing of its clusters."""

import re
import warnings

import numpy as np
from scipy.sparse import issparse

from smallvar._core.validation import columns_in_words, level_of_caller

FEWEST_ROWS = 20  # a column of fewer rows is never taken for an identifier
CHECKED_ROWS = 100_000  # the first rows, which tell
ID_NAMES = re.compile(
    r"#|(?i:(.*[\W_])?(id|ids|idx|key|uuid|guid)|unnamed: \d+)|.*[a-z]I[dD]"
    r"|(?i:((row|obs|case|record|sample)[\W_])?index)"  # not those that are measured
    r"|(?i:(row|customer|client|user|order|account|product|item|student|member|u|p)id)"
    r"|(?i:case|obs|observation|subject|patient|participant|respondent|person)"
)
NUMBER_NAMES = re.compile(
    r"(?i:(.*[\W_])?(nr|no|num|number|row|rows|rownames|#))|.*[a-z](N[or]|Number)"
)
# what numbers of time are called: they run in every group, and may well matter
TIME_NAMES = re.compile(
    r"(?i:.*(time|date|year|month|week|day|hour|minute|second|quarter|season|period|wave|visit"
    r"|trial|session|age|dose).*)"
)
# ascending numbers: the least share of all numbers from the first to the last, or of equal steps;
# or so many rows (a trend of fewer may well rise throughout)
SHARE_OF_RANGE, EQUAL_STEPS, RISING_ROWS = 0.5, 0.9, 200
LARGEST_ID = 1e24  # of some 24 digits
# numbers that run in groups: the share of the steps that are 1, and the mean size of a group
STEPS_OF_ONE, LEAST_RUN = 0.9, 20
# numbers that are named like identifiers: different ones among the rows; or all numbers from 0 or
# 1 on, none of them more than so many times as often as others on average
HARDLY_REPEATING, MOST_REPEATED = 0.5, 3.0


class IdentifierWarning(UserWarning):
    """Columns of the table only number or name its rows, and take part in the distances.

    A number of the row, a customer's or a sample's id tell nothing of clusters, but count as
    lengths and amounts do. Leave them out: ``X.drop(columns=...)``; or make them the index. They
    are known by their order (numbers that ascend from row to row, also in groups), or by their
    name and because they hardly repeat. :class:`MixedDPMeans` leaves them out by itself. It can be
    silenced by ``warnings.filterwarnings("ignore", category=smallvar.IdentifierWarning)``.
    """


def warn_of_identifiers(estimator, X):
    """Warn of columns of a table, with names, that only number the rows X of a fit."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or issparse(X):
        return
    found = [j for j, name in enumerate(names) if identifies(X[:, j], str(name))]
    if found:
        one = len(found) == 1
        them = columns_in_words(found, names)
        subject = f"column {them} only numbers" if one else f"columns {them} only number"
        warnings.warn(
            f"{subject} the rows, and {'takes' if one else 'take'} part in the distances: fit "
            f"without {'it' if one else 'them'}",
            IdentifierWarning,
            stacklevel=level_of_caller(),
        )


def identifies(values, name=""):
    """Why numbers of a column only identify rows, in words; empty if they do not.

    ``values`` are those of the rows in their order, NaN where missing; ``name`` is that of the
    column, "" where it has none.
    """
    values = np.asarray(values[:CHECKED_ROWS], dtype=np.float64)
    named = ID_NAMES.fullmatch(name) or NUMBER_NAMES.fullmatch(name)
    if len(values) < FEWEST_ROWS or not _whole(values[:FEWEST_ROWS], named):
        return ""
    complete = not np.isnan(values).any()
    values = values[~np.isnan(values)]
    if len(values) < FEWEST_ROWS or not _whole(values, named):
        return ""
    steps, distinct = np.diff(values), np.unique(values)
    share = len(distinct) / (distinct[-1] - distinct[0] + 1.0)
    if complete and len(distinct) == len(values):
        dense = share >= SHARE_OF_RANGE or (steps == np.median(steps)).mean() >= EQUAL_STEPS
        if (steps > 0).all() and (dense or len(values) >= RISING_ROWS or named):
            return "whole numbers that ascend from row to row"
        if share == 1.0 and named:  # without a name they may be ranks
            return "whole numbers, each once"
    if len(distinct) < FEWEST_ROWS or TIME_NAMES.fullmatch(name):
        return ""
    ahead = steps[steps > 0]
    groups = 1 + len(steps) - len(ahead)
    ones = int((ahead == 1).sum())
    if ones >= STEPS_OF_ONE * len(ahead) > 0 and len(values) >= LEAST_RUN * groups:
        return "whole numbers that run from row to row, in groups"
    if not named:
        return ""
    several = name.lower() != "number"  # of what, is not said
    if several and len(distinct) >= HARDLY_REPEATING * len(values):
        return "numbers of the rows, by their name, that hardly repeat"
    count = np.unique(values, return_counts=True)[1]
    if share == 1.0 and distinct[0] in (0, 1) and count.max() <= MOST_REPEATED * count.mean():
        return "numbers of the rows, by their name"
    return ""


def _whole(values, named):
    """Whether all are whole numbers; very large ones only where a name says what they are."""
    values = values[~np.isnan(values)]
    largest = LARGEST_ID if named else 2.0**53  # beyond that all of float64 are whole
    return bool((values == np.floor(values)).all() and (np.abs(values) < largest).all())
