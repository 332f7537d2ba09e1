"""The runners on which the contract is tested, and how tests control their jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.runner import MemoryRunner
from ledger.adapters.runners.contained import ContainedRunner
from ledger.core.model.facts import CheckpointKind, Fact, GraphRef, RestorePoint
from ledger.core.model.registers import Checkpoint, Register, Running
from ledger.ports import Runner
from tests.support.host import Host, facts_in
from tests.support.waiting import until


class World(Protocol):
    """A runner, and control of its jobs. Nothing relays events to the log: they stay until a test acknowledges them."""

    runner: Runner

    def graph(self, job_id: str) -> GraphRef: ...
    def bad_graph(self, job_id: str) -> GraphRef: ...
    def ready(self, job_id: str) -> None:
        """Waits until the started attempt runs."""

    def checkpoint(self, job_id: str, n: int, id_: int, kind: str = "chk", label: str = "") -> RestorePoint:
        """Makes the job complete a checkpoint; returns once the runner has its event."""

    def exit(self, job_id: str, n: int, code: int) -> None: ...
    def kill(self, job_id: str, n: int) -> None: ...
    def stubborn(self, job_id: str, n: int) -> None:
        """Makes the job ignore stop orders."""

    def damage(self, point: RestorePoint) -> None: ...
    def restart(self) -> None:
        """Restarts the runner's own process."""

    def cut(self) -> None:
        """Makes the runner unreachable."""

    def close(self) -> None: ...


def events(world: World, job_id: str) -> list[tuple[Register, Fact]]:
    """The unacknowledged events. A fence of 0 refuses no start."""
    return facts_in(world.runner.fence(job_id, 0))


class MemoryWorld:
    def __init__(self) -> None:
        self.runner: MemoryRunner = MemoryRunner(ManualClock())

    def graph(self, job_id: str) -> GraphRef:
        return GraphRef(f"graphs/{job_id}/{'0' * 64}", "0" * 64, 1)

    def bad_graph(self, job_id: str) -> GraphRef:
        self.runner.refusals[job_id] = "the graph is damaged"
        return self.graph(job_id)

    def ready(self, job_id: str) -> None: ...

    def checkpoint(self, job_id: str, n: int, id_: int, kind: str = "chk", label: str = "") -> RestorePoint:
        kinds = {"chk": CheckpointKind.CHECKPOINT, "sav": CheckpointKind.SAVEPOINT}
        return self.runner.checkpoint(job_id, n, id_, kind=kinds[kind], consistency=label)

    def exit(self, job_id: str, n: int, code: int) -> None:
        cause = f"exit code {code}: last words" if code else ""
        self.runner.end(job_id, n, "failed" if code else "finished", cause, exit_code=code)

    def kill(self, job_id: str, n: int) -> None:
        self.runner.kill(job_id, n)

    def stubborn(self, job_id: str, n: int) -> None:
        self.runner.obedient = False

    def damage(self, point: RestorePoint) -> None:
        self.runner.stored[point.location] -= 1

    def restart(self) -> None: ...

    def cut(self) -> None:
        self.runner.up = False

    def close(self) -> None: ...


class SubprocessWorld:
    def __init__(self, folder: Path) -> None:
        self._host = Host(folder)
        self._host.log.up = False
        self._host.start_agent()
        self.runner: Runner = self._host.runner

    def graph(self, job_id: str) -> GraphRef:
        return self._host.graph(job_id)

    def bad_graph(self, job_id: str) -> GraphRef:
        blob = self._host.root / "bad"
        blob.write_bytes(b"no archive at all")
        return self._host.blobs.put(job_id, blob)

    def ready(self, job_id: str) -> None:
        self._host.said(job_id, "ready")
        until(lambda: any(isinstance(register, Running) for register, _ in events(self, job_id)), "a running event")

    def checkpoint(self, job_id: str, n: int, id_: int, kind: str = "chk", label: str = "") -> RestorePoint:
        self._host.tell(job_id, f"{'savepoint' if kind == 'sav' else 'checkpoint'} {id_}{label and '@'}{label}")
        register = Checkpoint(n, id_)
        fact = until(lambda: dict(events(self, job_id)).get(register), f"checkpoint {id_} is an event")
        return RestorePoint(n, id_, fact.location, fact.size, fact.digest, fact.kind)

    def exit(self, job_id: str, n: int, code: int) -> None:
        self._host.tell(job_id, f"exit {code}")

    def kill(self, job_id: str, n: int) -> None:
        import os
        import signal

        os.kill(self._host.supervisor(job_id, n), signal.SIGKILL)

    def stubborn(self, job_id: str, n: int) -> None:
        self._host.tell(job_id, "on ignore")
        until(lambda: not list(self._host.control(job_id).glob("*.do")), "the job has its order")

    def damage(self, point: RestorePoint) -> None:
        Path(point.location).write_text("cut")

    def restart(self) -> None:
        self._host.restart_agent()

    def cut(self) -> None:
        self._host.stop_agent()

    def close(self) -> None:
        self._host.close()


class ContainedWorld(SubprocessWorld):
    """The subprocess runner as a plug-in: every call goes through one more process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        value = "ledger.adapters.runners.subprocess:SubprocessRunner"
        self.runner = self._contained = ContainedRunner("contained", value, self._host.folder)

    def close(self) -> None:
        self._contained.close()
        super().close()
