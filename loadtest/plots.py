"""Draws the plots of a report: `plots.py DIRECTORY` reads results.json there and writes PNG files beside it.

Run by `report.py` with the Python that has matplotlib, so that the runner itself needs none.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of backend)

import report  # noqa: E402

COLOURS = {
    "direct": "tab:gray",
    "nginx": "tab:green",
    "nginx-500": "tab:olive",
    "haproxy": "tab:blue",
    "envoy": "tab:purple",
    "trunkline": "tab:red",
    "trunkline-key": "tab:brown",
    "trunkline-prefixed": "tab:orange",
    "trunkline-1": "gold",
    "trunkline-500": "tab:pink",
    "trunkline-500-one": "tab:cyan",
    "nginx-file": "tab:green",
    "nginx-file-copied": "tab:olive",
    "nginx-streams": "tab:green",
    "trunkline-list": "tab:red",
    "trunkline-modern": "tab:orange",
    "trunkline-modern-native": "tab:green",
    "trunkline-modern-bridged": "tab:olive",
    "trunkline-modern-askable": "tab:cyan",
    "trunkline-legacy-native": "tab:red",
    "trunkline-legacy-bridged": "tab:pink",
    "trunkline-parked": "tab:gray",
    "trunkline-legacy": "tab:red",
    "trunkline-legacy-mirrored": "tab:brown",
    "trunkline-10-tools": "gold",
    "trunkline-1000-tools": "tab:orange",
    "trunkline-50000-tools": "tab:red",
    "trunkline-streams": "tab:red",
    "trunkline-initialize-call": "tab:orange",
    "trunkline-initialize": "tab:red",
    "nginx-connections": "tab:green",
    "trunkline-connections": "tab:red",
    "nginx-edge": "tab:green",
    "nginx-events": "tab:green",
    "trunkline-events": "tab:red",
    "trunkline-events-mapped": "tab:orange",
    "trunkline-http": "tab:orange",
    "trunkline-stdio": "tab:red",
    "nginx-sessions": "tab:green",
    "trunkline-sessions": "tab:orange",
    "trunkline-sessions-upstream": "tab:red",
    "trunkline-unobserved": "tab:orange",
    "trunkline-metered": "tab:brown",
    "trunkline-observed": "tab:red",
    "trunkline-unscraped": "tab:orange",
    "trunkline-scraped": "tab:red",
    "trunkline-edge": "tab:red",
    "trunkline-edge-key": "tab:brown",
    "trunkline-edge-jwt": "tab:orange",
    "trunkline-edge-shared": "tab:pink",
    "nginx-clear": "tab:green",
    "nginx-tls": "tab:olive",
    "trunkline-clear": "tab:red",
    "trunkline-tls": "tab:orange",
    "nginx-handshakes": "tab:green",
    "trunkline-handshakes": "tab:red",
}


def main():
    directory = pathlib.Path(sys.argv[1])
    results = json.loads((directory / "results.json").read_text())
    for step, rate in results["rates"].items():
        file = f"{directory}/{step}-"
        if report.STEPS[step].isolates:
            _isolation(results, step, file + "1-p99.png", rate)
            continue
        _bars(results, step, file + "1-cpu.png", "cpu_us", "CPU per call, µs")
        _bars(results, step, file + "2-throughput.png", "requests_per_s", "calls per second, closed loop")
        _latencies(results, step, file + "3-latency-open.png", "open", f"open loop, {rate} calls/s")
        _latencies(results, step, file + "4-latency-closed.png", "closed", "closed loop")


def _colour(peer):
    """Of a peer; another build of Trunkline, as `NAME@BUILD` says, is black beside its twin."""
    return "black" if "@" in peer else COLOURS[peer]


def _bars(results, step, file, name, title):
    """The medians as bars, every round as a dot."""
    peers = [peer for peer in report.peer_names(results, step) if report.figure(results, peer, name) is not None]
    if not peers:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(peers) + 1.2))
    medians = [report.figure(results, peer, name) for peer in peers]
    axes.barh(peers, medians, color=[_colour(peer) for peer in peers], alpha=0.6)
    for peer in peers:
        values = [report.FIGURES[name](run) for run in results["runs"] if run["peer"] == peer]
        axes.plot(values, [peer] * len(values), "k.", markersize=4)
    for position, median in enumerate(medians):
        axes.text(median, position, f"  {median:,.1f}" if median < 1000 else f"  {median:,.0f}", va="center")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title + " (bar: median, dots: rounds)")
    _save(figure, file)


def _latencies(results, step, file, loop, title):
    """Latency over quantile, each the median of the rounds, the tail stretched."""
    peers = report.peer_names(results, step)
    if not peers:
        return
    figure, axes = pyplot.subplots(figsize=(9, 5))
    for peer in peers:
        distributions = [run[loop]["distribution"] for run in results["runs"] if run["peer"] == peer]
        quantiles = [quantile for quantile, _ in distributions[0] if quantile < 1]
        columns = [sorted(distribution[index][1] for distribution in distributions) for index in range(len(quantiles))]
        medians_ms = [column[len(column) // 2] / 1000 for column in columns]
        style = "--" if "-" in peer else "-"
        axes.plot([1 / (1 - quantile) for quantile in quantiles], medians_ms, style, label=peer, color=_colour(peer))
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = {1: "0", 2: "50 %", 10: "90 %", 100: "99 %", 1000: "99.9 %", 10000: "99.99 %"}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_ylabel("ms")
    axes.set_title(f"latency by quantile, {title}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    _save(figure, file)


def _isolation(results, step, file, rate):
    """The p99 of the nine before and during, every round as a dot."""
    peers = report.peer_names(results, step)
    if not peers:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.6 * len(peers) + 1.2))
    for name, offset, colour in (("before_p99_us", -0.2, "tab:gray"), ("during_p99_us", 0.2, "tab:red")):
        places = [place + offset for place in range(len(peers))]
        medians = [report.figure(results, peer, name) / 1000 for peer in peers]
        axes.barh(places, medians, height=0.38, color=colour, alpha=0.6, label=name.split("_")[0])
        for peer, place in zip(peers, places):
            runs = [run for run in results["isolation"] if run["peer"] == peer]
            values = [report.ISOLATION_FIGURES[name](run) / 1000 for run in runs]
            axes.plot(values, [place] * len(values), "k.", markersize=4)
    axes.set_yticks(range(len(peers)), peers)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.legend(fontsize="small")
    axes.set_title(f"p99 of the nine, ms, {rate} calls/s in all (bar: median, dots: rounds)")
    _save(figure, file)


def _save(figure, file):
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
