"""Clusters of other shapes, tried where the compact ones, or those asked for, are not clear.

An option is named as a next step only if it has been tried on the same rows, and is clearer there.
"""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvar._cli.arguments import given
from smallvar._cli.progress import ProgressLine
from smallvar._selection.confidence import CLEAR_CONFIDENCE

# Rows up to which each is tried: it then takes some 10 times as long as the fit of compact clusters
# at most, or a second (a covariance for each cluster costs more than pieces and their boundaries),
# and columns, for both.
MOST_ROWS = {"--shapes": 20_000, "--long": 5_000}
TRIED_COLUMNS = 64
ALIKE_GROUPS = 0.5  # adjusted Rand index below which two clusterings are of other groups
SAID = {"--shapes": "of any shape", "--long": "that may be long"}


class Tried(NamedTuple):
    """What another estimator has found, as ``option`` asks for it: K, how sure that is, labels."""

    option: str
    k: int
    confidence: float
    labels: NDArray[np.int32]


def model_of(args, option):
    """The estimator behind an option, with the parameters that it shares with compact clusters."""
    from smallvar import MahalanobisMeans, ShapeMeans

    parameters = {"random_state": args.seed or 0, **given(n_clusters=args.n_clusters)}
    if option == "--long":
        return MahalanobisMeans(**parameters)
    parameters |= given(min_cluster_size=args.min_cluster_size, n_threads=args.threads)
    return ShapeMeans(**parameters)


def tried_others(args, X):
    """Fit clusters of other shapes to the rows, whose number the data choose; a list of Tried."""
    found = []
    for option, rows in MOST_ROWS.items():
        if len(X) > rows or X.shape[1] > TRIED_COLUMNS:
            continue
        model = model_of(args, option).set_params(n_clusters=None)
        # what they would warn of is in the confidence
        with warnings.catch_warnings(), ProgressLine(f"trying {option}"):
            warnings.simplefilter("ignore")
            try:
                model.fit(X)
            except (ValueError, MemoryError):  # as for rows that have no covariance
                continue
        confidence = float(model.confidence_)
        found.append(Tried(option, model.n_clusters_, confidence, model.labels_))
    return found


def are_other_groups(first, second):
    """Whether two clusterings of the same rows have little in common."""
    from sklearn.metrics import adjusted_rand_score

    return adjusted_rand_score(first, second) < ALIKE_GROUPS


def steps_by_others(args, X, confidence, doubted):
    """The options that lead to clearer clusters, as texts, after trying them; and what was tried.

    Nothing is tried if the number is likely, unless it is ``doubted`` for another reason.
    ``confidence`` is None where the number was not chosen.
    """
    # from there on the others find no better clusters, where the number is known
    unclear = confidence is not None and confidence < CLEAR_CONFIDENCE
    if not (unclear or doubted):
        return [], None
    tried = tried_others(args, X)
    least = max(CLEAR_CONFIDENCE, 0.0 if confidence is None else np.nextafter(confidence, 1.0))
    # where another estimator sees a single cluster, there is nothing to look at
    clearer = [t for t in tried if t.k > 1 and t.confidence >= least]
    clearer.sort(key=lambda t: -t.confidence)
    word = "" if confidence is None else ", clearer"
    steps = [
        f"{t.option}: {t.k} clusters {SAID[t.option]}{word} (confidence {t.confidence:.2f})"
        for t in clearer
    ]
    if len(clearer) == 2 and are_other_groups(*(t.labels for t in clearer)):
        steps[1] += f"; other groups than those of {clearer[0].option}: look at both"
    rest = [t for t in tried if not any(t is c for c in clearer)]
    if not rest:
        return steps, None
    words = " and ".join(f"{t.option} ({t.k}, confidence {t.confidence:.2f})" for t in rest)
    if all(t.k == 1 for t in rest):
        said = "one cluster, so the rows may be one body without groups"
    else:
        said = "no clearer"
    return steps, f"{words}: {said}"
