"""How far the work is: a line on standard error, if that is a terminal and the work takes long."""

import os
import sys
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import perf_counter

PATIENCE, TICK = 2.0, 0.5  # seconds before the line appears, and between two states of it


class Progress:
    """Show how far the work in a ``with`` block is, and how long it may still take.

    A thread of its own draws the line: the work only notes where it is, which costs next to
    nothing, and a sweep that takes long does not stop the clock. Where standard error is no
    terminal there is neither thread nor line.

    Parameters
    ----------
    what : str
        What is being done.
    """

    current = None  # the one whose line may stand on the terminal

    def __init__(self, what):
        self.what, self.done, self.note = what, None, ""
        self.drawn = False

    def __enter__(self):
        """Start the clock."""
        self.stream, self.begin = sys.stderr, perf_counter()
        self.lock, self.stopped, self.thread = Lock(), Event(), None
        if self.stream is not None and self.stream.isatty():
            Progress.current = self
            self.thread = Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *error):
        """Take the line away."""
        if self.thread is not None:
            self.stopped.set()
            self.thread.join()
            with self.cleared():
                Progress.current = None

    def watch(self):
        """Draw until the work is done."""
        pause = PATIENCE
        while not self.stopped.wait(pause):
            text = self.words(perf_counter() - self.begin)
            with self.lock:
                self.stream.write("\r" + text[: self.width()].ljust(self.width()))
                self.stream.flush()
                self.drawn = True
            pause = TICK

    def words(self, elapsed):
        """Say what is being done, for how long already, and for how long still."""
        if self.done:
            left = span(elapsed * (1 - self.done) / self.done)
            words = f"{self.what}: {self.done:.0%} after {span(elapsed)}, about {left} left"
            return f"{words}{self.note and ', '}{self.note}"
        return f"{self.what}: {span(elapsed)}{self.note and ', '}{self.note}"

    @contextmanager
    def cleared(self):
        """Make room for other words; the line comes back with the next tick."""
        with self.lock:
            if self.drawn:
                self.stream.write("\r" + " " * self.width() + "\r")
                self.stream.flush()
                self.drawn = False
            yield

    def width(self):
        """Tell how many characters fit on the line; in the last column some terminals wrap."""
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            columns = 0
        return (columns or 80) - 1  # some terminals say 0 where they do not know


def span(seconds):
    """Write a span of time: 7 s, 3 min 20 s or 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
