"""How large the gateway is and how fast it starts: `python3 deploy/debian/measure.py BINARY [PACKAGE]`.

The time is that from starting the process to the first answer of `/livez`, the median of 21 starts with the
configuration of the package, on free ports.
"""

import argparse
import http.client
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import time

CONFIGURATION = pathlib.Path(__file__).resolve().parent.parent.parent / "config" / "packaged.toml"
STARTS = 21
START_TIMEOUT_S = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("package", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    for file in filter(None, (options.binary, options.package)):
        print(f"{file.name}: {file.stat().st_size / 2**20:.1f} MiB")
    with tempfile.TemporaryDirectory() as directory:
        times = [start_ms(options.binary.resolve(), pathlib.Path(directory) / "trunkline.toml") for _ in range(STARTS)]
    print(f"start: {statistics.median(times):.1f} ms (median of {STARTS}, {min(times):.1f} to {max(times):.1f})")


def start_ms(binary, file):
    admin = free_port()
    text = CONFIGURATION.read_text().replace(":8080", ":0").replace(":9090", f":{admin}")
    file.write_text(re.sub(r"(?m)^(url = .*)$", r'\1\neras = ["modern"]', text))
    started = time.monotonic()
    command, null = [binary, "run", "--config", file], subprocess.DEVNULL
    with subprocess.Popen(command, stdout=null, stderr=null) as child:
        try:
            while not answers(admin):
                if time.monotonic() - started > START_TIMEOUT_S or child.poll() is not None:
                    raise SystemExit("the gateway does not start")
                time.sleep(0.0005)
            return (time.monotonic() - started) * 1000
        finally:
            child.kill()


def answers(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


if __name__ == "__main__":
    main()
