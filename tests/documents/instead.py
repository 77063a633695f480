"""What the test does where it cannot do what a document says: every exemption there is, with its reason.

A line of a block that matches no pattern is run as it stands; what `\\` continues is one line. So a new command that cannot be run fails, until it has
its line here.
"""

import re
import shlex

AWAIT = "until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.05; done"
#: What is checked of a command of the gateway that is not run: that it would be understood.
PARSES = r"trunkline \1 --help > /dev/null"
#: A virtual environment with what the test's own has.
VENV = """mkdir -p venv/bin; printf '#!/bin/sh\\\\nexec "$PYTHON" "$@"\\\\n' > venv/bin/python; chmod +x venv/bin/*"""
REDIS = (
    "redis-server --port 0 --unixsocket $PWD/redis.sock > redis.log & "
    "until redis-cli -s redis.sock ping 2> /dev/null; do sleep 0.05; done; redis-cli -s redis.sock \\1 | grep -qx OK"
)
CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=localhost 2> /dev/null; "
VERBS = "enable --now|disable --now|enable|start|stop|restart|reload|reset-failed|status|edit"

#: Pattern of a line → what is run instead; why.
LINES = [
    # The binary is built before the test; a release build takes minutes.
    (r"cargo build --release --locked", r": built"),
    (r'export PATH="\$PWD/target/release:\$PATH"', r": in the path"),
    (r"cargo run --profile try -- (\w+)", PARSES),
    # This test is part of it.
    (r"tests/run( --all| --cold| --long --only \S+ --minutes \d+)?", r'test -x "$REPOSITORY/tests/run"'),
    (r"python3 -m (booted|fleet) .*", r'(cd "$REPOSITORY/tests" && python3 -m \1 --help > /dev/null)'),
    (r"\S+/venv/bin/python -m (signing) .*", r'(cd "$REPOSITORY/tests" && "$PYTHON" -m \1 --help > /dev/null)'),
    (r"cargo test --test daemon (\w+)::(\w+)", r'ls "$REPOSITORY/tests/\1/"\2*'),
    (r"cargo test -p trunkline-(\w+) \w+", r'test -d "$REPOSITORY/src/\1"'),
    # Images are built, run, called and stopped by tests/deployment.
    (r"python3 deploy/container/build\.py(?: --node)?", r'test -f "$REPOSITORY/deploy/container/build.py"'),
    (r"podman run .*", r": by tests/deployment"),
    # There is no cluster: that the client takes the command, and that the manifests can be rendered.
    (r"(kubectl create secret .*)", r"touch session.key admin-token provider-secret; \1 --dry-run=client"),
    (r"kubectl exec deploy/trunkline -- trunkline (\w+)", PARSES),
    (r"kubectl apply -k (\S+)", r'kubectl kustomize "$REPOSITORY/\1" > /dev/null'),
    # The Redis of the replicas is not that of this machine.
    (r"redis-cli (ACL .*)", REDIS),
    # Certificates and state of a service that is not installed here.
    (r"(openssl x509 .*) -in /etc/trunkline/cert\.pem", CERTIFICATE + r"\1 -in cert.pem"),
    (r"openssl s_client -connect mcp\.example\.com.* \|(.*)", r"cat cert.pem |\1"),
    (r"(df -h|df -i|ls -l) /var/lib/private/trunkline(?:; df -i .*)?", r"\1 ."),
    # Needs a release build; the package of the debug build is installed, run, upgraded and purged by tests/packages.
    (r"cargo install cargo-deb --locked --version (\S+)", r"""grep -q 'VERSION = "\1"' "$REPOSITORY/tests/running/installation.py" """),
    (r"python3 deploy/debian/build\.py", r'test -f "$REPOSITORY/deploy/debian/build.py"'),
    (r"apt install \./\S+\.deb", r": by tests/packages"),
    # The packages are there, at the versions that are asked for, and nothing is downloaded.
    (r"python3 -m venv venv", VENV),
    (r"venv/bin/pip install (mcp==\S+)", r'grep -qx "\1" "$REPOSITORY/tests/interop/requirements.txt"'),
    # Whoever types has waited this long.
    (r"(venv/bin/python weather\.py &)", r"\1 " + AWAIT.format(port=9101)),
    # Its usual port, as one that tests make free.
    (r"trunkline demo (--admin 127\.0\.0\.1:9091 &)", r"trunkline demo --address 127.0.0.1:8080 \1 " + AWAIT.format(port=8080)),
    # Likewise. The browser is one that allows and chooses alice.
    (r"(trunkline demo --sign-in) &", r"\1 --address 127.0.0.1:8080 --admin 127.0.0.1:9090 & " + AWAIT.format(port=8080)),
    (r"venv/bin/python client\.py", r'BROWSER="$PYTHON $REPOSITORY/tests/documents/browser.py %s &" venv/bin/python client.py'),
    (r"(trunkline grants .*) /tmp/(trunkline-demo-\*/admin-token.*)", r'\1 "$TMPDIR"/\2'),
    # Writes into the state directory of a service: tests/access/sign_in.
    (r"trunkline (grants) backup .*", PARSES),
    # The gateway of the documents has no [sign_in]: tests/access/sign_in/operators.rs.
    (r"trunkline (grants) list(?: \| wc -l)?", PARSES),
    # A provider that is not there: tests/commands/provider.rs.
    (r"trunkline (check) --provider https:.*", PARSES),
    (r"trunkline run &", r"trunkline run --config trunkline.toml & GATEWAY=$!; " + AWAIT.format(port=8443)),
    # A child process that need not be downloaded.
    (r'command = \["npx", .*', r'command = ["trunkline", "connect", "http://127.0.0.1:8080/mcp"]'),
    (r"(trunkline run --config trunkline\.toml &)", r"\1 GATEWAY=$!; " + AWAIT.format(port=8080)),
    (r"kill -HUP \$!", r"kill -HUP $GATEWAY"),
    # systemd is not init where tests run. That there is such a unit is checked; tests/operations/service.rs has the rest.
    (r"systemctl daemon-reload", r": no systemd"),
    (rf"systemctl (?:{VERBS}) (trunkline(?:-admin)?)(\.socket)?", "UNIT"),
    (r"journalctl .*", r": no journal"),
    # Not below /etc and /usr of this machine.
    (r"install (.*)", "INSTALL"),
    # Needs a server whose tools have changed: tests/access/pins.rs. That they parse is checked.
    (r"trunkline (pins .*)", PARSES),
    # Is about the rules of the example, which tests/access/policy.rs tests.
    (r"trunkline (check --as .*)", PARSES),
    # The default configuration of this machine is not the test's: it is that of the package, then the reader's own.
    (r"trunkline check", r'trunkline check --config "$(ls trunkline.toml 2> /dev/null || echo "$PACKAGED")"'),
    # A socket that the example configuration does not open: tests/operations/admin.rs.
    (r"curl --unix-socket .*", r": no such socket"),
    # There is no state directory of a service.
    (r"tar .* --directory /var/lib/private/trunkline \.", r": no state"),
    # The gateway is not that of this machine; whether all is well is not what is tried.
    (r"trunkline status", r"trunkline status --config trunkline.toml || test $? = 1"),
    # Tools of the demo, and a server that would have to be downloaded: tests/commands/call.rs and tests/interop have both.
    (r"trunkline (tools|call) http.* weather__forecast.*", r"trunkline \1 --help > /dev/null"),
    (r"trunkline (doctor|call) .*-- npx .*", r"trunkline \1 --help > /dev/null"),
    # Finds what the example server does not do: what it prints and its exit code depend on the SDK.
    (r"(trunkline doctor --fail-on warning .*)", r"\1 || test $? = 1"),
    # A server with faults: tests/commands/doctor.rs.
    (r"trunkline doctor http://127\.0\.0\.1:38069/mcp", r"trunkline doctor --help > /dev/null"),
    # Takes three quarters of an hour.
    (r"loadtest/run.*", r'test -x "$REPOSITORY/loadtest/run"'),
    # Measures; tests/packages reads what it prints.
    (r"python3 deploy/debian/measure\.py .*", r'test -f "$REPOSITORY/deploy/debian/measure.py"'),
]



