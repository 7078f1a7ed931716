"""A line of progress on standard error, if that is a terminal and the work takes long."""

import os
import sys
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import perf_counter

from smallvar._cli.words import counted

LINE_PATIENCE, LINE_TICK = 2.0, 0.5  # seconds before the line appears, and between updates


class ProgressLine:
    """Context that shows how far the work in it is, and how long it may still take.

    A thread draws the line, so that the clock goes on during a long sweep. The work only sets
    ``done``, the share that is done (None: not known), and ``note``, a text. If standard error is
    not a terminal, there is neither thread nor line.
    """

    current = None  # the ProgressLine whose line may be on the terminal

    def __init__(self, what):
        self.what, self.done, self.note = what, None, ""
        self.drawn = False

    def __enter__(self):
        """Start the clock, and the thread on a terminal."""
        self.stream, self.begin = sys.stderr, perf_counter()
        self.lock, self.stopped, self.thread = Lock(), Event(), None
        # a daemon, so that it cannot keep the process alive
        if self.stream is not None and self.stream.isatty():
            ProgressLine.current = self
            self.thread = Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *error):
        """Stop the thread and clear the line."""
        if self.thread is not None:
            self.stopped.set()
            self.thread.join()
            with self.cleared():
                ProgressLine.current = None

    def watch(self):
        """Draw the line repeatedly until the work is done."""
        pause = LINE_PATIENCE
        while not self.stopped.wait(pause):
            text = self.words(perf_counter() - self.begin)
            with self.lock:
                self.stream.write("\r" + text[: self.width()].ljust(self.width()))
                self.stream.flush()
                self.drawn = True
            pause = LINE_TICK

    def words(self, elapsed):
        """The text of the line: the work, the share done, the time taken and the time left."""
        if self.done:
            left = span(elapsed * (1 - self.done) / self.done)
            words = f"{self.what}: {self.done:.0%} after {span(elapsed)}, about {left} left"
            return f"{words}{self.note and ', '}{self.note}"
        return f"{self.what}: {span(elapsed)}{self.note and ', '}{self.note}"

    @contextmanager
    def cleared(self):
        """Context in which other text can be printed; the line returns with the next tick."""
        with self.lock:
            if self.drawn:
                self.stream.write("\r" + " " * self.width() + "\r")
                self.stream.flush()
                self.drawn = False
            yield

    def width(self):
        """The number of characters for the line; some terminals wrap at the last column."""
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            columns = 0
        return (columns or 80) - 1  # 0 from terminals of unknown size


def span(seconds):
    """A length of time as text: 7 s, 3 min 20 s or 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def follow(progress, event):
    """Note the latest step of a fit on a ProgressLine, and the share done where it is known."""
    progress.done = event.done
    words = event.message
    if event.stage in ("coarse path", "path"):
        words = f"{counted(event.n_clusters, 'cluster')} by {counted(event.n_samples, 'row')}"
    if event.stage == "coarse path":
        words = f"about {words}, looking closer"
    progress.note = words
