// Takes the pictures of the page and of `trunkline top` that the book shows: `node tests/page/pictures.mjs`, with the
// variables BINARY (the gateway) and NPM_DIRECTORY (as `tests/run` fills it) set. Needs tmux.
//
// What they show is measured: a gateway over servers that are called, one of which stops. It takes five
// minutes, so that the lines over time are whole; SECONDS says otherwise.
import assert from 'node:assert/strict';
import { mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

import { headline, launch, open, reads } from './browser.mjs';
import { BusySite } from './busy_site.mjs';
import { IMAGES, keepWords } from './picture_words.mjs';
import { draw, screen } from './terminal.mjs';

const PICTURE_BYTES_MAX = 300_000;
const SECONDS = Number(process.env.SECONDS ?? 300);

const PICTURES = [
  { name: 'overview-light', fragment: '', width: 1200, height: 1400 },
  { name: 'overview-dark', fragment: '', width: 1200, height: 1400, dark: true },
  { name: 'upstream', fragment: '#/upstream/search', width: 1200, height: 880 },
  { name: 'phone', fragment: '', width: 390, height: 640, scale: 2 },
];
const TOP = { columns: 118, rows: 18 };

const busy = await BusySite.open();
const browser = await launch();
try {
  await busy.callFor(SECONDS);
  mkdirSync(IMAGES, { recursive: true });
  for (const picture of PICTURES) await take(picture);
  await takeTop();
} finally {
  await browser.close();
  await busy.close();
}

async function take({ name, fragment, ...look }) {
  const { page, done } = await open(browser, `${busy.site.url}/${fragment}`, look);
  await headline(page, fragment ? /^search$/ : /down$/);
  await reads(page, '.band', /peak/);
  await page.waitForFunction(() => !/Asking/.test(document.querySelector('main').innerText));
  const path = join(IMAGES, `${name}.png`);
  await page.screenshot({ path });
  keepWords(name, await page.evaluate(seen));
  await done();
  told(name, path);
}

/** Texts that are on the screen. Runs in the page. */
function seen() {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  const range = document.createRange();
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    const { top, bottom, width } = range.getBoundingClientRect();
    if (width > 1 && top >= 0 && bottom <= innerHeight) found.push(texts.currentNode.data);
  }
  return found;
}

async function takeTop() {
  const admin = new URL(busy.site.url).host;
  const lines = await screen([process.env.BINARY, 'top', '--admin', admin], { ...TOP, until: /billing/ });
  const path = join(IMAGES, 'terminal-top.png');
  await draw(browser, path, '', lines.map((line) => line.replaceAll(admin, '127.0.0.1:9090')), TOP);
  keepWords('terminal-top', lines.map((line) => line.replace(/\x1b\[[\d;:]*m/g, '  ')));
  told('terminal-top', path);
}

function told(name, path) {
  const { size } = statSync(path);
  assert.ok(size <= PICTURE_BYTES_MAX, `${name} has ${size} bytes`);
  console.log(`${path}: ${size} bytes`);
}
