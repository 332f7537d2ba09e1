"""Loggers for modules that commands import too: structlog is imported at the first log message only. That import loads
rich and asyncio and takes a tenth of a second, and most commands log nothing.

The process configures the output: a role by `ledger.app.logs`, a command by `LEAST`.
"""

from __future__ import annotations

import sys
from typing import Any

#: Set in a command's process: the lowest level (of `logging`) that goes to stderr. None: structlog's configuration applies.
LEAST: int | None = None


class Logger:
    """A proxy of `structlog.get_logger(name)` that imports structlog at first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)  # pickle and similar modules look for special methods
        import structlog

        if LEAST is not None and not structlog.is_configured():
            structlog.configure(
                logger_factory=structlog.PrintLoggerFactory(sys.stderr),
                wrapper_class=structlog.make_filtering_bound_logger(LEAST),
            )
        return getattr(structlog.get_logger(self._name), method)
