"""`up`: keeps an embedded ledger running. The processes that `up` starts outlive it: killing `up` stops none of them,
and the next `up` on the same folder adopts them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from functools import partial

from ledger.adapters.clock import SystemClock
from ledger.adapters.java.java import ensure_java
from ledger.adapters.kafka.topics import create_topics, require_topics
from ledger.adapters.local.private import private_folder
from ledger.adapters.runners.subprocess import SubprocessRunner
from ledger.config.config import Config
from ledger.embedded.broker import Broker
from ledger.embedded.folder import (
    AGENT,
    ARCHIVER,
    BROKER,
    PROJECTOR,
    RECONCILER,
    kind_of,
    noted,
    noted_as_up,
    only_one,
    program,
)  # fmt: skip
from ledger.embedded.keeper import ProcessRestarter, Say
from ledger.embedded.leaders import Leaders, leader_on_host
from ledger.errors import ConfigError, LedgerError, Unreachable
from ledger.ports import Clock
from ledger.reader.reading import Source
from ledger.util.processes import texts_of

BROKER_READY_S = 90.0
ANSWER_S = 60.0  # for a broker that has just started, on a busy machine
ROLES_READY_S = 180.0  # Spark starts slowly on a busy machine
GRACE_S = 30.0
STEP_S = 0.1
REFUSALS_MAX = 3


def role_names(projectors: int = 2, reconcilers: int = 1) -> list[str]:
    """The names of the roles to run. Two projectors by default, so that one is always a hot standby. One reconciler,
    since it needs a JVM and `up` restarts it."""
    many = [(PROJECTOR, projectors), (RECONCILER, reconcilers)]
    return [AGENT] + [f"{kind}-{number}" for kind, count in many for number in range(1, count + 1)]


class Up:
    """One embedded ledger, kept running by `run` until `stopped` is set; the processes that `run` started keep running.

    roles: the processes besides the broker; [] = only the broker, without topics or an archiver. say: called with a
    line for each event. source: makes the `Source`, once the broker runs.
    """

    def __init__(
        self, config: Config, roles: Sequence[str] | None = None, *, say: Say, stopped: threading.Event,
        source: Callable[[], Source], clock: Clock | None = None,
    ) -> None:  # fmt: skip
        if not config.embedded:
            raise ConfigError(
                f"`up` runs its own Kafka, but kafka.bootstrap.servers is set to {config.bootstrap}.",
                hint="Unset it. Or, to use that Kafka, run: jobledger topics create, and jobledger serve ROLE.",
            )
        self._config, self._say, self._stopped, self._source = config, say, stopped, source
        self._clock = clock or SystemClock()
        self._folder = config.dir
        names = [BROKER, *(role_names() if roles is None else roles)]
        if config.archive.adapter and len(names) > 1:
            names.append(f"{ARCHIVER}-1")
        environment = _environment(config)
        self._keepers = {
            name: ProcessRestarter(program(self._folder, name, environment), self._clock, say) for name in names
        }

    def run(self) -> None:
        """Starts the processes, adopts those that run already, and restarts those that end. Returns when `stopped` is
        set.

        Raises: ConfigError or Unreachable if the ledger did not start; the processes started for it are stopped again.
        """
        with ExitStack() as stack:
            stack.enter_context(only_one(self._folder))
            for name in ("broker", "log"):
                private_folder(self._folder / name)
            stack.enter_context(noted_as_up(self._folder))
            try:
                self._bring_up()
            except LedgerError:
                if self._stopped.is_set():
                    return
                self._take_down()
                raise
            while not self._stopped.wait(STEP_S):
                self._step()

    def _bring_up(self) -> None:
        for name in noted(self._folder):
            if name not in self._keepers and (surplus := program(self._folder, name)).adopt() is not None:
                self._say(f"stopping {name} pid {surplus.pid}: not one of the roles to run")
                surplus.stop(GRACE_S)
        ensure_java()
        broker = Broker.at(self._folder / BROKER)
        keeper = self._keepers[BROKER]
        keeper.begin()
        broker.ready(BROKER_READY_S, lambda: keeper.process.alive() and not self._stopped.is_set())
        if len(self._keepers) == 1:
            self._say(f"ready: broker {broker.bootstrap} alone, dir {self._folder}")
            return
        client, settings = self._config.client(), self._config.topic_settings()
        if made := create_topics(client, settings, timeout_s=ANSWER_S):
            self._say(f"created topics {' '.join(made)}")
        require_topics(client, settings, timeout_s=ANSWER_S)
        with closing(Leaders(self._source(), partial(leader_on_host, self._config), self._fresh)) as leaders:
            for name, role in self._keepers.items():
                if name != BROKER:
                    role.begin()
            self._wait_for_roles(leaders)
        if not self._stopped.is_set():
            self._say(f"ready: broker {broker.bootstrap} dir {self._folder}")

    def _wait_for_roles(self, leaders: Leaders) -> None:
        """Waits until the agent answers and every other role has a leader."""
        signs = {AGENT: self._agent_answers} | {role: partial(leaders.led, role) for role in (PROJECTOR, RECONCILER)}
        missing = {kind_of(name) for name in self._keepers} - {BROKER, ARCHIVER}  # readiness does not depend on the archive
        deadline = self._clock.monotonic() + ROLES_READY_S
        while missing := {kind for kind in missing if not signs[kind]()}:
            if self._stopped.wait(STEP_S):
                return
            self._must_not_be_refused(missing)
            if self._clock.monotonic() > deadline:
                raise Unreachable(
                    f"Not ready within {ROLES_READY_S:g} s: {', '.join(sorted(missing))}.",
                    hint=f"See the logs in {self._folder / 'log'}.",
                )
            self._step()

    def _must_not_be_refused(self, kinds: Collection[str]) -> None:
        """Raises: ConfigError if a required role ends again and again for a reason that a restart does not fix."""
        for name, keeper in self._keepers.items():
            if kind_of(name) in kinds and keeper.refusals >= REFUSALS_MAX:
                said = " ".join(texts_of(keeper.process.last_line(2000)))
                raise ConfigError(f"{name} ended {keeper.refusals} times in a row: {said}",
                                  hint=f"Its log: {keeper.process.log}. See docs/RUNBOOK.md.")  # fmt: skip

    def _agent_answers(self) -> bool:
        try:
            SubprocessRunner(self._config.agent_folder, timeout_s=1.0).observe()
        except LedgerError:
            return False
        return True

    def _fresh(self, pid: int) -> bool:
        """Whether this `up` started the process of this pid, and did not adopt it."""
        return any(keeper.started_here and keeper.process.pid == pid for keeper in self._keepers.values())

    def _step(self) -> None:
        for keeper in self._keepers.values():
            keeper.step()

    def _take_down(self) -> None:
        for keeper in reversed(self._keepers.values()):
            if keeper.started_here:
                keeper.process.stop(GRACE_S)


def _environment(config: Config) -> dict[str, str]:
    """The environment of the roles: that of this process, plus the settings given as options."""
    paths = {"LEDGER_CONFIG": str(config.config_file.absolute())} if config.config_file else {}
    return {**os.environ, **paths, **config.environment()}
