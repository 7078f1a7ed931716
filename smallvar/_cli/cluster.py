"""``smallvar cluster``: DP-means on the rows of a table."""

import os
from time import perf_counter

import numpy as np

from smallvar._cli.arguments import (
    check_targets,
    length_or_data,
    new_parser,
    number,
    parse,
    path_and_data,
    penalty_of,
)
from smallvar._cli.batches import cluster_by_batches
from smallvar._cli.data import load, of_data, scaled, wines, wines_in_words
from smallvar._cli.output import (
    in_short,
    out_in_words,
    report,
    save,
    say,
    timed,
    write_labels,
    write_out,
)
from smallvar._cli.partitions import check_options, fit, label, opened
from smallvar._cli.picture import merge_path_picture, picture
from smallvar._cli.table import UserError, columns_in_short, counted

WHOLE = float("inf")  # length of --path without a K
CLEAR = 0.8  # least confidence in a number that is called clear
ABOUT_AS_WELL = 1 / 3  # of the confidence in the number chosen: others with less are not named
LISTED = 4  # most numbers, or ranges of numbers, that are named one by one


def cluster(argv):
    """Cluster the rows of a table with DP-means.

    Parameters
    ----------
    argv : list of str
        The arguments that follow the name of the command.
    """
    parser = new_parser(
        prog="smallvar",
        usage="smallvar [cluster] [DATA] [--n-clusters K | --lam L | --guess K | --path [K]]\n"
        f"{' ' * len('usage: smallvar ')}[options]",
        description="""
            Cluster the rows of a table with DP-means: k-means that finds the number of
            clusters K by itself. It minimizes SSE + lam K, the sum of squared distances to
            the cluster centers plus a penalty lam for every cluster. Without --n-clusters,
            --lam and --guess the data choose K, by a criterion of likelihood and description
            length, and with it lam.""",
        examples="""
            smallvar measurements.csv --out labels.csv
            smallvar measurements.csv --path --plot path.png
            smallvar points.npy --lam 2.5 --algorithm delayed --plot clusters.png
            sort -u samples.txt | smallvar --scale --drop-missing --out - > labels.csv""",
    )
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--lam",
        type=penalty_or_auto,
        metavar="L",
        help="the penalty per cluster, in squared data units: a point farther than sqrt(L) from "
        "every center opens a cluster, so a smaller L gives more clusters. auto (default): K is "
        "chosen from the data, and the lam that goes with it is what a cluster must save of the "
        "SSE, not a distance",
    )
    penalty.add_argument(
        "--n-clusters",
        type=number(int, 1),
        metavar="K",
        help="the exact number of clusters, at most that of the distinct rows: those that the "
        "merge path, by which the data otherwise choose K, has at K",
    )
    penalty.add_argument(
        "--guess",
        type=number(int, 1),
        metavar="K",
        help="a guess at the number of clusters, not a bound: lam is then the squared distance "
        "of the K-th of K points picked farthest-first",
    )
    penalty.add_argument(
        "--path",
        type=length_or_data,
        nargs="?",
        const=WHOLE,
        metavar="K",
        help="print the SSE, the criterion and the lam that leads there for 1, 2, ... clusters, "
        "K at most (if left out, somewhat more than the data support); the number chosen among "
        "these is marked, and --out writes its labels",
    )
    parser.add_argument(
        "--algorithm",
        choices=["serial", "delayed", "collapsed", "merge"],
        help="serial (default): each point beyond lam opens a cluster at once; delayed: at most "
        "one new cluster per sweep, hence fewer and clearer ones where lam is small; "
        "collapsed: the centers move with every point, which may lower the objective further; "
        "merge: many clusters are merged until lam asks for no fewer, which also finds clusters "
        "that no far point opens. Where the data choose K, all but collapsed are the same: they "
        "start from merged clusters",
    )
    parser.add_argument(
        "--max-clusters", type=number(int, 1), metavar="M", help="never make more than M clusters"
    )
    parser.add_argument(
        "--batch-size",
        type=number(int, 1),
        metavar="ROWS",
        help="read a .npy or .parquet file so many rows at a time, in three passes (look, fit, "
        "label), and never hold more of it: for what memory is too small for. The clusters begin "
        "with those of rows drawn from all of the file, and move with every batch; lam is then "
        "always the squared distance at which a cluster opens",
    )
    parser.add_argument(
        "--dask",
        action="store_true",
        help="DATA is a folder of .parquet files, which Dask reads and the algorithms serial and "
        "delayed cluster, to the result of one table that holds all rows; labels are in the order "
        "in which Dask reads: files by their names, numbers in these counted as numbers. It runs "
        "on the scheduler that DASK_SCHEDULER_ADDRESS names, otherwise on threads of this process",
    )
    args = parse(
        parser,
        argv,
        out="write the labels, 0 to K - 1, one per row",
        seed="draw from S what is random: where the data choose K, and with merge, the rows that "
        "the search begins from (default: 0, so that the same command gives the same result); "
        "otherwise the order in which the points are visited (default: the order given)",
        lines="sweep, and for every stage of the search for K",
        scale="standardize the columns, each to mean 0 and standard deviation 1, so that all "
        "count alike; lam is then in these units. The picture of one or two columns stays in "
        "those of the data",
    )
    path_and_data(args, WHOLE)
    if args.dask:
        check_options(args)
        check_targets(args)
        show_folder(args)
        return
    if args.batch_size is not None:
        check_targets(args)
        cluster_by_batches(args)
        return
    if args.data is not None and os.path.isdir(args.data):
        raise UserError(f"{args.data} is a directory; --dask reads one of .parquet files")
    if args.path is not None:
        for option in ("algorithm", "max_clusters"):
            if getattr(args, option) is not None:
                instead = ": give --path M" if option == "max_clusters" else ""
                name = option.replace("_", "-")
                raise UserError(f"--{name} has no meaning with --path{instead}")
        if args.path != WHOLE:
            args.max_clusters = args.path
    check_targets(args)

    args.scale = args.scale or args.data is None
    table, reading = load(args, parser.prog, wines)
    X, scaler = scaled(args, table)
    if args.path is not None:
        show_path(args, table, X, scaler, reading)
    else:
        show_clusters(args, table, X, scaler, reading)


