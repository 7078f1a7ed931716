"""``smallvar track``: D-Means on the rows of a table, step by step."""

import csv
import io

import numpy as np

from smallvar._cli.arguments import check_targets, new_parser, number, parse
from smallvar._cli.data import load
from smallvar._cli.output import replacing, report, save, timed, write_labels
from smallvar._cli.picture import track_picture
from smallvar._cli.table import (
    Table,
    UserError,
    clock_title,
    columns_in_short,
    counted,
    moment,
    pick_columns,
)


def track(argv):
    """Follow clusters over time in a table with D-Means.

    Parameters
    ----------
    argv : list of str
        The arguments that follow the name of the command.
    """
    margin = " " * len("usage: smallvar track ")
    parser = new_parser(
        prog="smallvar track",
        usage="smallvar track [DATA --time COLUMN] [--lam L | --n-clusters K]\n"
        f"{margin}[--t-q T --k-tau K | --q Q --tau TAU] [options]",
        description="""
            Follow clusters that move, disappear and come back, with D-Means. Rows of the same
            time are one step; each step is clustered with a penalty lam for every new
            cluster, as in DP-means, and the clusters of earlier steps that it takes up again
            keep their numbers.""",
        examples="""
            smallvar track radar.csv --time seconds --lam 4 --plot tracks.png
            smallvar track log.parquet --time when --columns x,y --out clusters.csv""",
    )
    parser.add_argument(
        "--time",
        metavar="COLUMN",
        help="the column that holds the time of each row, by name, or where there is no header "
        "by position, from 1: numbers or dates like 2024-01-31T12:00:00, in any order. Only "
        "their order counts, not how far apart they are. The column is left out of the data "
        "unless --columns names it",
    )
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--lam",
        type=number(float, 0),
        metavar="L",
        help="the penalty per new cluster, in squared data units: a point farther than sqrt(L) "
        "from every center opens a cluster",
    )
    penalty.add_argument(
        "--n-clusters",
        type=number(int, 1),
        metavar="K",
        help="a guess at the number of clusters in the first step, not a bound: lam is then the "
        "squared distance of the K-th of K points of that step picked farthest-first (default: "
        "a guess of 8)",
    )
    parser.add_argument(
        "--t-q",
        type=number(float, 1, strict=True),
        metavar="T",
        help="forget a cluster that was not seen for T steps, inf: never (default: 6.8); goes "
        "with --k-tau",
    )
    parser.add_argument(
        "--k-tau",
        type=number(float, 1),
        metavar="K",
        help="how far a cluster may move: one that lived long is taken up again after one step "
        "up to a squared distance of K lam (default: 1.01)",
    )
    parser.add_argument(
        "--q",
        type=number(float, 0),
        metavar="Q",
        help="with --tau, in place of --t-q and --k-tau: the penalty for each step that a cluster "
        "taken up again was not seen, in squared data units",
    )
    parser.add_argument(
        "--tau",
        type=number(float, 0),
        metavar="TAU",
        help="with --q: how fast the weight of an old center fades",
    )
    parser.add_argument(
        "--starts",
        type=number(int, 1),
        default=3,
        metavar="N",
        help="orders in which the points of each step are visited, the first as given, the "
        "others random; the best result goes on (default: 3)",
    )
    parser.add_argument(
        "--tracks",
        metavar="FILE",
        help="write the centers, a row for each cluster and each step in which it was seen, under "
        "the titles time, cluster and those of the columns, as .csv",
    )
    args = parse(
        parser,
        argv,
        out="write the clusters, numbered from 0 as they appear, one per row of DATA, as .csv",
        seed="draw the random orders from S (default: 0, so that the same command gives the "
        "same result)",
        stand_in="a stream of moving groups is made up",
        lines="step",
    )
    refuse_halves(args)
    check_targets(args)

    from smallvar import DynamicMeans

    table, reading = load(args, parser.prog, moving_groups, " --time COLUMN")
    penalty, guess = first_penalty(args, table)
    given = {
        "lam": penalty,
        "t_q": args.t_q,
        "k_tau": args.k_tau,
        "q": args.q,
        "tau": args.tau,
    }
    model = DynamicMeans(
        **{option: value for option, value in given.items() if value is not None},
        n_init=args.starts,
        random_state=0 if args.seed is None else args.seed,
        n_threads=args.threads,
        verbose=int(args.verbose),
    )
    _, fitting = timed(model.fit, table.X, times=table.times)

    if args.out is not None:
        with replacing(args.out) as file:
            write_labels(file, model.labels_, "cluster")
    if args.tracks is not None:
        with replacing(args.tracks) as file:
            write_tracks(file, table.titles, model)
    if args.plot is not None:
        save(args.plot, track_picture(table, model))

    n, d = table.X.shape
    first, last = model.times_[[0, -1]]
    guess = f"farthest-first in the first step, for a guess of {counted(guess, 'cluster')}"
    born, died, revived = (
        sum(map(len, steps)) for steps in (model.births_, model.deaths_, model.revivals_)
    )
    report(
        {
            "data": f"{table.name}, {columns_in_short(table.titles)}",
            "n": n,
            "d": d,
            "steps": f"{model.n_steps_:,} ({clock_title(table)} from {moment(first)} to "
            f"{moment(last)})",
            "lam": f"{model.lam_:.8g} ({guess if args.lam is None else 'given'})",
            **memory_in_words(args, model),
            "starts": f"{args.starts:,} for each step",
            "clusters": f"{len(model.tracks_):,} ever seen, {model.n_clusters_:,} alive at the end",
            "events": f"{counted(born, 'birth')}, {counted(died, 'death')}, "
            f"{counted(revived, 'revival')}",
            "objective": f"{model.step_objectives_.sum():.10g} (summed over the steps)",
            "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting",
            "labels": args.out,
            "tracks": args.tracks,
            "picture": args.plot,
        }
    )


