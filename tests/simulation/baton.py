"""Threads of which one runs at a time: whoever holds the baton. So a role can be stopped in the middle of a step.

Deterministic, because nothing happens but by the holder: the stage hands the baton to an actor, which hands it back at the
end of a step, or at a point (a call to a port) where the stage wants it to pause.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """For this thread and those that it starts: only one of them runs at a time, and handing the baton to another core
    costs a third as much again as all that they do with it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.SystemRandom().choice(sorted(before))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Crashed(BaseException):
    """Ends an actor where it stands, as kill -9 does: no `except Exception` catches it."""


class Actor:
    """at: the point where it is paused, "" between two steps. heard: a hash of every answer that it ever got; a role is a
    function of these alone, so two runs in which they are equal are in the same state."""

    def __init__(self, name: str, step: Callable[[], None]) -> None:
        self.name, self._step = name, step
        self.at, self.alive, self.heard = "", True, 0
        self._mine, self._stages = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._stages.acquire()
        self._killed, self._error = False, None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Called by the stage: runs the actor until its step ends or it pauses. Raises what its step raised."""
        self._mine.release()
        self._stages.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self, at: str) -> None:
        """Called by the actor: hands the baton back, and goes on once it is resumed."""
        self.at = at
        self._stages.release()
        self._mine.acquire()
        if self._killed:
            raise Crashed
        self.at = ""

    def kill(self) -> None:
        """Called by the stage: the actor ends where it stands."""
        if self.alive:
            self._killed = True
            self.resume()
            self._thread.join()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            while not self._killed:
                self._step()
                self.pause("")
        except Crashed:
            pass
        except BaseException as error:
            self._error = error
        self.alive = False
        self._stages.release()


class Stage:
    """current: the actor that holds the baton, None = the stage itself. pauses: whether an actor pauses at a point."""

    def __init__(self, pauses: Callable[[Actor, str], bool]) -> None:
        self.current: Actor | None = None
        self._pauses = pauses

    def run(self, actor: Actor) -> None:
        self.current = actor
        try:
            actor.resume()
        finally:
            self.current = None

    def kill(self, actor: Actor) -> None:
        self.current = None  # what it still calls on its way out is no point
        actor.kill()

    def hears(self, *answer: object) -> None:
        """The actor that runs gets an answer."""
        if self.current is not None:
            self.current.heard = hash((self.current.heard, *answer))

    def point(self, name: str) -> None:
        actor = self.current
        if actor is not None and self._pauses(actor, name):
            self.current = None
            actor.pause(name)
            self.current = actor

    def wait(self, name: str) -> None:
        """A point where the actor can do nothing until somebody else has done something."""
        actor = self.current
        if actor is not None:
            self.current = None
            actor.pause(name)
            self.current = actor
