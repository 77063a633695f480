// The gateway itself: what it holds, what it refuses, what it runs on.

const FACTS_SHOWN = 20;

/** Members of `from` under the names they have for people. */
const picked = (from, members, say = count) =>
  Object.entries(members).map(([label, name]) => [label, say(from?.[name])]);

const fileName = (path) =>
  String(path ?? '')
    .split('/')
    .at(-1);
const firstLine = (text) => shown(String(text).split('\n')[0], 240);

/** `a 1, b 2`, or nothing. */
const counted = (counts) =>
  Object.entries(counts ?? {})
    .map(([word, number]) => `${shown(word, 40)} ${count(number)}`)
    .join(', ') || NONE;

function signInFacts(signIn) {
  const { store } = signIn;
  const kept = store
    ? [
        ...picked(store, { People: 'accounts', 'Sign-ins': 'grants' }),
        ['Records', `${count(store.records)} of ${count(store.records_max)}`],
        ['File', `${bytes(store.file_bytes)} of ${bytes(store.file_bytes_max)}`],
      ]
    : [['Kept', 'in Redis']];
  return [
    ...kept,
    ...picked(signIn, { Opened: 'opened' }),
    ['Refused', counted(signIn.refused)],
    ['Ended', counted(signIn.ended)],
    ['Provider asked again', counted(signIn.checks)],
    ...picked(signIn, { 'Failures of the store': 'store_failures' }),
  ];
}

function gatewayFacts({ status }) {
  const { connections, cache, shared, traces, sign_in: signIn } = status;
  const left = (expires_s) => timeLeft(expires_s - Date.now() / 1000);
  const groups = {
    Clients: [
      ['Connections', `${count(connections?.open)} of ${count(connections?.max)}`],
      ...picked(connections, { Accepted: 'accepted', Refused: 'refused' }),
      ...picked(connections, { 'Messages held': 'buffered_bytes' }, bytes),
    ],
    Sessions: picked(status.sessions, {
      'Of clients': 'live',
      'At upstreams': 'upstream_sessions',
      'Streams of clients': 'streams',
      'Streams of upstreams': 'upstream_streams',
      Subscriptions: 'subscriptions',
      'HTTP+SSE streams': 'sse_streams',
      Revoked: 'revoked',
    }),
    'Cache of lists': [
      [
        'Answered from it',
        share(
          sum([cache?.hits, cache?.stale]),
          sum([cache?.hits, cache?.stale, cache?.misses, cache?.errors]),
        ),
      ],
      ...picked(cache, { Size: 'bytes' }, bytes),
      ...picked(cache, { Hits: 'hits', 'Out of date': 'stale', Misses: 'misses', Errors: 'errors' }),
    ],
    Configuration: configFacts(status.config ?? {}),
    Certificates: list(status.certificates).map(({ file, expires_s }) => [fileName(file), left(expires_s)]),
    Limits: list(status.limits).map((limit) => [
      limit.name,
      `${count(limit.calls)} per ${duration(limit.period_s)} · ${count(limit.refused)} refused`,
    ]),
    'Shared store': shared
      ? [
          ['State', shared.connected ? 'connected' : 'not connected'],
          ...picked(shared, { Gateways: 'replicas', 'With another session key': 'mismatched' }),
        ]
      : [],
    'Sign-in': signIn ? signInFacts(signIn) : [],
    Traces: picked(traces, {
      'Spans exported': 'exported',
      Rejected: 'rejected',
      Failed: 'failed',
      Dropped: 'dropped',
    }),
    Process: [
      ['Version', status.version],
      ['Started', clock(status.started_s)],
      [
        'Listens at',
        list(status.listeners)
          .slice(0, 8)
          .map(({ address, tls }) => `${shown(address, 60)}${tls ? ' TLS' : ''}`)
          .join(', ') || NONE,
      ],
      ['Service', status.service],
      ['Log', status.log?.file ?? status.log?.place],
      ...picked(status, { Workers: 'workers', Panics: 'panics' }),
    ],
  };
  const kept = Object.entries(groups).map(([title, facts]) => [title, factList(facts, title)]);
  return h(
    'section.gateway',
    { key: 'gateway' },
    h('h2', 'Gateway'),
    h(
      'div.groups',
      kept
        .filter(([, facts]) => facts)
        .map(([title, facts]) => h('div.group', { key: title }, h('h3', title), facts)),
    ),
  );
}

/** Pairs of a name and what it is; without those that are not known. */
function factList(facts, key) {
  const kept = facts.filter(([, value]) => value !== null && value !== undefined && value !== NONE);
  if (!kept.length) return null;
  const rows = chosen.whole.has(key) ? kept : kept.slice(0, FACTS_SHOWN);
  const one = ([name, value]) =>
    h('div', h('dt', shown(name, 80)), h('dd', value instanceof Described ? value : shown(value, 300)));
  return [h('dl.facts', rows.map(one)), kept.length > FACTS_SHOWN && more(key, rows.length, kept.length)];
}

function configFacts({ file, sha256, last_reload: last }) {
  const some = (all) =>
    list(all)
      .slice(0, 6)
      .map((what) => shown(what, 60))
      .join(', ') || null;
  return [
    ['File', file],
    ['SHA-256', sha256 ? shown(sha256).slice(0, 12) : null],
    [
      'Last reload',
      last ? `${clock(last.at_s)}, ${last.ok ? 'in force' : 'refused'}` : 'none since the start',
    ],
    ['Error', last?.error && firstLine(last.error)],
    ['Changes', some(last?.changes)],
    ['Needs a restart', some(last?.needs_restart)],
  ];
}
