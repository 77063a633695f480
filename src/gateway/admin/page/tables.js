// Endpoints, upstreams and what else stands in rows: what is wrong first, sorted by a click.

/** A larger share of failed calls stands out. */
const FAILING_SHARE = 0.05;
const ROWS_SHOWN = { endpoints: 10, upstreams: 40, errors: 8, callers: 8 };

/** What is wrong first; the rest as configured, so that rows stay where they are. */
const LEVELS = { bad: 0, warn: 1, off: 2, ok: 2 };

/** The state of one thing in a word, from what was found of it. */
function standing(view, kind, name, isHealthy, fallback) {
  const worst = view.foundBy.get(`${kind} ${name}`);
  if (worst) return worst;
  if (isHealthy === false) return { level: 'bad', word: 'down' };
  return fallback ?? { level: 'ok', word: 'up' };
}

const endpointStanding = (view, { path, healthy, upstreams }) => {
  const lost = list(upstreams).some((name) => view.foundBy.get(`upstream ${name}`)?.level === 'bad');
  return standing(view, 'endpoint', path, healthy, lost ? { level: 'warn', word: 'degraded' } : null);
};
// Without what every object has: the words come from elsewhere.
const STATES = { __proto__: null, starting: 'off', off: 'off', up: 'ok', "wants the caller's own credentials": 'ok' };
const upstreamStanding = (view, { name, healthy, state }) => {
  const level = STATES[state];
  return standing(view, 'upstream', name, healthy, level && { level, word: state });
};

const STATE = {
  label: 'State',
  class: 'state',
  of: (row) => LEVELS[row.state.level],
  show: (row) => badge(row.state.level, row.state.word),
};
const TRAFFIC = [
  { label: 'Tools', class: 'figure tools', of: (row) => row.tools, show: (row) => count(row.tools) },
  {
    label: 'Calls/s',
    class: 'figure',
    of: (row) => row.now.calls_per_s,
    show: (row) => rate(row.now.calls_per_s),
  },
  {
    label: 'Calls over time',
    class: 'line',
    show: ({ history, at_s }) => spark({ calls: history.calls_per_s, errors: history.errors_per_s }, at_s),
  },
  {
    label: 'Failed',
    class: 'figure',
    of: (row) => (row.now.calls ? row.now.failing : null),
    show: (row) => failed(row.now),
  },
  { label: 'p50', class: 'figure p50', of: (row) => row.now.p50_s, show: (row) => latency(row.now.p50_s) },
  { label: 'p99', class: 'figure', of: (row) => row.now.p99_s, show: (row) => latency(row.now.p99_s) },
  {
    label: 'p99 over time',
    class: 'line p99',
    show: ({ history, at_s }) => spark({ slow: history.p99_s }, at_s),
  },
];

function failed(now) {
  if (!now.calls) return NONE;
  const text = share(now.failing, 1);
  return now.failing >= FAILING_SHARE ? h('strong.warn', text) : text;
}

function endpointTable(view, endpoints, all) {
  const rows = endpoints.map((one) => ({
    ...rowOf(view, 'endpoint', one.path, { tools: toolsOf(view, one) }),
    state: endpointStanding(view, one),
    about: [eraWords(one.eras), endpointNames(one)].filter(Boolean).join(' · '),
  }));
  return tableSection('endpoints', 'Endpoints', rows, all, columnsOf('Endpoint'), view);
}

function upstreamTable(view, upstreams, all, title = 'Upstreams') {
  const rows = upstreams.map((one) => ({
    ...rowOf(view, 'upstream', one.name, one),
    state: upstreamStanding(view, one),
    about: upstreamWords(one),
  }));
  return tableSection('upstreams', title, rows, all, columnsOf('Upstream'), view);
}

function rowOf(view, kind, name, { tools }) {
  const history = view.history[`${kind}s`].get(name) ?? NOTHING;
  return {
    key: name,
    name,
    href: link(kind, name),
    tools,
    history,
    at_s: view.history.at_s,
    now: figures(history, view.history.interval_s),
  };
}

const columnsOf = (label) => [
  STATE,
  { label, class: 'what', of: (row) => row.name, show: named },
  ...TRAFFIC,
];

/** How many tools an endpoint has; null where no list of its upstreams has come yet. */
const toolsOf = ({ status }, { tools, upstreams }) => {
  const names = new Set(list(upstreams));
  return knownCount(tools, list(status.upstreams).filter(({ name }) => names.has(name)));
};

