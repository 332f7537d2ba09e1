"""The reconciler: restarts jobs from their checkpoints and retires the finished ones.

It is level-based: after each batch of the recovery stream, and at intervals, one pass goes over all jobs. It is elected
like the projector, with epochs of its own in `ledger.events`. Its claim there is a barrier: it plans only from entries
that are at or past the claim (`term`). Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from ledger.core.model.published import Published
from ledger.errors import Fenced, LedgerError, TemporaryError, Unreachable
from ledger.ports import Executor, Observation, Reader, RecoveryStream, Runner
from ledger.roles.common.candidacy import Candidacy
from ledger.roles.common.catching_up import read_up_to
from ledger.roles.common.events import epoch_after, noops
from ledger.roles.common.role_parts import Parts
from ledger.roles.reconciler.claims import ROLE, ClaimReader
from ledger.roles.reconciler.term import ReconcilerSettings, ReconcilerTerm
from ledger.tasks import Ask, observe
from ledger.util import failpoints

log = structlog.get_logger(ROLE)


class Reconciler:
    """One instance of the reconciler, leader or standby. Call `run`, or `step` again and again."""

    def __init__(
        self, parts: Parts, runners: Mapping[str, Runner], stream: RecoveryStream, executor: Executor,
        settings: ReconcilerSettings, tell: Callable[[dict[str, str]], None] = lambda _: None, ask: Ask = observe,
    ) -> None:  # fmt: skip
        """tell: called with what each job waits for (job id -> reason), whenever that changes. ask: asks all runners."""
        self._tell, self._ask = tell, ask
        self._parts, self._runners, self._stream, self._executor = parts, runners, stream, executor
        self._settings, self._clock, self._topic = settings, parts.clock, parts.topics.events
        self._term: ReconcilerTerm | None = None
        self.counters: Counter[str] = Counter()
        self.candidacy = Candidacy(parts.leadership, parts.clock, forced=parts.forced)

    @property
    def epoch(self) -> int:
        """The epoch of the term; 0 = a standby."""
        return self._term.epoch if self._term else 0

    @property
    def waits(self) -> dict[str, str]:
        """job id -> what the job waits for; {} = a standby, or no job waits."""
        return self._term.waits if self._term else {}

    @property
    def published(self) -> Published:
        """The recovery set as this leader has read it; empty while standing by."""
        return self._term.published if self._term else Published(self._parts.codec.decode)

    def run(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            self.step()
        self.candidacy.ends()
        self._drop_term("stopped")
        self._executor.close()

    def step(self) -> None:
        """Makes one step of a leader's term. A standby takes over if it may, or waits for tick_s."""
        try:
            if self._term is not None:
                self._term.step()
            elif self.candidacy.may_lead():
                self._take_over()
            else:
                self._clock.sleep(self._settings.tick_s)
        except (Fenced, Unreachable, TemporaryError) as error:
            self.step_down(error)

    def _take_over(self) -> None:
        """Fences the predecessor; *then* checks the lease (a candidate that wakes up late stops here, having written
        nothing); reads the log to its true end for the highest epoch, and claims the next."""
        writer = self._parts.log.writer(f"{self._topic}-{ROLE}")
        reader: Reader | None = None
        try:
            failpoints.hit("term.elected")
            writer.init()
            failpoints.hit("term.initialised")
            self.candidacy.require_lease("fencing its predecessor; nothing was written")
            writer.commit(noops({self._topic: self._parts.log.partitions(self._topic)}))
            reader = self._parts.log.reader([self._topic])
            claims = ClaimReader(reader, self._parts.codec.decode, self._settings.records_max)
            read_up_to(claims.ends(), reader, lambda: claims.read(self._settings.tick_s), self.candidacy, self._clock)
            epoch = epoch_after(claims.highest, self._topic)
        except BaseException:
            writer.close()
            if reader is not None:
                reader.close()
            raise
        self._term = ReconcilerTerm(
            self._parts, self._settings, self.candidacy, epoch, writer, claims, self._stream, self._executor,
            self._observe, self._tell, self.counters,
        )  # fmt: skip
        self._term.claim(self.candidacy.reason())
        self.candidacy.became_leader(epoch)
        log.info("leads", epoch=epoch)

    def step_down(self, error: Exception) -> None:
        """Ends the term and becomes a standby. All flows end at once: the next leader judges each job anew from log and
        runners."""
        self.candidacy.step_down(error)
        self._drop_term(str(error))

    def _observe(self, ignore_entry: Callable[[str, LedgerError], None]) -> Mapping[str, Observation | None]:
        return self._ask(self._runners, ignore_entry)

    def _drop_term(self, reason: str) -> None:
        term, self._term = self._term, None
        if term is not None:
            log.warning("stands_back", epoch=term.epoch, reason=reason)
            term.close()