def penalty_or_auto(text):
    """Convert the argument of ``--lam``."""
    return text if text == "auto" else number(float, 0)(text)


def new_model(args):
    """Make the estimator that the options ask for."""
    from smallvar import DPMeans

    lam = penalty_of(args)
    given = {
        "n_clusters": args.n_clusters,
        "guess": args.guess,
        "max_clusters": args.max_clusters,
        "algorithm": args.algorithm,
        "random_state": args.seed,
        "n_threads": args.threads,
        "verbose": int(args.verbose),
    }
    model = DPMeans(lam=lam, **{name: value for name, value in given.items() if value is not None})
    if lam == "auto" or args.algorithm == "merge":
        return model.set_params(random_state=args.seed or 0)
    return model.set_params(shuffle=args.seed is not None)


def fitted(args, work, *data, **options):
    """Fit, and return what `timed` does; the line of progress tells of the steps unless printed."""
    return timed(work, *data, follow=None if args.verbose else note, **options)


def show_clusters(args, table, X, scaler, reading):
    """Fit DP-means, write what is asked for, and report.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    table : Table
        The data.
    X : ndarray of shape (n, d)
        What to cluster: the data, or their scaled columns.
    scaler : StandardScaler or None
        What leads back from there.
    reading : float
        The seconds it took to read the data.
    """
    model = new_model(args)
    _, fitting = fitted(args, model.fit, X)
    if args.out is not None:
        write_out(args, ["label"], model.labels_, table.kept, write_labels)
    if args.plot is not None:
        save(args.plot, picture(table, model, scaler))

    report(
        {
            **of_data(args, table, scaler),
            **of_model(args, model, np.bincount(model.labels_)),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": out_in_words(args),
            "picture": args.plot,
        }
    )
    if table.truth is not None:
        say(f"\n{wines_in_words(table.truth, model.labels_)}")
        if args.plot is None:
            say("Draw the clusters: smallvar --plot wines.png")


def show_folder(args):
    """Fit the partitions of a folder, write the labels of one after another, and report.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    """
    begin = perf_counter()
    with opened(args) as folder:
        from smallvar.dask import DPMeans

        opening = perf_counter() - begin
        model = DPMeans(
            lam="auto" if args.lam is None else args.lam,
            n_clusters=args.n_clusters,
            max_clusters=args.max_clusters,
            algorithm=args.algorithm or "serial",
            random_state=args.seed or 0,
            verbose=int(args.verbose),
        )
        _, fitting = fitted(args, fit, folder, model)
        sizes, labeling = timed(label, args, folder, model)
        report(
            {
                "data": f"{folder.name}, {columns_in_short(folder.titles)}",
                "n": len(model.labels_),
                "d": len(folder.titles),
                "partitions": f"{folder.X.npartitions:,}, on {folder.workers}",
                **of_model(args, model, sizes),
                "seconds": f"{opening:.3f} opening, {fitting:.3f} fitting, {labeling:.3f} labeling",
                "labels": out_in_words(args),
            }
        )


