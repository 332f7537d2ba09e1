"""The views and macros for archive queries, in DuckDB's SQL. The comment on each defines its rows and columns.

`events` and `recovery_records` hold the records as archived. The other views derive what a reader of the topics derives.
They repeat the rules of `core.published` (epoch filter, last record per job) and of `core.job` (which end of an attempt
counts) in SQL. tests/archive/query/test_querying.py compares their results with those modules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ledger.core.model.recovery import RECOVERY_SET
from ledger.core.model.registers import OUTCOMES


def records(name: str, folder: str) -> str:
    """The statement for the view of one topic's records: the columns of `archive.format.parquet`, and `partition`. Columns
    that an older file lacks are null. A redacted record has a value_sha256 and no value. Expired records are missing."""
    return f"""
CREATE VIEW {name} AS
SELECT partition, * EXCLUDE (partition, body), body::JSON AS body
FROM read_parquet({text(folder)} || '/*/*.parquet',
     union_by_name = true, hive_partitioning = true, hive_types = {{'partition': INTEGER}})"""


#: One row for each record of a job in ledger.recovery. seen: the latest append time in the partition up to this record. At
#: a moment T, only records with seen <= T count. effective: the record passes the epoch filter of every reader: its epoch
#: is the highest one claimed before it. tombstone: the job was retired. unreadable: readers know only that the job exists.
RECOVERY = f"""
CREATE VIEW recovery AS
WITH claims AS (
    SELECT *, CASE WHEN value IS NOT NULL OR value_sha256 IS NOT NULL THEN TRY_CAST(
        nullif(regexp_extract(TRY(decode(key)), '^~claim/projector/([1-9][0-9]{{0,15}})$', 1), '') AS BIGINT) END AS claim
    FROM recovery_records
), judged AS (
    SELECT *,
        max(timestamp) OVER (PARTITION BY partition ORDER BY "offset") AS seen,
        max(CASE WHEN claim <= 9007199254740992 THEN claim END) OVER (
            PARTITION BY partition ORDER BY "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS claimed
    FROM claims
), entries AS (
    SELECT *,
        coalesce(fact = 'RecoveryEntry' AND body->>'$.job_id' = job_id, false) AS readable
    FROM judged
    WHERE TRY(decode(key)) = job_id AND register IS NULL
        AND regexp_full_match(job_id, '[A-Za-z0-9._-]{{1,128}}') AND job_id NOT IN ('.', '..')
)
SELECT
    job_id, partition, "offset", timestamp, seen, epoch,
    coalesce(epoch > 0 AND epoch = claimed, false) AS effective,
    value IS NULL AND value_sha256 IS NULL AS tombstone,
    (value IS NOT NULL OR value_sha256 IS NOT NULL) AND NOT readable AS unreadable,
    CASE WHEN readable THEN body->>'$.name' END AS name,
    CASE WHEN readable THEN body->>'$.namespace' END AS namespace,
    CASE WHEN readable THEN body->>'$.runner' END AS runner,
    CASE WHEN readable THEN body->>'$.state' END AS state,
    CASE WHEN readable THEN (body->>'$.attempt')::BIGINT END AS attempt,
    CASE WHEN readable THEN (body->>'$.next_attempt')::BIGINT END AS next_attempt,
    CASE WHEN readable THEN (body->>'$.failures')::BIGINT END AS failures,
    CASE WHEN readable THEN body->>'$.reason' END AS reason,
    CASE WHEN readable THEN (body->>'$.retiring')::BOOLEAN END AS retiring,
    CASE WHEN readable THEN (body->>'$.as_of')::BIGINT END AS as_of,
    coalesce(readable AND body->>'$.state' IN ({", ".join(f"'{s}'" for s in sorted(RECOVERY_SET))})
        AND NOT (body->>'$.retiring')::BOOLEAN, false) AS in_recovery_set,
    CASE WHEN readable THEN body END AS entry
FROM entries"""

#: One row for each attempt that was recorded, ran or ended. base: the restore point of the attempt, by the record of the
#: highest epoch. outcome, cause, …: from the end that counts. Resends and pruning have no effect: the first record of a
#: fact counts. A job with records in several partitions has a row for each. Readers use only the partition that the job's
#: key maps to, but an archive does not record how many partitions there are.
ATTEMPTS = f"""
CREATE VIEW attempts AS
WITH facts AS (
    SELECT job_id, partition, string_split(register, '/') AS part, timestamp, body
    FROM events
    WHERE fact IN ('AttemptStarted', 'AttemptRunning', 'AttemptEnded')
    QUALIFY row_number() OVER (PARTITION BY job_id, partition, register ORDER BY "offset") = 1
), by_attempt AS (
    SELECT *, part[2]::BIGINT AS n, CASE part[1]
        WHEN 'attempt' THEN {{'a': part[3]::BIGINT, 'b': false, 'c': ''}}
        WHEN 'ended' THEN {{'a': list_position([{", ".join(f"'{o}'" for o in OUTCOMES)}], part[3])::BIGINT,
                           'b': starts_with(part[4], 'agent-'), 'c': part[4]}} END AS rank
    FROM facts
)
SELECT
    job_id, partition, n,
    min(timestamp) FILTER (part[1] = 'attempt') AS recorded_at,
    max(rank.a) FILTER (part[1] = 'attempt') AS epoch,
    nullif(arg_max(body->'$.base', rank) FILTER (part[1] = 'attempt'), 'null'::JSON) AS base,
    arg_max((body->>'$.failures')::BIGINT, rank) FILTER (part[1] = 'attempt') AS failures,
    min(timestamp) FILTER (part[1] = 'running') AS running_at,
    any_value(body->>'$.engine_id') FILTER (part[1] = 'running') AS engine_id,
    arg_max(timestamp, rank) FILTER (part[1] = 'ended') AS ended_at,
    arg_max(part[3], rank) FILTER (part[1] = 'ended') AS outcome,
    arg_max(part[4], rank) FILTER (part[1] = 'ended') AS ended_by,
    arg_max(body->>'$.cause', rank) FILTER (part[1] = 'ended') AS cause,
    arg_max((body->>'$.ran_for_s')::DOUBLE, rank) FILTER (part[1] = 'ended') AS ran_for_s
FROM by_attempt GROUP BY job_id, partition, n"""

#: One row for each checkpoint and savepoint. completed_at: when its fact was appended; pruned_at: when it was tombstoned.
#: For records in several partitions, see `attempts`.
CHECKPOINTS = """
CREATE VIEW checkpoints AS
WITH facts AS (
    SELECT job_id, register, string_split(register, '/') AS part, timestamp, "offset", partition, fact, value,
        value_sha256, body
    FROM events WHERE starts_with(register, 'checkpoint/')
)
SELECT
    job_id, partition, part[2]::BIGINT AS n, part[3]::BIGINT AS id,
    arg_min(body->>'$.kind', "offset") FILTER (fact IS NOT NULL) AS kind,
    min(timestamp) FILTER (fact IS NOT NULL) AS completed_at,
    arg_min(body->>'$.location', "offset") FILTER (fact IS NOT NULL) AS location,
    arg_min((body->>'$.size')::BIGINT, "offset") FILTER (fact IS NOT NULL) AS size,
    arg_min(body->>'$.consistency', "offset") FILTER (fact IS NOT NULL) AS consistency,
    min(timestamp) FILTER (value IS NULL AND value_sha256 IS NULL) AS pruned_at
FROM facts GROUP BY job_id, partition, part"""


def left_out_at(events: str, recovery: str) -> str:
    """The statement for left_out_at(T): the jobs whose state at T is unknown, because records that existed at T have
    expired.

    It repeats the rule of `ledger.reader.expiry_gaps` in SQL. In each partition of both topics, T becomes a cut: the
    offset behind the last record that was appended by T, where the first expired record of each job counts too. A job
    is left out if it lost a record below the cut and is complete again only beyond the cut. name: null if no record
    holds the job's name any more. events, recovery: names of the topics.
    """
    return f"""
CREATE MACRO left_out_at(T) AS TABLE
WITH placed AS (
    SELECT {text(events)} AS topic, partition, "offset", timestamp FROM events
    WHERE partition IN (SELECT partition FROM expired_jobs)
    UNION ALL
    SELECT {text(recovery)} AS topic, partition, "offset", timestamp FROM recovery_records
    WHERE partition IN (SELECT partition FROM expired_jobs)
), seen AS (
    SELECT *, max(timestamp) OVER (PARTITION BY topic, partition ORDER BY "offset") AS seen FROM placed
), cuts AS (
    SELECT topic, partition, max("offset") + 1 AS cut
    FROM (SELECT topic, partition, "offset" FROM seen WHERE seen <= T::TIMESTAMPTZ
          UNION ALL SELECT topic, partition, "first" FROM expired_jobs WHERE since <= T::TIMESTAMPTZ) AS known
    GROUP BY topic, partition
), gone AS (
    SELECT DISTINCT partition, namespace, job_id, until FROM expired_jobs JOIN cuts USING (topic, partition)
    WHERE "first" < cut AND cut < below
), named AS (
    SELECT job_id, partition, namespace, arg_max(name, "offset") AS name
    FROM recovery WHERE namespace IS NOT NULL GROUP BY job_id, partition, namespace
), each AS (
    SELECT gone.job_id, gone.namespace, named.name, until FROM gone LEFT JOIN named USING (job_id)
    WHERE gone.job_id IS NOT NULL
    UNION ALL
    SELECT named.job_id, namespace, name, until FROM gone JOIN named USING (namespace, partition) WHERE gone.job_id IS NULL
)
SELECT job_id, namespace, any_value(name) AS name, max(until) AS until FROM each GROUP BY job_id, namespace"""


_QUOTES = "'\""


def moments_in(sql: str) -> list[str]:
    """The text of T of each entries_at(T) and recovery_set_at(T) in a query."""
    found = []
    for match in re.finditer(r"\b(?:entries_at|recovery_set_at)\s*\(", sql, re.IGNORECASE):
        depth, quote = 1, ""
        for end in range(match.end(), len(sql)):
            sign = sql[end]
            if quote:
                quote = "" if sign == quote else quote
            elif sign in _QUOTES:
                quote = sign
            else:
                depth += (sign == "(") - (sign == ")")
            if not depth:
                found.append(sql[match.end() : end])
                break
    return found


def entries_at(sure_from: str) -> str:
    """The statement for entries_at(T): the entries that the leader had published by T, one row for each job that was not
    retired. Each row is the job's last effective record that was appended by T. It may differ from the state of the log at
    T, because the leader may have lagged behind the log.

    sure_from: RFC 3339. A T before it is an error, because log compaction may have removed records before they were
    archived. A T in the future is an error too. The jobs of `left_out_at(T)` are left out."""
    older = f"the archive is surely complete for ledger.recovery only from {sure_from} on"
    return f"""
CREATE MACRO entries_at(T) AS TABLE
SELECT * EXCLUDE (effective, tombstone, nth)
FROM (
    SELECT *, row_number() OVER (PARTITION BY job_id ORDER BY "offset" DESC) AS nth
    FROM recovery WHERE effective AND seen <= T::TIMESTAMPTZ
) AS nth_of
WHERE nth = 1 AND NOT tombstone
    AND (SELECT CASE WHEN T::TIMESTAMPTZ < TIMESTAMPTZ {text(sure_from)} THEN error({text(older)})
                     WHEN T::TIMESTAMPTZ > now() THEN error('that moment is in the future')
                     ELSE true END)
    AND job_id NOT IN (SELECT job_id FROM left_out_at(T) WHERE job_id IS NOT NULL)"""


#: The recovery set that the leader had published by T.
RECOVERY_SET_AT = """
CREATE MACRO recovery_set_at(T) AS TABLE
SELECT * EXCLUDE (in_recovery_set, unreadable) FROM entries_at(T) WHERE in_recovery_set"""


def all_of(events: str, recovery: str, sure_from: str, topics: tuple[str, str]) -> Sequence[str]:
    """The statements that create the views and macros. events, recovery: the folders with each topic's records; topics:
    the topics' names. sure_from: as `entries_at`."""
    return (
        records("events", events), records("recovery_records", recovery), RECOVERY, ATTEMPTS, CHECKPOINTS,
        left_out_at(*topics), entries_at(sure_from), RECOVERY_SET_AT,
    )  # fmt: skip


def text(value: str) -> str:
    """The value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"
