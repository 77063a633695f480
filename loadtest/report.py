"""From measurements to what is read: medians, ratios, the bounds, the table, the HTML page.

A figure is the median of the rounds. A ratio is the median of the rounds' own ratios, because the two sides of one
round ran within seconds of each other.
"""

import base64
import functools
import html
import pathlib
import statistics
import subprocess

import crowds
import fairness_report
from faults import FAULTS
from figures import milliseconds, number, quotient
from steps import STEPS

# Replies later than the window are no harm while they are few; more means that the rate was too high.
LATE_SHARE_MAX = 0.02

FIGURES = {
    "cpu_us": lambda run: run["closed"]["cpu_us"],
    "requests_per_s": lambda run: run["closed"]["requests_per_s"],
    "p50_us": lambda run: run["closed"]["p50_us"],
    "p99_us": lambda run: run["closed"]["p99_us"],
    "p99_9_us": lambda run: run["closed"]["p99_9_us"],
    "open_cpu_us": lambda run: run["open"]["cpu_us"],
    "open_p50_us": lambda run: run["open"]["p50_us"],
    "open_p99_us": lambda run: run["open"]["p99_us"],
    "open_p99_9_us": lambda run: run["open"]["p99_9_us"],
    "resident_mib": lambda run: run.get("resident_mib"),
    "ready_ms": lambda run: run["ready_ms"],
    "parked_kib": lambda run: run.get("parked_kib"),
    "scrape_ms": lambda run: run.get("scrape_ms"),
    "scrape_kib": lambda run: run.get("scrape_kib"),
    "status_ms": lambda run: run.get("status_ms"),
    # Where replies are streams, events per CPU second follow from it: all have as many.
    "calls_per_cpu_s": lambda run: quotient(1e6, run["closed"]["cpu_us"]),
}

# Of a measurement of streams. The growth is from the first step, when what is only needed once is there already.
STREAM_FIGURES = {
    "before_mib": lambda run: run["steps"][0]["resident_kib"] / 1024,
    "first_mib": lambda run: run["steps"][1]["resident_kib"] / 1024,
    "last_mib": lambda run: run["steps"][-1]["resident_kib"] / 1024,
    "first_kib": lambda run: _kib_per_stream(run["steps"][0], run["steps"][1]),
    "all_kib": lambda run: _kib_per_stream(run["steps"][0], run["steps"][-1]),
    "growth_kib": lambda run: _kib_per_stream(run["steps"][1], run["steps"][-1]),
    "growth_by_first": lambda run: quotient(
        _kib_per_stream(run["steps"][1], run["steps"][-1]), _kib_per_stream(run["steps"][0], run["steps"][1])),
    "opening_s": lambda run: sum(step["opening_s"] for step in run["steps"][1:]),
    "unacknowledged": lambda run: run["steps"][-1]["streams"] - run["steps"][-1]["acknowledged"],
    "undelivered": lambda run: run["notice"]["streams"] - run["notice"]["delivered"] if "notice" in run else None,
    "notice_p50_ms": lambda run: run.get("notice", {}).get("p50_ms"),
    "notice_last_ms": lambda run: run.get("notice", {}).get("last_ms"),
    "notice_cpu_ms": lambda run: run.get("notice", {}).get("cpu_ms"),
    "unasked": lambda run: run.get("notice", {}).get("unasked"),
    "idle_cores": lambda run: run.get("idle", {}).get("cpu_cores"),
    "errors": lambda run: (run.get("notice") or run["idle"])["errors"],
}

