"""A folder of events that are not yet known to be stored. Each event is written and fsynced in the folder before it is
sent.

Each event is one file, named by its event id: JSON with the bytes in base64. So a resend writes the same bytes as the
first send, even after a crash.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.errors import ConfigError
from ledger.ports import Event
from ledger.util.files import make_folder, write_atomic

SUFFIX = ".event"
UNREADABLE = ".unreadable"
REFUSED = ".refused"
log = logging.getLogger(__name__)  # sentences: a program that embeds the outbox may show messages without their fields


class Outbox:
    """The outbox in one folder. Putting or removing an event twice has no further effect. So two processes may share a
    folder; both may then send the same event, which is safe.

    Raises: ConfigError if the folder can't be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            make_folder(folder)
        except OSError as error:
            raise ConfigError(f"the outbox {folder} can't be created: {error}") from error

    def put(self, event_id: str, event: Event) -> None:
        """Stores the event durably: after the return it survives a crash of the machine."""
        try:
            write_atomic(self.folder / f"{event_id}{SUFFIX}", _to_json(event))
        except OSError as error:
            hint = "Nothing was sent. Free disk space, or use another folder."
            raise ConfigError(f"the outbox {self.folder} can't be written: {error}", hint=hint) from error

    def remove(self, event_id: str) -> None:
        (self.folder / f"{event_id}{SUFFIX}").unlink(missing_ok=True)

    def set_aside(self, event_id: str, event: Event, reason: str) -> None:
        """Keeps an event that Kafka will never accept as `*.refused`, for people to inspect."""
        log.error("set aside a refused event: %s: %s", event_id, reason)
        write_atomic(self.folder / f"{event_id}{REFUSED}", _to_json(event))
        self.remove(event_id)

    def outstanding(self) -> Iterator[tuple[str, Event]]:
        """Ids and events of the outbox, oldest first. An unreadable file is logged and renamed to `*.unreadable`."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                event = _from_json(path.read_bytes())
            except FileNotFoundError:  # another process sent it meanwhile
                continue
            except ValueError as error:
                log.error("set aside an unreadable event: %s: %s", path, error)
                path.replace(path.with_suffix(UNREADABLE))
                continue
            yield path.name.removesuffix(SUFFIX), event


def _to_json(event: Event) -> bytes:
    return json.dumps(
        {
            "topic": event.topic,
            "partition": event.partition,
            "key": _text(event.key),
            "value": None if event.value is None else _text(event.value),
            "headers": [[name, _text(value)] for name, value in event.headers],
        }
    ).encode()


def _from_json(raw: bytes) -> Event:
    """The event that `_to_json` wrote. Raises: ValueError if the bytes are not such JSON."""
    try:
        data: Any = json.loads(raw)
        value = data["value"]
        return Event(
            str(data["topic"]), int(data["partition"]), _bytes(data["key"]), None if value is None else _bytes(value),
            tuple((str(name), _bytes(text)) for name, text in data["headers"]),
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an event: {error!r}") from error


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
