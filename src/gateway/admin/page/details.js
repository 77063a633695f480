// One endpoint, one upstream, one tool.

function crumbs(kind, ...more) {
  return h(
    'nav.crumbs',
    { 'aria-label': 'Breadcrumb' },
    h('a', { href: '#/' }, 'Overview'),
    more.map((one) => [' / ', one]),
    ' / ',
    h('span', kind),
  );
}

function titled(state, name, words) {
  return h(
    'div.titled',
    h('h1.name', titleOf(name, 300)),
    state && badge(state.level, state.word),
    h('p.sum', words),
  );
}

const lost = (kind, name) => [
  crumbs(kind),
  titled(null, name, `There is no such ${kind.toLowerCase()} any more.`),
];

function endpointDetails(view, path) {
  const endpoint = list(view.status.endpoints).find((one) => one.path === path);
  if (!endpoint) return lost('Endpoint', path);
  const names = new Set(list(endpoint.upstreams));
  const upstreams = list(view.status.upstreams).filter(({ name }) => names.has(name));
  const shownUpstreams = upstreams.filter(({ name }) =>
    name.toLowerCase().includes(view.query.toLowerCase()),
  );
  return [
    crumbs('Endpoint'),
    titled(endpointStanding(view, endpoint), path, [
      `${eraWords(endpoint.eras)} · `,
      listWords(endpoint, toolsOf(view, endpoint)),
    ]),
    findingList(
      view.found.filter((one) => one.kind === 'endpoint' && list(one.names).includes(path)),
      'found here',
      false,
    ),
    band(view.history.endpoints.get(path) ?? NOTHING, view),
    upstreamTable(view, shownUpstreams, upstreams.length, 'Its upstreams'),
    recentErrors(view, list(view.status.recent_errors).filter((one) => one.endpoint === path)),
    factSection('Since the start', [
      ...totals(endpoint),
      ['Names of tools', endpoint.names],
      ['Authentication', authWords(endpoint.auth)],
    ]),
    reasons(endpoint),
  ];
}

const authWords = (auth) =>
  auth && (and(list(auth).map((word) => shown(word, 40).replaceAll('_', ' '))) || 'none');
const reasons = (one) =>
  factSection(
    'Why calls failed',
    Object.entries(one.reasons ?? {})
      .sort(([, a], [, b]) => b - a)
      .map(([why, n]) => [why, count(n)]),
  );

const listWords = ({ list_bytes }, tools) =>
  number(tools) === null
    ? 'tools not known yet'
    : `${plural(tools, 'tool')}${number(list_bytes) ? `, ${bytes(list_bytes)} as a list` : ''}`;

function totals(one) {
  return [
    ...picked(one, { Calls: 'calls' }),
    ['Failed', one.calls ? `${count(one.errors)} (${share(one.errors, one.calls)})` : NONE],
    ...picked(one, { p50: 'p50_s', p90: 'p90_s', p99: 'p99_s' }, latency),
  ];
}

function factSection(title, facts) {
  return (
    facts.length > 0 &&
    h('section.gateway', { key: title }, h('h2', title), h('div.wide', factList(facts, title)))
  );
}

function upstreamDetails(view, name) {
  const upstream = list(view.status.upstreams).find((one) => one.name === name);
  if (!upstream) return lost('Upstream', name);
  const users = list(view.status.endpoints).filter(({ upstreams }) => list(upstreams).includes(name));
  return [
    crumbs('Upstream'),
    titled(upstreamStanding(view, upstream), name, [
      `${eraWords(upstream.eras)} · ${upstream.transport === 'stdio' ? 'program' : 'HTTP'} · at `,
      users.length
        ? users
            .slice(0, 4)
            .map(({ path }, at) => [
              at ? ', ' : '',
              h('a', { href: link('endpoint', path) }, shown(path, 60)),
            ])
        : 'no endpoint',
      users.length > 4 && ` and ${users.length - 4} more`,
    ]),
    findingList(
      view.found.filter((one) => one.kind === 'upstream' && list(one.names).includes(name)),
      'found here',
      false,
    ),
    band(view.history.upstreams.get(name) ?? NOTHING, view),
    replicaTable(view, list(upstream.replicas)),
    factSection('Now', stateFacts(upstream)),
    factSection('Last errors', faultFacts(upstream)),
    toolSection(view, name),
    recentErrors(view, list(view.status.recent_errors).filter((one) => one.upstream === name)),
    factSection('Since the start', upstreamFacts(upstream)),
    reasons(upstream),
  ];
}

const startWords = ({ phase, since_s }) =>
  phase === 'first_call' ? 'with its first call' : `${phase} ${sinceWords(since_s)}`;

/** How far its program is with its start, and how old its lists are. */
const stateFacts = ({ start, lists_kept_s: kept_s }) =>
  [
    start && ['Start', startWords(start)],
    number(kept_s) !== null && ['Lists', `of ${clock(kept_s)}, kept over a restart`],
  ].filter(Boolean);

