"""Checks of parameters and data, with the messages of the errors.

In order: parameters (numbers, options, penalties); dense and sparse data; sample weights; starting
centers and learned arrays. A message names the parameter, its bound and the value given.
"""

import copy
import inspect
import math
import operator
import warnings
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, sparray, spmatrix
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array, gen_batches

from smallvar._core.tables import GAPS_ALLOWED, naming_columns, opened, types_of
from smallvar._sweeps.nearest_sweep import check_memory
from smallvar._sweeps.rows import (
    LARGEST_ERROR,
    LARGEST_REACH,
    LARGEST_WEIGHT,
    SMALLEST_REACH,
    SMALLEST_WEIGHT,
    UNSOUND,
    is_canonical,
)

Data: TypeAlias = ArrayLike | sparray | spmatrix  # data of estimators that accept sparse rows
DTYPES = (np.float64, np.float32)
LARGEST = 2**63 - 1  # largest value of an integer parameter
MOST_SPARSE_COLUMNS = 2**31 - 1  # of sparse data
# what errors say of measures of distance that another estimator has
TAKEN_BY = {
    "cosine": "; smallvar.SphericalDPMeans clusters rows by their cosines",
    "precomputed": "; smallvar.KernelDPMeans(kernel='precomputed') takes a Gram matrix, which is "
    "-D**2 / 2 for a matrix D of distances",
    "mahalanobis": "; smallvar.MahalanobisMeans finds covariances of clusters",
    "gower": "; smallvar.MixedDPMeans takes columns of numbers and words",
}
# "absolute" below: in the unit of the data or weights
# symmetric entries may differ by this part of the largest entry, or by 8 epsilon of the type
ASYMMETRY = 1e-10
# weights up to this ratio are divided by the lightest; they are then rounded to this number of bits
MOST_RELATIVE, RELATIVE_BITS = 2.0**40, 48
NUMBERS_AT_ONCE = 1 << 19  # numbers compared with their transposes at a time


def shown(value):
    """Text of a value for error messages; of an integer beyond int64 only the length in bits."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Integral) and abs(int(value)) > LARGEST:
        # Python refuses to convert integers of more than 4300 digits to text
        return f"an integer of {int(value).bit_length()} bits"
    # item() leaves a longdouble as it is, and its repr names the type
    return str(value) if isinstance(value, np.longdouble) else repr(value)


def as_number(value, name, integer):
    """The Python int or float of ``value``; ValueError if it is out of range for C code."""
    if integer:
        if value > LARGEST:
            raise ValueError(f"{name} must be <= {LARGEST}, got {shown(value)}")
        return int(value)
    try:
        number = float(value)  # OverflowError for a huge int; a huge Decimal becomes infinite
        if math.isinf(number) and value != number:
            raise OverflowError
    except OverflowError:
        bound = f"at most {np.finfo(np.float64).max:.4g} in absolute value"
        raise ValueError(f"{name} must be {bound}, got {shown(value)}") from None
    return number


def check_number(value, name, *, low=None, low_open=False, integer=False, none=False):
    """Return ``value`` as int or float if it is a number within its bound; raise if not.

    ``low`` is the lower bound, or None without one; it is excluded if ``low_open``. ``none`` allows
    None, which is returned; a text ends the error for a number below the bound. NaN, and integers
    above LARGEST, raise whatever the bound.
    """
    if none and value is None:
        return value
    kind, word = (Integral, "an integer") if integer else (Real, "a number")
    if isinstance(value, (bool, np.bool_, np.timedelta64)) or not isinstance(value, kind):
        raise TypeError(f"{name} must be {word}{' or None' * bool(none)}, got {shown(value)}")
    number = as_number(value, name, integer)
    if number != number and low is None:
        raise ValueError(f"{name} must not be NaN, got {shown(value)}")
    # number != number: NaN
    if number != number or (low is not None and (number < low or (low_open and number == low))):
        note = "" if isinstance(none, bool) else none
        sign = ">" if low_open else ">="
        raise ValueError(f"{name} must be {sign} {low}, got {shown(value)}{note}")
    return number


def check_option(value, name, options):
    """Raise unless ``value`` is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}"
            f"{taken_by(value)}"
        )