def wrong(head, key):
    """Commands that print the error for a key that there is not."""
    text = (
        f'{head}\naddress = "127.0.0.1:8080"\n[[endpoint]]\npath = "/mcp"\nupstreams = ["weather"]\n'
        f'[upstream.weather]\nurl = "http://127.0.0.1:9101/mcp"\n{key} = "30s"\n'
    )
    return f"mkdir -p wrong; cat > wrong/trunkline.toml <<'END'\n{text}END\n(cd wrong; ! trunkline check --config trunkline.toml)\n"


#: Output that stands in no block after its commands: its first line → the commands that must print it.
OUTPUTS = {
    "trunkline.toml:9:1: error: unknown key `timeout`": wrong('\n[listener]', "timeout"),
    "trunkline.toml:8:1: error: unknown key `request_timeout`": wrong("[listener]", "request_timeout"),
    "Oslo:\nday 1": (
        "trunkline demo --address 127.0.0.1:0 --admin 127.0.0.1:0 > demo.txt & DEMO=$!\n"
        "until grep -q '^4[.]' demo.txt; do sleep 0.05; done\n"
        'eval "$(grep -A 1 "^3[.]" demo.txt | tail -n 1)"\n'
        "kill -INT $DEMO; wait $DEMO\n"
    ),
    "INFO trunkline_gateway::catalog::probe::endpoints: endpoint serves": (
        "kill $GATEWAY; wait $GATEWAY\n"
        f"trunkline run --config trunkline.toml & GATEWAY=$!; {AWAIT.format(port=8080)}\n"
    ),
    # The rules that the chapter shows first, of two upstreams.
    "ci (id ci)\n/mcp": (
        "{ printf '[listener]\\naddress = \"127.0.0.1:8080\"\\n[[endpoint]]\\npath = \"/mcp\"\\nupstreams = [\"deploy\", \"tracker\"]\\n'\n"
        "for name in deploy tracker; do printf '[upstream.%s]\\nurl = \"http://127.0.0.1:9101/mcp\"\\n' $name; done\n"
        "sed -n '/^```$/q; /^```toml$/,$p' \"$REPOSITORY/docs/security/rules.md\" | grep -v '^```'; } > rules.toml\n"
        "trunkline check -c rules.toml --as ci --group ops --tool deploy__rollout --tool read_secret || test $? = 1\n"
    ),
    "trunkline.toml:9:14: error": (
        "mkdir wrong; sed 's/\\[\"weather\"\\]/[\"wether\"]/' trunkline.toml > wrong/trunkline.toml\n"
        "(cd wrong; ! trunkline check --config trunkline.toml)\n"
    ),
}


def instead(commands):
    """The commands with those lines replaced that cannot be run."""
    return "".join(replaced(line) + "\n" for line in commands.replace("\\\n", "").splitlines())


def replaced(line):
    command, comment = re.fullmatch(r"(.*?)(\s+#.*)?", line).groups()
    for pattern, replacement in LINES:
        found = re.fullmatch(pattern, command)
        if found and replacement == "UNIT":
            return f'test -f "$REPOSITORY/systemd/{found[1]}{found[2] or ".service"}"'
        if found and replacement == "INSTALL":
            return installed(found[1])
        if found:
            # Hashes are shortened in documents.
            return found.expand(replacement).replace("…", "0" * 56)
    return command


def installed(arguments):
    """The command with targets below `root`, and with what lies in the repository taken from there."""
    words = []
    for word in shlex.split(arguments):
        source = f'"$REPOSITORY/{word}"' if word.startswith("systemd/") else word
        words.append('"$BINARY"' if word == "target/release/trunkline" else source)
    words = [f"root{word}" if word.startswith("/") else word for word in words]
    return f"mkdir -p root/usr/bin root/etc/systemd/system; install {' '.join(words)}"
