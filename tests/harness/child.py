"""A scripted server over standard input and output, for tests of child processes.

    child.py LOG [word ...]

It appends what it receives to LOG, one JSON object a line, each with the number of its process. The words say what is
special about it; each request is otherwise answered as a well-behaved server would. A tool's name says what a call of
it does.

It is a server of the legacy era; `modern` makes it one of both, and with `fixes-era` the first message decides which of
them it speaks, as in today's SDKs. `modern-only` is one of the modern era alone. `strict` refuses what comes before
`initialize` as Python's SDK 1.x does. `starts-in=S` reads nothing for S seconds, `burns=S` does so while it computes, `later-starts-in=S` does so in all processes but the first, `later-lists-in=S` is as late with tools there, `batches` answers in batches, `fractions` spells numbers with a fraction, `banner` writes lines that are no
messages before that, `shows-roots` lists a tool more to clients that have roots, `speaks=REVISION` opens sessions of that one alone, `crashes-at=METHOD` dies of this method (with `crashes-after=N`, of the one after N in a process), `hangs-at=METHOD` never answers it, and `lists=N` refuses to list once it did so N times.
`turns-legacy` is of the modern era, and of the other one, silent on what it does not know, once it has turned; `turns-modern` the
reverse. With `ends`, they die of it instead.
`initializes-after=N` refuses the first N times to initialize, of all its processes. `later-initializes-in=S` takes S seconds for
that in all processes but the first, `wants-roots` is of the modern era alone for clients that declare no roots, `checks-roots`
refuses those whose roots are no object, as SDKs do, and `asks-first` asks for roots before it answers.
`early` writes answers before anything is asked, to the first ids there are.
`refuses=METHOD` answers this method with an error that tells its key, which is $SECRET.
`declares-all` declares every list, and that tools and prompts change.
`ponders=S` answers other messages for S seconds before it lists its tools.
`tools-only` refuses the other lists, and with `ttl=MS` its list of the modern era holds so long.
With `storms`, it says fifty times at once that its list has changed, again and again. `holds=N` takes N MiB of memory.
"""

import json
import os
import signal
import sys
import threading
import time

LOG = sys.argv[1]
WORDS = sys.argv[2:]
OUT = sys.stdout.buffer
IS_FIRST = not os.path.exists(LOG)
HAS_TURNED = os.path.exists(LOG + ".turned")
IS_SILENT = os.path.exists(LOG + ".silent")
UNKNOWN = "crashes-at=" if "ends" in WORDS else "hangs-at="
if "turns-legacy" in WORDS:
    WORDS.append(UNKNOWN + "server/discover" if HAS_TURNED else "modern-only")
if "turns-modern" in WORDS:
    WORDS.extend(["modern-only", UNKNOWN + "initialize"] if HAS_TURNED else ["strict"])


def given(word):
    """What stands behind `word=`."""
    return next((said.partition("=")[2] for said in WORDS if said.startswith(word + "=")), None)


def note(**fields):
    with open(LOG, "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "at": time.time(), **fields}) + "\n")


def write(data):
    OUT.write(data)
    OUT.flush()


def send(message):
    if "fractions" in WORDS and isinstance(message.get("id"), int):
        message = {**message, "id": float(message["id"])}
    if "batches" in WORDS:
        noise = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
        batch = [noise, {"jsonrpc": "2.0", **message}]
        write(json.dumps(batch).encode() + b"\n")
        return
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


def declared(prompts):
    if "declares-all" in WORDS:
        changes = {"listChanged": True}
        return {"tools": changes, "prompts": changes, "resources": {"subscribe": True}}
    return {"tools": {}, **({"prompts": prompts} if os.path.exists(LOG + ".prompts") else {})}


def initialize(request):
    if "dies-in-initialize" in WORDS:
        die()
    capabilities = {**declared({"listChanged": True}), "logging": {}, "resources": {"subscribe": True}}
    version = request["params"]["protocolVersion"]
    if given("speaks") not in (None, version):
        data = {"supported": [given("speaks")], "requested": version}
        send({"id": request["id"], "error": {"code": -32602, "message": "Unsupported protocol version", "data": data}})
        return
    if "roots" in request["params"]["capabilities"]:
        declares_roots.append(True)
    if "asks-first" in WORDS:
        send({"id": "early", "method": "roots/list"})
        note(event="answered early", message=json.loads(sys.stdin.buffer.readline()))
    time.sleep(0 if IS_FIRST else float(given("later-initializes-in") or 0))
    value = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "child", "version": "1"}}
    held = os.path.exists(LOG + ".hold")
    if held:
        note(event="holding")
        while not os.path.exists(LOG + ".go"):
            time.sleep(0.005)
    result(request, value)
    if held:
        os.close(1)
        note(event="closed")
        die()


