"""``smallvar cluster``: DP-means on the rows of a table."""

import os
from time import perf_counter

import numpy as np

from smallvar._cli.answer import (
    Answer,
    number_facts,
    steps_by_columns,
    steps_by_files,
    steps_by_number,
)
from smallvar._cli.arguments import (
    check_targets,
    given,
    length_or_data,
    new_parser,
    number,
    parse,
    path_and_data,
    penalty_of,
    refuse_given,
)
from smallvar._cli.batches import cluster_by_batches
from smallvar._cli.choice import (
    WHOLE_PATH,
    Choice,
    by_penalty_in_words,
    fitted,
    given_in_words,
)
from smallvar._cli.columns import columns_in_short
from smallvar._cli.data import load, of_data, scaled, wines, wines_in_words, without_identifiers
from smallvar._cli.errors import UserError
from smallvar._cli.mixed import kinds_of, reader_for, refuse_misplaced, show_table
from smallvar._cli.mixed_table import MixedTable
from smallvar._cli.others import steps_by_others
from smallvar._cli.output import (
    save,
    sizes_in_words,
    timed,
    warnings_told,
)
from smallvar._cli.partitions import check_options, fit, label, opened
from smallvar._cli.picture import merge_path_picture, picture, profile_picture
from smallvar._cli.profiles import TELLING, profiles_table
from smallvar._cli.shapes import hint_of_shapes, of_shapes, refuse_with_shapes, show_shapes
from smallvar._cli.table_out import write_clusters
from smallvar._cli.words import counted


def cluster(argv):
    """Find groups of rows that are alike, and how many there are."""
    parser = cluster_parser()
    args = parse(
        parser,
        argv,
        out="write the table with the cluster of each row, 0 to K - 1, and how probable it is",
        seed="draw from S what is random: where the data choose K, and with merge, the rows that "
        "the search begins from (default: 0, so that the same command gives the same result); "
        "otherwise the order in which the points are visited (default: the order given)",
        lines="sweep, and for every stage of the search for K",
        scale="standardize the columns, each to mean 0 and standard deviation 1, so that all "
        "count alike; lam is then in these units. The picture of one or two columns stays in "
        "those of the data",
    )
    path_and_data(args, WHOLE_PATH)
    refuse_with_shapes(args)
    if args.kinds is not None:
        refuse_misplaced(args)
    if args.dask:
        check_options(args)
        check_targets(args, "clusters")
        show_folder(args)
        return
    if args.batch_size is not None:
        check_targets(args, "clusters")
        cluster_by_batches(args)
        return
    if args.data is not None and os.path.isdir(args.data):
        raise UserError(f"{args.data} is a directory; --dask reads one of .parquet files")
    if args.path is not None:
        bound_by_path(args)
    check_targets(args, "clusters")

    without = ["path", "lam", "guess"]
    if args.min_cluster_size is not None and args.lam != "auto":
        refuse_given(args, without, "--min-cluster-size has no meaning with {}")
    args.scale = args.scale or args.data is None
    table, reading = load(args, parser.prog, wines, otherwise=reader_for(args))
    if isinstance(table, MixedTable):
        show_table(args, table, reading)
        return
    table = without_identifiers(args, table)
    X, scaler = scaled(args, table)
    if args.shapes or args.long:
        show_shapes(args, table, X, scaler, reading)
    elif args.path is not None:
        show_path(args, table, X, scaler, reading)
    else:
        show_clusters(args, table, X, scaler, reading)