# Of a measurement with an upstream that fails: the clients of the nine others, and whoever asks for the list of all.
ISOLATION_FIGURES = {
    "before_p50_us": lambda run: run["before"]["nine"]["p50_us"],
    "before_p99_us": lambda run: run["before"]["nine"]["p99_us"],
    "during_p50_us": lambda run: run["during"]["nine"]["p50_us"],
    "during_p99_us": lambda run: run["during"]["nine"]["p99_us"],
    "during_p99_9_us": lambda run: run["during"]["nine"]["p99_9_us"],
    "p99_by_before": lambda run: quotient(run["during"]["nine"]["p99_us"], run["before"]["nine"]["p99_us"]),
    "before_cpu_us": lambda run: run["before"]["cpu_us"],
    "during_cpu_us": lambda run: run["during"]["cpu_us"],
    "cpu_by_before": lambda run: quotient(run["during"]["cpu_us"], run["before"]["cpu_us"]),
    "lists_p50_us": lambda run: _of_lists(run, "p50_us"),
    "lists_max_us": lambda run: _of_lists(run, "max_us"),
    "lists_by_deadline": lambda run: quotient(_of_lists(run, "max_us"), run["deadline_ms"] * 1000),
    "lists_errors": lambda run: _of_lists(run, "errors"),
    "errors_of_nine": lambda run: run["before"]["nine"]["errors"] + run["during"]["nine"]["errors"],
    "answered_of_one": lambda run: quotient(
        run["during"]["one"]["requests"], run["during"]["one"]["requests"] + run["during"]["one"]["errors"]),
}

