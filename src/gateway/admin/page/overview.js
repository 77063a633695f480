// What one sees first: what is wrong, how much goes through, then endpoints, upstreams, tools and the gateway
// itself.

const FINDINGS_SHOWN = 6;
/** Of tables and lists: how they are sorted, and which are shown whole. */
const chosen = { sorts: {}, whole: new Set() };

function overview(view) {
  const { status, query } = view;
  const wanted = query.toLowerCase();
  const matches = (...texts) => !wanted || texts.some((text) => String(text).toLowerCase().includes(wanted));
  const endpoints = list(status.endpoints).filter(({ path }) => matches(path));
  const upstreams = list(status.upstreams).filter(({ name, replicas }) =>
    matches(name, ...list(replicas).map(({ address }) => address)),
  );
  return [
    verdict(view),
    !query && band(view.history.all, view),
    endpointTable(view, endpoints, list(status.endpoints).length),
    upstreamTable(view, upstreams, list(status.upstreams).length),
    query ? toolSection(view) : topTools(view),
    !query && recentErrors(view, list(status.recent_errors)),
    !query && whoCalls(view),
    !query && gatewayFacts(view),
  ];
}

// ---- what is wrong

function verdict(view) {
  const { level, text } = headline(view.found, view.status);
  const { endpoints, upstreams, sessions, connections } = view.status;
  const counts = {
    endpoint: list(endpoints).length,
    upstream: list(upstreams).length,
    tool: toolCount(view.status),
    session: sessions?.live,
    connection: connections?.open,
  };
  return h(
    'section',
    { class: `verdict ${level}`, key: 'verdict' },
    h('h1', shape(level, 20), h('span', text)),
    h(
      'p.sum',
      Object.entries(counts)
        .filter(([, n]) => number(n) !== null)
        .map(([one, n]) => plural(n, one))
        .join(' · '),
    ),
    !view.query && findingList(view.found, 'found'),
  );
}

function findingList(found, key, isNamed = true) {
  const rows = chosen.whole.has(key) ? found : found.slice(0, FINDINGS_SHOWN);
  return (
    rows.length > 0 && [
      h(
        'ul',
        { class: `findings ${isNamed ? '' : 'unnamed'}` },
        rows.map((one) => findingItem(one, isNamed)),
      ),
      more(key, rows.length, found.length),
    ]
  );
}

function findingItem({ level, word, subject, href, text, reasons, since_s, command, runbook }, isNamed) {
  const told = [since_s && sinceWords(since_s), reasons].filter(Boolean).join(' · ');
  return h(
    'li',
    badge(level, word),
    isNamed && h(href ? 'a' : 'span', { href, class: href ? 'row name' : 'name' }, shown(subject, 80)),
    h(
      'div.what',
      h('span', text),
      told && h('span.note', told),
      (canCopy(command) || runbook) && h('div.advice', canCopy(command) && commandLine(command), runbook && runbookLink(runbook)),
    ),
  );
}

/** A button for the rest of a list. */
function more(key, few, all) {
  const isWhole = chosen.whole.has(key);
  if (all <= few && !isWhole) return null;
  const onclick = () => {
    chosen.whole[isWhole ? 'delete' : 'add'](key);
    draw();
  };
  return h('button.more', { onclick }, isWhole ? 'Show fewer' : `Show all ${count(all)}`);
}

/** How many tools there are; null where no list has come yet. */
const toolCount = ({ tools, upstreams }) =>
  knownCount(number(tools?.known) ?? sum(list(upstreams).map((one) => one.tools)), list(upstreams));
const knownCount = (n, upstreams) =>
  n > 0 || upstreams.every((one) => number(one.tools) !== null) ? n : null;

// ---- how much goes through

function band(history, view) {
  const now = figures(history, view.history.interval_s);
  const minutes = Math.round((history.calls_per_s.length * view.history.interval_s) / 60);
  const minutesSaid = minutes > 1 ? `last ${minutes} min` : 'last minute';
  const span = history.calls_per_s.length ? minutesSaid : 'not known yet';
  const { at_s } = view.history;
  const peak = (values, say) => (highest(values) > 0 ? `peak ${say(highest(values))}` : span);
  return h(
    'dl.band',
    { key: 'band' },
    measure('Calls per second', rate(now.calls_per_s), peak(history.calls_per_s, rate), {
      series: { calls: history.calls_per_s },
      at_s,
    }),
    measure(
      'Failed',
      now.calls ? share(now.errors, now.calls) : NONE,
      now.errors ? `${count(now.errors)} of ${count(now.calls)}, ${span}` : span,
      { series: { errors: history.errors_per_s }, at_s },
    ),
    measure('p50 latency', latency(now.p50_s), peak(history.p50_s, latency), {
      series: { slow: history.p50_s },
      at_s,
    }),
    measure('p99 latency', latency(now.p99_s), peak(history.p99_s, latency), {
      series: { slow: history.p99_s },
      at_s,
    }),
  );
}

function measure(label, value, note, drawing) {
  return h(
    'div.measure',
    h('dt', label),
    h(
      'dd',
      h('b', value),
      h('span.note', note),
      drawing && plot(label, drawing.series, drawing.at_s),
    ),
  );
}
