// Takes the pictures of `call` and `doctor` that the book shows: `node tests/page/terminal_pictures.mjs`, with the variables BINARY
// (the gateway) and NPM_DIRECTORY (as `tests/run` fills it) set. Needs tmux.
import assert from 'node:assert/strict';
import { mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

import { launch } from './browser.mjs';
import { Site } from './gateway.mjs';
import { IMAGES as DIRECTORY, keepWords } from './picture_words.mjs';
import { draw, screen } from './terminal.mjs';

const PICTURE_BYTES_MAX = 150_000;

const site = await Site.open();
const browser = await launch();
try {
  const admin = new URL(site.url).host;
  const [url] = site.servers.steady.addresses;
  const memory = join(process.env.NPM_DIRECTORY, 'node_modules/@modelcontextprotocol/server-memory/dist/index.js');
  const pictures = [
    { name: 'call', args: ['call', url, 'forecast', '--city', 'Oslo', '--days', '2'], until: /day 2[^]*\n/, rows: 12, typed: 'trunkline call http://127.0.0.1:8080/mcp/weather forecast --city Oslo --days 2' },
    { name: 'doctor', args: ['doctor', '--', 'node', memory], until: /\d+ (errors?|warnings?|requests?)[^]*\n/, rows: 100, first: 20, typed: 'trunkline doctor -- npx -y @modelcontextprotocol/server-memory' },
  ].filter(({ name }) => !process.env.ONLY || process.env.ONLY.split(',').includes(name));
  mkdirSync(DIRECTORY, { recursive: true });
  for (const { name, args, typed, first, ...how } of pictures) {
    const lines = (await screen([process.env.BINARY, ...args], how)).slice(0, first);
    const path = join(DIRECTORY, `terminal-${name}.png`);
    await draw(browser, path, typed, lines.map((line) => line.replaceAll(`node ${memory}`, 'npx -y @modelcontextprotocol/server-memory').replaceAll(new URL(url).host, '127.0.0.1:8080').replaceAll(admin, '127.0.0.1:9090')));
    keepWords(`terminal-${name}`, lines.map((line) => line.replace(/\x1b\[[\d;:]*m/g, '  ')));
    assert.ok(statSync(path).size <= PICTURE_BYTES_MAX, `${name} has ${statSync(path).size} bytes`);
    console.log(`${path}: ${statSync(path).size} bytes`);
  }
} finally {
  await browser.close();
  await site.close();
}
