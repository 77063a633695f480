"""A scripted server over standard input and output, for tests of child processes.

    child.py LOG [word ...]

It appends what it receives to LOG, one JSON object a line, each with the number of its process. The words say what is
special about it; each request is otherwise answered as a well-behaved server would. A tool's name says what a call of
it does.
"""

import json
import os
import signal
import sys
import time

LOG = sys.argv[1]
WORDS = sys.argv[2:]
OUT = sys.stdout.buffer


def note(**fields):
    with open(LOG, "a") as log:
        log.write(json.dumps({"pid": os.getpid(), **fields}) + "\n")


def write(data):
    OUT.write(data)
    OUT.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")


def die():
    os._exit(3)


def result(request, value):
    send({"id": request["id"], "result": value})


def tell_change(subscription, kind, **params):
    meta = {"io.modelcontextprotocol/subscriptionId": subscription}
    send({"method": "notifications/" + kind, "params": {**params, "_meta": meta}})


def text(request, said):
    result(request, {"content": [{"type": "text", "text": said}]})


def initialize(request):
    if "dies-in-initialize" in WORDS:
        die()
    capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
    version = request["params"]["protocolVersion"]
    result(request, {"protocolVersion": version, "capabilities": capabilities,
                     "serverInfo": {"name": "child", "version": "1"}})


def call(request):
    params = request["params"]
    tool, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if tool == "echo":
        text(request, str(arguments.get("text", os.getpid())))
    elif tool == "progress":
        for step in range(3):
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        text(request, "done")
    elif tool == "ask":
        send({"id": 1, "method": "roots/list"})
        asked[1] = request
    elif tool == "garbage":
        write(b"starting up\n{broken\n\xff\xfe\n[]\n\n" + b'{"jsonrpc":"2.0","id":4711,"result":{}}\n')
        text(request, "clean")
    elif tool == "flood":
        write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n' * 50000)
        text(request, "flooded")
    elif tool == "huge":
        write(b'{"jsonrpc":"2.0","method":"' + b"x" * int(arguments["bytes"]))
    elif tool == "hang":
        pass
    elif tool == "nap":
        time.sleep(1)
        text(request, "awake")
    elif tool == "hang-after-log":
        send({"method": "notifications/message", "params": {"level": "info", "data": "begun"}})
    elif tool == "die":
        die()
    elif tool == "die-half":
        write(b'{"jsonrpc":"2.0","id":%d,"res' % request["id"])
        die()
    elif tool == "deaf":
        text(request, "deaf")
        time.sleep(3600)
    elif tool == "log":
        for level in ("debug", "info", "error"):
            send({"method": "notifications/message", "params": {"level": level, "data": level}})
        text(request, "logged")
    elif tool == "update":
        send({"method": "notifications/resources/updated", "params": {"uri": arguments["uri"]}})
        text(request, "updated")
    elif tool == "change":
        for subscription in listening:
            tell_change(subscription, "tools/list_changed")
        text(request, "changed")
    elif tool == "env":
        paths = ["/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")]
        files = [os.readlink(path) for path in paths if os.path.lexists(path)]
        text(request, json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[2:], "files": files}))
    elif tool == "stderr":
        sys.stderr.write("words\x1b[31m on stderr\n" * int(arguments.get("lines", 1)))
        sys.stderr.flush()
        text(request, "said")
    else:
        send({"id": request["id"], "error": {"code": -32602, "message": "Unknown tool: " + tool}})


def handle(message):
    method = message.get("method")
    if method is None:
        question = asked.pop(message.get("id"), None)
        if question is not None:
            text(question, json.dumps(message.get("result", message.get("error"))))
    elif method == "server/discover":
        if "modern" in WORDS:
            result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                             "serverInfo": {"name": "child", "version": "1"}, "resultType": "complete",
                             "ttlMs": 60000, "cacheScope": "private"})
        elif "silent-on-discover" not in WORDS:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    elif method == "subscriptions/listen":
        listening.append(message["id"])
        tell_change(message["id"], "subscriptions/acknowledged", notifications=message["params"]["notifications"])
    elif method == "initialize":
        initialize(message)
    elif method == "notifications/initialized" and "dies-when-initialized" in WORDS:
        die()
    elif method == "tools/list":
        result(message, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
                         **({"resultType": "complete", "ttlMs": 60000, "cacheScope": "private"}
                            if "modern" in WORDS else {})})
        if "changes-when-listed" in WORDS:
            WORDS.remove("changes-when-listed")
            send({"method": "notifications/tools/list_changed"})
    elif method == "tools/call":
        call(message)
    elif "id" in message:
        result(message, {})


def main():
    note(event="started", pgid=os.getpgid(0))
    if "slow" in WORDS:
        time.sleep(6)
    if "dies-at-start" in WORDS:
        die()
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, lambda *_: note(event="SIGTERM"))
    else:
        signal.signal(signal.SIGTERM, lambda *_: (note(event="SIGTERM"), die()))
    for line in sys.stdin.buffer:
        message = json.loads(line)
        note(event="received", message=message)
        handle(message)
    note(event="end of input")
    if "stays" in WORDS or "stubborn" in WORDS:
        while True:
            time.sleep(0.05)
    note(event="ended")


asked = {}
listening = []
main()
