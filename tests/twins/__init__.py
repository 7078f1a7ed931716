"""Plain numpy twins of the compiled sweeps, written to be read next to the papers.

One file a family; what they share is in `exact`.

KJ12 is Kulis & Jordan, *Revisiting k-means: new algorithms via Bayesian nonparametrics*
(2012); MB13 is Broderick, Kulis & Jordan, *MAD-Bayes* (2013). In all of them ``lam`` is
the penalty of a cluster in squared data units and ``weights`` are factors of the terms.
"""
