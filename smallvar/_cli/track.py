"""``smallvar track``: D-Means on the rows of a table, step by step.

Campbell, Kulis & How, Dynamic Clustering Algorithms via Small-Variance Analysis of Markov Chain
Mixture Models. ``track`` parses the arguments, fits, writes and reports; helpers follow.
"""

from dataclasses import replace

import numpy as np

from smallvar._cli.answer import Answer
from smallvar._cli.arguments import check_targets, given, new_parser, number, parse
from smallvar._cli.columns import pick_columns
from smallvar._cli.data import load, of_data, scaled
from smallvar._cli.errors import UserError
from smallvar._cli.output import (
    complain,
    replacing,
    save,
    timed,
    write_rows,
)
from smallvar._cli.picture import original_tracks, track_picture
from smallvar._cli.profiles import SHOWN_CLUSTERS, TELLING, named, short
from smallvar._cli.table import Table, clock_title, moment
from smallvar._cli.table_out import write_out
from smallvar._cli.words import counted, option_of

FLEETING = 1 / 3  # clusters per row beyond which a warning is given
FLEETING_ROWS = 10  # least number of rows for the warning


def track(argv):
    """Follow clusters that move over time in a table."""
    parser = track_parser()
    args = parse(
        parser,
        argv,
        out="write the table with the cluster of each row, numbered from 0 as they appear",
        seed="draw the random orders from S (default: 0, so that the same command gives the "
        "same result)",
        stand_in="a stream of moving groups is made up",
        lines="step",
        scale="standardize the columns over all steps, each to mean 0 and standard deviation 1, "
        "so that all count alike; lam, q are then in these units, --tracks and --plot stay in "
        "those of the data",
    )
    refuse_halves(args)
    check_targets(args, "tracks")

    table, reading = load(args, parser.prog, moving_groups, " --time COLUMN")
    X, scaler = scaled(args, table)
    model, guess, fitting = fitted(args, X, table)
    warn_of_fleeting(model)

    if args.out is not None:
        write_out(args, table, ["cluster"], model.labels_)
    if args.tracks is not None:
        with replacing(args.tracks) as file:
            write_tracks(file, table.titles, model, scaler)
    if args.plot is not None:
        save(args.plot, track_picture(table, model, scaler))
    sentence, facts, about, details = of_model(args, table, model, guess)
    steps = []
    if args.tracks is None and args.data is not None:
        steps.append("--tracks FILE writes where the clusters were at each time")
    if args.plot is None:
        steps.append("--plot draws how the clusters move")
    answer = Answer(
        sentence,
        facts,
        about={**of_data(args, table, scaler), **about, "tracks": args.tracks},
        details={**details, "seconds": f"{reading:.3f} reading, {fitting:.3f} fitting"},
        tables=(tracks_in_words(table, model, scaler),),
        steps=tuple(steps),
    )
    answer.tell(args)


def track_parser():
    """The parser of the command, without the arguments that all commands share."""
    margin = " " * len("usage: smallvar track ")
    parser = new_parser(
        prog="smallvar track",
        usage="smallvar track [DATA --time COLUMN] [--lam L | --guess K]\n"
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
        "by position, from 1: numbers or dates like 2024-01-31T12:00:00 or 31.01.2024, in any "
        "order. Only their order counts, not how far apart they are. The column is left out of the "
        "data unless --columns names it",
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
        "--guess",
        type=number(int, 1),
        metavar="K",
        help="a guess at the number of clusters in a step, not a bound: in each step, K points "
        "are picked farthest-first, and lam is the median of the squared distances of the K-th "
        "over the steps, each counted by its rows (default: a guess of 8)",
    )
    _add_memory_arguments(parser)
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
    return parser


def _add_memory_arguments(parser):
    """Add the arguments that say how clusters are remembered: t_q and k_tau, or q and tau."""
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


def fitted(args, X, table):
    """Fit D-Means to the rows X at the times of the table; return the model, guess and seconds.

    The guess is the number of clusters from which the penalty follows, 0 if that was given.
    """
    from smallvar import DynamicMeans

    lam, guess, guessing = typical_penalty(args, X, table)
    model = DynamicMeans(
        lam=lam,
        **given(t_q=args.t_q, k_tau=args.k_tau, q=args.q, tau=args.tau),
        n_init=args.starts,
        random_state=0 if args.seed is None else args.seed,
        n_threads=args.threads,
        verbose=int(args.verbose),
    )
    n_steps = len(np.unique(table.times))

    def show_step(progress, event):
        progress.done = event.number / n_steps

    # with --verbose the model prints its sweeps in place of the bar
    follow = None if args.verbose else show_step
    _, fitting = timed(model.fit, X, times=table.times, follow=follow)
    return model, guess, guessing + fitting


