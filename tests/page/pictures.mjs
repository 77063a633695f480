// Takes the pictures of the page that the book shows: `node tests/page/pictures.mjs`, with the variables BINARY
// (the gateway) and NPM_DIRECTORY (as `tests/run` fills it) set.
//
// What they show is measured: a gateway over servers that are called, one of which stops. It takes five
// minutes, so that the lines over time are whole; SECONDS says otherwise.
import assert from 'node:assert/strict';
import { mkdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';

import { headline, launch, open, reads } from './browser.mjs';
import { chance } from './fake_gateway.mjs';
import { Site, freePort } from './gateway.mjs';
import { ToolServer } from './server.mjs';

const DIRECTORY = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'docs', 'images');
const PICTURE_BYTES_MAX = 150_000;
const SECONDS = Number(process.env.SECONDS ?? 300);

const PICTURES = [
  { name: 'overview-light', fragment: '', width: 1200, height: 950 },
  { name: 'overview-dark', fragment: '', width: 1200, height: 950, dark: true },
  { name: 'upstream', fragment: '#/upstream/search', width: 1200, height: 880 },
  { name: 'phone', fragment: '', width: 390, height: 800, scale: 2 },
];

const changes = { readOnlyHint: false, destructiveHint: true };
const SERVERS = {
  weather: {
    rate: 9,
    tools: {
      forecast: { description: 'The weather of one city for the next days', ms: 12 },
      compare: { description: 'The weather of several cities', ms: 30 },
    },
  },
  search: {
    rate: 6,
    replicas: 3,
    tools: {
      search: { description: 'Finds pages by their words', ms: 45 },
      fetch: { description: 'One page as text', ms: 90 },
      related: { description: 'Pages like this one', ms: 160 },
    },
  },
  tickets: {
    rate: 4,
    tools: {
      list_issues: { description: 'Open issues of a project', ms: 60 },
      create_issue: { description: 'Opens an issue', ms: 140, failing: 0.25, hints: changes },
      comment: { description: 'Writes below an issue', ms: 80, hints: changes },
    },
  },
  billing: {
    rate: 1.5,
    tools: {
      invoices: { description: 'Invoices of a customer', ms: 35 },
      refund: { description: 'Pays an invoice back', ms: 70, hints: changes },
    },
  },
};

const random = chance(42);
const servers = {};
for (const [name, { tools, replicas = 1 }] of Object.entries(SERVERS)) {
  const ports = [];
  for (let at = 0; at < replicas; at += 1) ports.push(await freePort());
  servers[name] = new ToolServer(name, tools, { ports, random });
}
const site = await Site.open({
  servers,
  endpoints: {
    '/mcp': Object.keys(servers),
    '/mcp/support': ['tickets', 'search'],
    '/mcp/finance': ['billing'],
  },
});
const browser = await launch();
try {
  await site.ask('/mcp', 'tools/list');
  const traffic = callAll();
  await pause(SECONDS * 1000);
  await servers.billing.stop();
  await servers.search.stop([1]);
  await pause(12_000);
  mkdirSync(DIRECTORY, { recursive: true });
  for (const { name, fragment, ...look } of PICTURES) {
    const { page, done } = await open(browser, `${site.url}/${fragment}`, look);
    await headline(page, fragment ? /^search$/ : /down$/);
    await reads(page, '.band', /peak/);
    const path = join(DIRECTORY, `${name}.png`);
    await page.screenshot({ path });
    await done();
    assert.ok(statSync(path).size <= PICTURE_BYTES_MAX, `${name} has ${statSync(path).size} bytes`);
    console.log(`${path}: ${statSync(path).size} bytes`);
  }
  await traffic.stop();
} finally {
  await browser.close();
  await site.close();
}

/** Calls every tool, the first of each server most, more and less over time. */
function callAll() {
  let goes = true;
  const one = async (upstream, tool, rate) => {
    for (let at = 0; goes; at += 1) {
      await site.call(upstream, tool, {});
      await pause((1000 / rate) * (0.5 + random()) * (1 + 0.5 * Math.sin(Date.now() / 23_000 + rate)));
    }
  };
  const all = Object.entries(SERVERS).flatMap(([upstream, { rate, tools }]) =>
    Object.keys(tools).map((tool, at) => one(upstream, tool, rate / (at + 1))),
  );
  const support = (async () => {
    while (goes) {
      await site.ask(
        '/mcp/support',
        'tools/call',
        { name: 'search__search', arguments: {} },
        { 'mcp-name': 'search__search' },
      );
      await site.ask(
        '/mcp/finance',
        'tools/call',
        { name: 'billing__invoices', arguments: {} },
        { 'mcp-name': 'billing__invoices' },
      );
      await pause(400);
    }
  })();
  return {
    stop: () => {
      goes = false;
      return Promise.all([...all, support]);
    },
  };
}
