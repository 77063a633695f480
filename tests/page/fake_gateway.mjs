// An admin listener that tells whatever a test wants: many upstreams, hostile names, every state at once.
//
// The page comes from `page` (its text and the headers that the real gateway serves it with); the rest is
// made here.
import { createServer } from 'node:http';

const PAUSE_MS = 5;
const SAMPLES = 60;

/** Numbers that look like chance and are the same each time. */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Serves `scene`, which may change while it runs; `port` 0 lets the system choose. */
export class FakeGateway {
  constructor(page, scene, { token = '', port = 0 } = {}) {
    Object.assign(this, { page, scene, token, port, asked: [] });
    this.server = createServer((request, response) => this.answer(request, response));
  }

  async open() {
    await new Promise((resolve, reject) =>
      this.server.once('error', reject).listen(this.port, '127.0.0.1', resolve),
    );
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}`;
    return this;
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  async answer(request, response) {
    const url = new URL(request.url, this.url);
    this.asked.push(`${request.method} ${url.pathname}`);
    if (url.pathname === '/') return response.writeHead(200, this.page.headers).end(this.page.text);
    if (this.token && request.headers.authorization !== `Bearer ${this.token}`)
      return response.writeHead(401).end('wrong token\n');
    const told = {
      '/status': () => this.scene.status(),
      '/status/history': () => this.scene.history(),
      '/status/tools': () => this.scene.tools(url.searchParams),
    }[url.pathname];
    if (!told) return response.writeHead(404).end();
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    response
      .writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' })
      .end(JSON.stringify(told()));
  }
}

/** What a gateway tells, made from short descriptions of endpoints and upstreams. */
export class Scene {
  constructor({ endpoints, upstreams, tools = [], more = {}, seed = 1 }) {
    Object.assign(this, {
      endpoints,
      upstreams,
      list: tools,
      more,
      at: 1000,
      started_s: Math.floor(Date.now() / 1000) - 275_000,
    });
    const random = chance(seed);
    const walk = (base, jitter) =>
      Array.from({ length: SAMPLES }, (_, at) =>
        Math.max(0, base * (1 + jitter * Math.sin(at / 7 + base) + jitter * (random() - 0.5))),
      );
    const history = ({ rate = 0, errors = 0, p50 = 0.012, p99 = 0.09 }) => {
      const calls = walk(rate, 0.35);
      return {
        calls_per_s: calls,
        errors_per_s: calls.map((value) => (random() < 0.4 ? value * errors * 2.5 : 0)),
        p50_s: rate ? walk(p50, 0.2) : calls.map(() => null),
        p99_s: rate ? walk(p99, 0.5) : calls.map(() => null),
      };
    };
    this.lines = {
      all: history({
        rate: upstreams.reduce((sum, { rate = 0 }) => sum + rate, 0),
        errors: 0.004,
        p99: 0.14,
      }),
      endpoints: new Map(endpoints.map((one) => [one.path, history(one)])),
      upstreams: new Map(upstreams.map((one) => [one.name, history(one)])),
    };
  }

  /** One more sample, five seconds later. */
  next() {
    this.at += 1;
    for (const one of [this.lines.all, ...this.lines.endpoints.values(), ...this.lines.upstreams.values()]) {
      for (const values of Object.values(one)) values.push(values.shift());
    }
  }

  /** When the latest sample was taken: each is five seconds after the one before. */
  sampled_s() {
    return this.started_s + 275_000 + 5 * (this.at - 1000);
  }

  history() {
    return {
      number: this.at,
      interval_s: 5,
      at_s: this.lines.all.calls_per_s.map((_, at, all) => this.sampled_s() - 5 * (all.length - 1 - at)),
      all: this.lines.all,
      endpoints: Object.fromEntries(this.lines.endpoints),
      upstreams: Object.fromEntries(this.lines.upstreams),
    };
  }

  status() {
    const now_s = Math.floor(Date.now() / 1000);
    const told = (one, lines) => ({
      healthy: true,
      eras: ['modern', 'legacy'],
      tools: 12,
      list_bytes: 18_400,
      calls: 40_218,
      errors: 120,
      seconds: 812,
      p50_s: 0.025,
      p90_s: 0.1,
      p99_s: 0.25,
      recent: Object.fromEntries(Object.entries(lines ?? {}).map(([name, values]) => [name, values.at(-1)])),
      ...one,
    });
    const sorted = (of) =>
      [...this.list]
        .filter((tool) => of(tool) > 0)
        .sort((a, b) => of(b) - of(a))
        .slice(0, 10);
    this.first ??= {
      most_called: sorted(({ calls }) => calls),
      slowest: sorted(({ p99_s }) => p99_s ?? 0),
      failing: sorted(({ errors }) => errors),
    };
    return {
      version: '0.1.0',
      started_s: this.started_s,
      uptime_s: now_s - this.started_s,
      workers: 8,
      drain: 'none',
      panics: 0,
      sample: { number: this.at, at_s: this.sampled_s(), interval_s: 5 },
      calls: told({}, this.lines.all),
      config: {
        file: '/etc/trunkline/trunkline.toml',
        sha256: '71303c65a6ddb7a69ac513b4d246c7f3ff0e57c550740ec4a47deeb9d16c3f5',
        last_reload: {
          at_s: now_s - 4000,
          ok: true,
          changes: ['upstream.tickets', 'limit.burst'],
          needs_restart: [],
        },
      },
      listeners: [{ address: '0.0.0.0:8443', tls: true }],
      connections: { open: 34, max: 9360, accepted: 10_482, refused: 0, buffered_bytes: 28_412 },
      endpoints: this.endpoints.map((one) =>
        told({ upstreams: [], ...one }, this.lines.endpoints.get(one.path)),
      ),
      upstreams: this.upstreams.map((one) =>
        told(
          {
            transport: 'http',
            connections: 6,
            connects_failed: 0,
            retries: 0,
            breaker_openings: 0,
            sessions_opened: 12,
            sessions_lost: 0,
            subscription_streams: 1,
            replicas: [
              {
                address: '10.0.4.12:8080/mcp',
                url: 'http://10.0.4.12:8080/mcp',
                breaker: 'closed',
                down_since_s: null,
                in_flight: 2,
                answered: 40_218,
                resolved: true,
              },
            ],
            ...one,
          },
          this.lines.upstreams.get(one.name),
        ),
      ),
      limits: [
        { name: 'burst', calls: 200, period_s: 60, shared: true, refused: 18, overflowed: 0, keys: 31 },
      ],
      cache: { bytes: 1_248_100, hits: 84_120, stale: 310, misses: 92, errors: 1 },
      sessions: {
        live: 118,
        revoked: 0,
        upstream_sessions: 42,
        streams: 37,
        upstream_streams: 12,
        subscriptions: 5,
        sse_streams: 2,
      },
      certificates: [{ file: '/etc/trunkline/tls/gateway.pem', expires_s: now_s + 61 * 86_400 }],
      shared: { connected: true, replicas: 2, mismatched: 0 },
      traces: { exported: 90_112, rejected: 0, failed: 0, dropped: 0 },
      tools: { known: this.list.length, ...this.first },
      ...this.more,
    };
  }

  tools(asked) {
    const [upstream, q, sort] = [
      asked.get('upstream'),
      (asked.get('q') ?? '').toLowerCase(),
      asked.get('sort') ?? 'calls',
    ];
    const [offset, count] = [Number(asked.get('offset') ?? 0), Number(asked.get('count') ?? 50)];
    const all = this.list.filter((tool) => !upstream || tool.upstream === upstream);
    const matched = all.filter((tool) => tool.name.toLowerCase().includes(q));
    const of = {
      name: () => 0,
      p99: ({ p99_s }) => p99_s ?? 0,
      calls: ({ calls }) => calls,
      errors: ({ errors }) => errors,
    }[sort];
    matched.sort((a, b) => of(b) - of(a) || (a.name < b.name ? -1 : 1));
    return {
      total: all.length,
      matched: matched.length,
      offset,
      tools: matched.slice(offset, offset + count),
    };
  }
}

export function tool(upstream, name, more = {}) {
  return {
    upstream,
    name,
    title: null,
    description: `What ${name} does`,
    read_only: true,
    destructive: false,
    definition_bytes: 812,
    calls: 0,
    errors: 0,
    p50_s: null,
    p99_s: null,
    calls_per_s: 0,
    pin: null,
    public: [{ endpoint: '/mcp', name: `${upstream}__${name}` }],
    ...more,
  };
}

const NAMES = [
  'search',
  'fetch',
  'list_items',
  'create_issue',
  'close_issue',
  'forecast',
  'query',
  'write_file',
  'read_file',
  'run_report',
];

const before_s = (seconds) => Math.floor(Date.now() / 1000) - seconds;

const CALLERS = {
  known: 212,
  unidentified: 3,
  busiest: [
    { principal: 'agents', calls: 91_204, errors: 61, refused: 12 },
    { principal: 'ci', calls: 8_310, errors: 402, refused: 2 },
    { principal: null, calls: 900, errors: 0, refused: 0 },
  ],
  most_refused: [
    { principal: 'intern', calls: 44, errors: 40, refused: 40 },
    { principal: 'agents', calls: 91_204, errors: 61, refused: 12 },
  ],
};

/** Calls that failed lately. */
function errors() {
  const failed = (more) => ({
    at_s: before_s(2),
    first_s: before_s(240),
    calls: 1,
    endpoint: '/mcp',
    upstream: null,
    method: 'tools/call',
    name: null,
    outcome: 'failed',
    reason: 'upstream_timeout',
    principal: 'agents',
    message: 'HTTP 500 text/plain',
    request_id: 'a1-7',
    ...more,
  });
  return [
    failed({ calls: 310, upstream: 'tickets', name: 'tickets__create_issue' }),
    failed({ calls: 41, endpoint: '/mcp/finance', upstream: 'billing', name: 'invoices', reason: 'upstream_unreachable' }),
    failed({ calls: 40, outcome: 'refused', reason: 'forbidden', name: 'notes__delete_note', principal: 'intern' }),
    failed({ outcome: 'cancelled', reason: 'cancelled', method: 'tools/list', principal: null }),
  ];
}

/** Something that is wrong, as the gateway says it. */
export const problem = (level, kind, names, word, what, more = {}) => ({
  level,
  kind,
  names,
  word,
  what,
  subject: kind === 'gateway' ? names[0] : `${kind} ${names.join(', ')}`,
  since_s: null,
  reasons: null,
  advice: null,
  runbook: null,
  ...more,
});

const PROBLEMS = () => [
  problem('error', 'upstream', ['billing'], 'down', 'down: connect: refused; every call at /mcp/finance fails', {
    since_s: before_s(245),
    reasons: 'upstream_unreachable 41, upstream_unhealthy 12 since the start',
    advice: 'trunkline doctor http://billing.internal:8080/mcp',
    runbook: 'TrunklineUpstreamDown',
  }),
  problem('warning', 'upstream', ['search'], 'failing', 'failing: 1 of 3 replicas down: 10.0.7.2:9000/mcp: timed out after 5 s', {
    since_s: before_s(1200),
    advice: 'trunkline doctor https://search-2.internal:9000/mcp',
    runbook: 'TrunklineBreakerOpen',
  }),
  problem('warning', 'upstream', ['notes'], 'pins', '1 tool has changed, waiting for approval: delete_note', {
    advice: 'trunkline pins approve -- notes delete_note',
    runbook: 'TrunklinePinsWait',
  }),
  problem('warning', 'upstream', ['tickets'], 'failing', 'failing: 30 % of its calls failed in the last minute', {
    since_s: before_s(240),
    reasons: 'upstream_timeout 310, upstream_invalid 4 since the start',
    runbook: 'TrunklineUpstreamErrors',
  }),
];

/** A gateway as one meets it; `trouble` breaks some of it. */
export function ordinary(trouble = false) {
  const upstreams = [
    { name: 'weather', rate: 42, errors: 0.001, tools: 2 },
    {
      name: 'tickets',
      rate: 18,
      errors: trouble ? 0.3 : 0.002,
      reasons: { upstream_timeout: 310, upstream_invalid: 4 },
      p50: 0.08,
      p99: 0.6,
      tools: 24,
    },
    {
      name: 'files',
      rate: 6,
      transport: 'stdio',
      eras: ['legacy'],
      tools: 11,
      children: { running: 3, starts: 9, crashes: 1, crash_loop: false },
      replicas: [],
    },
    {
      name: 'search',
      rate: 27,
      p50: 0.04,
      p99: 0.3,
      tools: 6,
      replicas: [1, 2, 3].map((at) => ({
        address: `10.0.7.${at}:9000/mcp`,
        url: `https://search-${at}.internal:9000/mcp`,
        breaker: trouble && at === 2 ? 'open' : 'closed',
        down_since_s: trouble && at === 2 ? before_s(1200) : null,
        in_flight: at,
        answered: 9000 * at,
        resolved: true,
        fault: trouble && at === 2 ? { why: 'timed out after 5 s', at_s: before_s(30), stands: true } : null,
      })),
    },
    {
      name: 'billing',
      rate: trouble ? 0 : 3,
      healthy: !trouble,
      down_since_s: trouble ? before_s(245) : null,
      reasons: trouble ? { upstream_unreachable: 41, upstream_unhealthy: 12 } : {},
      eras: ['modern'],
      tools: 9,
      replicas: [
        {
          address: '10.0.9.4:8080/mcp',
          url: 'http://billing.internal:8080/mcp',
          breaker: trouble ? 'open' : 'closed',
          down_since_s: trouble ? before_s(245) : null,
          in_flight: 0,
          answered: 771,
          resolved: true,
        },
      ],
    },
    {
      name: 'notes',
      rate: 0.4,
      p50: 0.002,
      p99: 0.004,
      tools: 3,
      pins: {
        pinned: 3,
        changed: trouble ? 1 : 0,
        new: 0,
        unreadable: false,
        waiting: trouble ? ['delete_note'] : [],
      },
    },
  ];
  const endpoints = [
    { path: '/mcp', rate: 78, upstreams: upstreams.map(({ name }) => name), tools: 55 },
    { path: '/mcp/support', rate: 18, upstreams: ['tickets', 'search'], tools: 30 },
    { path: '/mcp/finance', rate: trouble ? 0 : 3, healthy: !trouble, down_since_s: trouble ? before_s(245) : null, upstreams: ['billing'], tools: 9 },
  ];
  const random = chance(7);
  const tools = upstreams.flatMap(({ name, rate }) =>
    NAMES.slice(0, 6).map((one, at) =>
      tool(name, one, {
        calls: Math.round((rate * 4000 * random()) / (at + 1)),
        errors: Math.round(rate * 40 * random() * (at === 3)),
        p50_s: 0.02 * (at + 1),
        p99_s: 0.1 * (at + 1) * random() + 0.01,
        read_only: at < 3,
        destructive: at === 4,
        pin: name === 'notes' ? (trouble && at === 1 ? 'changed' : 'pinned') : null,
      }),
    ),
  );
  return new Scene({ endpoints, upstreams, tools, more: { callers: CALLERS, problems: trouble ? PROBLEMS() : [], ...(trouble && { recent_errors: errors() }) } });
}

