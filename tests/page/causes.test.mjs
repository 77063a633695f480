// Each cause for which an upstream is not up is named alike everywhere: by `/status`, the page, `trunkline status`,
// `trunkline top`, the log and an alert. One gateway has all of them at once.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';

import { launch, open } from './browser.mjs';
import { CAUSES, Servers } from './causes.mjs';
import { Site } from './gateway.mjs';
import { assertFiring, eventually, get, inCommand, inStatus, inTop, onPage, onPageOf, status } from './views.mjs';

const NAMES = Object.keys(CAUSES);
// A state that comes and goes would alert nobody.
const LOOKS = { count: 12, pause_ms: 250 };
const STARTED_MS = 60_000;

let servers;
let site;
before(async () => {
  servers = await Servers.open();
  site = await Site.open({ servers: servers.all, endpoints: { '/mcp': NAMES }, isLogged: true });
  // Lists are asked for by clients.
  await site.ask('/mcp', 'tools/list');
  const expected = Object.fromEntries(NAMES.map((name) => [name, words(CAUSES[name])]));
  await until('each upstream is in its state', expected, async () => statesOf(await status(site)));
});
after(async () => {
  await site?.close();
  await servers?.close();
});

const words = ({ state, why }) => ({ state, why });
const statesOf = ({ upstreams }) => Object.fromEntries(upstreams.map((one) => [one.name, words(one)]));

/** Without what differs from one look to the next, and from one machine to another. */
function plain(seen) {
  const text = JSON.stringify(seen)
    .replace(/\bfor \d+ (s|min)\b/g, 'for N s')
    .replace(/\b\d+ crash(es)?\b/g, 'N crashes')
    .replace(/127\.0\.0\.1:\d+(\/mcp)?/g, 'ADDRESS');
  return JSON.parse(text);
}

/** Waits until `look` sees this. */
async function until(what, expected, look) {
  let seen;
  const isSo = async () => {
    seen = plain(await look());
    return { is: isSame(seen, expected) };
  };
  await eventually(what, isSo, STARTED_MS).catch(() => assert.deepEqual(seen, expected));
}

function isSame(one, other) {
  try {
    assert.deepEqual(one, other);
    return true;
  } catch {
    return false;
  }
}

/** The same, where the state of a program that starts tells how far it is. */
function withStarts(told) {
  const seen = inStatus(told);
  for (const { name, state, why } of told.upstreams) if (state === 'starting') seen[name].state = `${state}, ${why}`;
  return seen;
}

/** Waits until a view says what `/status` says, which may change meanwhile. */
const sameAsStatus = (view, look, read = inStatus) =>
  eventually(`${view} says what /status says`, async () => {
    const [seen, told] = [plain(await look()), plain(read(await status(site)))];
    const wrong = NAMES.filter((name) => !isSame(seen[name], told[name]));
    return { is: !wrong.length, seen: wrong.map((name) => `${name}: ${JSON.stringify(seen[name])}, not ${JSON.stringify(told[name])}`).join('\n') };
  });

test('/status has a problem for each cause that an alert is about, in its words', async () => {
  const { upstreams, problems } = await status(site);
  for (const [name, { state, alerts }] of Object.entries(CAUSES)) {
    const found = problems.filter(({ names }) => names.includes(name));
    assert.deepEqual(found.map(({ runbook }) => runbook), alerts.slice(0, 1), name);
    const { why } = upstreams.find((one) => one.name === name);
    for (const { what, word } of found) {
      assert.equal(word, state);
      assert.ok(plain(what).startsWith(plain(`${state}: ${why}`)), `${name}: ${what}`);
    }
  }
});

test('trunkline status and top say the same', async () => {
  await sameAsStatus('trunkline status', () => inCommand(site), withStarts);
  await sameAsStatus('trunkline top', () => inTop(site), withStarts);
});

test('the page says the same, and what each server met last', async () => {
  const browser = await launch();
  try {
    const { page, done } = await open(browser, site.url);
    await page.locator('table.upstreams tbody tr').first().waitFor();
    await sameAsStatus('the page', () => onPage(page));
    const met = await faults();
    const seen = {};
    for (const name of NAMES) seen[name] = await onPageOf(page, site, name);
    await sameAsStatus('the page of each', () =>
      Object.fromEntries(NAMES.map((name) => [name, { state: seen[name].state, problem: seen[name].problem }])),
    );
    for (const [name, all] of Object.entries(met))
      for (const why of all) assert.ok(seen[name].last.includes(why), `${name}: ${why}: ${seen[name].last}`);
    await done();
  } finally {
    await browser.close();
  }
});

/** The last errors of each server, by its name. */
async function faults() {
  const { upstreams } = await status(site);
  const all = ({ fault, list_fault: lists, replicas }) => [fault, lists, ...replicas.map((one) => one.fault)];
  const whys = (one) => all(one).filter(Boolean).map(({ why }) => why);
  return Object.fromEntries(upstreams.map((one) => [one.name, whys(one)]));
}

test('the log names each cause with its upstream, and no secret', async () => {
  const named = NAMES.filter((name) => CAUSES[name].alerts.length);
  await Promise.all(named.map((name) => site.call(name, 'echo', {})));
  const met = await faults();
  await eventually('the log has each', () => {
    const lines = readFileSync(site.log, 'utf8').split('\n');
    const isLogged = (name, why) => lines.some((line) => line.includes(`upstream="${name}"`) && line.includes(why));
    const missing = named.flatMap((name) => met[name].filter((why) => !isLogged(name, why)).map((why) => `${name}: ${why}`));
    return { is: !missing.length, seen: missing.join('\n') };
  });
  assert.ok(!readFileSync(site.log, 'utf8').includes('hunter2'));
});

test('an alert fires for each cause that needs somebody, and no other', async () => {
  const usable = (metrics) => metrics.split('\n').filter((line) => line.startsWith('trunkline_upstream_usable{'));
  const first = await get(`${site.url}/metrics`);
  for (let look = 0; look < LOOKS.count; look += 1) {
    await pause(LOOKS.pause_ms);
    assert.deepEqual(usable(await get(`${site.url}/metrics`)), usable(first));
  }
  const labels = (upstream, alertname) =>
    ['TrunklineBreakerOpen', 'TrunklineChildCrashLoop'].includes(alertname)
      ? { alertname, upstream }
      : { alertname, upstream, cause: CAUSES[upstream].cause };
  assertFiring(first, Object.entries(CAUSES).flatMap(([name, { alerts }]) => alerts.map((alert) => labels(name, alert))));
});