def taken_by(measure):
    """Text: the estimator that has this measure of distance; empty if none has."""
    return TAKEN_BY.get(measure, "") if isinstance(measure, str) else ""


def level_of_caller():
    """The level of the first call from outside of smallvar and scikit-learn, for a warning."""
    level, frame = 0, inspect.currentframe().f_back
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("smallvar", "sklearn"):
            break
        level, frame = level + 1, frame.f_back
    return level + 1


def columns_in_words(columns, names=None):
    """Text: the first five columns, by their names as Python writes them, or by their positions."""
    words = [str(j) if names is None else repr(str(names[j])) for j in columns[:5]]
    return ", ".join(words) + (", ..." if len(columns) > 5 else "")


def exact_number(n_clusters):
    """The checked number of clusters asked for; None if the data choose: for None and "auto"."""
    if isinstance(n_clusters, str):
        if n_clusters == "auto":
            return None
        raise TypeError(f"n_clusters must be an integer, 'auto' or None, got {shown(n_clusters)}")
    return check_number(n_clusters, "n_clusters", low=1, integer=True, none=True)


def check_flag(value, name):
    """Raise unless ``value`` is a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def check_verbose(value):
    """Raise unless ``verbose`` is a bool or an integer >= 0."""
    if not isinstance(value, (bool, np.bool_)):
        check_number(value, "verbose", low=0, integer=True)


def check_lam(lam, *, capped=None, finite=False, name="lam", options=("farthest-first",)):
    """Raise unless ``lam`` is a positive number or one of ``options``.

    0 is allowed if ``capped``; False means that the message names max_clusters. ``finite``:
    infinity is not allowed.
    """
    low = ">=" if capped else ">"
    wanted = f"{name} must be a number {low} 0 or one of {', '.join(map(repr, options))}"
    if isinstance(lam, str):
        if lam not in options:
            raise ValueError(f"{wanted}, got {shown(lam)}")
        return
    if not isinstance(lam, Real) or isinstance(lam, (bool, np.bool_, np.timedelta64)):
        raise TypeError(f"{wanted}, got {shown(lam)}")
    number = as_number(lam, name, False)
    if not (number > 0 or (number == 0 and capped)):
        zero = ", or 0 if max_clusters is given" if capped is False else ""
        raise ValueError(f"{name} must be {low} 0{zero}, got {shown(lam)}")
    if finite and math.isinf(number):
        raise ValueError(f"{name} must be finite, got {shown(lam)}")


def check_stays(estimator, values):
    """Raise if a parameter has changed; ``values`` are those at the first batch, by name."""
    for name, first in values.items():
        now = getattr(estimator, name)
        if now is not first and (issparse(now) or not np.array_equal(now, first)):
            raise ValueError(
                f"{name} must stay what it was at the first batch, {shown(first)}, got {shown(now)}"
            )


def as_floats(value: ArrayLike) -> NDArray[np.float64]:
    """The values as an aligned float64 array in C order; ValueError or TypeError if impossible."""
    array = np.asarray(value)
    if array.dtype == np.float64 and array.flags.c_contiguous and array.flags.aligned:
        return array
    if array.dtype.kind in "cmM":
        raise ValueError(f"{array.dtype} is no type of real numbers")
    try:
        with np.errstate(over="ignore"):
            return np.require(array, dtype=np.float64, requirements=["C", "A"])
    except OverflowError:
        raise ValueError("there are integers beyond the range of float64") from None


@contextmanager
def explained(X, gaps_advice=GAPS_ALLOWED):
    """Context for scikit-learn's checks: their errors name X and the column.

    ``gaps_advice`` ends the error for a missing value.

    Integers beyond float64 raise ValueError, as other values out of range do. The checks sum X
    first, which in float32 may give inf - inf, a warning that is suppressed here.
    """
    try:
        with np.errstate(invalid="ignore"), naming_columns(X, gaps_advice):
            yield
    except OverflowError as error:
        raise ValueError(f"X must be within the range of float64: {error}") from None


def is_plain(
    X: Any, dtypes: tuple[type, ...] = DTYPES, least: int = 1
) -> TypeGuard[NDArray[np.floating]]:
    """Whether X passes all checks unchanged: a two-dimensional array of finite numbers.

    This takes a tenth of the time of scikit-learn's checks, which are needed only to say what is
    wrong. ``least`` is the least number of rows.
    """
    return (
        type(X) is np.ndarray
        and X.dtype.type in dtypes
        and X.ndim == 2
        and X.shape[0] >= least
        and X.shape[1] > 0
        and X.flags.aligned
        and X.dtype.isnative
        and has_finite_sum(X)
    )


def has_finite_sum(array):
    """Whether the sum of an array is finite, which implies that each number is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(np.add.reduce(array, axis=None))


