"""Parsers for the values of flags: restart policies, environments, restore points, names. Errors are usage errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.errors import UsageError

if TYPE_CHECKING:
    from ledger.core.model.facts import (
        CheckpointRetention,
        FailureRule,
        RestartPolicy,
        RestoreBy,
        RestorePoint,
        SavepointPolicy,
        StallPolicy,
    )

RESTART_FORMS = (
    "none, fixed-delay[:RETRIES[:DELAY]], exponential-delay[:RETRIES[:DELAY[:DELAY_MAX]]] or "
    "failure-rate[:FAILURES[:INTERVAL[:DELAY]]]"
)
_UNIT_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?\Z")
_SIZE = re.compile(r"([0-9]{1,15})([KMG]?)i?B?\Z", re.ASCII)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


def restart_policy(text: str | None, rules: tuple[FailureRule, ...] = ()) -> RestartPolicy:
    """The restart policy that `--restart` describes; None = the default policy. A delay is 10s, 500ms, 2m or seconds.

    RETRIES: restarts after failures in a row, without the first start; 0 = no limit. FAILURES: how many failures within
    INTERVAL are still followed by a restart. Defaults are Flink's: fixed-delay 1 retry after 1 s; exponential-delay no
    limit, from 1 s up to 1 min; failure-rate 1 failure within 1 min, after 1 s. Raises: UsageError."""
    from ledger.core.model.policies import restart_problem

    policy = replace(_restart_policy(text), failure_rules=rules)
    if problem := restart_problem(policy):
        raise UsageError(f"{f'--restart {text}: ' if text else ''}{problem}.", hint=RESTART_FORMS)
    return policy


def _restart_policy(text: str | None) -> RestartPolicy:
    from ledger.core.model.facts import RestartKind, RestartPolicy

    if text is None:
        return RestartPolicy()
    kind, *given = text.split(":")
    match kind, len(given):
        case "none", 0:
            policy = RestartPolicy(RestartKind.NONE)
        case "fixed-delay", 0 | 1 | 2:
            policy = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=1)
        case "exponential-delay", 0 | 1 | 2 | 3:
            policy = RestartPolicy(RestartKind.EXPONENTIAL_DELAY)
        case "failure-rate", 0 | 1 | 2 | 3:
            policy = RestartPolicy(RestartKind.FAILURE_RATE)
        case _:
            raise UsageError(f"--restart takes {RESTART_FORMS}, not {text}.")
    if given:
        if not re.fullmatch(r"[0-9]{1,9}", given[0]):
            what = "failures" if kind == "failure-rate" else "retries"
            raise UsageError(f"--restart {text}: {given[0]} is no number of {what}.", hint=RESTART_FORMS)
        number = int(given[0])
        if kind == "failure-rate":
            policy = replace(policy, failures_per_interval=number)
        else:
            policy = replace(policy, attempts_max=number)
    delays = [duration_s(word, f"--restart {text}") for word in given[1:]]
    if kind == "failure-rate":
        interval_s, delay_s = [*delays, *(policy.failure_rate_interval_s, policy.delay_s)[len(delays) :]]
        policy = replace(policy, failure_rate_interval_s=interval_s, delay_s=delay_s)
    elif delays:
        delay_s = delays[0]
        delay_max_s = delays[1] if delays[1:] else max(delay_s, policy.delay_max_s)
        if delay_max_s < delay_s:
            raise UsageError(f"--restart {text}: the delay can't grow from {delay_s:g} s to at most {delay_max_s:g} s.")
        policy = replace(policy, delay_s=delay_s, delay_max_s=delay_max_s)
    return policy


def failure_rules(
    exit_codes: Iterable[int], patterns: Iterable[str], labels: Iterable[str], permanent_labels: Iterable[str]
) -> tuple[FailureRule, ...]:
    """The failure rules that the flags define, permanent rules first, so that no other rule hides them.

    labels: LABEL=CODE or LABEL=REGEX. permanent_labels: the labels whose failures are permanent. Raises: UsageError."""
    from ledger.core.model.facts import FailureRule

    permanent = set(permanent_labels)
    rules = []
    for text in labels:
        label, separator, what = text.partition("=")
        if not separator or not what:
            raise UsageError(f"--failure-label takes LABEL=CODE or LABEL=REGEX, not {text}.")
        number = what.isascii() and what.isdigit()
        code, pattern = (int(what), "") if number else (None, what)
        rules.append(FailureRule(label, code, pattern, label in permanent))
    if unknown := permanent - {rule.label for rule in rules}:
        raise UsageError(f"--permanent-label {min(unknown)}: no --failure-label says what that is.")
    rules += [FailureRule("permanent", code, "", True) for code in exit_codes]
    rules += [FailureRule("permanent", None, pattern, True) for pattern in patterns]
    for rule in rules:
        try:
            re.compile(rule.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(
                f"{rule.pattern} is no regular expression: {error}.", hint="Those of Python's re module are meant."
            ) from error
    return tuple(sorted(rules, key=lambda rule: not rule.permanent))


def stall_policy(checkpoint_interval: str | None, stalled_after: int | None, on_stall: str | None) -> StallPolicy:
    """The stall policy that the flags define. checkpoint_interval None: stalls are not detected. Raises: UsageError."""
    from ledger.core.model.facts import OnStall, StallPolicy
    from ledger.core.model.policies import stall_problem

    if checkpoint_interval is None:
        if stalled_after is not None or on_stall is not None:
            flag = "--stalled-after" if stalled_after is not None else "--on-stall"
            raise UsageError(f"{flag} needs --checkpoint-interval: how often does the job mean to complete one?")
        return StallPolicy()
    interval_s = duration_s(checkpoint_interval, "--checkpoint-interval")
    if interval_s == 0:
        raise UsageError("--checkpoint-interval must be more than 0.")
    kind = (on_stall or "mark").upper()
    if kind not in (OnStall.MARK, OnStall.RESTART):
        raise UsageError(f"--on-stall takes mark or restart, not {on_stall}.")
    policy = StallPolicy(interval_s, 3 if stalled_after is None else stalled_after, OnStall(kind))
    if problem := stall_problem(policy):
        raise UsageError(f"--checkpoint-interval, --stalled-after: {problem}.")
    return policy


def savepoint_policy(interval: str | None, keep: int | None) -> SavepointPolicy:
    """The policy for periodic savepoints. interval None: no periodic savepoints. keep None: keep all. Raises:
    UsageError."""
    from ledger.core.model.facts import SavepointPolicy
    from ledger.core.model.policies import savepoint_problem

    if interval is None:
        if keep is not None:
            raise UsageError("--savepoint-keep needs --savepoint-interval: savepoints that people ask for are theirs.")
        return SavepointPolicy()
    interval_s = duration_s(interval, "--savepoint-interval")
    if interval_s == 0:
        raise UsageError("--savepoint-interval must be more than 0.")
    policy = SavepointPolicy(interval_s, keep or 0)
    if problem := savepoint_problem(policy):
        raise UsageError(f"--savepoint-interval, --savepoint-keep: {problem}.")
    return policy


def checkpoint_retention(text: str) -> CheckpointRetention:
    from ledger.core.model.facts import CheckpointRetention

    if text.upper() not in (CheckpointRetention.DELETE, CheckpointRetention.KEEP):
        raise UsageError(f"--checkpoint-retention takes delete or keep, not {text}.")
    return CheckpointRetention(text.upper())


def restore_by(text: str, from_: str | None) -> RestoreBy:
    from ledger.core.model.facts import RestoreBy

    if text.upper() not in (RestoreBy.LEDGER, RestoreBy.EXTERNAL):
        raise UsageError(f"--restore takes ledger or external, not {text}.")
    found = RestoreBy(text.upper())
    if found is RestoreBy.EXTERNAL and from_ is not None:
        raise UsageError(f"--from {from_}: with --restore external the job restores by itself, and would never read it.")
    return found


def duration_s(text: str, where: str) -> float:
    """A duration in seconds, from a text such as 10s, 500ms or 1h. where: the flag, for errors. Raises: UsageError."""
    match = _DURATION.match(text)
    if match is None:
        raise UsageError(f"{where}: {text} is no duration.", hint="For example: 10s, 500ms, 2m, 1h, or seconds.")
    return round(float(match[1]) * _UNIT_S[match[2] or ""], 3)


def size_bytes(text: str, where: str) -> int:
    """A size in bytes, from a text such as 512M; K, M and G are powers of 1024. where: the flag, for errors. Raises:
    UsageError."""
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"{where}: {text} is no size.", hint="For example: 512M, 2G, or bytes.")
    return int(match[1]) << _SHIFT[match[2]]


def labels(pairs: Iterable[str]) -> dict[str, str]:
    """The labels in NAME=VALUE pairs: name -> value. Raises: UsageError, also for a label that `--label` of other verbs
    could not select."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = (part.strip() for part in pair.partition("="))
        if not separator or _NAME.match(name) is None or "," in value or not value.isprintable():
            hint = "NAME: letters, digits, '.', '_' and '-', 128 at most. VALUE: no comma, one line."
            raise UsageError(f"--label takes NAME=VALUE, not {pair!r}.", hint=hint)
        found[name] = value
    return found