def of_model(args, model, sizes):
    """Say what was found, and by which penalty."""
    number = model.n_clusters_
    if model.lam == "auto":
        choice = Choice(model.path_, model.max_clusters)
        origin = choice.lam_in_words()
        given = model.n_clusters is not None
        number = f"{number} (given)" if given else choice.in_words(number)
    elif args.lam is None:
        origin = f"farthest-first, for a guess of {counted(model.guess, 'cluster')}"
    else:
        origin = "given"
    return {
        "lam": f"{model.lam_:.8g} ({origin})",
        "K": number,
        "sweeps": model.n_iter_,
        "objective": f"{model.objective_:.10g} (SSE + lam K)",
        "SSE": f"{model.inertia_:.10g}",
        "sizes": in_short(np.sort(sizes)[::-1], "points"),
    }


def show_path(args, table, X, scaler, reading):
    """Print, and draw where asked for, how the clusterings compare over their number of clusters.

    Parameters
    ----------
    args, table, X, scaler, reading
        As for `show_clusters`.
    """
    from smallvar import lambda_path

    model = new_model(args)
    if args.out is None:
        names = ("max_clusters", "random_state", "n_threads", "verbose")
        options = {name: getattr(model, name) for name in names}
        path, fitting = fitted(args, lambda_path, X, **options)
    else:  # the labels that there are without --path
        _, fitting = fitted(args, model.fit, X)
        path = model.path_
        write_out(args, ["label"], model.labels_, table.kept, write_labels)
    choice = Choice(path, model.max_clusters)
    if args.plot is not None:
        save(args.plot, merge_path_picture(table, choice, scaler))
    say(choice.as_table())
    report(
        {
            **of_data(args, table, scaler),
            "sample": choice.sample_in_words(len(X)),
            "lam": f"{path.lam:.8g} ({choice.lam_in_words()})",
            "K": choice.in_words(path.best),
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": out_in_words(args),
            "picture": args.plot,
        }
    )


