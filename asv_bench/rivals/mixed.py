"""MixedDPMeans on large tables of several kinds, and beside KPrototypes and StepMix."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
from benchmarks.mixed import table
from sklearn.metrics import adjusted_rand_score

from smallvar import MixedDPMeans

from . import Comparison

SMALL, LARGE, CLUSTERS = 10_000, 1_000_000, 10
SECONDS = 20.0  # CPU seconds for the large table: ten by the clock on two cores


def quality(truth):
    """The number of clusters and the agreement with the true ones."""

    def told(labels):
        return f"K {len(np.unique(labels))} ARI {adjusted_rand_score(truth, labels):.3f}"

    return told


def k_prototypes(frame):
    """Labels of KPrototypes, given the number of clusters."""
    from kmodes.kprototypes import KPrototypes

    words = [j for j, name in enumerate(frame) if name.startswith(("flag", "word"))]
    data = frame.assign(**{name: frame[name].astype(float) / frame[name].std()
                           for j, name in enumerate(frame) if j not in words})  # fmt: skip
    model = KPrototypes(CLUSTERS, n_init=1, random_state=0)
    return model.fit_predict(data.astype(object).to_numpy(), categorical=words)


def stepmix(frame):
    """Labels of StepMix, given the number of clusters."""
    from stepmix.stepmix import StepMix
    from stepmix.utils import get_mixed_descriptor

    words = [name for name in frame if name.startswith(("flag", "word"))]
    others = [name for name in frame if name not in words]
    coded = frame.assign(**{name: pd.factorize(frame[name])[0] for name in words})
    data, descriptor = get_mixed_descriptor(coded, continuous=others, categorical=words)
    model = StepMix(CLUSTERS, measurement=descriptor, random_state=0, progress_bar=0, rel_tol=1e-6)
    return model.fit(data).predict(data)


def comparisons():
    """Yield them; rivals that are not installed are left out."""
    rivals = (
        ("KPrototypes, k given", k_prototypes, ["kmodes"]),
        ("StepMix, k given", stepmix, ["stepmix", "tqdm"]),
    )
    frame, truth = table(SMALL)
    yield Comparison(
        f"MixedDPMeans {SMALL} x 20",
        lambda: MixedDPMeans(random_state=0, n_threads=1).fit_predict(frame),
        {name: lambda fit=fit: fit(frame) for name, fit, packages in rivals
         if all(map(find_spec, packages))},
        quality=quality(truth),
        turns=1,
    )  # fmt: skip
    for gaps in (0.0, 0.2):
        large, known = table(LARGE, gaps)
        yield Comparison(
            f"MixedDPMeans {LARGE} x 20, {gaps:.0%} of the numbers missing",
            lambda large=large: MixedDPMeans(random_state=0).fit_predict(large),
            quality=quality(known),
            bound=SECONDS,
            turns=1,
        )
