"""Notifies people of jobs in a state that needs them, such as QUARANTINED.

The leading projector offers each entry that it publishes, and all entries when it becomes leader. A separate thread
delivers, so a slow or broken hook never delays the role. Delivery is at least once: failures are retried, and a new
leader offers again what its predecessor did not deliver. Each notification has an id for dropping duplicates. Source:
docs/decisions/0020.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.adapters import hooks
from ledger.adapters.clock import SystemClock
from ledger.config.config import Config, read_secret
from ledger.core.model.recovery import RecoveryEntry
from ledger.errors import ConfigError
from ledger.ports import Clock
from ledger.util.files import write_atomic
from ledger.util.loggers import Logger
from ledger.util.plain import to_plain

PENDING_MAX = 1_000
DELIVERED_MAX = 10_000
TRIES_MAX = 8
RETRY_S, RETRY_MAX_S = 2.0, 300.0
TEXT_CHARS_MAX = 300
log = Logger("notify")

#: Delivers one notification: (id, JSON body). Returns once it is accepted; raises anything otherwise.
Deliver = Callable[[str, bytes], None]
#: A hook's name, and the id of a notification.
DeliveryKey = tuple[str, str]


@dataclass(slots=True)
class _Pending:
    body: bytes
    tries: int = 0
    due_at: float = 0.0


def notification_id(entry: RecoveryEntry) -> str:
    """The id of a notification. It is the same in every process: a job enters a state once per attempt."""
    return f"{entry.job_id}/{entry.attempt}/{entry.state}"


def body_of(entry: RecoveryEntry) -> bytes:
    """The body of a notification as JSON: `id`, a line for people (`text`), and the fields of the entry's schema."""
    lines = entry.reason.split("\n")
    why = f"{lines[0]} … {lines[-1]}" if len(lines) > 1 else lines[0]
    text = f"{entry.namespace}/{entry.name} is {entry.state}: {why}"[:TEXT_CHARS_MAX]
    plain: dict[str, Any] = {"id": notification_id(entry), "text": text, **to_plain(entry)}
    return json.dumps(plain, ensure_ascii=False, default=str).encode("utf-8", "replace")


class Notifier:
    """Delivers the offered entries that are in one of `states`. hooks: name -> function; each hook gets every
    notification, independently of the other hooks. memory: a file with the delivered ids, so that a successor on this
    host does not repeat them.

    counters: delivered, failed (tries), given_up, dropped (the queue was full)."""

    def __init__(self, states: Collection[str], hooks: Mapping[str, Deliver], memory: Path, clock: Clock) -> None:
        self._states, self._hooks, self._memory, self._clock = frozenset(states), dict(hooks), memory, clock
        self.counters: Counter[str] = Counter()
        self._lock = threading.Lock()  # guards the two below; never held during a delivery
        self._pending: OrderedDict[DeliveryKey, _Pending] = OrderedDict()
        self._over_with: OrderedDict[DeliveryKey, None] = OrderedDict()
        self._woken = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the delivery thread. A running delivery may finish, or be cut off with the process; the next leader
        offers the rest again."""
        self._over = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def offer(self, entry: RecoveryEntry) -> None:
        """Queues a notification if the entry's state is one of `states`. The call is cheap, and never blocks or raises,
        because the role makes it between two commits."""
        if entry.state not in self._states:
            return
        try:
            id_, body = notification_id(entry), body_of(entry)
            for hook in self._hooks:
                self._take((hook, id_), body)
            self._woken.set()
        except Exception:  # losing a notification is better than losing the leader
            log.exception("not_notified", job=entry.job_id)

    def step(self) -> float:
        """Delivers the due notifications. Returns the seconds until the next one is due."""
        now = self._clock.monotonic()
        with self._lock:
            due = [(delivery, one) for delivery, one in self._pending.items() if one.due_at <= now]
        for delivery, one in due:
            if self._over:
                break
            self._try(delivery, one)
        with self._lock:
            return max(0.0, min((one.due_at for one in self._pending.values()), default=now + 60) - now)

    def _take(self, delivery: DeliveryKey, body: bytes) -> None:
        with self._lock:
            if delivery in self._pending or delivery in self._over_with:
                return
            dropped = None
            if len(self._pending) >= PENDING_MAX:
                dropped, _ = self._pending.popitem(last=False)
                self.counters["dropped"] += 1
            self._pending[delivery] = _Pending(body)
        if dropped is not None:
            log.error("notification_dropped", hook=dropped[0], id=dropped[1], reason=f"{PENDING_MAX} wait already")

    def _try(self, delivery: DeliveryKey, one: _Pending) -> None:
        hook, id_ = delivery
        if [hook, id_] in self._remembered():
            self._done(delivery)
            return
        try:
            self._hooks[hook](id_, one.body)
        except Exception as error:  # a hook is an operator's own program: it may fail in any way
            self._failed(delivery, one, error)
            return
        self.counters["delivered"] += 1
        log.info("notified", hook=hook, id=id_)
        self._done(delivery)
        self._remember(delivery)

    def _failed(self, delivery: DeliveryKey, one: _Pending, error: Exception) -> None:
        one.tries += 1
        self.counters["failed"] += 1
        fields = {"hook": delivery[0], "id": delivery[1], "tries": one.tries, "reason": str(error) or type(error).__name__}
        if one.tries >= TRIES_MAX:
            self.counters["given_up"] += 1
            log.error("notification_given_up", **fields)
            self._done(delivery)
            return
        one.due_at = self._clock.monotonic() + min(RETRY_MAX_S, RETRY_S * 2 ** (one.tries - 1))
        log.warning("notification_failed", **fields)

    def _done(self, delivery: DeliveryKey) -> None:
        with self._lock:
            self._pending.pop(delivery, None)
            self._over_with[delivery] = None
            while len(self._over_with) > DELIVERED_MAX:
                self._over_with.popitem(last=False)

    def _remembered(self) -> list[Any]:
        """[hook, id] of the notifications that any instance on this host has delivered."""
        try:
            keys = json.loads(self._memory.read_bytes())
        except (OSError, ValueError):
            return []
        return keys if isinstance(keys, list) else []

    def _remember(self, delivery: DeliveryKey) -> None:
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._memory, json.dumps([*self._remembered(), delivery][-DELIVERED_MAX:]).encode())
        except OSError as error:  # the next leader may notify again
            log.warning("notification_not_remembered", id=delivery[1], reason=str(error))

    def _run(self) -> None:
        while not self._over:
            self._woken.clear()
            try:
                wait_s = self.step()
            except Exception:  # a thread that died would be silent for ever
                log.exception("notify_failed")
                wait_s = RETRY_S
            self._woken.wait(wait_s)


def notifier(config: Config) -> Notifier | None:
    """The notifier of the hooks in the settings; None if the settings name no hook. Raises: ConfigError."""
    made = _hooks(config)
    return Notifier(config.notify.states, made, config.notified_file, SystemClock()) if made else None


def _hooks(config: Config) -> dict[str, Deliver]:
    given, made = config.notify, dict[str, Deliver]()
    if given.command:
        made["command"] = hooks.CommandHook(given.command, given.timeout_s)
    if given.webhook and given.webhook_file:
        raise ConfigError("notify.webhook and notify.webhook_file are both set: set one.")
    url = read_secret("notify.webhook_file", given.webhook_file) if given.webhook_file else given.webhook
    if url:
        if why := hooks.problem(url):
            raise ConfigError(f"notify.webhook is invalid: {why}.")
        made["webhook"] = hooks.Webhook(url, given.timeout_s)
    return made
