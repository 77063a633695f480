// The real gateway over the real demo servers, which are another gateway's: what stops and starts is a
// process.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const READY_TIMEOUT_MS = 30_000;
const VERSION = '2026-07-28';
const QUICK_BREAKER = 'failures_max = 2, open_time = "200ms", open_time_max = "500ms"';

// Below those that systems give to connections going out, one of which could take a port before its program does.
const PORTS = { first: 20_000, count: 12_000 };

export async function freePort() {
  for (;;) {
    const port = PORTS.first + Math.floor(Math.random() * PORTS.count);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      ({ code }) => {
        if (code !== 'EADDRINUSE') throw new Error(`no port to listen on: ${code}`);
        return false;
      },
    );
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** A program that is ready once `url` answers. */
export class Program {
  constructor(args, url) {
    Object.assign(this, { args, url });
  }

  async start() {
    this.child = spawn(process.env.BINARY, this.args, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, RUST_LOG: '' },
    });
    for (const until = Date.now() + READY_TIMEOUT_MS; ; await pause(30)) {
      if (this.child.exitCode !== null)
        throw new Error(`${this.args.join(' ')} ended with ${this.child.exitCode}`);
      if (
        await fetch(this.url).then(
          ({ ok }) => ok,
          () => false,
        )
      )
        return this;
      if (Date.now() > until) throw new Error(`${this.args.join(' ')} is not ready`);
    }
  }

  async stop(signal = 'SIGTERM') {
    if (!this.child || this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, 'exit');
    this.child.kill(signal);
    const insist = setTimeout(() => this.child.kill('SIGKILL'), 10_000);
    await ended;
    clearTimeout(insist);
  }
}

/** A demo of the gateway as a server of weather, which stops and starts as a process does. */
async function demo() {
  const [port, admin] = [await freePort(), await freePort()];
  const program = new Program(
    ['demo', '--address', `127.0.0.1:${port}`, '--admin', `127.0.0.1:${admin}`],
    `http://127.0.0.1:${admin}/livez`,
  );
  program.addresses = [`http://127.0.0.1:${port}/mcp/weather`];
  return program;
}

/** The lines of an upstream at these addresses. */
export const at = (addresses) =>
  addresses.length > 1 ? `urls = ${JSON.stringify(addresses)}` : `url = "${addresses[0]}"`;

/** A gateway over servers that start and stop: by default `steady` and `shaky`, at `/mcp`, and the latter
   at `/mcp/shaky`. */
export class Site {
  static async open({
    token = '',
    servers,
    endpoints = { '/mcp': ['steady', 'shaky'], '/mcp/shaky': ['shaky'] },
    ...lines
  } = {}) {
    const site = new Site();
    site.ports = { listener: await freePort(), admin: await freePort() };
    site.servers = servers ?? { steady: await demo(), shaky: await demo() };
    try {
      await site.start(endpoints, token, lines);
    } catch (error) {
      await site.close();
      throw error;
    }
    return site;
  }

  async start(endpoints, token, lines) {
    for (const server of Object.values(this.servers)) await server.start();
    this.directory = mkdtempSync(join(tmpdir(), 'trunkline-page-'));
    const { directory } = this;
    writeFileSync(join(directory, 'token'), token || 'none', { mode: 0o600 });
    const file = join(directory, 'trunkline.toml');
    this.log = join(directory, 'trunkline.log');
    writeFileSync(file, this.configuration(endpoints, token && join(directory, 'token'), lines));
    this.url = `http://127.0.0.1:${this.ports.admin}`;
    this.gateway = await new Program(['run', '--config', file], `${this.url}/livez`).start();
  }

  /** `breaker`, `endpointLines` and `more` are lines of the configuration; a server may bring those of its own. With
      `isLogged`, everything is in the file of the log. */
  configuration(endpoints, token, { breaker = QUICK_BREAKER, endpointLines = '', more = '', isLogged = false }) {
    const tables = Object.entries(endpoints).map(
      ([path, upstreams]) => `
[[endpoint]]
path = "${path}"
upstreams = ${JSON.stringify(upstreams)}
names = "prefixed"
${endpointLines}
`,
    );
    const upstreams = Object.entries(this.servers).map(
      ([name, { addresses, lines }]) => `
[upstream.${name}]
${lines ?? `${at(addresses)}\nbreaker = { ${breaker} }\nslow_start = "0s"`}
`,
    );
    return `
[listener]
address = "127.0.0.1:${this.ports.listener}"
[admin]
address = "127.0.0.1:${this.ports.admin}"
${token ? `token = { file = "${token}" }` : ''}
[log]
${isLogged ? `file = "${this.log}"` : 'level = "error"'}
${more}${tables.join('')}${upstreams.join('')}`;
  }

  /** One request as clients send it; what is answered, or null. */
  async ask(path, method, params = {}, headers = {}) {
    const meta = {
      'io.modelcontextprotocol/protocolVersion': VERSION,
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const answer = await fetch(`http://127.0.0.1:${this.ports.listener}${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': VERSION,
        'mcp-method': method,
        ...headers,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } }),
    }).catch(() => null);
    return answer && answer.text();
  }

  call(upstream, tool, args, headers = {}) {
    const name = `${upstream}__${tool}`;
    return this.ask('/mcp', 'tools/call', { name, arguments: args }, { 'mcp-name': name, ...headers });
  }

  /** Asks both servers for the weather again and again until `stop`. */
  traffic(pause_ms = 40) {
    const controller = new AbortController();
    const one = async (upstream) => {
      while (!controller.signal.aborted) {
        await this.call(upstream, 'forecast', { city: 'Oslo', days: 2 }, { 'mcp-param-city': 'Oslo' });
        await pause(pause_ms);
      }
    };
    const all = Promise.all([one('steady'), one('shaky')]);
    return {
      stop: () => {
        controller.abort();
        return all;
      },
    };
  }

  async close() {
    await Promise.all([this.gateway, ...Object.values(this.servers ?? {})].map((program) => program?.stop()));
    if (this.directory) rmSync(this.directory, { recursive: true });
  }
}
