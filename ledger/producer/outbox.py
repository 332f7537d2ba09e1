"""A folder of events that were made but are not yet known to be stored: written and fsynced before they are sent.

One file an event, named by its event id, in JSON with the bytes in base64. What is sent again is therefore byte for byte
what was sent first, whatever happened to the process in between.
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
log = logging.getLogger(__name__)


class Outbox:
    """Idempotent: an event put twice lies there once; removing one that is gone is no error, so two processes may share
    a folder (an event may then be sent by both, which is harmless).

    Raises: ConfigError if the folder can't be made or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            make_folder(folder)
        except OSError as error:
            raise ConfigError(f"the outbox {folder} can't be made: {error}") from error

    def put(self, event_id: str, event: Event) -> None:
        """On return the event survives a crash of the machine."""
        try:
            write_atomic(self.folder / f"{event_id}{SUFFIX}", _to_json(event))
        except OSError as error:
            hint = "nothing was sent; make room or name another folder"
            raise ConfigError(f"the outbox {self.folder} can't be written: {error}", hint=hint) from error

    def remove(self, event_id: str) -> None:
        (self.folder / f"{event_id}{SUFFIX}").unlink(missing_ok=True)

    def set_aside(self, event_id: str, event: Event, reason: str) -> None:
        """Keeps an event that will never be taken, as `*.refused`, for people to look at."""
        log.error("set aside a refused event: %s: %s", event_id, reason)
        write_atomic(self.folder / f"{event_id}{REFUSED}", _to_json(event))
        self.remove(event_id)

    def outstanding(self) -> Iterator[tuple[str, Event]]:
        """Event ids and events, oldest first. A file that can't be read is set aside as `*.unreadable` and logged."""
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
    """Raises: ValueError if this is not what `_to_json` writes."""
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
