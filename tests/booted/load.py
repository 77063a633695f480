"""A load on a gateway at 127.0.0.1:8080, with the server behind it: `python -m booted.load`, where both can be reached.

It says `true` once the server is there, so that a gateway which starts then finds it. Each line of its input asks that all clients
go on, the first one that they begin: it says `true` when each has been answered some more times. At the end of its input it stops,
and says what became of all calls.
"""

import json
import sys

from fleet.client import Load, Session, Visitor
from fleet.server import Server
from fleet.site import wait_for

GATEWAY_PORT, SERVER_PORT = 8080, 9101
KEPT = VISITORS = 3
SLOW = 2
#: Of each client, before and after something happens.
CALLS = 5
PAUSE_S = 0.03


def main():
    with Server(SERVER_PORT) as server:
        say(True)
        sys.stdin.readline()
        kept = [Session(GATEWAY_PORT) for _ in range(KEPT)]
        slow = [Session(GATEWAY_PORT, "slow") for _ in range(SLOW)]
        with Load([*kept, *slow, *(Visitor(GATEWAY_PORT) for _ in range(VISITORS))], PAUSE_S) as load:
            more_calls(load)
            for _ in sys.stdin:
                more_calls(load)
        say(
            {
                "calls": sum(load.counts()),
                "failed": [[lost.begun, lost.ended, lost.kind] for lost in load.failed()],
                "most_failed": max(map(len, load.failures)),
                "spans": [span for spans in load.spans for span in spans],
                "longest_s": load.longest_s(),
                # The answers of a session about itself are the same for as long as it goes on.
                "sessions_lost": sum(len(set(answers)) != 1 for answers in load.answers[: KEPT + SLOW]),
                "sent_twice": server.sent_twice(),
            }
        )


def more_calls(load):
    before = load.counts()
    enough = lambda: all(seen >= then + CALLS for seen, then in zip(load.counts(), before, strict=True))
    wait_for("every client goes on", enough)
    say(True)


def say(told):
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
