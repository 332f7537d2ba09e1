"""A Spark Structured Streaming application: copies the lines of files into Parquet, each line once.

Spark restores by itself from its checkpointLocation. So the job is submitted with `--restore external`, and that location
is a stable path outside LEDGER_CHECKPOINT_DIR. Markers tell the ledger which batches are committed.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import ledger


def committed(state: str) -> int:
    """The newest batch that Spark has committed; -1: none."""
    return max((int(path.name) for path in Path(state, "commits").glob("*") if path.name.isdigit()), default=-1)


def main(source: str, target: str, state: str) -> None:
    with ledger.job(savepoints=False) as job:  # Spark makes none
        spark = SparkSession.builder.master("local[2]").appName("copy").getOrCreate()
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
        query = lines.writeStream.format("parquet").option("path", target).option("checkpointLocation", state).start()
        marked = -1
        while not job.stopping:
            try:
                query.awaitTermination(1)  # raises if the query failed; the restart policy decides what follows
            except Exception:
                if not job.stopping:  # SIGTERM reaches the JVM too, so a stop breaks the query
                    raise
            if (batch := committed(state)) > marked:
                with job.checkpoint(batch):  # an empty folder: a marker
                    marked = batch


if __name__ == "__main__":
    main(*sys.argv[1:])