def of_model(args, table, model, guess):
    """The sentence, the facts, what the steps are, and the details of a fitted model."""
    first, last = model.times_[[0, -1]]
    rule = f"farthest-first, median over the steps, for a guess of {counted(guess, 'cluster')}"
    born, died, revived = (
        sum(map(len, steps)) for steps in (model.births_, model.deaths_, model.revivals_)
    )
    ever, alive = len(model.tracks_), model.n_clusters_
    facts = {
        "clusters": f"{ever:,} ever seen, {alive:,} alive at the end",
        "events": f"{counted(born, 'birth')}, {counted(died, 'death')}, "
        f"{counted(revived, 'revival')}",
    }
    about = {
        "steps": f"{model.n_steps_:,} ({clock_title(table)} from {moment(first)} to {moment(last)})"
    }
    details = {
        "lam": f"{model.lam_:.8g} ({rule if args.lam is None else 'given'})",
        **memory_in_words(args, model),
        "starts": f"{args.starts:,} for each step",
        "objective": f"{model.step_objectives_.sum():.10g} (summed over the steps)",
    }
    many = counted(ever, "cluster")
    sentence = f"{many} in {counted(model.n_steps_, 'time step')}, {alive:,} of them at the end."
    return sentence, facts, about, details


def tracks_in_words(table, model, scaler):
    """Text with a line for each cluster: when it was seen, and where it was then."""
    tracks, times, titles = original_tracks(model, scaler), model.times_, named(table.titles)
    rows = np.bincount(model.labels_[model.labels_ >= 0], minlength=len(tracks)).tolist()
    lines = []
    for label in sorted(tracks)[:SHOWN_CLUSTERS]:
        first, last = (tracks[label][i] for i in (0, -1))
        told = [
            f"{short(title)} {first[1 + j]:.3g} to {last[1 + j]:.3g}"
            for j, title in enumerate(titles[:TELLING])
        ]
        seen = f"from {moment(times[int(first[0])])} to {moment(times[int(last[0])])}"
        lines.append(f"  {label:>3}  {counted(rows[label], 'row'):>12}  {seen}: {'; '.join(told)}")
    if len(tracks) > SHOWN_CLUSTERS:
        lines.append(f"  and {counted(len(tracks) - SHOWN_CLUSTERS, 'more cluster')}")
    return "\n".join(["when the clusters were seen, and where first and last:", *lines])


def typical_penalty(args, X, table):
    """The penalty given, or one that follows from all steps; the guess of it, and the seconds.

    A single step may have too few rows, or unusual ones. So the result is the median of the
    farthest-first penalties of the steps, weighted by their numbers of rows. Steps whose rows are
    all equal have no distances and are left out. The guess is 0 if the penalty was given.
    """
    from sklearn.utils import check_array

    from smallvar import DynamicMeans, farthest_first_lambda

    if args.lam is not None:
        return args.lam, 0, 0.0
    # rows sorted by time: ``first`` are the positions at which steps begin
    times, first, sizes = np.unique(
        np.sort(table.times, kind="stable"), return_index=True, return_counts=True
    )
    guess = args.guess or min(DynamicMeans().guess, int(sizes.max()))
    if guess > sizes.max():
        largest = sizes.argmax()
        raise UserError(
            f"--guess {guess}: the largest step ({clock_title(table)} = "
            f"{moment(times[largest])}) has only {counted(int(sizes[largest]), 'row')}"
        )

    def penalties():
        """Yield the penalty and the number of rows of each step with two different rows."""
        data = check_array(X, dtype=(np.float64, np.float32))
        for rows in np.split(np.argsort(table.times, kind="stable"), first[1:]):
            step, n = data[rows], len(rows)
            if (step != step[0]).any():
                yield farthest_first_lambda(step, min(guess, n), n_threads=args.threads), n

    sorted_penalties, seconds = timed(lambda: sorted(penalties()))
    if not sorted_penalties:
        return 1.0, guess, seconds  # as in farthest_first_lambda
    # weighted median: the first penalty up to which steps have half of the rows
    lams, rows = zip(*sorted_penalties, strict=True)
    cumulated = np.cumsum(rows)
    return lams[np.searchsorted(cumulated, cumulated[-1] / 2)], guess, seconds


