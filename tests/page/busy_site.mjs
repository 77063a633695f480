// What the pictures of the book show: a gateway of ten upstreams, of which one stops and one loses a replica, called by
// several principals all the time. Everything in the pictures is measured.
import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

import { chance } from './fake_gateway.mjs';
import { Site, freePort } from './gateway.mjs';
import { ToolServer } from './server.mjs';

const changes = { readOnlyHint: false, destructiveHint: true };
const tool = (description, ms, more = {}) => ({ description, ms, ...more });

/** `rate`: calls per second of the first tool, the others less; `broken`: the share of answers that are none. */
const SERVERS = {
  weather: {
    rate: 9,
    tools: { forecast: tool('The weather of one city', 12), compare: tool('The weather of several cities', 30) },
  },
  search: {
    rate: 7,
    replicas: 3,
    tools: {
      search: tool('Finds pages by their words', 45),
      fetch: tool('One page as text', 90),
      related: tool('Pages like this one', 160),
    },
  },
  tickets: {
    rate: 4,
    broken: 0.004,
    tools: {
      list_issues: tool('Open issues of a project', 60),
      create_issue: tool('Opens an issue', 140, { hints: changes }),
      comment: tool('Writes below an issue', 80, { hints: changes }),
    },
  },
  billing: {
    rate: 1.5,
    tools: { invoices: tool('Invoices of a customer', 35), refund: tool('Pays back', 70, { hints: changes }) },
  },
  calendar: { rate: 2, tools: { free_slots: tool('When all are free', 25), invite: tool('Invites', 60) } },
  wiki: { rate: 5, tools: { read_page: tool('One page of the wiki', 18), history: tool('Its versions', 40) } },
  crm: { rate: 2.5, replicas: 2, tools: { customers: tool('Finds customers', 55), notes: tool('Notes', 30) } },
  analytics: { rate: 0.8, tools: { query: tool('Runs a query', 420), tables: tool('Lists tables', 22) } },
  mail: { rate: 1.2, tools: { inbox: tool('Unread messages', 48), send: tool('Sends', 130, { hints: changes }) } },
  translate: { rate: 3, tools: { translate: tool('Translates a text', 75) } },
};
const ENDPOINTS = { '/mcp': Object.keys(SERVERS), '/mcp/support': ['tickets', 'search', 'crm'], '/mcp/finance': ['billing'] };
/** Who calls, and how much of all. */
const PRINCIPALS = { assistant: 0.6, support: 0.22, ci: 0.13, reports: 0.05 };
const LIMIT = 'rate = "90/m"';

const keyOf = (principal) => `tl_${createHash('sha256').update(`key of ${principal}`).digest('hex')}`;
const digest = (text) => createHash('sha256').update(text).digest('hex');

export class BusySite {
  static async open() {
    const [busy, servers] = [new BusySite(), {}];
    busy.random = chance(42);
    for (const [name, { tools, broken, replicas = 1 }] of Object.entries(SERVERS)) {
      const ports = [];
      for (let at = 0; at < replicas; at += 1) ports.push(await freePort());
      servers[name] = new ToolServer(name, tools, { ports, broken, random: busy.random });
    }
    const keys = Object.keys(PRINCIPALS).map(
      (name) => `[[api_key]]\nname = "${name}"\nsha256 = "${digest(keyOf(name))}"\n`,
    );
    const limit = `[[limit]]\nname = "reports"\nby = ["principal"]\nprincipals = ["reports"]\n${LIMIT}\n`;
    busy.site = await Site.open({
      servers,
      endpoints: ENDPOINTS,
      endpointLines: 'auth = ["api_key"]',
      breaker: 'failures_max = 2, open_time = "20s"',
      more: [...keys, limit].join(''),
    });
    await busy.ask('/mcp', 'assistant', 'tools/list');
    return busy;
  }

  /** Calls every tool, the first of each server most, more and less over time, for so many seconds; then the troubles come,
      and it goes on until `close`. */
  async callFor(seconds) {
    this.goes = true;
    const of = (upstream, { rate, tools }) =>
      Object.keys(tools).map((tool, at) => this.callAgain('/mcp', upstream, tool, rate / (at + 1)));
    this.calls = [
      ...Object.entries(SERVERS).flatMap(([upstream, server]) => of(upstream, server)),
      this.callAgain('/mcp/support', 'search', 'search', 2),
      this.callAgain('/mcp/support', 'crm', 'customers', 1.5),
      this.callAgain('/mcp/finance', 'billing', 'invoices', 2),
    ];
    await pause(seconds * 800);
    await this.site.servers.search.stop([1]);
    await pause(seconds * 50);
    await this.site.servers.billing.stop();
    await pause(seconds * 150);
  }

  async callAgain(endpoint, upstream, tool, rate) {
    while (this.goes) {
      const name = `${upstream}__${tool}`;
      await this.ask(endpoint, this.principal(), 'tools/call', { name, arguments: {} }, { 'mcp-name': name });
      await pause((1000 / rate) * (0.5 + this.random()) * (1 + 0.5 * Math.sin(Date.now() / 23_000 + rate)));
    }
  }

  principal() {
    let left = this.random();
    return Object.entries(PRINCIPALS).find(([, part]) => (left -= part) < 0)?.[0] ?? 'assistant';
  }

  ask(endpoint, principal, method, params = {}, headers = {}) {
    return this.site.ask(endpoint, method, params, { authorization: `Bearer ${keyOf(principal)}`, ...headers });
  }

  async close() {
    this.goes = false;
    await Promise.all(this.calls ?? []);
    await this.site.close();
  }
}
