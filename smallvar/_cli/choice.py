"""The number of clusters that a path chose, in words, and how it was searched for."""

import warnings

import numpy as np

from smallvar._cli.output import timed
from smallvar._cli.words import counted
from smallvar._selection.confidence import CALLED_CLEAR

WHOLE_PATH = float("inf")  # length of --path without a K
ABOUT_AS_WELL = 1 / 3  # of the confidence in the number chosen: others with less are not named
NAMED_RANGES = 4  # most numbers, or ranges of numbers, that are named one by one


def fitted(args, work, *data, **options):
    """Fit, and return what `timed` does; the line of progress tells of the steps unless printed.

    That a number is not clear is no warning: the report begins with it, and says what to do next.
    """
    from smallvar import UnclearNumberWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnclearNumberWarning)
        return timed(work, *data, follow=None if args.verbose else note, **options)


class Choice:
    """The number of clusters, at most ``most``, chosen on a path, and how sure that is.

    ``error`` is the attribute of the path that has the errors, which the table calls
    ``error_name``. ``counts``, ``errors``, ``behind`` (criteria less the lowest; infinite where so
    few rows do not tell), ``low`` and ``high`` (ranges of lam, empty if low >= high) are of the
    numbers allowed, ``ranges`` of all. ``ranked`` are those with a criterion, the lowest first.
    """

    def __init__(self, path, most, error="inertia", error_name="SSE"):
        self.error_name = error_name
        self.sample, self.tie = path.n_samples, getattr(path, "tie", 0.0)
        criterion = dict(zip(path.n_clusters.tolist(), path.criterion.tolist(), strict=True))
        by_criterion = path.n_clusters[np.argsort(path.criterion, kind="stable")]
        with_criterion = [k for k in by_criterion.tolist() if np.isfinite(criterion[k])]
        self.best, self.lam, self.most = path.best, path.lam, most
        self.ranked = [k for k in with_criterion if most is None or k <= most]
        allowed = path.n_clusters <= (WHOLE_PATH if most is None else most)
        self.counts, self.errors = path.n_clusters[allowed], getattr(path, error)[allowed]
        self.ranges = path.n_clusters, path.lam_low, path.lam_high
        self.low, self.high = path.lam_low[allowed], path.lam_high[allowed]
        # criteria relative to the best number that is allowed
        self.behind = path.criterion[allowed] - criterion[self.ranked[0]]
        self.second = None
        self.is_only = self.ranked == [self.best]  # no other number could be chosen
        self.confidence, self.alike = getattr(path, "confidence", None), []
        if self.confidence is not None and np.isnan(self.confidence):  # the number was given
            self.confidence = None
        self.is_clear = self.confidence is None or self.confidence >= CALLED_CLEAR
        if not self.is_clear:
            confidences = path.confidences[allowed]
            self.alike = about_as_good(self.best, self.counts, confidences)
            likely = dict(zip(self.counts.tolist(), confidences.tolist(), strict=True))
            # the likeliest of the others; a single cluster is nothing to look at
            self.second = max((k for k in self.alike if k > 1), key=likely.get, default=None)
        # a better number than --max-clusters allows is named, if it is better by more than a tie
        ahead = criterion[self.best] - criterion[with_criterion[0]]
        self.beyond = (
            with_criterion[0] if with_criterion[0] not in self.ranked and ahead > self.tie else None
        )

    def of_fit(self, model):
        """The sentence on the number of clusters of a model, and text of what its penalty is."""
        k = model.n_clusters_
        sentence = self.in_words(k) if model.n_clusters is None else given_in_words(k)
        return sentence, self.lam_in_words()

    def in_words(self, n_clusters):
        """The sentence on how many clusters there are after the last sweep, and how sure it is."""
        many, certainty = counted(n_clusters, "cluster"), self.certainty()
        if n_clusters != self.best:
            many += f" after the last sweeps, of {self.best} that the data speak for"
        if self.beyond:
            many += f", of {self.most} at most: {self.beyond} would fit better"
        if not certainty:
            return f"{many}, chosen from the data."
        if self.is_only:
            return f"{many}: {certainty}."
        return f"{many}, {'and' if self.is_clear else 'but'} this number is {certainty}."

    def certainty(self):
        """Text of how sure the number is, or why there is no other; empty if neither is known."""
        if self.is_only:
            if self.most == 1:
                return "no other was allowed"
            return "too few distinct rows to support another"
        if self.confidence is None:
            return ""
        return certainty_in_words(self.confidence, self.counts, self.alike)

    @property
    def known_confidence(self):
        """The confidence in the number; None where no other could be chosen, or it is not known."""
        return None if self.is_only else self.confidence

    def lam_in_words(self):
        """Text of what lam means, and of the range of lam for which the number chosen is best."""
        return f"a price for each cluster, not a distance; {self._range_in_words()}"

    def _range_in_words(self):
        """Text of the range of lam for which the number chosen is best, or why there is none."""
        at = self.counts.searchsorted(self.best)
        low, high = self.low[at], self.high[at]
        minimum = f"the minimum of {self.error_name} + lam K"
        if not low < high:
            return f"no lam makes K = {self.best} {minimum}: {self._others_in_words()}"
        if low > 0:
            words = f"from {low:.6g} " + (f"to {high:.6g}" if np.isfinite(high) else "on")
        else:
            words = f"up to {high:.6g}" if np.isfinite(high) else "for all lam"
        if low <= self.lam <= high:
            return f"K = {self.best} is best {words}"
        # of much data the path has the penalty found while merging, and ranges of its fixed points
        return f"found before the last sweeps, after which K = {self.best} is {minimum} {words}"

    def _others_in_words(self):
        """Text of the numbers that are best where the one chosen is for no lam."""
        counts, low, high = self.ranges
        fewer = np.flatnonzero((low < high) & (counts < self.best))[-1]
        more = np.flatnonzero((low < high) & (counts > self.best))
        if not len(more):
            return f"K = {counts[fewer]} has no larger {self.error_name}"
        return (
            f"below {low[fewer]:.6g} it is at K = {counts[more[0]]} or more, above at "
            f"K = {counts[fewer]} or fewer"
        )

    def sample_in_words(self, n):
        """Text of the number of rows the path was found on; None if they are all n."""
        return f"{self.sample:,} rows, drawn at random" if n > self.sample else None

    def as_table(self):
        """Text of the path as a table: a row for each number of clusters, and the marks."""
        lines = [
            f"{'K':>4}  {self.error_name:>14}  {'criterion':>14}  {'rank':>4}  "
            f"{'best for lam from':>17}  "
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
            meaning = "gaps between clusters, which the criterion does not know"
        lines.append(f"   * chosen: {meaning}")
        return "\n".join(lines)


def about_as_good(best, counts, confidences):
    """List the numbers with at least a third of the confidence in ``best``, ascending."""
    least = ABOUT_AS_WELL * confidences[counts.searchsorted(best)]
    alike = (confidences >= least) & (confidences > 0) & (counts != best)
    return counts[alike].tolist()


def certainty_in_words(confidence, counts, alike):
    """Say whether a number of clusters is clear, and if not, which others fit about as well.

    ``alike`` are the others, from `about_as_good`; ``counts`` are all numbers, ascending: what is
    between two of them was not looked at.
    """
    clear = confidence >= CALLED_CLEAR
    verdict = f"{'clear' if clear else 'not clear'} (confidence {confidence:.2f})"
    if clear or not alike:
        return verdict
    numbers = np.sort(alike)
    gaps = np.diff(counts.searchsorted(numbers)) > 1
    parts = []
    for run in np.split(numbers, np.flatnonzero(gaps) + 1):
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    if len(parts) > NAMED_RANGES:
        parts = [f"{len(numbers)} numbers from {numbers[0]} to {numbers[-1]}"]
    *first, last = parts
    words = f"{', '.join(first)} and {last}" if first else last
    return f"{verdict}: {words} fit{'s' if len(numbers) == 1 else ''} about as well"


def given_in_words(k):
    """The sentence on a number of clusters that was asked for."""
    return f"{counted(k, 'cluster')}, as asked for."


def by_penalty_in_words(k, lam, origin):
    """The sentence on a number of clusters that a penalty leads to."""
    return f"{counted(k, 'cluster')}, by the penalty lam = {lam:.8g} ({origin})."


def note(progress, event):
    """Show the latest sweep or stage of the search, and the share done where it is known."""
    progress.done = event.done
    words = event.message
    if event.stage in ("coarse path", "path"):
        words = f"{counted(event.n_clusters, 'cluster')} by {counted(event.n_samples, 'row')}"
    if event.stage == "coarse path":
        words = f"about {words}, looking closer"
    progress.note = words
