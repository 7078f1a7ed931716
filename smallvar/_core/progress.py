"""Callbacks for the steps of a fit: ``progress_callback``, ``verbose``, and scikit-learn's.

A fit creates a ``ProgressEvent`` for each step and calls the one function that ``callback_for``
returns. ``as_root_task`` adds the callback protocol of scikit-learn 1.9.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks
    CallbackSupportMixin, with_callbacks = object, None


@dataclass(frozen=True)
class ProgressEvent:
    """A finished step of a fit.

    Attributes
    ----------
    stage : str
        The kind of step: "sweep" over the rows, "start" (all sweeps of one), "pass" over the
        batches, "time step", "features" (a fit for one number of features), "coarse path" and
        "path" (merge paths from many clusters down to one).
    number : int
        The number of the step, from 1, among those of its kind.
    message : str
        A description of the step: the line that ``verbose`` prints.
    n_clusters : int or None
        Clusters or features after the step; for a path, the number chosen.
    objective : float or None
        The objective after the step.
    n_samples : int or None
        For a path, the number of rows that it was found on; for a time step, of its rows.
    done : float or None
        The share of the fit that is likely done, from 0 to 1; None where that is not known. Only
        merge paths of fits whose number of clusters the data choose have it, from the second on.
    """

    stage: str
    number: int
    message: str
    n_clusters: int | None = None
    objective: float | None = None
    n_samples: int | None = None
    done: float | None = None


_callbacks: ContextVar[tuple[Callable[[ProgressEvent], Any], ...]] = ContextVar(
    "smallvar_callbacks", default=()
)


@contextmanager
def progress_callback(callback: Callable[[ProgressEvent], Any]) -> Iterator[None]:
    """Call a function after every step of the fits in a ``with`` block.

    Parameters
    ----------
    callback : callable
        Called as ``callback(event)`` with a ``ProgressEvent``: its attributes are ``stage`` (the
        kind of step, "sweep" for one), ``number`` (the number of the step among those of its kind,
        from 1), ``message`` (the line that ``verbose`` prints), ``n_clusters``, ``objective``,
        ``n_samples`` and ``done``, the share of the fit that is likely done (None where a step has
        none). Its result is ignored. An exception ends the
        fit, which leaves the estimator unchanged.

    Yields
    ------
    None
        Nothing.

    Raises
    ------
    TypeError
        If ``callback`` is not callable.

    See Also
    --------
    DPMeans : Its ``verbose`` prints the same events. With scikit-learn 1.9 or newer, every
        estimator also has ``set_callbacks``.

    Examples
    --------
    >>> from smallvar import DPMeans, progress_callback
    >>> with progress_callback(lambda event: print(event.stage, event.number, event.n_clusters)):
    ...     model = DPMeans(lam=4.0).fit([[0.0], [1.0], [9.0]])
    sweep 1 2
    sweep 2 2

    A bar that shows how far a fit is, by tqdm or anything else with ``update``:

    >>> from types import SimpleNamespace
    >>> bar = SimpleNamespace(n=0.0, update=lambda more: print(f"{more:.2f} more"))
    >>> def show(event):  # bar = tqdm.tqdm(total=1.0)
    ...     if event.done is not None:
    ...         bar.update(event.done - bar.n)
    >>> with progress_callback(show):
    ...     model = DPMeans(random_state=0).fit([[i + 9.0 * (i % 2)] for i in range(8)])
    0.17 more
    """
    if not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    token = _callbacks.set((*_callbacks.get(), callback))
    try:
        yield
    finally:
        _callbacks.reset(token)


def print_event(event):
    """Print the line of an event."""
    print(event.message)


def callback_for(verbose, estimator=None):
    """The function to call after every step of a fit, for all listeners; None without any."""
    listeners = list(_callbacks.get())
    if verbose:
        listeners.append(print_event)
    if hasattr(estimator, "_callback_fit_ctx"):
        listeners.append(functools.partial(_call_scikit_learn, estimator))
    if len(listeners) < 2:
        return listeners[0] if listeners else None

    def call_all(event):
        for listener in listeners:
            listener(event)

    return call_all


def in_unit(callback, unit):
    """The callback for a fit in another unit of weight: objectives are multiplied by ``unit``."""
    if callback is None or unit == 1.0:
        return callback

    def call(event):
        if event.objective is not None:
            objective = event.objective * unit
            message = event.message.replace(f"{event.objective:.8g}", f"{objective:.8g}", 1)
            event = replace(event, objective=objective, message=message)
        callback(event)

    return call


def _call_scikit_learn(estimator, event):
    """Report an event as a task of the fit, with the attributes of the event as metadata."""
    task = estimator._callback_fit_ctx.subcontext(task_name=event.stage)
    task.call_on_fit_task_begin(estimator=estimator)
    task.call_on_fit_task_end(estimator=estimator, metadata=asdict(event))


class CallbackMixin(CallbackSupportMixin):
    """What scikit-learn 1.9 and newer need of an estimator on which they set callbacks."""


def callbacks_wanted(estimator):
    """Whether scikit-learn's callbacks are to be called by a fit that begins now."""
    # set on this estimator, or by a meta-estimator around it
    wanted = hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")
    return with_callbacks is not None and wanted and not hasattr(estimator, "_callback_fit_ctx")


def as_root_task(fit):
    """The method ``fit``, run as the root task of scikit-learn's callbacks."""

    def fit_as_task(self, X, *args, **options):
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=X)
        fit(self, X, *args, **options)
        root.call_on_fit_task_end(estimator=self, X=X)
        return self

    # with_callbacks runs teardown of the callbacks, also after errors
    return fit_as_task if with_callbacks is None else with_callbacks(fit_as_task)
