"""coreset."""

from smallvar import DPMeans, coreset

from .common import CASES, LARGE, MEDIUM, blobs, penalty


class Coreset:
    """One row in a hundred: the time, and what a fit to them loses."""

    param_names = ["case"]
    params = [[MEDIUM, LARGE]]
    timeout = 300

    def setup(self, case):
        """Make the data."""
        n, d, k = CASES[case]
        self.X, _ = blobs(n, d, k)
        self.n_rows, self.lam = n // 100, penalty(d) * n / k / 10

    def time_coreset(self, case):
        """Seconds."""
        coreset(self.X, self.n_rows, self.lam, random_state=0)

    def peakmem_coreset(self, case):
        """Peak memory of the process, data included."""
        coreset(self.X, self.n_rows, self.lam, random_state=0)

    def time_coreset_and_fit(self, case):
        """Seconds, with those of the fit to the rows drawn."""
        index, weight = coreset(self.X, self.n_rows, self.lam, random_state=0)
        model = DPMeans(lam=self.lam, algorithm="merge", random_state=0)
        model.fit(self.X[index], sample_weight=weight)

    def track_objective(self, case):
        """At the centers found from the rows drawn, on all rows, by that of a fit to all rows."""
        index, weight = coreset(self.X, self.n_rows, self.lam, random_state=0)
        model = DPMeans(lam=self.lam, algorithm="merge", random_state=0)
        few = -model.fit(self.X[index], sample_weight=weight).score(self.X)
        return few / model.fit(self.X).objective_

    track_objective.unit = "of the objective of a fit to all rows"
