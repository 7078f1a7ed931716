"""``smallvar cluster``: DP-means on the rows of a table."""

import numpy as np

from smallvar._cli.arguments import check_targets, new_parser, number, parse
from smallvar._cli.data import dropped_in_words, load, scale_in_words, scaled
from smallvar._cli.output import (
    in_short,
    out_in_words,
    report,
    save,
    timed,
    write_labels,
    write_out,
)
from smallvar._cli.picture import picture
from smallvar._cli.progress import on_terminal
from smallvar._cli.table import columns_in_short, counted


def cluster(argv):
    """Cluster the rows of a table with DP-means.

    Parameters
    ----------
    argv : list of str
        The arguments that follow the name of the command.
    """
    parser = new_parser(
        prog="smallvar",
        usage="smallvar [cluster] [DATA] [--lam L | --n-clusters K] [options]",
        description="""
            Cluster the rows of a table with DP-means: k-means that finds the number of
            clusters K by itself. It minimizes SSE + lam K, the sum of squared distances to
            the cluster centers plus a penalty lam for every cluster.""",
        examples="""
            smallvar measurements.csv --n-clusters 10 --out labels.csv
            smallvar points.npy --lam 2.5 --algorithm delayed --plot clusters.png
            sort -u samples.txt | smallvar --scale --drop-missing --out - > labels.csv""",
    )
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--lam",
        type=number(float, 0),
        metavar="L",
        help="the penalty per cluster, in squared data units: a point farther than sqrt(L) from "
        "every center opens a cluster, so a smaller L gives more clusters",
    )
    penalty.add_argument(
        "--n-clusters",
        type=number(int, 1),
        metavar="K",
        help="a guess at the number of clusters, not a bound: lam is then the squared distance "
        "of the K-th of K points picked farthest-first (default: a guess of 8)",
    )
    parser.add_argument(
        "--algorithm",
        choices=["serial", "delayed", "collapsed"],
        help="serial (default): each point beyond lam opens a cluster at once; delayed: at most "
        "one new cluster per sweep, hence fewer and clearer ones where lam is small; "
        "collapsed: the centers move with every point, which may lower the objective further",
    )
    parser.add_argument(
        "--max-clusters", type=number(int, 1), metavar="M", help="never make more than M clusters"
    )
    args = parse(
        parser,
        argv,
        out="write the labels, 0 to K - 1, one per row",
        seed="visit the points in a random order drawn from S (default: in the order given)",
        scale="standardize the columns, each to mean 0 and standard deviation 1, so that all "
        "count alike; lam is then in these units. The picture of one or two columns stays in "
        "those of the data",
    )
    check_targets(args)

    from smallvar import DPMeans

    table, reading = load(args, parser.prog)
    X, scaler = scaled(args, table)
    n, d = X.shape
    followed = on_terminal() and not args.verbose
    given = {
        "lam": args.lam,
        "n_clusters": args.n_clusters,
        "max_clusters": args.max_clusters,
        "algorithm": args.algorithm,
        "random_state": args.seed,
        "n_threads": args.threads,
    }
    model = DPMeans(
        **{option: value for option, value in given.items() if value is not None},
        shuffle=args.seed is not None,
        verbose=int(args.verbose or followed),
    )
    if args.n_clusters is None:  # a guess nobody made is no reason to refuse a few rows
        model.set_params(n_clusters=min(model.n_clusters, n))
    _, fitting = timed(model.fit, X, follow=note if followed else None)

    if args.out is not None:
        write_out(args, ["label"], model.labels_, table.kept, write_labels)
    if args.plot is not None:
        save(args.plot, picture(table, model, scaler))

    guess = f"farthest-first, for a guess of {counted(model.n_clusters, 'cluster')}"
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": n,
            "dropped": dropped_in_words(args, table),
            "d": d,
            "scaled": scale_in_words(scaler),
            "lam": f"{model.lam_:.8g} ({guess if args.lam is None else 'given'})",
            "K": model.n_clusters_,
            "sweeps": model.n_iter_,
            "objective": f"{model.objective_:.10g} (SSE + lam K)",
            "SSE": f"{model.inertia_:.10g}",
            "sizes": in_short(np.sort(np.bincount(model.labels_))[::-1], "points"),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": out_in_words(args),
            "picture": args.plot,
        }
    )


def note(progress, line):
    """Show the latest sweep; how many there will be, nobody knows."""
    progress.note = line
