"""Java processes: `java` finds a JVM, `jars` downloads jars with Ivy, `class_archives` shortens the start of JVMs,
`provision` reports progress.
"""