def warn_of_fleeting(model):
    """Warn if most clusters are seen only once or twice, or every time has one row."""
    n, k = len(model.labels_), len(model.tracks_)
    if n >= FLEETING_ROWS and model.n_steps_ == n:
        complain(
            "warning: each time has a single row, so this is one record, no groups that move: "
            "smallvar.SegmentMeans, in Python, finds states that last and return"
        )
    elif model.n_steps_ > 1 and n >= FLEETING_ROWS and k > n * FLEETING:
        complain(
            f"warning: {k:,} clusters for {n:,} rows, so most are seen once or twice: lam is too "
            "small; give a larger --lam or a smaller --guess, or where clusters move fast a "
            "larger --k-tau"
        )


def refuse_halves(args):
    """Raise a UserError for options that need others, or exclude each other."""
    pairs = [("t_q", "k_tau"), ("q", "tau")]
    given_of = [[name for name in pair if getattr(args, name) is not None] for pair in pairs]
    if all(given_of):
        names = " and ".join(option_of(names[0]) for names in given_of)
        raise UserError(f"{names} exclude each other: give --t-q and --k-tau, or --q and --tau")
    for pair, names in zip(pairs, given_of, strict=True):
        if len(names) == 1:
            (other,) = set(pair) - set(names)
            raise UserError(f"{option_of(names[0])} has no meaning without {option_of(other)}")
    if args.data is not None and args.time is None:
        raise UserError("--time COLUMN is missing: the column of DATA that holds the times")


def moving_groups(wanted):
    """Generate a stream of moving groups, always the same, and its description.

    Columns x and y, and times from 0 to 59. Seven groups exist from the start; one of them
    disappears, another is absent for two steps, and two more appear.
    """
    rng = np.random.default_rng(0)
    steps = np.arange(60)
    # first step and end of each group
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
            # the root of a uniform number makes points uniform in a disk
            direction, distance = rng.uniform(0, 2 * np.pi, 15), np.sqrt(rng.random(15))
            points = np.column_stack([np.cos(direction), np.sin(direction)])
            points = path[step] + distance[:, np.newaxis] * points
            rows.append(np.column_stack([np.full(15, step), points]))
    data = np.concatenate(rows)
    data = data[np.argsort(data[:, 0], kind="stable")]
    names, wanted = ["time", "x", "y"], replace(wanted, time=wanted.time or "time")
    columns, titles, clock = pick_columns("the stream", wanted, names, 3)
    table = Table(data[:, columns], titles, "moving groups", data[:, clock], names[clock])
    return table, "groups that move, generated by this program"


def write_tracks(file, titles, model, scaler=None):
    """Write the centers of the clusters as a csv file, sorted by time and cluster."""
    tracks, times = original_tracks(model, scaler), model.times_
    rows = np.concatenate(list(tracks.values()))
    ids = np.repeat(list(tracks), [len(seen) for seen in tracks.values()])
    order = np.lexsort([ids, rows[:, 0]])
    lines = (
        [moment(times[int(step)]), cluster, *center]
        for cluster, (step, *center) in zip(ids[order].tolist(), rows[order].tolist(), strict=True)
    )
    write_rows(file, ["time", "cluster", *titles], lines)


def memory_in_words(args, model):
    """The lines of the report about t_q and k_tau, or q and tau."""
    if args.q is not None:
        return {"q": f"{model.q_:.8g} (given)", "tau": f"{model.tau_:.8g} (given)"}
    t_q, k_tau, origin = args.t_q, args.k_tau, "given"
    if t_q is None:  # from q = lam / t_q and tau = (t_q (k_tau - 1) + 1) / (t_q - 1)
        from smallvar import DynamicMeans

        # with lam = 1, since the lam of the user may be subnormal
        default = DynamicMeans(lam=1.0).partial_fit([[0.0]])
        t_q, origin = 1.0 / default.q_, "default"
        k_tau = 1.0 + (default.tau_ * (t_q - 1.0) - 1.0) / t_q
    return {
        "t_q": f"{t_q:.8g} ({origin}; q = {model.q_:.8g})",
        "k_tau": f"{k_tau:.8g} ({origin}; tau = {model.tau_:.8g})",
    }
