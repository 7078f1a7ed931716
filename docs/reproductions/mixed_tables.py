"""Real tables with columns of several kinds and gaps: MixedDPMeans and what others use.

For each table whose groups are known, and each method: the number of clusters found, the adjusted
Rand index (ARI) with the groups, and CPU seconds of one thread. Groups that people have named need
not be those that a table falls into: of car and balance_scale the rows are all combinations of
their levels, where there is no cluster to be found.

KPrototypes (kmodes; KModes and KMeans where all columns are of one kind) cannot have gaps, so that
they are filled by mean or mode, and its numbers are standardized. StepMix is a latent class model
by maximum likelihood, gaps allowed; "BIC" takes the number of classes with the lowest BIC, from 1
to 5 more than there are groups, 20 at most. Both start three times. All are given the kinds of
columns that MixedDPMeans finds, but StepMix takes ordered columns as categories. HDBSCAN, by its
defaults, clusters Gower distances, which takes memory for the square of the number of rows.

    SMALLVAR_DATA=folder python docs/reproductions/mixed_tables.py

takes four minutes of one core, most of them StepMix's; --quick only the penguins without StepMix by
BIC. It needs kmodes, stepmix, palmerpenguins and statsmodels. With a folder in SMALLVAR_DATA that
has uci/NAME.csv (the last column is "class") the sets of the UCI repository are there too.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from smallvar import MixedDPMeans

WIDTH = 26
WORDS = ("bernoulli", "categorical")
MOST_STATES = 20  # of the latent class models that BIC chooses from: at most k + 5, or so many
STARTS = 3


def penguins():
    """Penguins of three species (palmerpenguins, CC0), without the column species."""
    from palmerpenguins import load_penguins

    table = load_penguins()
    return table, table.pop("species")


def elections():
    """A survey of voters in 1996 (statsmodels, public domain), without their votes."""
    from statsmodels.datasets import anes96

    table = anes96.load_pandas().data.drop(columns="logpopul")
    return table, table.pop("vote")


def of_sklearn(name):
    """A set that scikit-learn ships (BSD; the data are of the UCI repository, CC BY 4.0)."""

    def load():
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")(as_frame=True)
        return found.data, found.target

    return load


def of_uci(name):
    """A set of the UCI repository (CC BY 4.0): NAME.csv in the folder uci of SMALLVAR_DATA."""

    def load():
        path = Path(os.environ["SMALLVAR_DATA"], "uci", f"{name}.csv")
        table = pd.read_csv(path)
        return table, table.pop("class")

    return load


SETS = {
    "penguins": penguins,
    "anes96": elections,
    "iris": of_sklearn("iris"),
    "wine": of_sklearn("wine"),
    "breast cancer (Wisconsin)": of_sklearn("breast_cancer"),
}
UCI = (
    *("balance_scale", "breast_cancer", "car", "pima", "soybean", "soybean_large307"),
    *("soybean_small", "vehicle"),
)


def sets():
    """Yield name, table and groups."""
    for name, load in SETS.items():
        try:
            yield name, *load()
        except ImportError as error:
            print(f"{name} is left out: it needs {error.name}")
    if "SMALLVAR_DATA" in os.environ:
        for name in UCI:
            yield name, *of_uci(name)()


def kinds_of(table):
    """The kinds of the columns that are used, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixedDPMeans(n_clusters=1).fit(table)
    return {c.name: c.kind for c in model.columns_ if c.flag_of is None}


def parts(table, kinds, fill, words=WORDS):
    """Numbers with unit variance, and codes of words; gaps NaN or, ``fill``, mean and mode."""
    numbers, codes = {}, {}
    for name, kind in kinds.items():
        column = table[name]
        if kind in words:
            code = pd.Series(pd.factorize(column)[0]).astype(float)
            code[code < 0] = np.nan
            codes[name] = code.fillna(code.mode()[0]) if fill else code
        else:
            x = pd.Series(np.asarray(column, dtype=float))
            x = (x - x.mean()) / x.std()
            numbers[name] = x.fillna(0.0) if fill else x
    return pd.DataFrame(numbers), pd.DataFrame(codes)


def smallvar(table, kinds, k):
    """`MixedDPMeans` by its defaults."""
    return MixedDPMeans(random_state=0, n_threads=1).fit_predict(table)


def smallvar_told(table, kinds, k):
    """`MixedDPMeans` with the number of groups."""
    return MixedDPMeans(n_clusters=k, random_state=0, n_threads=1).fit_predict(table)