def cluster_parser():
    """The parser of the command, without the arguments that all commands share."""
    parser = new_parser(
        prog="smallvar",
        usage="smallvar [cluster] [DATA] [options]",
        description="""
            Cluster the rows of a table with DP-means: k-means that finds the number of
            clusters K by itself. It minimizes SSE + lam K, the sum of squared distances to
            the cluster centers plus a penalty lam for every cluster. Without --n-clusters,
            --lam and --guess the data choose K, by a criterion of likelihood and description
            length, and with it lam.""",
        examples="""
            smallvar table.csv                        how many clusters, and what they are
            smallvar table.csv --out labels.csv       the cluster of each row, as a file
            smallvar table.csv --scale --plot c.png   columns count alike; with a picture
            smallvar table.csv --shapes               clusters of any shape""",
    )
    _add_number_arguments(parser)
    _add_model_arguments(parser)
    _add_size_arguments(parser)
    return parser


def _add_number_arguments(parser):
    """Add the arguments that say how the number of clusters is found; one excludes the others."""
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--lam",
        type=penalty_or_auto,
        metavar="L",
        help="the penalty per cluster, in squared data units: a point farther than sqrt(L) from "
        "every center opens a cluster, so a smaller L gives more clusters. auto (default): K is "
        "chosen from the data, and the lam that goes with it is the amount by which a cluster "
        "must lower the SSE, not a distance",
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
        const=WHOLE_PATH,
        metavar="K",
        help="print the SSE, the criterion and the lam that leads there for 1, 2, ... clusters, "
        "K at most (if left out, somewhat more than the data support); the number chosen among "
        "these is marked, and --out writes its labels",
    )


def _add_model_arguments(parser):
    """Add the arguments that say what is fitted."""
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
        "--kinds",
        type=kinds_of,
        metavar="A=KIND,...",
        help="what columns are, where that is not what is found: normal, ordered, poisson "
        "(counts), exponential (positive amounts), bernoulli (two values), categorical, or none to "
        "leave one out. A table with a column of words or with gaps (empty cells, NA, nan, ? or "
        "null) is clustered by the kinds of its columns, which are printed; a table of numbers "
        "without gaps only where --kinds is given",
    )
    parser.add_argument(
        "--keep",
        metavar="A,B,...",
        help="columns that are used although they seem to number the rows only (whole numbers "
        "that ascend from row to row, ids), as do those that --columns names; other such columns "
        "are left out, and named",
    )
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="clusters of any shape, also long, bent or hollow ones, in place of compact ones: "
        "each is a union of pieces with no gap between them. There is no penalty; the data choose "
        "K, unless --n-clusters gives it. For tables of numbers",
    )
    parser.add_argument(
        "--long",
        action="store_true",
        help="clusters that may be long, each in its own direction: each has a covariance of its "
        "own, and the data choose K, unless --n-clusters gives it. For tables of numbers",
    )
    parser.add_argument(
        "--profiles",
        type=number(int, 1),
        nargs="?",
        const=TELLING,
        metavar="COLUMNS",
        help="say what sets each cluster apart in so many columns, at most (default: 3): its mean "
        "and spread in those that save most of the squared distances, and what share they save; "
        "--plot then draws this in place of the rows",
    )
    parser.add_argument(
        "--max-clusters", type=number(int, 1), metavar="M", help="never make more than M clusters"
    )
    parser.add_argument(
        "--min-cluster-size",
        type=number(int, 1),
        metavar="N",
        help="choose among clusterings whose clusters all have at least N rows; those of smaller "
        "clusters are in the nearest of the others. Only where the data or --n-clusters say how "
        "many there are",
    )


def _add_size_arguments(parser):
    """Add the arguments for data that are read a part at a time."""
    parser.add_argument(
        "--batch-size",
        type=number(int, 1),
        metavar="ROWS",
        help="read a .npy or .parquet file so many rows at a time, in three passes (check, fit, "
        "label), and never hold more of it: for what memory is too small for. The clusters begin "
        "with those of rows drawn from all of the file, and move with every batch; lam is then "
        "always the squared distance at which a cluster opens",
    )
    parser.add_argument(
        "--dask",
        action="store_true",
        help="DATA is a folder of .parquet files, which Dask reads and the algorithms serial and "
        "delayed cluster, to the result of one table that holds all rows; labels are in the order "
        "in which Dask reads: files by their names, numbers in these counted as numbers. With "
        "--shapes, 200,000 of the rows decide on the clusters. It runs "
        "on the scheduler that DASK_SCHEDULER_ADDRESS names, otherwise on threads of this process",
    )