def is_same(array, second):
    """Whether two arrays have the same shape and the same numbers."""
    return array.shape == second.shape and bool((array == second).all())


def aligned(X):
    """The array itself, or a copy where its elements are not aligned or of the other byte order."""
    if X.flags.aligned and X.dtype.isnative:
        return X
    return X.astype(X.dtype.newbyteorder("="))


def realigned(value):
    """The value with all arrays in it aligned, also those in containers and objects of smallvar.

    Arrays that are unpickled from the buffers of a message or a file may begin at any byte, where
    C code must not read numbers. Objects are changed in place; containers are copied if needed.
    """
    if isinstance(value, np.ndarray):
        return aligned(value)
    if type(value) in (list, tuple):
        elements = [realigned(element) for element in value]
        unchanged = all(map(operator.is_, elements, value))
        return value if unchanged else type(value)(elements)
    if type(value) is dict:
        entries = {key: realigned(element) for key, element in value.items()}
        unchanged = all(map(operator.is_, entries.values(), value.values()))
        return value if unchanged else entries
    if type(value).__module__.startswith(("smallvar.", "scipy.sparse.")):
        attributes = getattr(value, "__dict__", {})
        for name, attribute in list(attributes.items()):
            new = realigned(attribute)
            if new is not attribute:
                attributes[name] = new
    return value


def check_data(X: Data, *, sparse: bool = False) -> NDArray[np.floating]:
    """Checked data of a function, float32 or float64; estimators have ``_validate``."""
    if is_plain(X):
        return X
    X = check_sparse(opened(X), "this function", sparse)
    with explained(X):
        X = check_array(X, dtype=types_of(X, DTYPES), accept_sparse="csr" if sparse else False)
    return sparse_rows(X) if issparse(X) else aligned(X)


