"""The reason of an attempt's end in one line, picked from the up to twenty lines of its cause."""

from __future__ import annotations

import re

#: The beginning of a cause: the kind of exit, behind the label of a failure rule.
_HEAD = re.compile(r"(?:[^:]{1,80}: )?(?:exit code -?\d+|killed by (?:signal )?\w+)(?=:|$)")
#: The last line of a traceback in Python, Java or Rust.
_EXCEPTION = re.compile(
    r"(?:Caused by: |Exception in thread \"[^\"]*\" )?(?:[\w$]+[.:]+)*"
    r"(?:[A-Z][\w$]*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout)\b|thread '[^']*' panicked)"
)


def gist(cause: str) -> str:
    """The most telling line of a cause: its last exception, else the kind of exit and the last line (which may be a
    progress bar). "" if the cause is empty."""
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    head = _HEAD.match(lines[0])
    if _EXCEPTION.match(lines[-1]):
        return lines[-1]
    return f"{head[0] if head else lines[0]}: {lines[-1]}"