# What, of which peer, against which (none: the figure itself; three: its ratio to the first, against that of the second
# to the third), which figure, how it must compare, the bound, the goal.
BOUNDS = [
    ("CPU per call, × nginx", "trunkline", "nginx", "cpu_us", "≤", 1.05, 0.95),
    ("throughput, × nginx", "trunkline", "nginx", "requests_per_s", "≥", 0.97, 1.05),
    ("p99, × nginx", "trunkline", "nginx", "p99_us", "≤", 1.10, 1.00),
    ("CPU per call of Envoy, × Trunkline", "envoy", "trunkline", "cpu_us", "≥", 6.50, 7.00),
    ("two upstreams prefixed, CPU × transparent", "trunkline-prefixed", "trunkline", "cpu_us", "≤", 1.10, None),
    ("500 upstreams, calls to all, CPU × one", "trunkline-500", "trunkline-1", "cpu_us", "≤", 1.10, None),
    ("500 upstreams, calls to one, CPU × one", "trunkline-500-one", "trunkline-1", "cpu_us", "≤", 1.10, None),
    ("API key, CPU × without", "trunkline-key", "trunkline", "cpu_us", "≤", 1.05, None),
    ("the same, × nginx", "trunkline-key", "nginx", "cpu_us", "≤", 1.12, 1.00),
    ("start to ready, ms", "trunkline", None, "ready_ms", "≤", 100, None),
    ("resident after the run, MiB", "trunkline", None, "resident_mib", "≤", 30, None),
    ("tools/list from the cache, CPU × file of nginx, sendfile off", "trunkline-list", "nginx-file-copied", "cpu_us", "≤",
     1.00, 0.90),
    ("legacy session, CPU × modern", "trunkline-legacy", "trunkline-modern", "cpu_us", "≤", 1.15, None),
    ("1000 tools, CPU × 10", "trunkline-1000-tools", "trunkline-10-tools", "cpu_us", "≤", 1.05, None),
    ("50000 tools, CPU × 10", "trunkline-50000-tools", "trunkline-10-tools", "cpu_us", "≤", 1.05, None),
    ("an idle connection, KiB", "trunkline-connections", None, "all_kib", "≤", 2, None),
    ("connections that failed", "trunkline-connections", None, "errors", "≤", 0, None),
    ("an idle stream, KiB", "trunkline-streams", None, "all_kib", "≤", 4, None),
    ("an idle stream, growth × the first step's", "trunkline-streams", None, "growth_by_first", "≤", 1.10, None),
    ("streams not acknowledged", "trunkline-streams", None, "unacknowledged", "≤", 0, None),
    ("streams a notice did not reach", "trunkline-streams", None, "undelivered", "≤", 0, None),
    ("an idle session with a GET, KiB", "trunkline-sessions", None, "all_kib", "≤", 8, None),
    ("the same with a stream of the upstream, KiB", "trunkline-sessions-upstream", None, "all_kib", "≤", 14, None),
    ("idle sessions, cores", "trunkline-sessions", None, "idle_cores", "≤", 0.005, None),
    ("idle sessions with streams of the upstream, cores", "trunkline-sessions-upstream", None, "idle_cores", "≤", 0.01,
     None),
    ("sessions not opened", "trunkline-sessions", None, "unacknowledged", "≤", 0, None),
    ("the same with a stream of the upstream", "trunkline-sessions-upstream", None, "unacknowledged", "≤", 0, None),
    ("initialize, CPU × a call", "trunkline-initialize", "trunkline-initialize-call", "cpu_us", "≤", 3.00, None),
    ("events per CPU second, × nginx", "trunkline-events", "nginx-events", "calls_per_cpu_s", "≥", 1.00, None),
    ("the same, ids mapped", "trunkline-events-mapped", "nginx-events", "calls_per_cpu_s", "≥", 0.80, None),
    ("calls through one child, calls/s", "trunkline-stdio", None, "requests_per_s", "≥", 20000, None),
    ("the same, × calls over HTTP", "trunkline-stdio", "trunkline-http", "requests_per_s", "≥", 1.20, None),
    ("CPU of a call through one child, its own included, × over HTTP", "trunkline-stdio", "trunkline-http", "cpu_us", "≤",
     1.10, None),
    ("API key, rules and a limit, CPU × without", "trunkline-edge-key", "trunkline-edge", "cpu_us", "≤", 1.08, None),
    ("the same, × nginx", "trunkline-edge-key", "nginx-edge", "cpu_us", "≤", 1.12, 1.00),
    ("JWT, CPU × without", "trunkline-edge-jwt", "trunkline-edge", "cpu_us", "≤", 1.10, None),
    ("a limit shared through Redis, CPU × without", "trunkline-edge-shared", "trunkline-edge", "cpu_us", "≤", 1.10,
     None),
    ("TLS 1.3 kept alive, CPU × clear", "trunkline-tls", "trunkline-clear", "cpu_us", "≤", 1.25, None),
    ("the same, × nginx over TLS", "trunkline-tls", "nginx-tls", "cpu_us", "≤", 1.10, 1.00),
    ("metrics, access log at 1 %, traces at 0.1 %, CPU × without", "trunkline-observed", "trunkline-unobserved", "cpu_us",
     "≤", 1.08, None),
    ("a scrape at the cap, ms", "trunkline-scraped", None, "scrape_ms", "≤", 100, None),
    ("p99 of calls meanwhile, × without", "trunkline-scraped", "trunkline-unscraped", "open_p99_us", "≤", 1.20, None),
    ("/status at the cap, ms", "trunkline-scraped", None, "status_ms", "≤", 20, None),
    ("a bridged call of a modern client, CPU × native", "trunkline-modern-bridged", "trunkline-modern-native", "cpu_us",
     "≤", 1.30, None),
    ("the same, of one that can be asked", "trunkline-modern-askable", "trunkline-modern-native", "cpu_us", "≤", 1.40,
     None),
    ("a bridged call of a legacy client, CPU × native", "trunkline-legacy-bridged", "trunkline-legacy-native", "cpu_us",
     "≤", 1.30, None),
    ("a call that waits, with its connection, KiB", "trunkline-parked", None, "parked_kib", "≤", 12, None),
    ("handshakes per CPU second, × nginx", "trunkline-handshakes", "nginx-handshakes", "calls_per_cpu_s", "≥", 0.90,
     None),
]
for _fault in FAULTS:
    BOUNDS += [
        (f"one {_fault}: p99 of the other nine, × before", f"trunkline-{_fault}", None, "p99_by_before", "≤", 1.25,
         None),
        (f"one {_fault}: CPU per call, × before", f"trunkline-{_fault}", None, "cpu_by_before", "≤", 1.10, None),
        (f"one {_fault}: calls to the nine that failed", f"trunkline-{_fault}", None, "errors_of_nine", "≤", 0, None),
        (f"one {_fault}: longest tools/list, × its deadline", f"trunkline-{_fault}", None, "lists_by_deadline", "≤",
         1.10, None),
    ]
BOUNDS += crowds.BOUNDS + fairness_report.BOUNDS


def text(results):
    """The tables and the bounds as Markdown."""
    parts = [f"{STEPS[step].title}\n\n{_markdown(*_table(results, step))}" for step in _steps(results)]
    parts.append("\n".join(f"- {note}" for note in _notes(results)))
    return "\n\n".join([*parts, _markdown(*_bounds(results))])


