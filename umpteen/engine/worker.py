"""A process that runs tasks: ``python -m umpteen.engine.worker``, see ``processes``."""

import json
import os
import sys

from umpteen.engine.processes import answer_of
from umpteen.engine.tasks import Task


def main() -> None:
    """Run the tasks of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a task prints must not be read as an answer
    try:
        for line in sys.stdin:
            question = json.loads(line)
            answer = answer_of(Task(question["function"], question["arguments"]), question["threads"])
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
