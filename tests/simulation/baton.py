"""Threads that take turns: only the holder of the baton runs. So a role can be stopped in the middle of a step.

This is deterministic, because only the holder acts. The stage hands the baton to an actor. The actor hands it back at the
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
    """Binds this thread and the threads that it starts to one core. Only one of them runs at a time, and handing the
    baton to another core costs a third more time."""
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
    """Ends an actor at its current point, as kill -9 does. No `except Exception` catches it."""


class Actor:
    """One thread that takes turns with others. at: the point where it is paused, "" between two steps. heard: a hash of
    all answers that it got. A role is a function of these answers, so two runs with equal hashes are in the same state."""

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
        """Called by the stage: runs the actor until its step ends or it pauses. Raises the error of the step."""
        self._mine.release()
        self._stages.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self, at: str) -> None:
        """Called by the actor: hands the baton back and waits until the actor is resumed."""
        self.at = at
        self._stages.release()
        self._mine.acquire()
        if self._killed:
            raise Crashed
        self.at = ""

    def kill(self) -> None:
        """Called by the stage: ends the actor at its current point."""
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
    """Hands the baton to the actors. current: the actor that holds it, None = the stage itself. pauses: returns whether an
    actor pauses at a point."""

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
        self.current = None  # its calls while it unwinds are no points
        actor.kill()

    def hears(self, *answer: object) -> None:
        """Adds an answer to the hash of the running actor."""
        if self.current is not None:
            self.current.heard = hash((self.current.heard, *answer))

    def point(self, name: str) -> None:
        actor = self.current
        if actor is not None and self._pauses(actor, name):
            self.current = None
            actor.pause(name)
            self.current = actor

    def wait(self, name: str) -> None:
        """A point where the actor is blocked until another actor has acted."""
        actor = self.current
        if actor is not None:
            self.current = None
            actor.pause(name)
            self.current = actor
