"""``smallvar cluster --shapes`` and ``--long``: clusters of any shape, or with own covariances.

``hint_of_shapes`` is for the report of DP-means: how many of its boundaries are no gaps.
"""

import numpy as np

from smallvar._cli.answer import Answer, number_facts, steps_by_files
from smallvar._cli.arguments import refuse_given
from smallvar._cli.choice import certainty_in_words, fitted, given_in_words
from smallvar._cli.data import of_data, wines_in_words
from smallvar._cli.others import model_of
from smallvar._cli.output import save, sizes_in_words, warnings_told
from smallvar._cli.picture import picture, profile_picture
from smallvar._cli.profiles import profiles_table
from smallvar._cli.table_out import write_clusters
from smallvar._cli.words import counted

# rows, clusters and columns, at most, of which boundaries are looked at for the hint
HINT_ROWS, HINT_CLUSTERS, HINT_COLUMNS = 20_000, 40, 64
# options of DP-means, and of other ways to read a table
NOT_WITH_SHAPES = (*("lam", "guess", "path", "algorithm", "max_clusters", "kinds", "batch_size"),)
NOT_WITH_LONG = (*("shapes", "dask", "min_cluster_size", "threads"), *NOT_WITH_SHAPES)


def refuse_with_shapes(args):
    """Refuse options that have no meaning together with ``--shapes`` or ``--long``."""
    if args.long:
        refuse_given(args, NOT_WITH_LONG, "{} has no meaning with --long")
    elif args.shapes:
        refuse_given(args, NOT_WITH_SHAPES, "{} has no meaning with --shapes")


def show_shapes(args, table, X, scaler, reading):
    """Fit ShapeMeans, or MahalanobisMeans, to X, write what is asked for, and report.

    X are the rows of the table, scaled where there is a ``scaler``; ``reading`` is in seconds.
    """
    option = "--long" if args.long else "--shapes"
    model = model_of(args, option).set_params(verbose=int(args.verbose))
    with warnings_told(table.titles):
        _, fitting = fitted(args, model.fit, X)
    if args.out is not None:
        write_clusters(args, table, model)
    if args.plot is not None:
        drawn = profile_picture if args.profiles else picture
        save(args.plot, drawn(table, model, scaler))
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    steps = steps_by_files(args)
    appendix = None
    if table.truth is not None:
        appendix = wines_in_words(table.truth, model.labels_)
        if args.plot is None:
            steps = [f"draw the clusters: smallvar {option} --plot wines.png"]
    sentence, facts = of_shapes(model, sizes)
    answer = Answer(
        sentence,
        facts,
        about=of_data(args, table, scaler, lam=False),
        details={
            "sweeps": model.n_iter_ if args.long else None,
            "objective": f"{model.objective_:.10g}" if args.long else None,
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
        },
        tables=(profiles_table(args, model, table.titles, scaler),),
        steps=tuple(steps),
    )
    answer.tell(args, appendix)


def of_shapes(model, sizes):
    """The sentence and the facts on clusters of these sizes, their pieces and boundaries."""
    facts = {
        **number_facts(model.n_clusters_, model.confidence_),
        "sizes": sizes_in_words(sizes, "points"),
    }
    if hasattr(model, "boundaries_"):
        facts["pieces"] = pieces_in_words(model)
        facts["boundaries"] = boundaries_in_words(model.boundaries_.verdict)
    return number_in_words(model), facts


def number_in_words(model):
    """The sentence on the number of clusters, and how sure it is."""
    k = model.n_clusters_
    if model.n_clusters not in (None, "auto"):
        return given_in_words(k)
    many = counted(k, "cluster")
    if np.isnan(model.confidence_):
        return f"{many}, chosen from the data."
    certainty = certainty_in_words(model.confidence_, [k], [])
    joined = "and" if certainty.startswith("clear") else "but"
    return f"{many}, {joined} this number is {certainty}."


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
        return "the one between the clusters is no gap"
    verb = "is no gap" if none == 1 else "are no gaps"
    return f"{none} of {n} between clusters {verb}"