def call(request):
    params = request["params"]
    tool, arguments = params["name"], params.get("arguments") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    # Many languages have one kind of number.
    token = int(token) if isinstance(token, float) else token
    if tool == "echo":
        text(request, str(arguments.get("text", os.getpid())))
    elif tool == "progress":
        for step in range(3):
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        text(request, "done")
    elif tool == "script":
        (continued if "modern" in WORDS or "modern-only" in WORDS else started)(request)
    elif tool == "ask":
        send({"id": 1, "method": "roots/list"})
        asked[1] = request
    elif tool == "input":
        answers = params.get("inputResponses")
        if answers is None:
            result(request, {"resultType": "input_required", "requestState": "s",
                             "inputRequests": {"where": {"method": "roots/list"}}})
        else:
            text(request, json.dumps([answers, params["requestState"]]))
    elif tool == "garbage":
        write(b"starting up\n{broken\n\xff\xfe\n[]\n\n" + b'{"jsonrpc":"2.0","id":4711,"result":{}}\n')
        text(request, "clean")
    elif tool == "flood":
        end = time.monotonic() + 60
        while not os.path.exists(LOG + ".go") and time.monotonic() < end:
            write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n' * 5000)
            note(event="flooding")
        note(event="flooded")
        text(request, "flooded")
    elif tool == "burst":
        line = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}\n'
        if token is not None:
            line = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%%d}}\n' % (
                json.dumps(token).encode())
        for start in range(0, arguments["lines"], 1000):
            write(b"".join(line % number for number in range(start, start + 1000)))
        note(event="burst")
        text(request, "burst")
        if arguments.get("dies"):
            die()
    elif tool == "shut":
        os.close(0)
        note(event="shut")
        while not os.path.exists(LOG + ".go"):
            time.sleep(0.005)
        text(request, "last words")
        die()
    elif tool == "huge":
        write(b'{"jsonrpc":"2.0","method":"' + b"x" * int(arguments["bytes"]))
    elif tool == "endless":
        while True:
            write(b"x" * 10_000)
            time.sleep(0.02)
    elif tool == "large":
        said = json.dumps({"content": [{"type": "text", "text": "x" * int(arguments["bytes"])}]}).encode()
        id, last = b'"id":%d,' % request["id"], b',"id":%d' % request["id"]
        id, last = (b"", last) if arguments.get("id_last") else (id, b"")
        write(b'{"jsonrpc":"2.0",' + id + b'"result":' + said + last + b"}\n")
    elif tool == "links":
        link = b'{"type":"resource_link","uri":"test://a","name":"n"}'
        links = b",".join([link] * arguments["count"])
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[%s]}}\n' % (request["id"], links))
    elif tool == "unreadable":
        said = {"nan": b'{"mean":NaN}', "utf8": b'{"said":"caf\xe9"}', "control": b'{"said":"a\tb"}',
                "deep": b"[" * 200 + b"]" * 200, "twice": b'{},"result":{}',
                "joined": b'{}}{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}',
                "long": b'"' + b"x" * 400_000 + b"\t\""}[arguments["how"]]
        write(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (request["id"], said))
    elif tool == "marked":
        write(b"\xef\xbb\xbf")
        text(request, "marked")
    elif tool == "gives-up":
        for call in [*hung, request]:
            send({"method": "notifications/cancelled", "params": {"requestId": call["id"]}})
            text(call, "all the same")
    elif tool == "hang":
        hung.append(request)
    elif tool == "wait":
        while not os.path.exists(LOG + ".go"):
            time.sleep(0.005)
        if arguments.get("dies"):
            die()
        if token is not None:
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        text(request, "late")
    elif tool == "doze":
        time.sleep(1.5)
        text(request, "awake")
    elif tool == "busy":
        for step in range(25):
            time.sleep(0.1)
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        text(request, "done")
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
    elif tool == "update-listened":
        for subscription in listening:
            tell_change(subscription, "resources/updated", uri=arguments["uri"], pid=os.getpid())
        text(request, str(os.getpid()))
    elif tool == "change":
        for subscription in listening:
            tell_change(subscription, "tools/list_changed")
        text(request, "changed")
    elif tool == "announce":
        send({"method": "notifications/prompts/list_changed"})
        text(request, "announced")
    elif tool == "env":
        paths = ["/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")]
        files = [os.readlink(path) for path in paths if os.path.lexists(path)]
        text(request, json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[2:], "files": files}))
    elif tool == "tell-secret":
        sys.stderr.write("the key is " + os.environ["SECRET"] + "\n")
        sys.stderr.flush()
        write(b"{the key is " + os.environ["SECRET"].encode() + b"\n")
        text(request, "said")
    elif tool == "stderr":
        words = arguments.get("words", "words\x1b[31m on stderr")
        sys.stderr.write((words + "\n") * int(arguments.get("lines", 1)))
        sys.stderr.flush()
        text(request, "said")
    elif tool in ("deploy", "read", "delete"):
        text(request, tool)
    else:
        send({"id": request["id"], "error": {"code": -32602, "message": "Unknown tool: " + tool}})


