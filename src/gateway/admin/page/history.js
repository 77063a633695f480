// What went on in the last minutes: fetched once, then added to from each state of the gateway. Pure.

const SAMPLES_MAX = 60;
const MEASURES = ['calls_per_s', 'errors_per_s', 'p50_s', 'p99_s'];
const NOTHING = Object.freeze({ calls_per_s: [], errors_per_s: [], p50_s: [], p99_s: [] });

function emptyHistory() {
  return { number: null, interval_s: 5, at_s: [], all: NOTHING, endpoints: new Map(), upstreams: new Map() };
}

function historyOf(told) {
  const each = (group) => new Map(Object.entries(group ?? {}).map(([name, one]) => [name, measures(one)]));
  return {
    number: number(told?.number),
    interval_s: number(told?.interval_s) || 5,
    at_s: list(told?.at_s).slice(-SAMPLES_MAX),
    all: measures(told?.all),
    endpoints: each(told?.endpoints),
    upstreams: each(told?.upstreams),
  };
}

const measures = (told) =>
  Object.fromEntries(MEASURES.map((name) => [name, list(told?.[name]).slice(-SAMPLES_MAX)]));

/** With the latest sample of `status`; null if samples are missing between the two. */
function historyWith(history, status) {
  const at = number(status.sample?.number);
  if (at === null || at === history.number) return history;
  if (history.number === null || at !== history.number + 1) return null;
  const longer = (before, recent) =>
    Object.fromEntries(
      MEASURES.map((name) => [
        name,
        [...(before ?? NOTHING)[name], number(recent?.[name])].slice(-SAMPLES_MAX),
      ]),
    );
  const each = (before, all, name) =>
    new Map(list(all).map((one) => [one[name], longer(before.get(one[name]), one.recent)]));
  return {
    number: at,
    interval_s: number(status.sample.interval_s) || history.interval_s,
    at_s: [...history.at_s, number(status.sample.at_s)].slice(-SAMPLES_MAX),
    all: longer(history.all, status.calls?.recent),
    endpoints: each(history.endpoints, status.endpoints, 'path'),
    upstreams: each(history.upstreams, status.upstreams, 'name'),
  };
}

const sum = (values) => values.reduce((total, value) => total + (number(value) ?? 0), 0);
const latest = (values) => values.findLast((value) => number(value) !== null) ?? null;

/** What a row says of a history: the rate now, what failed of the last minutes, the latest quantiles that
   are known. */
function figures(history, interval_s = 5) {
  const calls = sum(history.calls_per_s);
  const errors = sum(history.errors_per_s);
  return {
    calls_per_s: number(history.calls_per_s.at(-1)),
    errors_per_s: number(history.errors_per_s.at(-1)),
    calls: calls * interval_s,
    errors: errors * interval_s,
    failing: calls > 0 ? errors / calls : 0,
    p50_s: latest(history.p50_s),
    p99_s: latest(history.p99_s),
  };
}