function endpointNames({ upstreams }) {
  const names = list(upstreams).map((name) => shown(name, 40));
  return names.length > 3 ? `${names.slice(0, 2).join(', ')} and ${names.length - 2} more` : and(names);
}

function upstreamWords({ transport, eras, replicas, children, enabled, lists_kept_s: kept_s }) {
  if (enabled === false) return 'switched off';
  const many = list(replicas).length;
  const serves =
    transport === 'stdio'
      ? 'program'
      : list(replicas)[0] && many === 1
        ? shown(replicas[0].address, 60)
        : plural(many, 'replica');
  const running = children ? `${count(children.running)} running` : null;
  const kept = number(kept_s) === null ? null : 'lists kept over a restart';
  return [kept, eraWords(eras), serves, running].filter(Boolean).join(' · ');
}

const eraWords = (eras) =>
  list(eras).length ? and(list(eras).map((era) => shown(era, 20))) : 'era not known yet';
const named = ({ href, name, about }) => [
  h('a.row.name', { href }, titleOf(name)),
  h('span.about', about),
];

function tableSection(key, title, rows, all, columns, view) {
  const sort = chosen.sorts[key] ?? {};
  const byLevel = ({ state }) => LEVELS[state?.level] ?? 0;
  const sorted = sortedBy(rows, columns[sort.at]?.of ?? byLevel, sort.falls);
  const kept = chosen.whole.has(key) ? sorted : sorted.slice(0, ROWS_SHOWN[key] ?? 60);
  const head = ({ of, class: name }, at) =>
    of && {
      sorted: sort.at === at && (sort.falls ? 'descending' : 'ascending'),
      onclick: () => sortBy(key, at, name),
    };
  if (view.query && !rows.length && view.isOverview) return null;
  return h(
    'section',
    { key },
    h('h2', title, h('span.note', ofAll(rows.length, all))),
    rows.length
      ? table(key, title, kept, columns, head)
      : h('p.none', view.query ? 'Nothing matches.' : 'There are none.'),
    more(key, kept.length, rows.length),
  );
}

const ofAll = (some, all) => (some === all ? count(all) : `${count(some)} of ${count(all)}`);

function sortedBy(rows, of, falls) {
  // What is not known comes after what is, where figures fall.
  const compare = (a, b) => (typeof a === 'string' ? a.localeCompare(b) : (a ?? -1) - (b ?? -1));
  return [...rows].sort((one, other) => compare(of(one), of(other)) * (falls ? -1 : 1));
}

/** `head` says of a column how it is sorted (`ascending`, `descending`) and what a click on it does, if
   anything. */
function table(key, title, rows, columns, head) {
  const heads = columns.map((column, at) => {
    const { sorted, onclick } = head(column, at) || {};
    const arrow = h(
      'span.arrow',
      { 'aria-hidden': 'true' },
      { ascending: '↑', descending: '↓' }[sorted] ?? '',
    );
    return h(
      'th',
      { scope: 'col', class: column.class, 'aria-sort': sorted },
      onclick ? h('button', { onclick }, column.label, arrow) : column.label,
    );
  });
  const cell = (column, row) =>
    h(
      ...(column.class === 'what'
        ? ['th', { class: 'what', scope: 'row' }]
        : ['td', { class: column.class }]),
      column.show(row),
    );
  return h(
    'table',
    { class: key },
    h('caption.unseen', title),
    h('thead', h('tr', heads)),
    h(
      'tbody',
      rows.map((row) =>
        h(
          'tr',
          { key: row.key, onclick: openRow },
          columns.map((column) => cell(column, row)),
        ),
      ),
    ),
  );
}

/** Figures fall, names and states rise first; a third time brings back the order of the configuration. */
function sortBy(key, at, name) {
  const now = chosen.sorts[key];
  const first = name.startsWith('figure');
  if (now?.at !== at) chosen.sorts[key] = { at, falls: first };
  else if (now.falls === first) chosen.sorts[key] = { at, falls: !first };
  else delete chosen.sorts[key];
  draw();
}

/** A click anywhere in a row opens it, unless it selects text. */
function openRow(event) {
  if (event.target.closest('a, button') || String(getSelection())) return;
  event.currentTarget.querySelector('a.row')?.click();
}