/** What must only ever be seen as text. */
export const HOSTILE_NAMES = [
  '<img src=x onerror="globalThis.broken=1">',
  '</script><script>globalThis.broken=1</script>',
  'javascript:globalThis.broken=1',
  '"><svg onload=globalThis.broken=1>',
  'abc\u202eexe.fdp\u202c',
  'zero\u200bwidth\u2066\u0000\u001b[31m',
  '__proto__',
  'constructor',
  '../../%2e%2e/%00',
  '#/upstream/x?y=z&q=%',
  'W'.repeat(4000),
  'z\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030a'.repeat(40),
  '漢字'.repeat(200),
  '',
];

export function hostile() {
  const names = HOSTILE_NAMES;
  const upstreams = names.map((name, at) => ({
    name: name || 'empty',
    rate: at,
    healthy: at % 3 !== 0,
    tools: at,
    replicas: [{ address: name, breaker: at % 2 ? 'open' : name, in_flight: 1, answered: 1, resolved: true }],
    pins: { pinned: 1, changed: 2, new: 1, unreadable: false, waiting: names },
    eras: [name],
  }));
  const endpoints = names.map((name, at) => ({
    path: `/${name}`,
    rate: at,
    healthy: at % 4 !== 0,
    upstreams: names,
    tools: at,
    names: name,
    auth: names,
  }));
  const tools = upstreams.flatMap(({ name }) =>
    names.map((one, at) =>
      tool(name, one, {
        description: one,
        title: one,
        calls: at * 10,
        errors: at,
        p99_s: at / 10,
        pin: at % 2 ? 'changed' : one,
        public: [{ endpoint: one, name: one }],
      }),
    ),
  );
  const callers = names.map((principal) => ({ principal, calls: 5, errors: 2, refused: 'x' }));
  const more = {
    recent_errors: names.map((name) => ({
      at_s: 1e300,
      first_s: 'x',
      calls: -1,
      endpoint: `/${name}`,
      upstream: name,
      method: name,
      name,
      outcome: name,
      reason: name,
      principal: name,
      request_id: name,
    })),
    callers: { known: 'x', unidentified: 7, busiest: callers, most_refused: callers },
    problems: names.map((name, at) => problem(at % 2 ? 'error' : name, ['upstream', 'endpoint', name][at % 3], names, name, name, { since_s: name, reasons: name, advice: name, runbook: name })),
    version: names[0],
    drain: names[1],
    panics: 3,
    shared: { connected: false, replicas: names[0], mismatched: null },
    traces: null,
    cache: null,
    sessions: null,
    config: {
      file: names[0],
      sha256: names[1],
      last_reload: { at_s: 1e300, ok: false, error: names.join('\n'), changes: names, needs_restart: names },
    },
    certificates: names.map((file, at) => ({ file, expires_s: at * 1e9 })),
    limits: names.map((name) => ({ name, calls: -1, period_s: 1e12, refused: 5, keys: 'x' })),
    listeners: names.map((address) => ({ address, tls: true })),
  };
  return new Scene({ endpoints, upstreams, tools, more });
}