def check_sparse(X, name, allowed):
    """Sparse data with indices of their own; dense data as they are.

    Raise if sparse data are not allowed, or if their indices would lead C code out of bounds.
    ``name`` is that of the estimator, for the message. The indices are copied first, since others
    may write to those of the user at any time.
    """
    if not issparse(X):
        return X
    if not allowed:
        raise TypeError(
            f"{name} takes dense data only, got a sparse {type(X).__name__}: use X.toarray(), or "
            "sklearn.decomposition.TruncatedSVD for fewer columns. Sparse data are taken by "
            "DPMeans, MiniBatchDPMeans, SphericalDPMeans, SpectralDPMeans, cluster_path, "
            "farthest_first_lambda and coreset, and as graphs by PenalizedCut"
        )
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got a sparse array of shape {X.shape}")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must hold real numbers, got a sparse array of dtype {X.dtype}")
    X = with_own_indices(X)
    if X.format == "coo":
        sizes = [len(X.data), len(X.row), len(X.col)]
        if min(sizes) != max(sizes):
            raise ValueError(f"X must have a row and a column for each entry, got {sizes}")
        indices = {"row": (X.row, X.shape[0]), "col": (X.col, X.shape[1])}
    elif X.format in ("csr", "csc", "bsr"):
        # indptr has an entry for each row (column in CSC) or row of blocks, and one more
        rows, columns = X.shape if X.format != "bsr" else np.floor_divide(X.shape, X.blocksize)
        major, minor = (columns, rows) if X.format == "csc" else (rows, columns)
        begin, used = X.indptr, min(len(X.indices), len(X.data))
        if (
            begin.dtype.kind not in "iu"
            or begin.shape != (major + 1,)
            or begin[0] != 0
            or begin[-1] > used
            or (begin[1:] < begin[:-1]).any()
        ):
            raise ValueError(
                f"X.indptr must ascend from 0 to at most {used} in {major + 1} numbers, got "
                f"{np.array2string(begin, threshold=6)}"
            )
        indices = {"indices": (X.indices[: begin[-1]], minor)}
    else:
        return X
    for name, (index, size) in indices.items():
        if index.dtype.kind not in "iu" or index.ndim != 1:
            raise ValueError(f"X.{name} must be integers, got {index.dtype} of shape {index.shape}")
        if index.size and not (index.min() >= 0 and index.max() < size):
            raise ValueError(
                f"X.{name} must be >= 0 and < {size}, got {index.min()} to {index.max()}"
            )
    # what sorts indices, or adds up duplicates, moves the numbers, too: not those of the user
    if X.format == "coo" or not X.has_canonical_format:
        X.data = np.array(X.data)
    return X


def with_own_indices(X):
    """Sparse data with copies of the index arrays, of one type; the numbers are not copied."""
    names = {"coo": ("row", "col")}.get(X.format, ("indices", "indptr"))
    if not all(hasattr(X, name) for name in names):
        return X
    own = copy.copy(X)
    arrays = [np.asarray(getattr(X, name)) for name in names]
    kind = None  # what are no integers stay so, and are refused
    if all(array.dtype.kind in "iu" for array in arrays):
        small = all(np.can_cast(array.dtype, np.int32) for array in arrays)
        kind = np.int32 if small else np.int64
    for name, array in zip(names, arrays, strict=True):
        setattr(own, name, np.array(array, dtype=kind))
    return own


def sparse_rows(X):
    """Checked CSR data in the form of the sweeps: columns ascend, each once in a row, as int32.

    An array of entries that has this form is not copied. Duplicate entries are added.
    """
    if X.shape[1] > MOST_SPARSE_COLUMNS:
        raise ValueError(f"X must have at most {MOST_SPARSE_COLUMNS} columns, got {X.shape[1]}")
    check_memory(1, X.shape[1])
    begin = aligned(X.indptr)
    indices, data = aligned(X.indices[: begin[-1]]), aligned(X.data[: begin[-1]])
    if not is_canonical(begin, indices):
        # transposing twice sorts the entries, and keeps the order of duplicates
        X = csr_array((data, indices, begin), shape=X.shape).tocsc().tocsr()
        X.sum_duplicates()
        begin, indices, data = X.indptr, X.indices, X.data
        if not np.isfinite(data).all():
            raise ValueError("X must be finite, got entries of the same place with infinite sums")
    return _csr(X.shape, data, indices, begin)


def _csr(shape, data, indices, begin):
    """A CSR array of these parts; the constructor would give both index arrays one type."""
    rows = csr_array(shape, dtype=data.dtype)
    rows.data, rows.indptr = np.ascontiguousarray(data), np.ascontiguousarray(begin)
    rows.indices = np.ascontiguousarray(indices, dtype=np.int32)
    return rows


def some_rows(X, rows):
    """The rows of checked data with these indices; scipy requires index arrays of one type."""
    if not issparse(X):
        return X[rows]
    rows = np.arange(X.shape[0])[rows]
    counts = np.diff(X.indptr)[rows]
    begin = np.append(0, np.cumsum(counts, dtype=np.int64))
    # positions of the entries of these rows, row after row
    entries = np.repeat(X.indptr[rows] - begin[:-1], counts) + np.arange(begin[-1])
    if begin[-1] < 2**31:
        begin = begin.astype(np.int32)
    return _csr((len(rows), X.shape[1]), X.data[entries], X.indices[entries], begin)


