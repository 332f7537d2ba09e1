"""`apply`: jobs are made to match their files."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.graph import unpack
from ledger.cli import job_files
from ledger.cli.applying import spec_differences
from ledger.cli.specs import JobOptions, spec_of
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, JobResult, OnStall
from ledger.core.model.registers import Attempt, Ended, Result, Running
from ledger.errors import UsageError
from tests.support.jobs_world import Shell

WHOLE = """
name = "etl"
namespace = "prod"
command = ["python", "etl.py", "--fast"]
graph = ["etl.py", "data"]
restart = "fixed-delay:3:10s"
priority = 7
slots = 2
region = "prices"
memory = "512M"
stop_grace = 60
from = "chk-9"
permanent_exit_code = [64]
permanent_pattern = ["no such table"]
permanent_label = ["config"]
checkpoint_interval = "10s"
stalled_after = 5
on_stall = "restart"
savepoint_interval = 1.5
savepoint_keep = 4
checkpoint_retention = "keep"
restore = "ledger"

[env]
A = "1"

[label]
team = "data"

[failure_label]
config = 78
oom = "MemoryError"
"""


@pytest.fixture
def folder(shell: Shell) -> Path:
    path = shell.folder / "jobs"
    (path / "data").mkdir(parents=True)
    (path / "etl.py").write_text("print(1)")
    (path / "data" / "a.csv").write_text("1,2")
    return path


def write(folder: Path, name: str = "etl", **more: object) -> Path:
    path = folder / f"{name}.toml"
    keys = {"name": name, "command": ["true"], **more}
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in keys.items()))
    return path


def toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inner)}' for key, inner in value.items())} }}"
    return json.dumps(value)


def outcome(shell: Shell, *arguments: object, code: int = 0) -> dict[str, dict[str, object]]:
    """Name -> row of the output."""
    told = shell.run("apply", "-o", "json", *map(str, arguments))
    assert told.exit_code == code, told.output
    rows = {row["name"]: row for row in json.loads(told.stdout)}
    for row in rows.values():
        if "job_id" in row and row["outcome"] in ("created", "replaced"):
            shell.now(row["job_id"])
    return rows


# -- files and the flags of submit -------------------------------------------------------------------------------------


def test_a_file_says_what_the_flags_of_submit_say(shell: Shell, folder: Path) -> None:
    (folder / "etl.toml").write_text(WHOLE)
    by_file = outcome(shell, "-f", folder / "etl.toml")["etl"]["job_id"]
    by_flags = shell.good(
        "submit", "--name", "etl", "-n", "prod", "--graph", str(folder / "etl.py"), "--graph", str(folder / "data"),
        "--restart", "fixed-delay:3:10s", "--priority", "7", "--slots", "2", "--region", "prices", "--memory", "512M",
        "--stop-grace", "60", "--from", str(folder / "chk-9"), "--permanent-exit-code", "64", "--permanent-pattern",
        "no such table", "--permanent-label", "config", "--checkpoint-interval", "10s", "--stalled-after", "5",
        "--on-stall", "restart", "--savepoint-interval", "1.5", "--savepoint-keep", "4", "--checkpoint-retention", "keep",
        "--restore", "ledger",
        "--env", "A=1", "--label", "team=data", "--failure-label", "config=78", "--failure-label", "oom=MemoryError",
        "-o", "name", "--", "python", "etl.py", "--fast",
    ).strip()  # fmt: skip
    one, other = (shell.client().spec(job_id) for job_id in (by_file, by_flags))
    assert replace(one, graph=other.graph) == other
    assert one.graph.sha256 == other.graph.sha256
    assert one.stall_policy.on_stall is OnStall.RESTART


def test_every_option_has_a_key() -> None:
    assert {field.name.rstrip("_") for field in fields(JobOptions)} == set(job_files._READ)


def test_the_whole_file_is_the_one_that_the_page_shows() -> None:
    from tests.support.pages import ROOT, blocks

    (shown,) = [b for b in blocks((ROOT / "docs" / "JOBS.md").read_text()) if b.info == "toml job"]
    assert "\n".join(shown.lines).strip() == WHOLE.strip()


# -- a repeated apply --------------------------------------------------------------------------------------------------


def test_the_same_again_changes_nothing(shell: Shell, folder: Path) -> None:
    first = outcome(shell, "-f", write(folder, graph=["etl.py"]))["etl"]
    assert first["outcome"] == "created"
    records = len(shell.log.records("ledger.events", 0))
    again = outcome(shell, "-f", folder)["etl"]
    assert (again["outcome"], again["job_id"], again["why"]) == ("unchanged", first["job_id"], [])
    assert len(shell.log.records("ledger.events", 0)) == records


def test_what_differs_is_told_and_left_as_it_is(shell: Shell, folder: Path) -> None:
    write(folder, graph=["etl.py", "data"], env={"A": "old", "B": "1"}, label={"team": "web"})
    first = outcome(shell, "-f", folder)["etl"]
    (folder / "etl.py").write_text("print(2)")
    (folder / "data" / "b.csv").write_text("")
    write(folder, graph=["etl.py", "data"], env={"A": "s3cret", "B": "1"}, label={"team": "data"}, priority=3,
          restart="fixed-delay:2", command=["false"], memory="1G")  # fmt: skip
    told = shell.run("apply", "-f", str(folder))
    assert told.exit_code == 1 and "Add --replace to bring them in line" in told.stderr and "s3cret" not in told.output
    row = outcome(shell, "-f", folder, code=1)["etl"]
    assert (row["outcome"], row["job_id"]) == ("differs", first["job_id"])
    assert row["why"] == [
        "restart_policy.kind: EXPONENTIAL_DELAY → FIXED_DELAY", "restart_policy.attempts_max: 0 → 2", "priority: 0 → 3",
        "labels: team=web → team=data", "env: A", "graph.command: true → false",
        "graph.memory_bytes: none → 1073741824", "file: data/b.csv", "file: etl.py",
    ]  # fmt: skip
    assert shell.now(first["job_id"]).priority == 0


def test_what_differs_is_replaced_if_so_asked_and_then_is_the_same(shell: Shell, folder: Path) -> None:
    first = outcome(shell, "-f", write(folder))["etl"]["job_id"]
    shell.record(first, Attempt(1, 1), AttemptStarted("d" * 64))
    shell.record(first, Running(1), AttemptRunning("17"))
    write(folder, priority=3)
    row = outcome(shell, "-f", folder, "--replace", "--reason", "faster")["etl"]
    assert (row["outcome"], row["replaces"]) == ("replaced", first)
    spec = shell.client().spec(row["job_id"])
    assert (spec.priority, spec.replaces, spec.replacement.reason) == (3, first, "faster")
    for more in ((), ("--replace",)):
        again = outcome(shell, "-f", folder, *more)["etl"]
        assert (again["outcome"], again["job_id"]) == ("unchanged", row["job_id"])


def test_what_is_over_stays_over_unless_it_is_wanted_again(shell: Shell, folder: Path) -> None:
    first = outcome(shell, "-f", write(folder))["etl"]["job_id"]
    shell.record(first, Ended(1, "finished", "agent-a"), AttemptEnded("exit code 0"))
    shell.now(first)
    row = outcome(shell, "-f", folder)["etl"]
    assert (row["outcome"], row["state"], row["job_id"]) == ("over", "FINISHED", first)
    shell.record(first, Result("FINISHED"), JobResult("etl", "default", "subprocess", "d" * 64, "", 1.0, 1))
    assert outcome(shell, "-f", folder)["etl"]["outcome"] == "over"
    row = outcome(shell, "-f", folder, "--again")["etl"]
    assert row["outcome"] == "created" and row["job_id"] != first


def test_a_job_that_was_canceled_is_not_brought_back_by_the_way(shell: Shell, folder: Path) -> None:
    first = outcome(shell, "-f", write(folder))["etl"]["job_id"]
    shell.good("cancel", first, "--reason", "enough")
    row = outcome(shell, "-f", folder, code=1)["etl"]
    assert row["outcome"] == "failed" and "is CANCELLING" in row["why"][0]
    shell.record(first, Ended(1, "canceled", "reconciler-1"), AttemptEnded(""))
    shell.now(first)
    row = outcome(shell, "-f", folder, code=1)["etl"]
    assert (row["outcome"], row["state"]) == ("over", "CANCELED")


def test_a_name_that_two_jobs_have_is_refused_and_the_others_go_on(shell: Shell, folder: Path) -> None:
    ids = [shell.submit("etl"), shell.submit("etl")]
    write(folder)
    write(folder, "other")
    rows = outcome(shell, "-f", folder, code=1)
    assert rows["other"]["outcome"] == "created"
    assert rows["etl"]["outcome"] == "failed" and all(job_id in rows["etl"]["why"][0] for job_id in ids)


def test_how_a_job_began_is_no_difference() -> None:
    old = spec_of(JobOptions(["true"], from_="/chk-1"))
    assert spec_differences(replace(old, replaces="job-0"), spec_of(JobOptions(["true"]))) == []
    assert spec_differences(old, spec_of(JobOptions(["true"], slots=3))) == ["slots: 1 → 3"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_paths_are_meant_from_the_folder_of_the_file_on(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, graph=["data"])
    monkeypatch.chdir(shell.folder)
    job_id = outcome(shell, "-f", "jobs/etl.toml")["etl"]["job_id"]
    shell.blobs.fetch(shell.now(job_id).graph, shell.folder / "blob")
    unpack(shell.folder / "blob", shell.folder / "unpacked")
    assert (shell.folder / "unpacked" / "data" / "a.csv").read_text() == "1,2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "x"\ncommand = ]\n', "x.toml:2: this is no TOML"),
        ('name = "x"\ncommand = [\n', "x.toml: this is no TOML: Invalid value (at end of document)"),
        ('name = "x"\n', "x.toml: command is missing"),
        ("command = ['true']", "x.toml: name is missing"),
        ("name = 'x'\ncommand = ['true']\n\nslot = 1", "x.toml:4: there is no key slot. Did you mean slots?"),
        ("name = 'x'\ncommand = 'true'", "x.toml:2: command takes a list"),
        ("name = 'x'\ncommand = ['true', 1]", "x.toml:2: command takes a text"),
        ("name = 'x'\ncommand = []", "x.toml:2: Say what to run"),
        ("name = 'x y'\ncommand = ['true']", "x.toml:1: name takes letters"),
        ("name = 'x'\ncommand = ['true']\nslots = true", "x.toml:3: slots takes a whole number from 0"),
        ("name = 'x'\ncommand = ['true']\nsavepoint_keep = 0", "x.toml:3: savepoint_keep takes a whole number from 1"),
        ("name = 'x'\ncommand = ['true']\npriority = 9223372036854775808", "x.toml:3: priority takes a whole number"),
        ("name = 'x'\ncommand = ['true']\nmemory = []", "x.toml:3: memory takes a text"),
        ("name = 'x'\ncommand = ['true']\nrestart = 'often'", "x.toml:3: restart takes none, fixed-delay"),
        ("name = 'x'\ncommand = ['true']\non_stall = 'mark'", "x.toml:3: on_stall needs checkpoint_interval"),
        ("name = 'x'\ncommand = ['true']\n[env]\nA = 1", "x.toml:3: env takes texts, in quotes: A is none"),
        ("name = 'x'\ncommand = ['true']\nenv = 'A=1'", "x.toml:3: env takes a table"),
        ("name = 'x'\ncommand = ['true']\nlabel.team = 'a,b'", "x.toml:3: label takes NAME=VALUE"),
        ("name = 'x'\ncommand = ['true']\nrunner = 'outside'", "x.toml:3: runner outside"),
    ],
)
def test_what_is_wrong_is_told_by_file_and_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        job_files.read([tmp_path])
    assert f"{tmp_path}/{told}" in str(error.value)


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_submitted(shell: Shell, folder: Path) -> None:
    write(folder, "good")
    write(folder, "one", slot=1, memory=[])
    (folder / "twice.toml").write_text("name = 'good'\ncommand = ['true']")
    told = shell.run("apply", "-f", str(folder))
    assert told.exit_code == 2
    wanted = ("one.toml:3:", "one.toml:4:", "good is the job of", "Nothing was submitted")
    assert [word for word in wanted if word not in told.stderr] == []
    assert shell.client().entries() == {}


def test_a_folder_without_files_and_a_file_that_is_not_there_are_wrong_usage(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, told in (("empty", "holds no *.toml"), ("gone.toml", "No such file")):
        answer = shell.run("apply", "-f", str(tmp_path / place))
        assert answer.exit_code == 2 and told in answer.stderr


def test_a_graph_that_can_not_be_packed_is_the_failure_of_its_job(shell: Shell, folder: Path) -> None:
    write(folder, "bad", graph=["nowhere"])
    write(folder, "good")
    rows = outcome(shell, "-f", folder, code=1)
    assert rows["good"]["outcome"] == "created"
    assert rows["bad"]["why"][0].endswith(f"there is no file or folder {folder / 'nowhere'}.")


def test_a_file_that_is_not_there_is_named_in_plain_words(shell: Shell) -> None:
    told = shell.run("submit", "--graph", "nowhere", "--", "true")
    assert told.exit_code == 2 and "error: this job can't be packed: there is no file or folder nowhere." in told.stderr
    assert "hint: A relative path counts from the current folder" in told.stderr