def first_penalty(args, table):
    """Derive the penalty from the first step where ``--n-clusters`` asks for it.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for.
    table : Table
        The data.

    Returns
    -------
    lam : float or None
        The penalty; None for that of the estimator.
    guess : int
        The guess of the number of clusters behind it; 0 where the penalty was given.
    """
    from smallvar import farthest_first_lambda
    from smallvar._dynamic import GUESS

    if args.lam is not None:
        return args.lam, 0
    first = np.flatnonzero(table.times == table.times.min())
    if args.n_clusters is None:
        return None, min(GUESS, len(first))
    if args.n_clusters > len(first):
        raise UserError(
            f"--n-clusters {args.n_clusters}: the first step ({clock_title(table)} = "
            f"{moment(table.times[first[0]])}) has only {counted(len(first), 'row')}"
        )
    lam, _ = timed(farthest_first_lambda, table.X[first], args.n_clusters, n_threads=args.threads)
    return lam, args.n_clusters


def refuse_halves(args):
    """Refuse options of `track` that need others which are not there."""
    pairs = [("t_q", "k_tau"), ("q", "tau")]
    given = [[name for name in pair if getattr(args, name) is not None] for pair in pairs]
    if all(given):
        names = " and ".join(f"--{name[0].replace('_', '-')}" for name in given)
        raise UserError(f"{names} exclude each other: give --t-q and --k-tau, or --q and --tau")
    for pair, names in zip(pairs, given, strict=True):
        if len(names) == 1:
            other = pair[1 - pair.index(names[0])]
            raise UserError(f"--{names[0]} has no meaning without --{other}".replace("_", "-"))
    if args.data is not None and args.time is None:
        raise UserError("--time COLUMN is missing: the column of DATA that holds the times")


def moving_groups(args):
    """Make up a stream of groups that move, and say what it is.

    Parameters
    ----------
    args : argparse.Namespace
        What the user asked for, of which ``columns`` and ``time`` are used.

    Returns
    -------
    table : Table
        Columns x and y and times from 0 to 59, the same every time. Seven groups are there from
        the start; one of them leaves for good, another for a while, and two more appear.
    words : str
        What this is.
    """
    rng = np.random.default_rng(0)
    steps = np.arange(60)
    spans = [(0, 60)] * 5 + [(0, 34), (0, 60), (15, 60), (30, 60)]
    rows = []
    for group, (first, last) in enumerate(spans):
        angle = 2 * np.pi * group / len(spans) + 0.012 * steps
        radius = 10 + 4 * np.sin(0.07 * steps + 2.4 * group)
        path = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        seen = (steps >= first) & (steps < last)
        if group == 2:
            seen &= (steps < 20) | (steps >= 22)
        for step in steps[seen]:
            direction, distance = rng.uniform(0, 2 * np.pi, 15), np.sqrt(rng.random(15))
            points = np.column_stack([np.cos(direction), np.sin(direction)])
            points = path[step] + distance[:, np.newaxis] * points
            rows.append(np.column_stack([np.full(15, step), points]))
    data = np.concatenate(rows)
    data = data[np.argsort(data[:, 0], kind="stable")]
    names, time = ["time", "x", "y"], args.time or "time"
    picked, titles, clock = pick_columns("the stream", args.columns, names, 3, time)
    table = Table(data[:, picked], titles, "moving groups", data[:, clock], names[clock])
    return table, "groups that move, generated by this program"


def write_tracks(file, titles, model):
    """Write the centers that clusters had, by time and number, so that they read back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", "cluster", *titles])
    rows = np.concatenate(list(model.tracks_.values()))
    ids = np.repeat(list(model.tracks_), [len(seen) for seen in model.tracks_.values()])
    order = np.lexsort([ids, rows[:, 0]])
    for cluster, (step, *center) in zip(ids[order].tolist(), rows[order].tolist(), strict=True):
        writer.writerow([moment(model.times_[int(step)]), cluster, *center])
    text.detach()


def memory_in_words(args, model):
    """Say how long and how well clusters are remembered: t_q and k_tau, or q and tau."""
    if args.q is not None:
        return {"q": f"{model.q_:.8g} (given)", "tau": f"{model.tau_:.8g} (given)"}
    from smallvar._dynamic import DEFAULT_K_TAU, DEFAULT_T_Q

    t_q, k_tau, origin = DEFAULT_T_Q, DEFAULT_K_TAU, "default"
    if args.t_q is not None:
        t_q, k_tau, origin = args.t_q, args.k_tau, "given"
    return {
        "t_q": f"{t_q:.8g} ({origin}; q = {model.q_:.8g})",
        "k_tau": f"{k_tau:.8g} ({origin}; tau = {model.tau_:.8g})",
    }
