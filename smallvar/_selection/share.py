"""How much of a fit whose number of clusters the data choose is likely done."""

# Shares of a search that is not sure of its number, measured on generated tables of 4,000 to
# 500,000 rows: the descents by the rows as they are, those with transforms of columns, and those by
# some of the columns
ROUNDS = (0.85, 0.1, 0.05)
TRANSFORMED, SELECTED = 1, 2
# of a round: each descent by distances of the rows, at most so much for all of them, more where it
# begins again with more rows; and what is done after the last one in the metric of the clusters
DESCENT, DESCENTS, LARGER, LONG = 0.1, 0.6, 0.1, 0.85
LONG_DESCENTS = 3  # most descents in the metric of the clusters
# What follows a search that is sure, in units of it: fixed points of a sample, and sweeps over all
# rows, which cost 1 / 50 of it if they are as many as those of the sample.
FIXED_POINTS, SWEEPS = 0.1, 1 / 50


class Share:
    """The share of a fit that is likely done, after every descent of its search; it never falls.

    ``n`` is the number of rows. Nothing is known before the first fine descent, for whether the
    number is sure decides how many others follow.
    """

    def __init__(self, n):
        self.n, self.done = n, 0.0
        self.begin(0)

    def begin(self, number):
        """A round begins."""
        self.round, self.within, self.step = number, 0.0, None

    def enlarge(self):
        """More rows are taken."""
        self.within += LARGER

    def after(self, stage, sure, n_samples):
        """Return the share after a descent of so many rows; None if it is not known yet.

        ``stage`` is "coarse path", "path", or "long" for those in the metric of the clusters;
        ``sure`` is whether the number is so clear that no other round will follow.
        """
        if stage == "long":
            if self.step is None:
                self.step = (LONG - self.within) / LONG_DESCENTS
            self.within += self.step
        else:
            self.within = max(self.within, min(DESCENTS, self.within + DESCENT))
        if self.done == 0.0 and stage == "coarse path":
            return None
        searched = sum(ROUNDS[: self.round]) + self.within * ROUNDS[self.round]
        if sure:
            searched = 1.0 / (1.0 + FIXED_POINTS + SWEEPS * self.n / n_samples)
        self.done = max(self.done, searched)
        return self.done