def write_html(results, directory, python_with_matplotlib):
    """Writes `report.html`, which holds its plots; returns its path."""
    _draw_plots(directory, python_with_matplotlib)
    tables = "".join(
        f"<h2>{STEPS[step].title}</h2>{_html_table(*_table(results, step))}{_images(directory, step)}"
        for step in _steps(results)
    )
    conditions = "".join(f"<li>{key}: {html.escape(str(value))}</li>" for key, value in results["conditions"].items())
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in _notes(results))
    page = directory / "report.html"
    page.write_text(f"""<!doctype html><meta charset="utf-8"><title>Trunkline load test</title>
<style>body {{ font: 15px sans-serif; margin: 2em; max-width: 75em }} td, th {{ padding: .2em .7em; text-align: right;
border-bottom: 1px solid #ccc }} td:first-child, th:first-child {{ text-align: left }} img {{ max-width: 100% }}</style>
<h1>Trunkline load test</h1><ul>{conditions}</ul><ul>{notes}</ul>
<h2>Bounds</h2>{_html_table(*_bounds(results))}{tables}
<h2>Every round</h2>{_html_table(*_every_round(results))}
{_html_table(*_every_round_of(results["streams"], STREAM_FIGURES))}
{_html_table(*_every_round_of(results["isolation"], ISOLATION_FIGURES))}
{_html_table(*_every_round_of(results["fairness"], fairness_report.FIGURES))}""")
    (directory / "table.md").write_text(text(results) + "\n")
    return page


def errors(run):
    """How many calls went wrong in one measurement; what an overload left unanswered is marked as such instead."""
    left_unanswered = run["open"]["errors_by_kind"].get("unanswered", 0) if is_overloaded(run) else 0
    return run["closed"]["errors"] + run["open"]["errors"] - left_unanswered


def stream_errors(run):
    """How many streams of one measurement failed, were not acknowledged, or got no notice."""
    return sum(STREAM_FIGURES[name](run) or 0 for name in ("errors", "unacknowledged", "undelivered"))


def isolation_errors(run):
    """How many calls of the nine, and how many lists, went wrong in one measurement."""
    return ISOLATION_FIGURES["errors_of_nine"](run) + sum(
        run[window].get("lists", {}).get("errors", 0) for window in ("before", "during"))


def is_overloaded(run):
    """Whether the open loop's rate was more than the peer sustains; its latencies then tell the queue's length."""
    late = run["open"]["requests_late"] + run["open"]["errors_by_kind"].get("unanswered", 0)
    return late > LATE_SHARE_MAX * max(run["open"]["requests"], 1)


def figure(results, peer, name):
    """The median over the rounds, or the sum of what must not happen in any; `None` where there is none."""
    values = [_value(run, name) for run in _all_runs(results) if run["peer"] == peer]
    values = [value for value in values if value is not None]
    if name in fairness_report.TOTALS:
        return sum(values) if values else None
    return statistics.median(values) if values else None


def ratio(results, peer, reference, name):
    """The median of the rounds' ratios, `None` where there is none. Of three references it is how the ratio to the
    first compares to that of the second to the third."""
    ratios = _ratios(results, peer, reference, name) if isinstance(reference, str) else {
        number: own / others
        for number, own, others in _pairs(
            _ratios(results, peer, reference[0], name), _ratios(results, reference[1], reference[2], name))
    }
    return statistics.median(ratios.values()) if ratios else None


def peer_names(results, step):
    """In the order they were measured."""
    return list(dict.fromkeys(run["peer"] for run in _all_runs(results) if run["step"] == step))


def _ratios(results, peer, reference, name):
    """Round → ratio."""
    values, references = (
        {run["round"]: _value(run, name) for run in _all_runs(results) if run["peer"] == each}
        for each in (peer, reference)
    )
    return {number: value / to for number, value, to in _pairs(values, references) if value is not None and to}


def _pairs(left, right):
    return [(key, left[key], right[key]) for key in left if key in right]


def _all_runs(results):
    return results["runs"] + results["streams"] + results["isolation"] + results["fairness"]


def _value(run, name):
    step = STEPS[run["step"]]
    figures = (STREAM_FIGURES if step.holds_streams else ISOLATION_FIGURES if step.isolates
               else fairness_report.FIGURES if step.is_attacked else FIGURES)
    return figures[name](run) if name in figures else None


