"""An app in several processes: `python -m tests.kafka.processes_app PROCESSES BOOTSTRAP GUARANTEE SOURCE SINK ID DIRECTORY`.

Its members note in DIRECTORY/notes, a JSON object a line: their process, the text of DIRECTORY/source, the state of the app with its tasks, and the
number of records that they have restored. While there is DIRECTORY/hungry, a record with the value `poison` takes memory until the kernel kills its
member; where nothing limits the memory of the processes, the member kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from ks_actors import App, InstanceState, RestoreListener, StreamsConfig
from ks_actors.records import TopicPartition
from tests.chaos.app import count_topology

MOST_MIB = 1024


def main(processes: str, bootstrap: str, guarantee: str, source: str, sink: str, application_id: str, directory: str) -> None:
    place = Path(directory)
    config = StreamsConfig.of(
        {
            "application_id": application_id, "bootstrap_servers": bootstrap, "state_dir": place / "state", "processing_guarantee": guarantee,
            "commit_interval_ms": 100, "session_timeout_ms": 600_000, "transaction_timeout_ms": 600_000,
        }
    )  # fmt: skip
    version = (place / "source").read_text()
    restored = 0

    class Restores(RestoreListener):
        def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
            nonlocal restored
            restored += count

    def note(state: InstanceState, _: InstanceState) -> None:
        tasks = sorted(str(task.task) for task in app.tasks())
        line = {"client": app.config.client_id, "pid": os.getpid(), "version": version, "state": state.name, "tasks": tasks, "restored": restored}
        with (place / "notes").open("a") as notes:
            notes.write(json.dumps(line) + "\n")

    def eat(_: bytes | None, value: bytes | None) -> None:
        if value == b"poison" and (place / "hungry").exists():
            eaten = [bytearray(1 << 20) for _ in range(MOST_MIB)]
            eaten[-1][-1] = 1
            os.kill(os.getpid(), signal.SIGKILL)

    app = App(count_topology(source, sink, eat), config, on_state=note, restore_listener=Restores())
    app.main(processes=int(processes))


if __name__ == "__main__":
    main(*sys.argv[1:])
