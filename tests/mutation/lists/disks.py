"""Mistakes with data that must survive a power cut: fsync of files and folders, its order, and renames."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

FILES, AGENTS = "ledger/util/files.py", "ledger/adapters/runners/subprocess/supervisor/files.py"
OBJECTS, BLOBS = "ledger/adapters/local/objects.py", "ledger/adapters/local/blobs.py"
TESTS = ("tests/adapters/test_disks.py",)

MUTANTS = (
    Mutant(
        "a-file-is-renamed-before-it-is-synced", FILES,
        "            file.flush()\n            os.fsync(file.fileno())\n        Path(temporary).replace(path)\n",
        "            file.flush()\n        Path(temporary).replace(path)\n",
        TESTS, "after a power cut a file may hold anything",
    ),
    Mutant(
        "what-python-has-buffered-is-not-flushed", FILES,
        "            file.flush()\n            os.fsync(file.fileno())\n        Path(temporary).replace(path)\n",
        "            os.fsync(file.fileno())\n        Path(temporary).replace(path)\n",
        TESTS, "after a power cut a file is empty",
    ),
    Mutant(
        "the-folder-of-a-replaced-file-is-not-synced", FILES,
        "        raise\n    sync_folder(path.parent)\n", "        raise\n",
        TESTS, "after a power cut acknowledged data is missing",
    ),
    Mutant(
        "a-file-is-written-in-its-place", FILES,
        "        Path(temporary).replace(path)\n    except", "        path.write_bytes(data)\n    except",
        TESTS, "after a power cut a file holds half of its new content",
    ),
    Mutant(
        "what-is-spooled-is-not-synced", FILES,
        "            file.flush()\n            os.fsync(file.fileno())\n    except", "            file.flush()\n    except",
        TESTS, "after a power cut a graph or a segment may hold anything",
    ),
    Mutant(
        "folders-above-are-not-synced", FILES,
        "    for one in missing:\n        sync_folder(one.parent)\n", "    for one in missing[:1]:\n        sync_folder(one.parent)\n",
        TESTS, "after a power cut all files in a new folder are gone",
    ),
    Mutant(
        "an-agents-file-is-not-synced", AGENTS,
        "        os.fsync(fd)\n    finally:\n        os.close(fd)\n\n\ndef sync_folder", "        pass\n    finally:\n        os.close(fd)\n\n\n"
        "def sync_folder",
        TESTS, "after a power cut a fence or an event may hold anything",
    ),
    Mutant(
        "an-agents-folder-is-not-synced-after-a-rename", AGENTS,
        "    os.replace(temporary, path)\n    sync_folder(os.path.dirname(path))\n", "    os.replace(temporary, path)\n",
        TESTS, "after a power cut an acknowledged fence is missing",
    ),
    Mutant(
        "a-marker-is-not-synced", AGENTS,
        "        os.unlink(temporary)\n    sync_folder(os.path.dirname(path))\n", "        os.unlink(temporary)\n",
        TESTS, "after a power cut a started attempt may start again",
    ),
    Mutant(
        "an-agents-file-is-replaced-before-it-is-written", AGENTS,
        "    _write(temporary, data)\n    os.replace(temporary, path)\n", "    _write(path, data)\n",
        TESTS, "after a power cut a file of the agent holds half of its new content",
    ),
    Mutant(
        "the-folder-of-a-graph-is-not-synced", BLOBS,
        "            temporary.unlink(missing_ok=True)\n        sync_folder(folder)\n", "            temporary.unlink(missing_ok=True)\n",
        TESTS, "after a power cut a job has no graph",
    ),
    Mutant(
        "the-folder-of-a-fetched-graph-is-not-synced", BLOBS,
        "            temporary.replace(target)\n            sync_folder(target.parent)\n", "            temporary.replace(target)\n",
        TESTS, "after a power cut a prepared attempt has no graph",
    ),
    Mutant(
        "a-damaged-graph-is-mended-in-its-place", BLOBS,
        "                    temporary.replace(path)  # repairs", "                    path.write_bytes(temporary.read_bytes())  # repairs",
        TESTS, "after a power cut a graph holds half of its content",
    ),
    Mutant(
        "the-folder-of-an-object-is-not-synced", OBJECTS,
        "                temporary.unlink(missing_ok=True)\n            sync_folder(path.parent)\n",
        "                temporary.unlink(missing_ok=True)\n",
        TESTS, "after a power cut a sealed segment is missing",
    ),
    Mutant(
        "an-object-that-was-deleted-comes-back", OBJECTS,
        "                return\n            sync_folder(path.parent)\n", "                return\n",
        TESTS, "after a power cut a redacted record is back",
    ),
    Mutant(
        "a-refused-event-is-removed-before-it-is-kept", "ledger/producer/outbox.py",
        '        write_atomic(self.folder / f"{event_id}{REFUSED}", _to_json(event))\n',
        '        (self.folder / f"{event_id}{REFUSED}").write_bytes(_to_json(event))\n',
        TESTS, "after a power cut a refused event is neither in the outbox nor among the refused",
    ),
    Mutant(
        "the-outbox-is-lost-with-its-folder", "ledger/producer/outbox.py",
        "            make_folder(folder)\n", "            folder.mkdir(parents=True, exist_ok=True)\n",
        TESTS, "after a power cut all waiting events are gone",
    ),
    Mutant(
        "a-new-file-of-anchors-is-lost", "ledger/archive/anchors/anchors.py",
        "        if new:\n            sync_folder(path.absolute().parent)\n", "",
        TESTS, "after a power cut nothing proves the anchored records",
    ),
    Mutant(
        "numbers-are-saved-only-in-memory", "ledger/adapters/runners/subprocess/events.py",
        '                write_durably(str(self._path), to_json({str(p): last for p, last in self._last.items()}))\n', "",
        TESTS, "two events of an agent have one sequence number",
    ),
    Mutant(
        "the-folder-of-a-fence-is-lost", "ledger/adapters/runners/subprocess/jobs.py",
        "            make_folder(self.folder, 0o700)\n", "            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)\n",
        TESTS, "after a power cut an acknowledged fence is missing",
    ),
    Mutant(
        "the-folder-of-a-key-is-not-synced", "ledger/adapters/ed25519.py",
        "        sync_folder(path.absolute().parent)\n", "",
        TESTS, "after a power cut nobody can prove who signed the anchors",
    ),
)  # fmt: skip