def _of_lists(run, name):
    return run["during"].get("lists", {}).get(name)


def _kib_per_stream(before, after):
    return quotient(after["resident_kib"] - before["resident_kib"], after["streams"] - before["streams"])


def _steps(results):
    measured = {run["step"] for run in _all_runs(results)}
    return [step for step in STEPS if step in measured]


def _table(results, step):
    """Headings and rows."""
    if STEPS[step].holds_streams:
        return _stream_rows(results, step)
    if STEPS[step].isolates:
        return _isolation_rows(results, step)
    if STEPS[step].is_attacked:
        runs = [run for run in results["fairness"] if run["step"] == step]
        return fairness_report.rows(runs, peer_names(results, step), functools.partial(figure, results))
    reference = STEPS[step].reference
    headings = [
        "peer", "CPU µs/call", f"× {reference}", "calls/s", "×", "p50 ms", "p99 ms", "×", "p99.9 ms",
        "open p50 ms", "open p99 ms", "open p99.9 ms", "MiB", "ready ms", "errors",
    ]
    return headings, _rows(results, step, reference)


def _stream_rows(results, step):
    measured = [run for run in results["streams"] if run["step"] == step]
    first, last = (measured[0]["steps"][index]["streams"] for index in (1, -1))
    columns = {
        "MiB with none": ("before_mib", 1),
        f"with {first}": ("first_mib", 1),
        f"with {last}": ("last_mib", 1),
        f"KiB each, to {first}": ("first_kib", 1),
        f"from {first} to {last}": ("growth_kib", 1),
        "opening s": ("opening_s", 2),
        "notice p50 ms": ("notice_p50_ms", 1),
        "last has it ms": ("notice_last_ms", 1),
        "CPU ms": ("notice_cpu_ms", 1),
        "not reached": ("undelivered", 0),
        "unasked": ("unasked", 0),
        "idle cores": ("idle_cores", 4),
    }
    measured_names = {name for run in measured for name, _ in columns.values() if _value(run, name) is not None}
    columns = {title: column for title, column in columns.items() if column[0] in measured_names}
    rows = [
        [peer, *(number(figure(results, peer, name), decimals) for name, decimals in columns.values()),
         str(sum(stream_errors(run) for run in measured if run["peer"] == peer))]
        for peer in peer_names(results, step)
    ]
    return ["peer", *columns, "errors"], rows


def _isolation_rows(results, step):
    headings = [
        "peer", "before p50 ms", "p99 ms", "during p50 ms", "p99 ms", "× before", "p99.9 ms", "CPU µs/call before",
        "during", "× before", "tools/list p50 ms", "longest ms", "of the one answered", "errors",
    ]
    latencies = ("before_p50_us", "before_p99_us", "during_p50_us", "during_p99_us")
    rows = []
    for peer in peer_names(results, step):
        runs = [run for run in results["isolation"] if run["peer"] == peer]

        def value(name, peer=peer):
            return figure(results, peer, name)

        rows.append([
            peer,
            *(milliseconds(value(name)) for name in latencies),
            number(value("p99_by_before"), 2),
            milliseconds(value("during_p99_9_us")),
            *(number(value(name), 1) for name in ("before_cpu_us", "during_cpu_us")),
            number(value("cpu_by_before"), 2),
            *(milliseconds(value(name)) for name in ("lists_p50_us", "lists_max_us")),
            number(value("answered_of_one"), 2),
            str(sum(map(isolation_errors, runs))),
        ])
    return headings, rows


def _rows(results, step, reference):
    rows = []
    for peer in peer_names(results, step):
        runs = [run for run in results["runs"] if run["peer"] == peer]
        mark = " (!)" if any(map(is_overloaded, runs)) else ""
        rows.append([
            peer,
            number(figure(results, peer, "cpu_us"), 1),
            number(ratio(results, peer, reference, "cpu_us"), 2),
            number(figure(results, peer, "requests_per_s"), 0),
            number(ratio(results, peer, reference, "requests_per_s"), 2),
            milliseconds(figure(results, peer, "p50_us")),
            milliseconds(figure(results, peer, "p99_us")),
            number(ratio(results, peer, reference, "p99_us"), 2),
            milliseconds(figure(results, peer, "p99_9_us")),
            milliseconds(figure(results, peer, "open_p50_us")) + mark,
            milliseconds(figure(results, peer, "open_p99_us")) + mark,
            milliseconds(figure(results, peer, "open_p99_9_us")) + mark,
            number(figure(results, peer, "resident_mib"), 1),
            number(figure(results, peer, "ready_ms"), 0),
            str(sum(map(errors, runs))),
        ])
    return rows