LISTS = {"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}
METHODS = {"elicitation": "elicitation/create", "sampling": "sampling/createMessage", "roots": "roots/list"}
META = "io.modelcontextprotocol/"


def question(kind, tag, number):
    """A question of a scripted call, as `script.rs` has it."""
    asks = f"{tag}/{number}"
    params = {
        "elicitation": {"message": asks, "requestedSchema": {"type": "object", "properties": {}}},
        "sampling": {"messages": [{"role": "user", "content": {"type": "text", "text": asks}}], "maxTokens": 9},
        "roots": {},
    }[kind]
    return {"method": METHODS[kind], "params": {**params, "_meta": {"test/question": asks}}}


def said_in(answer):
    """What an answer to it says."""
    content = answer.get("content") or {}
    roots = answer.get("roots") or [{"uri": "refused"}]
    return content.get("said") or content.get("text") or answer.get("action") or roots[0]["uri"].removeprefix("file:///")


def remark(word, tag, meta):
    """What a step of a scripted call says beside questions."""
    if word == "log":
        send({"method": "notifications/message", "params": {"level": "info", "data": tag}})
    elif word == "progress" and "progressToken" in meta:
        send({"method": "notifications/progress",
              "params": {"progressToken": meta["progressToken"], "progress": 1, "message": tag}})


def scripted(request):
    """A legacy call: yields the ids of its questions, and goes on with their answers."""
    params = request["params"]
    tag, meta = params["arguments"]["tag"], params.get("_meta") or {}
    if any(key.startswith(META) for key in meta) or "requestState" in params or "inputResponses" in params:
        note(event="fault", message=params)
    said = []
    for act in params["arguments"]["script"]:
        word, *kinds = act.split()
        ids = []
        for kind in kinds:
            ids.append(len(posed) + 1)
            posed[ids[-1]] = None
            send({"id": ids[-1], **question(kind, tag, len(said) + len(ids) - 1)})
        if ids:
            said += yield ids
        remark(word, tag, meta)
    text(request, " ".join([tag, *said]))


def started(request):
    run = scripted(request)
    proceed({"run": run, "request": request["id"]}, None)


def proceed(call, answers):
    try:
        call["waits"] = call["run"].send(answers)
        calls.append(call)
    except StopIteration:
        pass


def answered(message):
    """An answer to a question of a scripted call; each takes one."""
    if posed[message["id"]] is not None:
        note(event="fault", message=message)
    posed[message["id"]] = said_in(message.get("result") or {})
    for call in [call for call in calls if all(posed[waits] is not None for waits in call["waits"])]:
        calls.remove(call)
        proceed(call, [posed[waits] for waits in call["waits"]])


def continued(request):
    """A modern call, as far as it goes without asking."""
    params = request["params"]
    tag, acts, meta = params["arguments"]["tag"], params["arguments"]["script"], params["_meta"]
    state = json.loads(params.get("requestState") or '{"at": 0, "said": [], "asked": {}}')
    if state.get("tag", tag) != tag or set(state["asked"]) != set(params.get("inputResponses") or {}):
        note(event="fault", message=params)
    said = state["said"]
    for key, number in state["asked"].items():
        said[number] = said_in(params["inputResponses"][key])
    for at, act in enumerate(acts[state["at"]:], state["at"] + 1):
        word, *kinds = act.split()
        questions, asked_now = {}, {}
        for kind in kinds:
            if kind in meta[META + "clientCapabilities"]:
                questions[f"key {len(said)}"] = question(kind, tag, len(said))
                asked_now[f"key {len(said)}"] = len(said)
            said.append("refused")
        if word != "log" or META + "logLevel" in meta:
            remark(word, tag, meta)
        if questions or word == "again":
            state = json.dumps({"tag": tag, "at": at, "said": said, "asked": asked_now})
            inputs = {"inputRequests": questions} if questions else {}
            return result(request, {"resultType": "input_required", "requestState": state, **inputs})
    content = [{"type": "text", "text": " ".join([tag, *said])}]
    return result(request, {"content": content, "resultType": "complete"})


def refusal(method, message):
    """The error that an era has for a request of the other, or for what comes too early."""
    params = message.get("params") or {}
    is_modern = META + "protocolVersion" in (params.get("_meta") or {})
    seen.append(method)
    if "strict" in WORDS and "initialize" not in seen and method != "ping":
        return {"code": -32602, "message": "Invalid request parameters", "data": ""}
    if "fixes-era" in WORDS:
        eras.append(is_modern)
        if eras[0] != is_modern:
            return {"code": -32600, "message": "The first message of this connection was of the other era"}
    if method == given("refuses"):
        return {"code": -32603, "message": "invalid key " + os.environ.get("SECRET", "of nobody")}
    refused = int(given("initializes-after") or 0)
    if method == "initialize" and refused and open(LOG).read().count('"method": "initialize"') <= refused:
        return {"code": -32603, "message": "database is down"}
    if method == "initialize" and os.path.exists(LOG + ".down"):
        return {"code": -32603, "message": "database is down"}
    is_unknown = "modern-only" in WORDS or ("wants-roots" in WORDS and "roots" not in params.get("capabilities", {}))
    is_odd = "checks-roots" in WORDS and not isinstance(params.get("capabilities", {}).get("roots", {}), dict)
    if is_odd and method == "initialize":
        return {"code": -32602, "message": "Invalid request parameters", "data": ""}
    if is_unknown and method == "initialize":
        return {"code": -32600, "message": "Rejected 2025-era request on a modern-only connection"}
    if method == "tools/list" and given("lists") is not None and seen.count(method) > int(given("lists")):
        return {"code": -32603, "message": "fetch failed"}
    if method == "tools/list" and os.path.exists(LOG + ".unlisted"):
        return {"code": -32603, "message": "fetch failed"}
    return None


def handle(message):
    if IS_SILENT:
        return
    method = message.get("method")
    if method is not None and method == given("crashes-at"):
        if met.count(method) >= int(given("crashes-after") or 0) and not os.path.exists(LOG + ".sound"):
            die()
        met.append(method)
    if method is not None and method == given("hangs-at"):
        return
    error = refusal(method, message) if method is not None and "id" in message else None
    if error is not None:
        send({"id": message["id"], "error": error})
        return
    if method is None and message.get("id") in posed:
        answered(message)
    elif method is None:
        asking = asked.pop(message.get("id"), None)
        if asking is not None:
            text(asking, json.dumps(message.get("result", message.get("error"))))
    elif method == "server/discover":
        if "modern" in WORDS or "modern-only" in WORDS:
            result(message, {"supportedVersions": ["2026-07-28"], "capabilities": declared({}),
                             "serverInfo": {"name": "child", "version": "1"}, "resultType": "complete",
                             "ttlMs": 60000, "cacheScope": "private"})
        elif "silent-on-discover" not in WORDS:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    elif method == "subscriptions/listen":
        listening.append(message["id"])
        tell_change(message["id"], "subscriptions/acknowledged", notifications=message["params"]["notifications"])
    elif method == "notifications/cancelled":
        calls[:] = [call for call in calls if call["request"] != message["params"].get("requestId")]
    elif method == "initialize":
        initialize(message)
    elif method == "notifications/initialized" and "storms" in WORDS:
        initialized.append(True)
    elif method == "notifications/initialized" and "dies-when-initialized" in WORDS:
        die()
    elif method == "tools/list":
        time.sleep(0 if IS_FIRST else float(given("later-lists-in") or 0))
        tools = ["echo", "script"] if "scripted" in WORDS else ["echo"]
        if "shows-roots" in WORDS and declares_roots:
            tools.append("rooted")
        if os.path.exists(LOG + ".more"):
            tools.append("more")
        schema = {"type": "object"}
        if "varies" in WORDS:
            schema["properties"] = {"limit": {"type": "integer", "default": os.getpid()}}
        listed = {"tools": [{"name": name, "inputSchema": schema} for name in tools],
                  **({"resultType": "complete", "ttlMs": int(given("ttl") or 60000), "cacheScope": "private"}
                     if "modern" in WORDS or "modern-only" in WORDS else {})}
        if given("ponders") is not None:
            threading.Timer(float(given("ponders")), result, [message, listed]).start()
        else:
            result(message, listed)
        if "changes-when-listed" in WORDS:
            WORDS.remove("changes-when-listed")
            send({"method": "notifications/tools/list_changed"})
    elif method == "tools/call":
        call(message)
    elif method == "prompts/list" and os.path.exists(LOG + ".prompts"):
        result(message, {"prompts": [{"name": "hello"}], "resultType": "complete", "ttlMs": 60000,
                         "cacheScope": "private"})
    elif "tools-only" in WORDS and method is not None and method.endswith("/list"):
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    elif method in LISTS:
        field = LISTS[method]
        result(message, {field: [], "resultType": "complete", "ttlMs": 60000, "cacheScope": "private"})
    elif "id" in message:
        result(message, {})


def storm():
    while True:
        for _ in range(50):
            for subscription in listening:
                tell_change(subscription, "tools/list_changed")
            if initialized:
                send({"method": "notifications/tools/list_changed"})
        time.sleep(0.5)


def main():
    note(event="started", pgid=os.getpgid(0))
    if "pings-first" in WORDS:
        send({"id": "first", "method": "ping"})
    if "banner" in WORDS:
        write("╭──────────────╮\n│ Welcome      │\n╰──────────────╯\n".encode())
        sys.stderr.write("".join(f"banner line {line}\n" for line in range(20)))
        sys.stderr.flush()
    if "early" in WORDS:
        unasked = {"tools": [{"name": "unasked", "inputSchema": {"type": "object"}}]}
        for id in [0, 1, 2, 3, "x"]:
            send({"id": id, "result": unasked})
            send({"id": id, "error": {"code": -32603, "message": "unasked"}})
    if given("starts-in") is not None:
        time.sleep(float(given("starts-in")))
        note(event="up")
    # Not zero, which takes none.
    _held = bytearray(b"x") * (int(given("holds") or 0) << 20)
    if given("burns") is not None:
        while time.process_time() < float(given("burns")):
            pass
        note(event="up")
    if given("later-starts-in") is not None and not IS_FIRST:
        time.sleep(float(given("later-starts-in")))
    if os.path.exists(LOG + ".starts-in"):
        time.sleep(float(open(LOG + ".starts-in").read()))
    if "slow" in WORDS:
        time.sleep(6)
    if "dies-at-start" in WORDS or os.path.exists(LOG + ".broken"):
        die()
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, lambda *_: note(event="SIGTERM"))
    else:
        signal.signal(signal.SIGTERM, lambda *_: (note(event="SIGTERM"), die()))
    if "storms" in WORDS:
        threading.Thread(target=storm, daemon=True).start()
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
#: Questions of scripted calls by id, and what was answered.
posed = {}
#: The scripted calls that wait for answers.
calls = []
#: Calls of `hang`.
hung = []
listening = []
initialized = []
#: Not empty if its client declared roots.
declares_roots = []
#: The methods of all requests so far, and their eras.
seen = []
#: The messages that it may die of, and did not.
met = []
eras = []
main()
