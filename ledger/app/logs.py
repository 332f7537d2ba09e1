"""The logs of all processes, on stderr: an event name and fields, as text on a terminal and as JSON elsewhere.

Libraries that use the standard library's logging (confluent_kafka, py4j) log the same way. A field whose name indicates
a secret is masked; never put a secret into an event's name.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from ledger.config.config import mask
from ledger.config.settings import LogSection

#: Loggers of libraries that log too much.
_QUIET = ("py4j", "urllib3")


def configure(settings: LogSection, stream: TextIO | None = None, **fields: str) -> None:
    """Configures the logging of this process. fields: added to every line, such as `process="projector-1"`."""
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]

    def with_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for name, value in fields.items():  # not structlog's context: a thread begins with an empty one
            event.setdefault(name, value)
        return event

    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        with_fields,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        mask_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), mask_secrets],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_ending(settings, stream)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("ledger").setLevel(logging.NOTSET)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def mask_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event with the values of secret fields masked, also inside mappings. The name of a field shows a secret."""
    for name, value in event.items():
        if not name.startswith("_"):
            event[name] = _masked(name, value)
    return event


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(str(key), inner) for key, inner in value.items()}
    return mask(name, value) if isinstance(value, str) else value


def is_json(settings: LogSection, stream: TextIO) -> bool:
    """Whether log lines are JSON objects, by the settings and, with format auto, by the kind of stream."""
    return settings.format == "json" or (settings.format == "auto" and not stream.isatty())


def _ending(settings: LogSection, stream: TextIO) -> list[structlog.types.Processor]:
    if not is_json(settings, stream):
        return [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str, ensure_ascii=False)]
