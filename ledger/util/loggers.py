"""Loggers of modules that commands import too. structlog, which brings rich and asyncio, takes a tenth of a second
to import: that is done when something is said, and most commands say nothing by the log.

How it is said is for the process: a role sets structlog up by `ledger.app.logs`, a command says it by `LEAST`.
"""

from __future__ import annotations

import sys
from typing import Any

#: Set in a process that is a command: the least that is told on stderr, a level of `logging`. None: as structlog is set up.
LEAST: int | None = None


class Logger:
    """What `structlog.get_logger(name)` gives, asked for when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)  # what pickle and the like ask for is no method of a logger
        import structlog

        if LEAST is not None and not structlog.is_configured():
            structlog.configure(
                logger_factory=structlog.PrintLoggerFactory(sys.stderr),
                wrapper_class=structlog.make_filtering_bound_logger(LEAST),
            )
        return getattr(structlog.get_logger(self._name), method)