def environment(pairs: Iterable[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(f"--env takes NAME=VALUE, not {pair}.")
        found[name] = value
    return found


def restore_point(text: str | None) -> RestorePoint | None:
    """A checkpoint or savepoint from outside the ledger, by its location; None for None. A path names a file on this
    host."""
    from ledger.core.model.facts import RestorePoint

    if text is None:
        return None
    return RestorePoint(0, 0, text if "://" in text else str(Path(text).expanduser().absolute()))


def start_point(text: str) -> str:
    """The restore point to start from: latest, scratch, ATTEMPT/ID of the same job, or a location. A path becomes
    absolute."""
    if text in ("latest", "scratch") or "://" in text or re.fullmatch(r"[1-9][0-9]*/[0-9]+", text):
        return text
    return str(Path(text).expanduser().absolute())


def job_states(words: Iterable[str]) -> frozenset[str]:
    """The states of jobs that these words name, in upper or lower case. Raises: UsageError."""
    from ledger.core.model.recovery import JobState

    known = set(JobState) - {JobState.UNKNOWN}
    found = {word.upper() for word in words}
    if wrong := found - known:
        hint = f"Those are: {', '.join(sorted(known)).lower()}."
        raise UsageError(f"--state takes a state of jobs, not {min(wrong).lower()}.", hint=hint)
    return frozenset(found)


def name(text: str, flag: str) -> str:
    """The checked name of a job or namespace: `namespace/name` stays one word with one slash. Raises: UsageError."""
    if _NAME.match(text) is None:
        raise UsageError(f"{flag} takes letters, digits, '.', '_' and '-', 128 at most, not {text!r}.")
    return text


def reason(text: str, flag: str = "--reason") -> str:
    if not text.strip():
        raise UsageError(f"{flag} says why, for those who read the history later.")
    if any("\ud800" <= char <= "\udfff" for char in text):  # bytes that are no UTF-8 could be stored, but never shown
        raise UsageError(f"{flag} is not UTF-8.", hint="Is the terminal's character set another (locale)?")
    return text.strip()