def _notes(results):
    conditions = results["conditions"]
    foreign = [run[loop]["foreign_cores"] for run in results["runs"] for loop in ("closed", "open")]
    foreign += [run[window]["foreign_cores"] for run in results["isolation"] for window in ("before", "during")]
    foreign += fairness_report.foreign_cores(results["fairness"])
    rates = ", ".join(f"{step} {rate}" for step, rate in results["rates"].items())
    notes = [
        f"median of {conditions['rounds']} interleaved rounds of {conditions['seconds']:g} s, "
        f"{conditions['connections']} connections, calls of {conditions['body_bytes']} bytes, "
        f"{conditions['workers']} workers; calls/s of the open loops: {rates or 'none'}",
    ]
    if foreign:
        notes.append(f"other processes used {statistics.median(foreign):.2f} cores in the median window, "
                     f"{max(foreign):.2f} in the worst; over 0.1 the figures are disturbed")
    if any(map(is_overloaded, results["runs"])):
        notes.append("(!) the rate was more than this peer sustains: its open-loop latencies only tell how long the run was")
    notes += [f"left out: {name}: {reason}" for name, reason in results["left_out"].items()]
    return notes


def _bounds(results):
    rows = []
    for what, peer, reference, name, comparison, bound, goal in BOUNDS:
        if not any(peer in STEPS[step].peers for step in _steps(results)) and peer not in results["left_out"]:
            continue
        value = ratio(results, peer, reference, name) if reference else figure(results, peer, name)
        met = "not measured" if value is None else "met" if _meets(value, comparison, bound) else "MISSED"
        if goal and value is not None and _meets(value, comparison, goal):
            met += ", goal too"
        wanted = f"{comparison} {bound:g}" + (f" (goal {goal:g})" if goal else "")
        rows.append([what, wanted, number(value, 2), met])
    return ["bound", "wanted", "measured", ""], rows


def _meets(value, comparison, bound):
    return value <= bound if comparison == "≤" else value >= bound


def _every_round(results):
    rows = [
        [run["peer"], str(run["round"])]
        + [number(FIGURES[name](run), 1) for name in FIGURES]
        + [number(run["closed"]["foreign_cores"], 2), number(run["open"]["foreign_cores"], 2), str(errors(run))]
        for run in results["runs"]
    ]
    return ["peer", "round", *FIGURES, "foreign cores", "open foreign cores", "errors"], rows


def _every_round_of(runs, figures):
    rows = [
        [run["peer"], str(run["round"]), *(number(_value(run, name), 2) for name in figures)]
        for run in runs
    ]
    return (["peer", "round", *figures], rows) if rows else ([], [])


def _images(directory, step):
    return "".join(
        f'<img src="data:image/png;base64,{base64.b64encode(plot.read_bytes()).decode()}" alt="{plot.stem}">'
        for plot in sorted(directory.glob(f"{step}-*.png"))
    )


def _markdown(headings, rows):
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]

    def line(cells):
        first, *others = (cell.ljust(width) if column == 0 else cell.rjust(width)
                          for column, (cell, width) in enumerate(zip(cells, widths)))
        return "| " + " | ".join([first, *others]) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":") for column, width in enumerate(widths)) + "|"
    return "\n".join([line(headings), rule, *map(line, rows)])


def _draw_plots(directory, python_with_matplotlib):
    if not python_with_matplotlib.exists():
        print(f"no plots: {python_with_matplotlib} does not exist")
        return
    program = pathlib.Path(__file__).with_name("plots.py")
    drawn = subprocess.run([python_with_matplotlib, program, directory], capture_output=True, text=True, check=False)
    if drawn.returncode != 0:
        print(f"no plots: {drawn.stderr.strip()}")


def _html_table(headings, rows):
    def row(tag, cells):
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + row("th", headings) + "".join(row("td", cells) for cells in rows) + "</table>"
