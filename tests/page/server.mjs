// A small MCP server of the revision of 2026-07-28: tools that take as long and fail as often as they are
// told to.
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const VERSION = '2026-07-28';

/** `tools`: name → `{ description, ms, failing, hints }`, at as many addresses as `ports`; `broken`: the share of calls that
   get no answer of the protocol. */
export class ToolServer {
  constructor(name, tools, { ports, random, broken = 0 }) {
    Object.assign(this, { name, tools, random, ports, broken, servers: [] });
    this.addresses = ports.map((port) => `http://127.0.0.1:${port}/mcp`);
  }

  async start() {
    for (const port of this.ports) {
      const server = createServer((request, response) =>
        this.answer(request, response).catch(() => response.destroy()),
      );
      await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
      this.servers.push(server);
    }
  }

  /** Stops all of its replicas, or those at these places. */
  async stop(places = this.servers.keys()) {
    for (const at of [...places]) {
      this.servers[at].closeAllConnections();
      if (this.servers[at].listening) await new Promise((resolve) => this.servers[at].close(resolve));
    }
  }

  async answer(request, response) {
    let text = '';
    for await (const part of request) text += part;
    const { id, method, params } = JSON.parse(text);
    if (method === 'tools/call' && this.random() < this.broken) return response.writeHead(500).end();
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ jsonrpc: '2.0', id, ...(await this.result(method, params)) }));
  }

  async result(method, params) {
    const _meta = { 'io.modelcontextprotocol/serverInfo': { name: this.name, version: '1.0.0' } };
    const lasting = { resultType: 'complete', ttlMs: 300_000, cacheScope: 'public', _meta };
    if (method === 'server/discover')
      return { result: { supportedVersions: [VERSION], capabilities: { tools: {} }, ...lasting } };
    if (method === 'tools/list') return { result: { tools: this.listed(), ...lasting } };
    const tool = method === 'tools/call' && this.tools[params.name];
    if (!tool) return { error: { code: -32601, message: 'no such method' } };
    await pause(tool.ms * (0.6 + 0.8 * this.random()) + (this.random() < 0.04 ? 5 * tool.ms : 0));
    const isError = this.random() < (tool.failing ?? 0);
    return {
      result: {
        content: [{ type: 'text', text: isError ? 'out of order' : 'done' }],
        isError,
        resultType: 'complete',
        _meta,
      },
    };
  }

  listed() {
    return Object.entries(this.tools).map(([name, { description, hints }]) => ({
      name,
      description,
      inputSchema: { type: 'object' },
      annotations: hints ?? { readOnlyHint: true },
    }));
  }
}
