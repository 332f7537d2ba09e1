"""Compares the agent that a starting reconciler reaches with the agent of the leading reconciler.

A standby that reaches another agent would otherwise notice the difference only at its take-over, and then every job of
the leader's agent waits. So the standby logs a warning when it starts, while no job waits yet. Source:
docs/decisions/0040."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import structlog

from ledger.errors import LedgerError
from ledger.reader.claims import read_claims
from ledger.reader.reading import Source

ROLE = "reconciler"
EVERY_S = 1.0
log = structlog.get_logger(ROLE)


class AgentComparison:
    """Compares the agents once, on a thread inside the `with` block, as soon as both are known. Logs a warning if they
    differ.

    reached: returns, for each runner with instances, the instance that this process reaches; raises LedgerError while a
    runner does not answer. own_name: the writer name in our own claims. Our claims are not compared here: the take-over
    compares them (`roles.reconciler.instances`)."""

    def __init__(self, source: Source, reached: Callable[[], Mapping[str, str]], own_name: str) -> None:
        self._source, self._reached, self._own_name = source, reached, own_name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compares-agents", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(2 * EVERY_S)

    def step(self) -> bool:
        """Whether the comparison is done. False if our agent does not answer, the log can't be read, or no reconciler
        has led yet."""
        try:
            here = self._reached()
            leader = next((one for one in read_claims(self._source) if one.role == ROLE), None)
        except LedgerError:  # the role itself reports what it can't reach
            return False
        if leader is None:
            return False
        if leader.writer != self._own_name:
            for runner, instance in here.items():
                if (there := leader.reaches.get(runner, instance)) != instance:
                    log.warning(
                        "leader_reaches_other_instance", runner=runner, here=instance, there=there, leader=leader.writer,
                        effect=f"jobs that {instance} holds wait; while this reconciler leads, those of {there} do",
                        mend="give all reconcilers the folder of one agent (docs/RUNBOOK.md, Several hosts)",
                    )  # fmt: skip
        return True

    def _run(self) -> None:
        while not self._over.is_set() and not self.step():
            self._over.wait(EVERY_S)
