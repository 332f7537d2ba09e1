"""A Faust application that checks ledger.events against rules and writes findings to ledger.audit.findings.

    AUDIT_BOOTSTRAP_SERVERS=HOST:PORT python -m consumers.audit topics     # once: creates its two topics
    AUDIT_BOOTSTRAP_SERVERS=HOST:PORT python -m consumers.audit            # until SIGTERM

It commits no offsets, so it reads from the beginning at every start. The rules keep their state in bounded memory, not
in Faust tables. A finding is JSON with its id as the key, so a repeated finding replaces the first one. A record that
can't be read is copied to ledger.audit.rejects. Then http://127.0.0.1:<web_port>/ready answers 503 until the record's
position is in the setting `accepted`. See docs/CONSUMERS.md and docs/decisions/0033.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import faust

from consumers import keys, topics
from consumers.reading import ODD_HEADERS, KeepingTopic, Transport, Unreadable
from consumers.rules import Finding, Rules, Seen
from consumers.settings import BadSetting, Settings, load

SERIALIZER = "jobledger-avro"
TICK_S = 0.5
QUIET_TICKS = 3  # a record may be between Kafka's client and the agent for a moment
REJECTS_SHOWN = 20
VALUE_BYTES_MAX = 1 << 20


class Audit:
    """The Faust application of the audit, and its state. settings: the loaded settings of the consumer."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.rules = settings, Rules(settings.rules)
        self.places: dict[int, int] = {}  # partition -> offset of the last record that was judged
        # The number of rejects; the number that is not accepted; some of those: position -> reason.
        self.rejected, self.unseen, self.shown = 0, 0, dict[str, str]()
        self.found: dict[str, int] = {}
        self.busy, self.quiet, self.caught_up = False, 0, False
        # Each process has its own group, because a killed member would keep its partitions for a minute. Kafka deletes
        # groups without members and offsets by itself.
        servers = [f"kafka://{server}" for server in settings.bootstrap_servers.split(",")]
        self.app = app = faust.App(
            f"{settings.name}-{uuid.uuid4()}", broker=servers,
            topic_disable_leader=True, topic_allow_declare=False, topic_replication_factor=settings.replication_factor,
            store="memory://", Topic=KeepingTopic, key_serializer="raw", value_serializer="raw", producer_acks=-1,
            producer_max_request_size=topics.RECORD_BYTES_MAX,
            consumer_auto_offset_reset="earliest", web_host="127.0.0.1", web_bind="127.0.0.1", web_port=settings.web_port,
            web_tables_enabled=False, autodiscover=False,
        )  # fmt: skip
        app.transport = Transport(app.conf.broker_consumer, app)
        # acks=False: no offsets are committed, so after a rebalance, too, it reads from the beginning.
        self.events = app.topic(
            settings.events, key_type=bytes, key_serializer="raw", value_serializer=SERIALIZER, allow_empty=True, acks=False
        )
        self.findings = app.topic(settings.findings, key_serializer="raw", value_serializer="raw")
        self.rejects = app.topic(settings.rejects, key_serializer="raw", value_serializer="raw")
        self.agent = app.agent(self.events, name="audit")(self.watch)
        app.timer(TICK_S)(self.tick)

        async def ready(page: Any, _request: Any) -> Any:  # Faust makes it a method of its own class
            told, problems = self.state(), self.problems()
            return page.json({"ready": not problems, "problems": problems, **told}, status=503 if problems else 200)

        app.page("/ready")(ready)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def watch(self, stream: Any) -> None:
        """Checks all records of the stream by the rules. Any error ends the process; Faust would continue with the next
        record."""
        async for event in stream.events():
            self.busy = True
            try:
                await self.judge(event)
            except Exception as error:
                await self.app.crash(error)
                raise
            self.busy = False

    async def judge(self, event: Any) -> None:
        message = event.message
        if message.offset <= self.places.get(message.partition, -1):
            return  # after a rebalance it reads from the beginning
        headers = _headers(message.headers)
        key, why = _read(message.key, event.value)
        why = why or ("a header's name is not UTF-8" if ODD_HEADERS in headers else "")
        if why:
            await self.reject(message, why)
        if key is not None:
            fields = event.value["fields"] if isinstance(event.value, dict) and not why else None
            place = message.topic, message.partition, message.offset
            seen = Seen(*place, message.timestamp, key, message.key, message.value, fields, headers)
            await self.tell(self.rules.judge(seen, time.time()))
        self.places[message.partition] = message.offset

    async def tell(self, found: list[Finding]) -> None:
        """Writes findings, and returns once Kafka has acknowledged them. If this process dies, the next one finds them
        again."""
        for one in found:
            self.found[one.rule] = self.found.get(one.rule, 0) + 1
            value = json.dumps(asdict(one), sort_keys=True, ensure_ascii=False).encode()
            await self._send(self.findings, one.id.encode(), value, [("content-type", b"application/json")])

    async def reject(self, message: Any, why: str) -> None:
        """Writes a copy of the record to the topic of rejects. Headers with its position and the error come before its
        own. A record above the ledger's default size limit is truncated; a header holds the digest of its full
        value."""
        place = f"{message.topic}[{message.partition}]@{message.offset}"
        self.rejected += 1
        if place not in self.settings.accepted:
            self.unseen += 1
            if len(self.shown) < REJECTS_SHOWN:
                self.shown[place] = why
        said = {
            "audit_topic": message.topic, "audit_partition": str(message.partition), "audit_offset": str(message.offset),
            "audit_time_ms": str(round(message.timestamp * 1000)), "audit_error": why,
            "audit_size": str(len(message.value or b"")), "audit_sha256": sha256(message.value or b"").hexdigest(),
        }  # fmt: skip
        headers = [(name, text.encode()) for name, text in said.items()]
        if message.key is not None:
            headers.append(("audit_key", message.key))
        kept, room = _pairs(message.headers), topics.RECORD_BYTES_MAX - VALUE_BYTES_MAX - (64 << 10)
        while kept and sum(len(name) * 4 + len(value or b"") + 20 for name, value in headers + kept) > room:
            kept.pop()
        value = None if message.value is None else message.value[:VALUE_BYTES_MAX]
        await self._send(self.rejects, place.encode(), value, headers + kept)

    async def _send(self, topic: Any, key: bytes, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
        await (await topic.send(key=key, value=value, headers=headers))

    # -- time and readiness --------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        self.quiet = self.quiet + 1 if not self.busy and await self._at_the_end() else 0
        if self.quiet >= QUIET_TICKS:
            self.caught_up = True
            await self.tell(self.rules.tick(time.time()))

    async def _at_the_end(self) -> bool:
        consumer = self.app.consumer
        places = [place for place in consumer.assignment() if place.topic == self.settings.events]
        for place in places:
            end, position = consumer.highwater(place), await consumer.position(place)
            if end is None or position is None or position < end:
                return False
        return bool(places)

    def problems(self) -> list[str]:
        """The reasons why the consumer is not ready; [] if it is."""
        found = [] if self.caught_up else ["not everything has been read yet"]
        if self.unseen:
            shown = "; ".join(f"{place}: {why}" for place, why in self.shown.items())
            found.append(
                f"{self.unseen} records could not be read: {shown}. They are in {self.settings.rejects}: find out who "
                f"wrote them, then put their positions into AUDIT_ACCEPTED and restart"
            )
        return found

    def state(self) -> dict[str, Any]:
        """The state for the readiness page: offsets judged, findings by rule, rejects, and entries dropped from
        memory."""
        return {
            "judged": {str(p): offset for p, offset in self.places.items()}, "found": self.found,
            "rejected": self.rejected, "forgotten": dict(self.rules.forgotten),
        }  # fmt: skip


def _read(raw: bytes | None, value: Any) -> tuple[keys.Key | None, str]:
    """The parsed key, and why the record can't be read ("" if it can)."""
    key = keys.parse(raw)
    if key is None:
        return None, "the key does not match the grammar"
    if isinstance(value, Unreadable):
        return key, value.error
    if value is not None and key.job and value["fact"] != keys.FACTS[key.register]:
        return key, f"{key.register} holds a {value['fact']}"
    return key, ""


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())


def _headers(headers: Any) -> dict[str, str]:
    return {name: (value or b"").decode(errors="replace") for name, value in reversed(_pairs(headers))}


def main(arguments: list[str]) -> int:
    """Runs the audit, or with the argument `topics` creates its topics. Returns the exit code; 2 = a setting is wrong
    or a topic is missing, and stderr explains what to do."""
    if arguments not in ([], ["topics"]):
        print("usage: python -m consumers.audit [topics]", file=sys.stderr)
        return 2
    try:
        settings = load(os.environ)
        if arguments:
            print("created: " + (", ".join(topics.create(settings)) or "nothing, both topics exist"))
            return 0
        topics.require(settings)
    except BadSetting as error:
        print(error, file=sys.stderr)
        return 2
    asyncio.set_event_loop(loop := asyncio.new_event_loop())
    faust.Worker(Audit(settings).app, loglevel="warning", loop=loop, redirect_stdouts=False).execute_from_commandline()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
