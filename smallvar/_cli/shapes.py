"""``smallvar cluster --shapes``: clusters of any shape, each a union of pieces.

``hint_of_shapes`` is for the report of DP-means: how many of its boundaries are no gaps.
"""

import numpy as np

from smallvar._cli.arguments import given, refuse_given
from smallvar._cli.choice import certainty_in_words, fitted
from smallvar._cli.data import of_data, wines_in_words
from smallvar._cli.output import (
    out_in_words,
    report,
    save,
    say,
    sizes_in_words,
    warnings_told,
)
from smallvar._cli.picture import profile_picture, shape_picture
from smallvar._cli.profiles import profiles_in_words, profiles_of
from smallvar._cli.table_out import write_clusters
from smallvar._cli.words import counted

# rows, clusters and columns, at most, of which boundaries are looked at for the hint
HINT_ROWS, HINT_CLUSTERS, HINT_COLUMNS = 20_000, 40, 64
# options of DP-means, and of other ways to read a table
NOT_WITH_SHAPES = (*("lam", "guess", "path", "algorithm", "max_clusters", "kinds", "batch_size"),)


def refuse_with_shapes(args):
    """Refuse options that have no meaning together with ``--shapes``."""
    refuse_given(args, NOT_WITH_SHAPES, "{} has no meaning with --shapes")


def show_shapes(args, table, X, scaler, reading):
    """Fit ShapeMeans to X, write what is asked for, and report.

    X are the rows of the table, scaled where there is a ``scaler``; ``reading`` is in seconds.
    """
    from smallvar import ShapeMeans

    parameters = given(
        n_clusters=args.n_clusters,
        min_cluster_size=args.min_cluster_size,
        n_threads=args.threads,
    )
    model = ShapeMeans(**parameters, random_state=args.seed or 0, verbose=int(args.verbose))
    with warnings_told(table.titles):
        _, fitting = fitted(args, model.fit, X)
    if args.out is not None:
        write_clusters(args, table, model)
    if args.plot is not None:
        drawn = profile_picture if args.profiles else shape_picture
        save(args.plot, drawn(table, model, scaler))
    report(
        {
            **of_data(args, table, scaler, lam=False),
            **of_shapes(model, np.bincount(model.labels_)),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": out_in_words(args),
            "picture": args.plot,
        }
    )
    if args.profiles:
        say(f"\n{profiles_in_words(profiles_of(model, table.titles, scaler), args.profiles)}")
    if table.truth is not None:
        say(f"\n{wines_in_words(table.truth, model.labels_)}")
        if args.plot is None:
            say("Draw the clusters: smallvar --shapes --plot wines.png")


def of_shapes(model, sizes):
    """Say what was found: clusters of these sizes, pieces, and boundaries between them."""
    return {
        "K": number_in_words(model),
        "pieces": pieces_in_words(model),
        "boundaries": boundaries_in_words(model.boundaries_.verdict),
        "sizes": sizes_in_words(sizes, "points"),
    }


def number_in_words(model):
    """Text of the number of clusters, and how sure it is."""
    k = model.n_clusters_
    if model.n_clusters is not None:
        return f"{k} (given)"
    if np.isnan(model.confidence_):
        return f"{k} (from the data)"
    return f"{k} (from the data; {certainty_in_words(k, model.confidence_, [k], [])})"


def pieces_in_words(model):
    """Text of how many pieces the clusters are unions of."""
    n, k = len(model.piece_clusters_), model.n_clusters_
    if n == k:
        return f"{n}, each of them a cluster" if n > 1 else "1, which is the cluster"
    of_cluster = np.bincount(model.piece_clusters_)
    least, most = of_cluster.min(), of_cluster.max()
    many = f"{most}" if least == most else f"{least} to {most}"
    return f"{n}, {many} in each cluster" if k > 1 else f"{n}, all in one cluster"


def boundaries_in_words(verdict):
    """Text of how many boundaries between pieces are gaps."""
    n = len(verdict)
    if not n:
        return "no two pieces touch"
    gaps, unclear, none = ((verdict == word).sum() for word in ("gap", "unclear", "none"))
    parts = [
        counted(gaps, "gap") if gaps else "",
        f"{unclear} unclear" if unclear else "",
        f"{none} none" if none else "",
    ]
    return f"{n:,} between pieces: {', '.join(filter(None, parts))}"


def hint_of_shapes(args, X, labels, k):
    """Text of how many boundaries between clusters are no gaps; None if all are, or none is known.

    Of many rows a sample is looked at.
    """
    if k > HINT_CLUSTERS or X.shape[1] > HINT_COLUMNS:
        return None
    from smallvar import boundary_evidence

    rows = np.arange(len(X))
    if len(rows) > HINT_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(X), HINT_ROWS, replace=False))
    verdict = boundary_evidence(X[rows], labels[rows], n_threads=args.threads).verdict
    n, none = len(verdict), int((verdict == "none").sum())
    if not none:
        return None
    if n == 1:
        return "the one between the clusters is no gap: try --shapes"
    verb = "is no gap" if none == 1 else "are no gaps"
    return f"{none} of {n} between clusters {verb}: try --shapes"