def bound_by_path(args):
    """Take the length of ``--path`` as the bound on the number of clusters."""
    refuse_given(args, ["algorithm", "profiles"], "{} has no meaning with --path")
    refuse_given(args, ["max_clusters"], "{} has no meaning with --path: give --path M")
    if args.path != WHOLE_PATH:
        args.max_clusters = args.path


def penalty_or_auto(text):
    """Convert the argument of ``--lam``."""
    return text if text == "auto" else number(float, 0)(text)


def new_model(args):
    """Make the estimator that the options ask for."""
    from smallvar import DPMeans

    lam = penalty_of(args)
    parameters = given(
        n_clusters=args.n_clusters,
        guess=args.guess,
        max_clusters=args.max_clusters,
        min_cluster_size=args.min_cluster_size,
        algorithm=args.algorithm,
        random_state=args.seed,
        n_threads=args.threads,
    )
    model = DPMeans(lam=lam, **parameters, verbose=int(args.verbose))
    # the path draws samples, with a seed so that a command gives the same labels each time; other
    # algorithms visit the rows in their order unless a seed asks for a random one
    if lam == "auto" or args.algorithm == "merge":
        return model.set_params(random_state=args.seed or 0)
    return model.set_params(shuffle=args.seed is not None)


def show_clusters(args, table, X, scaler, reading):
    """Fit DP-means to X, write what is asked for, and report.

    X are the rows of the table, scaled where there is a ``scaler``; ``reading`` is in seconds.
    """
    model = new_model(args)
    with warnings_told(table.titles):
        _, fitting = fitted(args, model.fit, X)
    if args.out is not None:
        write_clusters(args, table, model)
    if args.plot is not None:
        drawn = profile_picture if args.profiles else picture
        save(args.plot, drawn(table, model, scaler))

    choice = choice_of(model)
    sentence, facts, details = of_model(model, choice, np.bincount(model.labels_))
    hint = hint_of_shapes(args, X, model.labels_, model.n_clusters_)
    steps, tried = steps_of(args, model, choice, X, table.titles, doubted=hint is not None)
    appendix = None
    if table.truth is not None:
        appendix = wines_in_words(table.truth, model.labels_)
        if args.plot is None:
            steps.append("draw the clusters: smallvar --plot wines.png")
    answer = Answer(
        sentence,
        {**facts, "boundaries": hint, "tried": tried},
        about=of_data(args, table, scaler),
        details={**details, "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting"},
        tables=(profiles_table(args, model, table.titles, scaler),),
        steps=tuple(steps),
    )
    answer.tell(args, appendix)


def choice_of(model):
    """The Choice of a model whose number the data chose, or that has the given one; else None."""
    return Choice(model.path_, model.max_clusters) if model.lam == "auto" else None


def steps_of(args, model, choice, X, titles, doubted):
    """What to do next, as texts, and what was tried and is no better."""
    chosen = choice is not None and model.n_clusters is None
    confidence = choice.known_confidence if chosen else None
    if chosen and choice.is_only:
        return steps_by_files(args), None
    steps, tried = steps_by_others(args, X, confidence, doubted)
    if chosen and not choice.is_clear:
        steps += [*steps_by_number(choice), *steps_by_columns(model.path_, titles)]
    return [*steps, *steps_by_files(args)], tried


