"""Why an attempt ended, in one line: the cause of an end has up to twenty, and which of them says most differs."""

from __future__ import annotations

import re

#: How causes begin: what an exit was, behind the label of a failure rule.
_HEAD = re.compile(r"(?:[^:]{1,80}: )?(?:exit code -?\d+|killed by (?:signal )?\w+)(?=:|$)")
#: The last line of a traceback, as Python, Java and Rust write it.
_EXCEPTION = re.compile(
    r"(?:Caused by: |Exception in thread \"[^\"]*\" )?(?:[\w$]+[.:]+)*"
    r"(?:[A-Z][\w$]*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout)\b|thread '[^']*' panicked)"
)


def gist(cause: str) -> str:
    """The line of a cause that says most: the exception that ends it; else how the process ended and the last line, which
    may be anything, as a progress bar. "" if there is none."""
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    head = _HEAD.match(lines[0])
    if _EXCEPTION.match(lines[-1]):
        return lines[-1]
    return f"{head[0] if head else lines[0]}: {lines[-1]}"
