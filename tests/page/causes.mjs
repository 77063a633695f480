// Everything for which an upstream may not be up, each by a server that does just that, with the words that every view has
// for it.
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { at, freePort } from './gateway.mjs';

const VERSION = '2026-07-28';
/** Questions come soon; an upstream that has to be down stays so. */
const pace = (patience, open_time) => `list_timeout = "${patience}"
response_timeout = "${patience}"
connect_timeout = "${patience}"
health = { interval = "1s", timeout = "${patience}" }
breaker = { failures_max = 2, open_time = "${open_time}" }
slow_start = "0s"`;
const PATIENCE = '5s';
const OPEN = '; its circuit breaker is open';
const LOOP = 'its child process is in a crash loop, N crashes so far';

// ---- servers

/** A server that does this to each request. */
class Scripted {
  constructor(does, { certificate, key } = {}) {
    this.server = certificate ? createTlsServer({ cert: certificate, key }, does) : createServer(does);
  }

  async open() {
    await new Promise((resolve, reject) => this.server.once('error', reject).listen(0, '127.0.0.1', resolve));
    return this.server.address().port;
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

const says = (status, headers = {}, text = '') => (request, response) => {
  request.resume();
  response.writeHead(status, headers).end(text);
};
const text = { 'content-type': 'text/plain' };
const html = { 'content-type': 'text/html; charset=utf-8' };
const gzip = { 'content-type': 'application/json', 'content-encoding': 'gzip' };

/** A server of the modern era that lists one tool; `errors`: the error that a method is answered with. */
const speaks = (errors = {}) => async (request, response) => {
  let body = '';
  for await (const part of request) body += part;
  const { id, method } = JSON.parse(body || '{}');
  const lasting = { resultType: 'complete', ttlMs: 300_000, cacheScope: 'public' };
  const results = {
    'server/discover': { supportedVersions: [VERSION], capabilities: { tools: {} }, ...lasting },
    'tools/list': { tools: [{ name: 'echo', inputSchema: { type: 'object' } }], ...lasting },
    'tools/call': { content: [], resultType: 'complete' },
  };
  const error = errors[method] ?? (results[method] ? undefined : { code: -32601, message: 'Method not found' });
  const answer = error ? { error } : { result: results[method] };
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
};
const fails = (message) => ({ code: -32603, message });
const databaseIsDown = {
  'server/discover': { code: -32601, message: 'Method not found' },
  initialize: fails('database is down'),
};

/** Certificates of an authority of its own, by openssl. */
class Certificates {
  constructor() {
    this.directory = mkdtempSync(join(tmpdir(), 'trunkline-certificates-'));
    this.run('req', '-x509', ...this.fresh('ca.key'), '-out', 'ca.pem', '-days', '2', '-subj', '/CN=authority');
    this.authority = join(this.directory, 'ca.pem');
  }

  run(...command) {
    execFileSync('openssl', command, { cwd: this.directory, stdio: ['ignore', 'ignore', 'pipe'] });
  }

  fresh = (key) => ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key];

  /** One of no days expires within a second, which passes here. */
  async issue(host, days) {
    const subject = ['-subj', '/CN=server', '-addext', `subjectAltName=DNS:${host}`];
    this.run('req', ...this.fresh('server.key'), '-out', 'server.csr', ...subject);
    const authority = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-copy_extensions', 'copy'];
    this.run('x509', '-req', '-in', 'server.csr', ...authority, '-days', `${days}`, '-out', 'server.pem');
    if (days === 0) await pause(1100);
    const read = (name) => readFileSync(join(this.directory, name));
    return { certificate: read('server.pem'), key: read('server.key') };
  }

  close() {
    rmSync(this.directory, { recursive: true });
  }
}

// ---- causes

const OPENED = ['TrunklineUpstreamDown', 'TrunklineBreakerOpen'];
const down = (why, more = {}) => ({ state: 'down', why: why + OPEN, cause: why, alerts: OPENED, ...more });
const isOpen = ({ why }) => why?.endsWith(OPEN);
const refuses = (why, cause = why) => ({
  state: 'refuses our credentials',
  why,
  cause,
  alerts: ['TrunklineUpstreamCredentials'],
});
const isNone = (why, cause) => ({ state: 'is no MCP server', why, cause, alerts: ['TrunklineUpstreamNotMcp'] });
const isWell = (state, why = null, cause = '') => ({ state, why, cause, alerts: [] });

/** By the name of the upstream: `does` to a request, or `lines` of its table; `state` and `why` as every view has them, where
    `N` is some number and `ADDRESS` that of its server; `cause` as metrics have it; the `alerts` that fire. */
export const CAUSES = {
  refused: { lines: async () => `url = "http://127.0.0.1:${await freePort()}/mcp"`, ...down('connect: refused') },
  unroutable: { lines: () => 'url = "http://255.255.255.255/mcp"', ...down('connect: no route to host') },
  unnamed: { lines: () => 'url = "http://nowhere.invalid/mcp"', ...down('DNS: its name does not resolve') },
  expired: { does: speaks(), tls: ['localhost', 0], ...down('TLS: certificate expired') },
  misnamed: { does: speaks(), tls: ['tools.example', 2], ...down('TLS: certificate for another name') },
  plain: { does: speaks(), tls: [], ...down('TLS: the server does not speak TLS') },
  s401: { does: says(401), ...refuses('HTTP 401') },
  s403: { does: says(403, text, 'no'), ...refuses('HTTP 403 text/plain', 'HTTP 403') },
  s404: { does: says(404, html, '<html>'), ...isNone('HTTP 404 text/html', 'HTTP 404') },
  s421: { does: says(421, text, '?'), ...isNone('HTTP 421 text/plain', 'HTTP 421') },
  s307: { does: says(307, { location: '/mcp/?key=hunter2' }), ...isNone('HTTP 307 to /mcp/?…', 'HTTP 307') },
  html: { does: says(200, html, '<html>'), ...isNone('HTTP 200 text/html', 'HTTP 200') },
  gzip: { does: says(200, gzip, 'x'), ...isNone('Content-Encoding gzip', 'Content-Encoding') },
  s500: { does: says(500, text, 'oops'), ...down('HTTP 500 text/plain', { cause: 'HTTP 500' }) },
  hanging: { does: () => {}, patience: '1s', ...down('timed out after 1 s', { cause: 'timed out' }) },
  database: {
    does: speaks(databaseIsDown),
    state: 'failing',
    why: 'initialize: database is down (-32603)',
    cause: 'initialize: error',
    alerts: ['TrunklineUpstreamFailing'],
  },
  unlisted: {
    does: speaks({ 'tools/list': fails('fetch failed') }),
    state: 'cannot be listed',
    why: 'tools/list: fetch failed (-32603)',
    cause: 'tools/list: error',
    alerts: ['TrunklineUpstreamNotListed'],
  },
  halved: {
    does: speaks(),
    lines: async (port) => at([`http://127.0.0.1:${await freePort()}/mcp`, `http://127.0.0.1:${port}/mcp`]),
    state: 'failing',
    why: `1 of 2 replicas down: ADDRESS: connect: refused${OPEN}`,
    cause: 'connect: refused',
    alerts: ['TrunklineBreakerOpen'],
  },
  crashing: {
    program: ['sh', '-c', 'echo no database >&2; exit 4'],
    state: 'down',
    why: `${LOOP}: its process ended, exit status: 4: no database`,
    cause: 'crash loop',
    alerts: ['TrunklineChildCrashLoop'],
  },
  late: {
    program: ['sleep', '600'],
    start_timeout: '1s',
    state: 'down',
    why: `${LOOP}: its process ended, it has not answered anything within start_timeout`,
    cause: 'crash loop',
    alerts: ['TrunklineChildCrashLoop'],
  },
  slow: { program: ['sleep', '601'], start_timeout: '10m', ...isWell('starting', 'running for N s') },
  off: { does: speaks(), more: 'enabled = false', ...isWell('off') },
  callers: {
    does: says(401),
    more: 'forward_headers = ["x-user-token"]',
    ...isWell("wants the caller's own credentials", 'HTTP 401', 'HTTP 401'),
  },
  well: { does: speaks(), ...isWell('up') },
};

/** A server for each cause. */
export class Servers {
  static async open() {
    const servers = new Servers();
    servers.certificates = new Certificates();
    servers.scripted = [];
    servers.lines = {};
    try {
      for (const [name, cause] of Object.entries(CAUSES)) servers.lines[name] = await servers.start(cause);
    } catch (error) {
      await servers.close();
      throw error;
    }
    return servers;
  }