def k_prototypes(table, kinds, k):
    """KPrototypes with gaps filled; KModes or KMeans where all columns are of one kind."""
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes

    numbers, codes = parts(table, kinds, fill=True)
    if numbers.shape[1] == 0:
        return KModes(k, n_init=STARTS, random_state=0).fit_predict(codes.astype(int))
    if codes.shape[1] == 0:
        return KMeans(k, n_init=STARTS, random_state=0).fit_predict(numbers)
    both = np.hstack([numbers.to_numpy(dtype=object), codes.astype(int).to_numpy(dtype=object)])
    places = list(range(numbers.shape[1], both.shape[1]))
    return KPrototypes(k, n_init=STARTS, random_state=0).fit_predict(both, categorical=places)


def stepmix_of(table, kinds, k):
    """A fitted latent class model with k classes, and its data; ordered columns are categories.

    As numbers it would not fit them where they have gaps: all is NaN.
    """
    from stepmix.stepmix import StepMix
    from stepmix.utils import get_mixed_descriptor

    numbers, codes = parts(table, kinds, False, (*WORDS, "ordered"))
    both = pd.concat([numbers, codes], axis=1)
    named = {}
    if numbers.shape[1]:
        named["continuous_nan"] = list(numbers)
    if codes.shape[1]:
        named["categorical_nan"] = list(codes)
    data, descriptor = get_mixed_descriptor(both, **named)
    model = StepMix(
        k, measurement=descriptor, n_init=STARTS, random_state=0, progress_bar=0, rel_tol=1e-6
    )
    return model.fit(data), data


def stepmix_told(table, kinds, k):
    """StepMix with the number of groups."""
    model, data = stepmix_of(table, kinds, k)
    return model.predict(data)


def stepmix_bic(table, kinds, k):
    """StepMix with the number of classes of the lowest BIC, from 1 up to some more than k."""
    found = (stepmix_of(table, kinds, m) for m in range(1, min(k + 5, MOST_STATES) + 1))
    model, data = min(found, key=lambda pair: pair[0].bic(pair[1]))
    return model.predict(data)


def gower(table, kinds, k):
    """HDBSCAN by its defaults on Gower distances, of the cells that both rows have."""
    total, count = np.zeros((len(table),) * 2), np.zeros((len(table),) * 2)
    numbers, codes = parts(table, kinds, fill=False)
    for column in (*numbers, *codes):
        is_word = column in codes
        x = (codes if is_word else numbers)[column].to_numpy()
        apart = np.abs(x[:, None] - x)
        apart = apart > 0.0 if is_word else apart / np.nanmax(apart)
        there = ~np.isnan(x)
        both = there[:, None] & there
        total += np.where(both, apart, 0.0)
        count += both
    distance = np.where(count > 0.0, total / np.maximum(count, 1.0), 1.0)
    return HDBSCAN(metric="precomputed").fit_predict(distance)


# Each takes a table as it is, the kinds of its columns and the number of groups, and returns labels
# (-1: none). Those called "told k" use that number.
METHODS = {
    "MixedDPMeans": smallvar,
    "MixedDPMeans, told k": smallvar_told,
    "KPrototypes, told k": k_prototypes,
    "StepMix, told k": stepmix_told,
    "StepMix, BIC": stepmix_bic,
    "Gower + HDBSCAN": gower,
}


def compare(quick):
    """Print a block for each set, and in the end means over all sets."""
    total = {}
    for name, table, groups in sets():
        if quick and name != "penguins":
            continue
        k, kinds = groups.nunique(), kinds_of(table)
        codes = sum(kind in ("bernoulli", "categorical") for kind in kinds.values())
        gaps = table[list(kinds)].isna().to_numpy().mean()
        print(
            f"{name}: {len(table)} rows, {len(kinds)} columns, {codes} of them words or flags, "
            f"{gaps:.1%} missing; {k} groups"
        )
        for method, fit in METHODS.items():
            if quick and "BIC" in method:
                continue
            begin = time.process_time()
            try:
                labels = np.asarray(fit(table, kinds, k))
            except ImportError as error:
                print(f"    {method:<{WIDTH}} not there: it needs {error.name}")
                continue
            seconds = time.process_time() - begin
            found = len(np.unique(labels[labels >= 0]))
            index = adjusted_rand_score(groups, labels)
            print(
                f"    {method:<{WIDTH}} K {found:3d}  ARI {index:6.3f}  {seconds:8.2f} s",
                flush=True,
            )
            total.setdefault(method, []).append((found == k, index, seconds))
    print(f"\nmeans of {len(next(iter(total.values())))} sets")
    for method, rows in total.items():
        right, index, seconds = np.mean(rows, axis=0)
        print(f"    {method:<{WIDTH}} K right {right:4.2f}  ARI {index:6.3f}  {seconds:8.2f} s")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the penguins only")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    with threadpool_limits(1):
        compare(args.quick)


if __name__ == "__main__":
    main()