/** What it met last, each with its time, and the last words of its program. */
function faultFacts({ fault, list_fault: lists, replicas, last_lines: lines }) {
  const told = ({ why, at_s, stands }) =>
    `${why}, ${clock(at_s)}${stands ? '' : ', answered since'}`;
  return [
    fault && ['Server', told(fault)],
    lists && ['Lists', told(lists)],
    ...list(replicas).map(({ address, fault: own }) => own && [address, told(own)]),
    ...list(lines).map((line, at) => [at ? '' : 'Last lines', line]),
  ].filter(Boolean);
}

// Without what every object has: the names come from elsewhere.
const BREAKERS = {
  __proto__: null,
  closed: ['ok', 'up'],
  half_open: ['warn', 'half-open'],
  open: ['bad', 'down'],
};

function replicaTable(view, replicas) {
  if (!replicas.length) return null;
  const columns = [
    {
      label: 'State',
      class: 'state',
      of: (row) => LEVELS[row.state.level],
      show: (row) => badge(row.state.level, row.state.word),
    },
    {
      label: 'Replica',
      class: 'what',
      of: (row) => row.address,
      show: (row) => h('span.name', shown(row.address)),
    },
    {
      label: 'Down since',
      class: 'since',
      of: (row) => row.down_since_s,
      show: (row) => (number(row.down_since_s) === null ? NONE : clock(row.down_since_s)),
    },
    {
      label: 'In flight',
      class: 'figure wide',
      of: (row) => row.in_flight,
      show: (row) => count(row.in_flight),
    },
    {
      label: 'Answered',
      class: 'figure wide',
      of: (row) => row.answered,
      show: (row) => count(row.answered),
    },
  ];
  const rows = replicas.map((replica, at) => {
    const [level, word] =
      replica.resolved === false
        ? ['bad', 'unresolved']
        : (BREAKERS[replica.breaker] ?? ['off', shown(replica.breaker, 20)]);
    return { ...replica, key: `${at}`, state: { level, word } };
  });
  return tableSection('replicas', 'Replicas', rows, rows.length, columns, view);
}

function upstreamFacts(one) {
  const { children, bridge, pins, concurrency: gate } = one;
  return [
    ...totals(one),
    ['Tools', number(one.tools) === null ? 'not known yet' : listWords(one, one.tools)],
    ...picked(one, {
      Connections: 'connections',
      'Connects failed': 'connects_failed',
      Retries: 'retries',
      'Circuit breaker opened': 'breaker_openings',
      'Sessions opened': 'sessions_opened',
      'Sessions lost': 'sessions_lost',
      'Subscription streams': 'subscription_streams',
    }),
    ...picked(children, { 'Programs running': 'running', Starts: 'starts', Crashes: 'crashes' }),
    ...(gate ? [['Concurrent calls', `${count(gate.in_use)} of ${count(gate.max)}`]] : []),
    ...picked(gate, { Waiting: 'waiting', 'Rejected (queue full)': 'refused' }),
    ...picked(bridge, {
      'Bridged requests': 'requests',
      'Input requests': 'input_requests',
      'Bridge sessions': 'sessions',
      'Suspended calls': 'suspended',
    }),
    ...picked(pins, { 'Pinned tools': 'pinned', 'Changed tools': 'changed', 'Not approved': 'new' }),
  ];
}

const askedTool = {};

function toolDetails(view, upstream, name) {
  put(askedTool, `${upstream}\n${name}`, { upstream, q: [...name].slice(0, 199).join(''), count: 200 }, view);
  const { told, error } = askedTool;
  const tool = told?.tools.find((one) => one.name === name);
  const where = crumbs('Tool', h('a', { href: link('upstream', upstream) }, shown(upstream, 80)));
  if (!tool)
    return [
      where,
      titled(null, name, error || (told ? 'This tool is not in the list of its upstream.' : 'Asking …')),
    ];
  return [
    where,
    titled(toolStanding(tool), name, shown(tool.title, 200)),
    tool.description && h('p.description', shown(tool.description, 400)),
    toolBand(tool),
    factSection('What it is', [
      ['Excluded', tool.left_out],
      [
        'Annotations',
        and([tool.read_only && 'reads only', tool.destructive && 'may destroy'].filter(Boolean)) || 'nothing',
      ],
      ['Definition', bytes(tool.definition_bytes)],
      [
        'Pin',
        {
          __proto__: null,
          pinned: 'as approved',
          changed: 'changed since it was approved',
          new: 'not approved yet',
        }[tool.pin],
      ],
    ]),
    factSection(
      'Public names',
      list(tool.public)
        .slice(0, 40)
        .map((one) => [one.endpoint, h('code', shown(one.name))]),
    ),
  ];
}

function toolStanding({ pin }) {
  if (pin === 'changed') return { level: 'warn', word: 'changed' };
  return pin === 'new' ? { level: 'warn', word: 'not approved' } : null;
}

function toolBand(tool) {
  return h(
    'dl.band.plain',
    { key: 'band' },
    measure(
      'Calls',
      count(tool.calls),
      number(tool.calls_per_s) ? `${rate(tool.calls_per_s)}/s` : 'since the start',
    ),
    measure('Failed', share(tool.errors, tool.calls), tool.errors ? count(tool.errors) : ''),
    measure('p50 latency', slowness(tool, 'p50_s'), ''),
    measure('p99 latency', slowness(tool), ''),
  );
}
