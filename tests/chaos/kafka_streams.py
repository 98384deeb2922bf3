"""Write the command of Kafka Streams as the application under chaos, for its figures beside ours: see README.md."""

from __future__ import annotations

import shlex

from tests.kafka.programs import command

if __name__ == "__main__":
    print(shlex.join(command()))  # noqa: T201 - this is a program
