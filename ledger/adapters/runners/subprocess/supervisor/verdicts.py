"""Classifies the exit of a job: the outcome, its cause, and the failure rule of the job that matches.

A regular expression may run practically for ever. So patterns are searched in a separate process, with little time and
memory, on few bytes, by the supervisor of this one attempt. In the worst case only this job waits, and not for long.
The limit is processor time: a busy machine must not turn a permanent failure into one that is retried."""

from __future__ import annotations

import os
import re
import resource
import select
import signal

from .child import die_with_parent
from .files import say
from .procs import kill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

JUDGE_CPU_S = 2
JUDGE_S = 30.0
JUDGE_BYTES_MAX = 512 << 20
NOT_EXECUTED = 127  # a shell's exit code for a command that it can't execute
NONE = 255  # the judge's answer if no rule matches; there are fewer rules than that


def ordered(order: dict[str, Any], cause: str) -> str:
    """The cause of an end. If the end was ordered, the reason of the order comes first. A failure always has a reason,
    since its outcome alone does not explain it."""
    reason = order.get("reason") or ("stopped because it made no progress" if order.get("outcome") == "failed" else "")
    return f"{reason}: {cause}" if reason and order.get("outcome") else cause


def verdict(code: int, status: int, last_lines: str, rules: Sequence[dict[str, Any]] = ()) -> tuple[str, str]:
    """The outcome and cause of an exit that `waitid` reported, unless an order decides otherwise."""
    if (code, status) == (os.CLD_EXITED, 0):
        return "finished", "exit code 0"
    exit_code = status
    if code == os.CLD_EXITED:
        cause = f"exit code {status}"
    else:
        exit_code += 128  # as shells do
        try:
            cause = f"killed by {signal.Signals(status).name}"
        except ValueError:
            cause = f"killed by signal {status}"
    return failure(exit_code, f"{cause}: {last_lines}" if last_lines else cause, rules)


def failure(
    exit_code: int, cause: str, rules: Sequence[dict[str, Any]], otherwise: str = "failed"
) -> tuple[str, str]:  # fmt: skip
    """The outcome and cause of a failure. The first rule that matches adds its label and decides whether the failure is
    permanent. otherwise: the outcome if no rule matches."""
    candidates = [rule for rule in rules[:NONE] if rule.get("exit_code") in (None, exit_code)]
    rule: dict[str, Any] | None = None
    if candidates and not candidates[0].get("pattern"):
        rule = candidates[0]
    elif candidates:
        try:
            rule = _search(candidates, cause)
        except (OSError, TimeoutError) as error:
            say(f"the failure rules can't be judged: {error}")
            return "failed", f"{cause}\n(its failure rules can't be judged: {error})"
    if rule is None:
        return otherwise, cause
    return "failed-permanent" if rule.get("permanent") else "failed", f"{rule['label']}: {cause}"


def _search(rules: Sequence[dict[str, Any]], cause: str) -> dict[str, Any] | None:
    """The first rule whose pattern is found; None if none is. Raises: OSError, TimeoutError if that can't be
    determined."""
    answer, answered = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            resource.setrlimit(resource.RLIMIT_AS, (JUDGE_BYTES_MAX, JUDGE_BYTES_MAX))
            resource.setrlimit(resource.RLIMIT_CPU, (JUDGE_CPU_S, JUDGE_CPU_S))
            os.write(answered, bytes([_first(rules, cause)]))
        finally:
            os._exit(0)
    os.close(answered)
    try:
        ready, _, _ = select.select([answer], [], [], JUDGE_S)
        said = os.read(answer, 1) if ready else b""
    finally:
        os.close(answer)
        kill(pid)
        _, status = os.waitpid(pid, 0)
    if not ready:
        raise TimeoutError(f"no answer came for {JUDGE_S:g} s")
    if not said and os.WIFSIGNALED(status):
        raise TimeoutError(f"their patterns took longer than {JUDGE_CPU_S} s of processor time")
    if not said:
        raise OSError("their patterns took more memory than they may")
    return None if said[0] == NONE else rules[said[0]]


def _first(rules: Sequence[dict[str, Any]], cause: str) -> int:
    for i, rule in enumerate(rules):
        try:
            if re.search(str(rule.get("pattern", "")), cause):
                return i
        except re.error as error:
            say(f"the failure rule {rule.get('label')} has an invalid pattern: {error}")
    return NONE