/** As large as a gateway gets. */
export function huge(upstreamCount = 500, toolCount = 100) {
  const random = chance(3);
  const upstreams = Array.from({ length: upstreamCount }, (_, at) => ({
    name: `upstream-${String(at).padStart(3, '0')}`,
    rate: random() * 30,
    errors: random() * 0.01,
    healthy: at % 90 !== 7,
    tools: toolCount,
    replicas: [1, 2].map((one) => ({
      address: `10.${at >> 8}.${at & 255}.${one}:8080/mcp`,
      breaker: at % 90 === 7 ? 'open' : 'closed',
      in_flight: 0,
      answered: 5,
      resolved: true,
    })),
  }));
  const endpoints = Array.from({ length: 40 }, (_, at) => ({
    path: `/team/${at}`,
    rate: random() * 200,
    upstreams: upstreams.slice(at * 12, at * 12 + 12).map(({ name }) => name),
    tools: 1200,
  }));
  const tools = upstreams.flatMap(({ name }) =>
    Array.from({ length: toolCount }, (_, at) =>
      tool(name, `${NAMES[at % 10]}_${at}`, {
        calls: Math.floor(random() * 9000),
        errors: Math.floor(random() * 20),
        p50_s: 0.02,
        p99_s: random(),
      }),
    ),
  );
  return new Scene({ endpoints, upstreams, tools });
}