def one_row(X, row):
    """One row of checked data as float64."""
    return np.array(some_rows(X, [row]).toarray()[0] if issparse(X) else X[row], dtype=np.float64)


def check_reach(X):
    """Raise if values are not finite (NaN by ``assume_finite``), or squares would leave float64."""
    values = X.data if issparse(X) else X
    reach = max(abs(float(values.max())), abs(float(values.min()))) if values.size else 0.0
    if not np.isfinite(reach):
        raise ValueError(UNSOUND)
    if reach != 0 and not SMALLEST_REACH < reach < LARGEST_REACH:
        raise ValueError(
            f"X must have its largest absolute value above 1e-140 and below 1e140, got "
            f"{reach:.3g}: squares would leave the range of float64; rescale the data"
        )


def check_symmetric(A, wanted, dtype=None):
    """Raise unless the matrix, dense or sparse, is symmetric up to rounding.

    ``dtype`` is the type of the user's matrix, if A was converted; ``wanted`` begins the message.
    Returns the largest difference of two symmetric entries.
    """
    allowed = max(ASYMMETRY, 8 * float(np.finfo(dtype or A.dtype).eps))
    if issparse(A):
        largest, off = (abs(B).max() if B.nnz else 0.0 for B in (A, A - A.T))
    else:
        largest, off = max(abs(float(A.max())), abs(float(A.min()))), 0.0
        for rows in gen_batches(len(A), max(1, NUMBERS_AT_ONCE // len(A))):
            off = max(off, float(np.abs(A[rows] - A[:, rows].T).max()))
    if not math.isfinite(largest):  # where scikit-learn is told to assume that it is
        raise ValueError(f"{wanted}, got numbers that are not finite")
    if off > allowed * largest:
        raise ValueError(
            f"{wanted}, got entries {off:.3g} apart, more than {allowed:.1g} of the largest"
        )
    return off


def single_column(array, name, n):
    """The values of n rows: an array of shape (n,), or with a warning the column of one (n, 1)."""
    if array.shape == (n,):
        return array
    if array.shape != (n, 1):
        raise ValueError(f"{name} must have shape ({n},), got {array.shape}")
    warnings.warn(
        f"{name} must have shape ({n},), got a column of shape ({n}, 1), which is taken as that",
        DataConversionWarning,
        stacklevel=level_of_caller(),
    )
    return np.ascontiguousarray(array[:, 0])


def as_weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """Weights as a float64 array of shape (n,); they may all be zero."""
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n, sample_weight)
    try:
        weight = as_floats(sample_weight)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be numbers: {error}") from None
    if weight.shape != (n,):
        weight = single_column(weight, "sample_weight", n)
    if n and weight.min() >= SMALLEST_WEIGHT and weight.max() <= LARGEST_WEIGHT:
        return weight  # the usual case; NaN fails both comparisons
    if not np.isfinite(weight).all():
        raise ValueError("sample_weight must be finite, got NaN or infinity")
    if n and weight.min() < 0:
        raise ValueError(f"sample_weight must be >= 0, got {shown(weight.min())}")
    positive = weight[weight > 0]
    if len(positive):
        least, most = float(positive.min()), float(positive.max())
        if least < SMALLEST_WEIGHT or most > LARGEST_WEIGHT:
            raise ValueError(
                "sample_weight must be 0 or between 1e-300 and 1e100, got "
                f"{least if least < SMALLEST_WEIGHT else most!r}"
            )
    return weight


def check_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """Weights as a float64 array of shape (n,), or None where all are 1.

    Rows of positive weight are called active. Rows of weight zero, called idle, take no part in the
    fit and get the label of ``predict``.
    """
    if sample_weight is None:
        return None
    weight = as_weights(sample_weight, n)
    if not weight.any():
        raise ValueError("sample_weight must have a positive entry, got all zeros")
    return None if (weight == 1.0).all() else weight


def unit_of(weight):
    """The largest power of two <= the mean weight; 1 for None.

    Weights in this unit have products and squares within float64, and division by a power of two
    rounds nothing.
    """
    return 1.0 if weight is None else 2.0 ** math.floor(math.log2(weight.mean()))


def mean_weight(weight):
    """The mean of the positive weights (exactly their value if they are equal); 1 for None.

    A squared distance times this mean is a penalty: it is compared with weights times distances.
    """
    if weight is None:
        return 1.0
    positive = weight[weight > 0]
    # fsum rounds once, so that the order of rows does not matter
    least, most = float(positive.min()), float(positive.max())
    return least if least == most else math.fsum(positive) / len(positive)


def relative_weights(weight, bits=RELATIVE_BITS):
    """Weights divided by the lightest positive one (None if all are then 1), and that divisor.

    Weights c * w should give the same quotients for every c. Products and quotients are rounded,
    so the quotients are rounded to ``bits`` bits: equal weights, and small multiples of the
    lightest, then are the same numbers for every c. If the lightest is very light, weights are
    returned unchanged, with divisor 1.
    """
    if weight is None:
        return None, 1.0
    unit = float(weight[weight > 0].min())
    if not weight.max() <= MOST_RELATIVE * unit:
        return weight, 1.0
    mantissa, exponent = np.frexp(weight / unit)
    relative = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    return (None if (relative == 1.0).all() else relative), unit


def check_ratio(weight, most, algorithm=None):
    """Raise if weights differ so much that taking a heavy row off sums would lose light ones."""
    positive = None if weight is None else weight[weight > 0]
    if weight is None or not positive.max() > most * positive.min():
        return
    ratio = float(positive.max()) / float(positive.min())
    where = "" if algorithm is None else f" with algorithm={algorithm!r}"
    raise ValueError(
        "sample_weight must have a ratio of largest to least positive weight of at most "
        f"{most:.0e}{where}, got {ratio:.3g}: set tiny weights to 0"
        + (", or use 'serial'" if where else "")
    )


def check_spread(total_weight, reach):
    """Raise if the total weight times the squared spread would leave float64."""
    if total_weight * reach**2 > LARGEST_ERROR:
        raise ValueError(
            "sample_weight must not take the squared spread of X beyond 1e290, got weights "
            f"that sum to {total_weight:.3g} for a spread of {reach:.3g}: rescale one of them"
        )


def check_init(init, n_features, max_clusters, start="mean"):
    """Starting centers given by the user, as float64; None for the string ``start``."""
    if isinstance(init, str):
        check_option(init, "init", (start,))
        return None
    try:
        centers = as_floats(init)
    except (TypeError, ValueError) as error:
        raise ValueError(f"init must be {start!r} or an array of centers: {error}") from None
    if centers.ndim != 2 or centers.shape[0] < 1 or centers.shape[1] != n_features:
        raise ValueError(
            f"init must have shape (n_centers, {n_features}), n_centers >= 1, got {centers.shape}"
        )
    if not np.isfinite(centers).all():
        raise ValueError("init must be finite, got NaN or infinity")
    if max_clusters is not None and len(centers) > max_clusters:
        raise ValueError(
            f"init must have at most max_clusters={max_clusters} rows, got {len(centers)}"
        )
    return centers


def varying_columns(X):
    """Mask of the columns of dense rows that are not constant; None if all or none are."""
    varying = X.min(axis=0) < X.max(axis=0)
    return None if varying.all() or not varying.any() else varying


def learned(estimator, name, *shape):
    """A learned array as float64; ValueError if its shape is not this one (None: any but 0)."""
    value = getattr(estimator, name)
    try:
        array = as_floats(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None
    fits = array.ndim == len(shape) and all(
        size > 0 if least is None else size == least
        for size, least in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name} must have shape ({wanted}), as learned, got {np.shape(value)}: "
            "was it replaced? fit again"
        )
    if not (has_finite_sum(array) or np.isfinite(array).all()):
        raise ValueError(f"{name} must be finite, as learned, got NaN or infinity; fit again")
    return array