def show_folder(args):
    """Fit the partitions of a folder, write the labels of one after another, and report."""
    begin = perf_counter()
    with opened(args) as folder:
        from smallvar.dask import DPMeans, ShapeMeans

        # the import of Dask counts as opening
        opening = perf_counter() - begin
        options = {"random_state": args.seed or 0, "verbose": int(args.verbose)}
        if args.shapes:
            model = ShapeMeans(n_clusters=args.n_clusters, **options)
        else:
            model = DPMeans(
                lam="auto" if args.lam is None else args.lam,
                n_clusters=args.n_clusters,
                max_clusters=args.max_clusters,
                algorithm=args.algorithm or "serial",
                **options,
            )
        _, fitting = fitted(args, fit, folder, model)
        sizes, labeling = timed(label, args, folder, model)
        details = {}
        if args.shapes:
            sentence, facts = of_shapes(model, sizes)
        else:
            sentence, facts, details = of_model(model, choice_of(model), sizes)
        seconds = f"{opening:.3f} opening, {fitting:.3f} fitting, {labeling:.3f} labeling"
        about = {
            "data": f"{folder.name}, {columns_in_short(folder.titles)}",
            "n": len(model.labels_),
            "d": len(folder.titles),
            "partitions": f"{folder.X.npartitions:,}, on {folder.workers}",
        }
        steps = steps_by_files(args, drawn=False)
        details["seconds"] = seconds
        Answer(sentence, facts, about, details, steps=tuple(steps)).tell(args)


def of_model(model, choice, sizes):
    """The sentence, the facts and the details on clusters of these sizes."""
    k, confidence = model.n_clusters_, None
    if choice is not None:
        sentence, origin = choice.of_fit(model)
        if model.n_clusters is None:
            confidence = choice.known_confidence
    elif model.n_clusters is not None:
        sentence, origin = given_in_words(k), "found with it"
    else:
        origin = "given"
        if isinstance(model.lam, str):
            origin = f"farthest-first, for a guess of {counted(model.guess, 'cluster')}"
        sentence = by_penalty_in_words(k, model.lam_, origin)
    facts = {**number_facts(k, confidence), "sizes": sizes_in_words(sizes, "points")}
    details = {
        "lam": f"{model.lam_:.8g} ({origin})",
        "sweeps": model.n_iter_,
        "objective": f"{model.objective_:.10g} (SSE + lam K)",
        "SSE": f"{model.inertia_:.10g}",
    }
    return sentence, facts, details


def show_path(args, table, X, scaler, reading):
    """Print, and draw where asked for, how clusterings compare over their number of clusters."""
    from smallvar import cluster_path

    model, told = new_model(args), None
    if args.out is None:
        # without --out nothing is labeled, and a path alone takes less time than a fit
        names = ("max_clusters", "random_state", "n_threads", "verbose")
        options = {name: getattr(model, name) for name in names}
        path, fitting = fitted(args, cluster_path, X, **options)
    else:  # the labels that there are without --path
        with warnings_told(table.titles):
            _, fitting = fitted(args, model.fit, X)
        path = model.path_
        write_clusters(args, table, model)
        told = profiles_table(args, model, table.titles, scaler)
    choice = Choice(path, model.max_clusters)
    if args.plot is not None:
        save(args.plot, merge_path_picture(table, choice, scaler))
    # without labels, the clusters are those of the path
    k, sizes = path.best, None
    if args.out is not None:
        k, sizes = model.n_clusters_, sizes_in_words(np.bincount(model.labels_), "points")
    steps = [] if choice.is_only or choice.is_clear else steps_by_number(choice)
    if steps:
        steps += steps_by_columns(path, table.titles)
    answer = Answer(
        choice.in_words(k),
        {**number_facts(k, choice.known_confidence), "sizes": sizes},
        about={
            **of_data(args, table, scaler),
            "sample": choice.sample_in_words(len(X)),
        },
        details={
            "lam": f"{path.lam:.8g} ({choice.lam_in_words()})",
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
        },
        tables=(choice.as_table(), told),
        steps=(*steps, *steps_by_files(args)),
    )
    answer.tell(args)