class Choice:
    """The number of clusters chosen on a path, and how sure that is.

    Parameters
    ----------
    path : LambdaPath
        The numbers of clusters and what the data say to each.
    most : int or None
        The bound on the number of clusters.

    Attributes
    ----------
    sample : int
        Number of rows that the path is of.
    lam : float
        The penalty of the path.
    counts, errors, behind : ndarray
        The numbers that were allowed, the SSE of each, and by how much its criterion is above the
        lowest among them; infinite where so few rows do not tell.
    low, high : ndarray
        The range of lam for which each is best; empty, that is low >= high, for some.
    ranked : list of int
        Those with a criterion, the lowest first.
    best : int
        The number chosen.
    confidence : float or None
        How sure the path is of ``best``, from 0 to 1; None if it does not say.
    alike : list of int
        The other numbers that fit about as well, ascending; none if ``best`` is clear.
    tie : float
        The difference in the criterion up to which the range of lam decides.
    beyond : int or None
        The best number that was not allowed, if it is ahead of ``best`` by more than ``tie``.
    """

    def __init__(self, path, most):
        self.sample, self.tie = path.n_samples, getattr(path, "tie", 0.0)
        criterion = dict(zip(path.n_clusters.tolist(), path.criterion.tolist(), strict=True))
        known = [k for k in path.ranking.tolist() if np.isfinite(criterion[k])]
        self.best, self.lam, self.most = path.best, path.lam, most
        self.ranked = [k for k in known if most is None or k <= most]
        allowed = path.n_clusters <= (WHOLE if most is None else most)
        self.counts, self.errors = path.n_clusters[allowed], path.inertia[allowed]
        self.low, self.high = path.lam_low[allowed], path.lam_high[allowed]
        self.behind = path.criterion[allowed] - criterion[self.ranked[0]]
        self.confidence, self.alike = getattr(path, "confidence", None), []
        if self.confidence is not None and self.confidence < CLEAR:
            self.alike = about_as_good(self.best, self.counts, path.confidences[allowed])
        ahead = criterion[self.best] - criterion[known[0]]
        self.beyond = known[0] if known[0] not in self.ranked and ahead > self.tie else None

    def in_words(self, found):
        """Say which number it is, where it comes from, and how sure it is.

        Parameters
        ----------
        found : int
            The number of clusters after the last sweep.
        """
        words = "from the data"
        if found != self.best:
            words = f"{self.best} {words}, fewer after the sweeps"
        if self.beyond:
            words += f", {self.most} at most: {self.beyond} fits better"
        certainty = self.certainty()
        return f"{found} ({words}; {certainty})" if certainty else f"{found} ({words})"

    def certainty(self):
        """Say how sure the number is, or why there is no other; empty if the path does not say."""
        if self.ranked == [self.best]:
            if self.most == 1:
                return "no other was allowed"
            return "too few distinct rows to support another"
        if self.confidence is None:
            return ""
        return certainty_in_words(self.best, self.confidence, self.counts, self.alike)

    def lam_in_words(self):
        """Say what this lam is, and for which the number chosen is best."""
        at = self.counts.searchsorted(self.best)
        low, high = self.low[at], self.high[at]
        if not low < high:
            words = "for no lam"
        elif low > 0:
            words = f"from {low:.6g} " + (f"to {high:.6g}" if np.isfinite(high) else "on")
        else:
            words = f"up to {high:.6g}" if np.isfinite(high) else "for all lam"
        return f"what a cluster must save, not a distance; K = {self.best} is best {words}"

    def sample_in_words(self, n):
        """Say how many rows the path was found on, where those are not all."""
        return f"{self.sample:,} rows, drawn at random" if n > self.sample else None

    def as_table(self):
        """Print the path as a table: a row for each number, and what the marks mean."""
        lines = [
            f"{'K':>4}  {'SSE':>14}  {'criterion':>14}  {'rank':>4}  {'best for lam from':>17}  "
            f"{'to':>14}"
        ]
        for k, error, behind, low, high in zip(
            self.counts, self.errors, self.behind, self.low, self.high, strict=True
        ):
            place = f"{'-':>14}  {'-':>4}"
            if np.isfinite(behind):
                place = f"{f'+{behind:,.1f}':>14}  {self.ranked.index(k) + 1:>4}"
            ends = "(path ends)" if low == 0 and error > 0 else f"{low:.8g}"
            lam = f"{ends:>17}  {high:>14.8g}" if low < high else f"{'-':>17}  {'-':>14}"
            mark = "  *" if k == self.best else "  =" if k in self.alike else ""
            lines.append(f"{k:>4}  {error:>14.8g}  {place}  {lam}{mark}")
        if self.alike:
            lines.append("   = fits about as well as the one chosen")
        meaning = "the lowest criterion"
        if self.best != self.ranked[0]:
            meaning = "about the lowest criterion, and of those the widest range of lam"
        lines.append(f"   * chosen: {meaning}")
        return "\n".join([*lines, ""])


def about_as_good(best, counts, confidences):
    """Find the numbers of clusters that fit about as well as the one chosen.

    Parameters
    ----------
    best : int
        The number chosen, one of ``counts``.
    counts, confidences : ndarray of shape (n,)
        The numbers, ascending, and the confidence in each.

    Returns
    -------
    alike : list of int
        The others whose confidence is at least a third of that of the one chosen, ascending.
    """
    least = ABOUT_AS_WELL * confidences[counts.searchsorted(best)]
    alike = (confidences >= least) & (confidences > 0) & (counts != best)
    return counts[alike].tolist()


def certainty_in_words(best, confidence, counts, alike):
    """Say whether a number of clusters is clear, and if not, which others fit about as well.

    Parameters
    ----------
    best : int
        The number chosen.
    confidence : float
        How sure it is, from 0 to 1.
    counts : ndarray of int
        All numbers, ascending: what stands between two of them was not looked at.
    alike : list of int
        Those that fit about as well, from `about_as_good`.

    Returns
    -------
    words : str
        Such as "clear", or "not clear: 16 to 19 fit about as well", the number chosen included.
    """
    if confidence >= CLEAR:
        return "clear"
    if not alike:
        return "not clear"
    numbers = np.sort([best, *alike])
    gaps = np.diff(counts.searchsorted(numbers)) > 1
    parts = []
    for run in np.split(numbers, np.flatnonzero(gaps) + 1):
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    if len(parts) > LISTED:
        parts = [f"{len(numbers)} numbers from {numbers[0]} to {numbers[-1]}"]
    *first, last = parts
    words = f"{', '.join(first)} and {last}" if first else last
    return f"not clear: {words} fit about as well"


def note(progress, event):
    """Show the latest sweep or stage of the search; how many there will be is not known."""
    words = event.message
    if event.stage in ("coarse path", "path"):
        words = f"{counted(event.n_clusters, 'cluster')} by {counted(event.n_samples, 'row')}"
    if event.stage == "coarse path":
        words = f"about {words}, looking closer"
    progress.note = words