  /** The lines of the table of the upstream. */
  async start({ does, tls, lines, program, start_timeout, patience = PATIENCE, more = '', ...words }) {
    if (program) {
      const command = `command = ${JSON.stringify(program)}`;
      const timeout = start_timeout ? `start_timeout = "${start_timeout}"` : '';
      return [command, timeout, 'stop_timeout = "100ms"', more].join('\n');
    }
    const port = does && (await this.listen(does, tls?.length ? await this.certificates.issue(...tls) : {}));
    const secure = `url = "https://localhost:${port}/mcp"\ntls = { ca = "${this.certificates.authority}" }`;
    const place = tls ? secure : at([`http://127.0.0.1:${port}/mcp`]);
    return [lines ? await lines(port) : place, pace(patience, isOpen(words) ? '10m' : '1s'), more].join('\n');
  }

  async listen(does, certificate) {
    const server = new Scripted(does, certificate);
    this.scripted.push(server);
    return server.open();
  }

  /** As a site takes them. */
  get all() {
    const one = (lines) => ({ lines, start: async () => {}, stop: async () => {} });
    return Object.fromEntries(Object.entries(this.lines).map(([name, lines]) => [name, one(lines)]));
  }

  async close() {
    await Promise.all(this.scripted.map((server) => server.close()));
    this.certificates.close();
  }
}
