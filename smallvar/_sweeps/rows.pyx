"""The one place that knows how data lie in memory: see rows.pxd."""

import numpy as np


cdef Rows rows_of(X, const double[::1] weight, const Py_ssize_t[::1] order) except *:
    """Rows of an array (n, d), float32 or float64, which the caller keeps alive, as it does weight and order.

    weight : (n,) in the order of visit, or None;  order : (n,), a permutation, or None
    """
    cdef const float[:, :] single
    cdef const double[:, :] double_
    cdef Rows r
    if X.dtype == np.float32:
        single = X
        r.x, r.single, r.n, r.d = &single[0, 0], True, single.shape[0], single.shape[1]
        r.row, r.col = single.strides[0] // 4, single.strides[1] // 4
    else:
        double_ = X
        r.x, r.single, r.n, r.d = &double_[0, 0], False, double_.shape[0], double_.shape[1]
        r.row, r.col = double_.strides[0] // 8, double_.strides[1] // 8
    if weight is not None and weight.shape[0] != r.n:
        raise ValueError("weight must match X")
    if order is not None and order.shape[0] != r.n:
        raise ValueError("order must match X")
    r.weight = NULL if weight is None else &weight[0]
    r.order = NULL if order is None else &order[0]
    return r
