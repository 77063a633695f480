// The page in a real browser, before an admin listener that tells whatever a test wants.
//
// Every test also fails if the page's policy stopped something, its script failed or it asked anybody else.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { barriers, headline, launch, open, overflow, reads } from './browser.mjs';
import { FakeGateway, HOSTILE_NAMES, Scene, hostile, huge, ordinary, problem, tool } from './fake_gateway.mjs';
import { Program, freePort } from './gateway.mjs';

const PAGE_BYTES_MAX = 75_000;
/** Of one update of the page with 500 upstreams; generous, as machines that run tests are busy. */
const UPDATE_MS_MAX = 400;

let browser;
let served;

before(async () => {
  const [port, admin] = [await freePort(), await freePort()];
  const demo = await new Program(
    ['demo', '--address', `127.0.0.1:${port}`, '--admin', `127.0.0.1:${admin}`],
    `http://127.0.0.1:${admin}/livez`,
  ).start();
  const answer = await fetch(`http://127.0.0.1:${admin}/`);
  served = {
    text: await answer.text(),
    headers: Object.fromEntries([...answer.headers].filter(([name]) => name !== 'content-length')),
  };
  await demo.stop();
  browser = await launch();
});
after(() => browser?.close());

/** Runs `steps` with the page in front of `scene`. */
async function shown(scene, steps, { fragment = '', token = '', ...look } = {}) {
  const gateway = await new FakeGateway(served, scene, { token }).open();
  const { page, done } = await open(browser, `${gateway.url}/${fragment}`, look);
  try {
    await steps(page, gateway, scene);
    await done();
  } catch (error) {
    if (process.env.FAILURES) {
      mkdirSync(process.env.FAILURES, { recursive: true });
      await page.screenshot({ path: join(process.env.FAILURES, `${Date.now()}.png`) }).catch(() => {});
    }
    throw error;
  } finally {
    await page.context().close();
    await gateway.close();
  }
}

/** Has the page ask at once. */
const poke = (page) =>
  page.evaluate(() => {
    document.dispatchEvent(new Event('visibilitychange'));
  });
const rows = (page, table) => page.locator(`table.${table} tbody tr`);
const names = (page, table) => page.locator(`table.${table} tbody a.row`).allInnerTexts();
const focused = (page) => page.evaluate(() => document.activeElement.textContent);

test('it is one small document', () => {
  assert.ok(Buffer.byteLength(served.text) <= PAGE_BYTES_MAX, `${Buffer.byteLength(served.text)} bytes`);
  assert.match(served.headers['content-security-policy'], /default-src 'none'/);
});

test('what is well is said in a line', () =>
  shown(ordinary(), async (page) => {
    await headline(page, /^Everything is up$/);
    assert.equal(await page.locator('.findings').count(), 0);
    assert.equal(await page.title(), 'Trunkline');
    await reads(page, '#pulse', /Live/);
    assert.deepEqual(
      await names(page, 'upstreams'),
      ['weather', 'tickets', 'files', 'search', 'billing', 'notes'],
      'in configured order',
    );
  }));

test('what is wrong comes first, worst on top, and leads there', () =>
  shown(ordinary(true), async (page) => {
    await headline(page, /^1 endpoint and 1 upstream are down$/);
    assert.match(await page.title(), /^1 endpoint and 1 upstream are down – Trunkline$/);
    const found = await page.locator('.findings li').allInnerTexts();
    assert.deepEqual(
      found.map((text) => text.split(/\s+/).slice(0, 2).join(' ')),
      ['down billing', 'failing search', 'pins notes', 'failing tickets'],
    );
    assert.deepEqual((await names(page, 'upstreams')).slice(0, 2), ['billing', 'tickets']);
    await page.locator('.findings a', { hasText: 'search' }).click();
    await headline(page, /^search$/);
    await reads(page, 'table.replicas tbody tr:first-child', /down\s+10\.0\.7\.2:9000\/mcp/);
    await reads(page, 'main', /Last errors[\s\S]*10\.0\.7\.2:9000\/mcp\s+timed out after 5 s, \d\d:\d\d:\d\d/);
    assert.equal(new URL(page.url()).hash, '#/upstream/search');
    await page.goBack();
    await headline(page, /are down$/);
    await page.goForward();
    await headline(page, /^search$/);
  }));

test('everything else that can be wrong is told', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    const now_s = Date.now() / 1000;
    scene.more = {
      drain: 'quiet',
      panics: 2,
      shared: { connected: false, replicas: 1, mismatched: 0 },
      connections: { open: 95, max: 100, accepted: 1, refused: 0, buffered_bytes: 0 },
      certificates: [
        { file: '/tls/old.pem', expires_s: now_s - 90_000 },
        { file: '/tls/soon.pem', expires_s: now_s + 9 * 86_400 },
        { file: '/tls/fine.pem', expires_s: now_s + 90 * 86_400 },
      ],
      config: {
        file: 'a.toml',
        sha256: 'ab',
        last_reload: { at_s: now_s, ok: false, error: 'a.toml:3: error: no such key\nmore' },
      },
      problems: [
        problem('error', 'gateway', ['configuration'], 'refused', 'the last reload was refused: a.toml:3: error: no such key', {
          since_s: now_s,
          advice: 'trunkline check a.toml',
          runbook: 'TrunklineReloadFailed',
        }),
        problem('error', 'gateway', ['shared store'], 'down', 'cannot be reached: each gateway counts for itself'),
        problem('error', 'gateway', ['certificate old.pem'], 'expired', 'the certificate expired 1 d 1 h ago'),
        problem('warning', 'gateway', ['certificate soon.pem'], 'expires soon', 'the certificate expires in 8 d 23 h'),
        problem('warning', 'gateway', ['gateway'], 'draining', 'is about to stop'),
        problem('warning', 'gateway', ['connections'], 'full', '95 of 100 are in use'),
        problem('warning', 'gateway', ['gateway'], 'bug', '2 connections ended by a bug'),
      ],
    };
    await headline(page, /^The gateway is about to stop$/);
    const found = (await page.locator('.findings li').allInnerTexts()).map((text) =>
      text.replace(/\s+/g, ' '),
    );
    assert.equal(found.length, 6, 'the rest is one click away');
    await page.getByRole('button', { name: 'Show all 7' }).click();
    const all = (await page.locator('.findings li').allInnerTexts()).join('\n').replace(/\s+/g, ' ');
    for (const part of [
      /refused configuration the last reload was refused: a\.toml:3: error: no such key/,
      /since \d\d:\d\d:\d\d, for \d s trunkline check a\.toml Copy docs\/operate\/runbook\.md#trunklinereloadfailed/,
      /down shared store/,
      /expired certificate old\.pem the certificate expired 1 d 1 h ago/,
      /expires soon certificate soon\.pem the certificate expires in 8 d 23 h/,
      /draining gateway/,
      /full connections 95 of 100 are in use/,
      /bug gateway 2 connections ended by a bug/,
    ]) {
      assert.match(all, part);
    }
    assert.ok(!all.includes('fine.pem'));
  }));

test('a finding says since when, why, and what to do', () =>
  shown(ordinary(true), async (page) => {
    await headline(page, /are down$/);
    const found = (await page.locator('.findings li').allInnerTexts()).map((text) => text.replace(/\s+/g, ' '));
    for (const [at, ...parts] of [
      [0, /connect: refused; every call at \/mcp\/finance fails since \d\d:\d\d:\d\d, for 4 min · upstream_unreachable 41, upstream_unhealthy 12 since the start/],
      [0, /trunkline doctor http:\/\/billing\.internal:8080\/mcp Copy docs\/operate\/runbook\.md#trunklineupstreamdown/],
      [3, /% of its calls failed in the last minute since \d\d:\d\d:\d\d, for .* · upstream_timeout 310, upstream_invalid 4 since the start/],
      [1, /1 of 3 replicas down: 10\.0\.7\.2:9000\/mcp: timed out after 5 s since .*, for 20 min/],
      [1, /trunkline doctor https:\/\/search-2\.internal:9000\/mcp/],
      [2, /1 tool has changed, waiting for approval: delete_note trunkline pins approve -- notes delete_note/],
    ])
      for (const part of parts) assert.match(found[at], part);
    const runbook = page.locator('.findings a', { hasText: 'runbook' }).first();
    assert.equal(
      await runbook.getAttribute('href'),
      'https://git.example.com/trunkline/trunkline/blob/main/docs/operate/runbook.md#trunklineupstreamdown',
    );
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.locator('.findings .copy').first().click();
    await reads(page, '.findings .copy', /Copied/);
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, 'trunkline doctor http://billing.internal:8080/mcp');
  }));

test('the reasons are those that the gateway tells', () =>
  shown(ordinary(true), async (page, gateway, scene) => {
    await reads(page, '.findings', /upstream_timeout 310, upstream_invalid 4 since the start/);
    scene.more.problems[3].reasons = 'upstream_timeout 12 in the last minute';
    await reads(page, '.findings', /upstream_timeout 12 in the last minute/);
  }));

test('a command is copied as a shell takes it, or not offered', () =>
  shown(ordinary(true), async (page, gateway, scene) => {
    const [, , pins] = scene.more.problems;
    const wait = (name, advice) => Object.assign(pins, { what: `1 tool has changed, waiting for approval: ${name}`, advice });
    wait("it's; rm -rf", "trunkline pins approve -- notes 'it'\\''s; rm -rf'");
    await reads(page, '.findings', /trunkline pins approve -- notes 'it'\\''s; rm -rf'/);
    wait('--all', 'trunkline pins approve -- notes --all');
    await reads(page, '.findings', /trunkline pins approve -- notes --all/);
    wait('the_beginning_of_a_name…', null);
    await reads(page, '.findings', /waiting for approval: the_beginning_of_a_name…\s+docs/);
    wait('a\u001b[31m', 'trunkline pins approve -- notes a\u001b[31m');
    await reads(page, '.findings', /waiting for approval: a\\u\{1b\}\[31m\s+docs/);
  }));

test('errors and callers are told, and lead to where they were', () =>
  shown(ordinary(true), async (page) => {
    await headline(page, /are down$/);
    await reads(page, 'table.errors tbody tr:first-child', /failed\s+tickets__create_issue\s+tools\/call · \/mcp → tickets\s+upstream_timeout\s+HTTP 500 text\/plain · a1-7\s+agents\s+310\s+\d\d:\d\d:\d\d/);
    assert.equal(await rows(page, 'errors').count(), 4);
    await reads(page, 'table.errors tbody tr:last-child', /cancelled\s+tools\/list\s+\/mcp\s+cancelled\s+HTTP 500 text\/plain · a1-7\s+–\s+1/);
    const told = (await page.locator('table.callers tbody tr').allInnerTexts()).map((text) => text.split(/\s+/).join(' '));
    assert.deepEqual(told, ['agents 91,204 <0.1 % 12', 'ci 8,310 4.8 % 2', 'anonymous 900 0 % 0', 'intern 44 91 % 40']);
    await reads(page, 'main', /Who calls\s*4 of 212[\s\S]*3 requests failed before it was known who calls/);
    await page.locator('table.errors a.row').nth(1).click();
    await headline(page, /^billing$/);
    assert.equal(await rows(page, 'errors').count(), 1, 'its own');
  }));

test('every column has a heading that is seen', () =>
  shown(ordinary(true), async (page) => {
    await headline(page, /are down$/);
    for (const fragment of ['', '#/upstream/search', '#/tools']) {
      await page.evaluate((to) => {
        location.hash = to;
      }, fragment || '#/');
      await page.waitForFunction(() => !/Asking/.test(document.querySelector('main').innerText));
      const heads = await page.locator('thead th').evaluateAll((all) =>
        all.filter((head) => head.offsetWidth > 0).map((head) => [head.innerText.trim(), head.scrollWidth <= head.clientWidth + 24]),
      );
      assert.ok(heads.length > 3);
      assert.deepEqual(heads.filter(([text, fits]) => !text || !fits), [], fragment);
    }
  }));

test('curves have a scale and times, and tell each value to pointers and keys', () =>
  shown(ordinary(), async (page) => {
    await headline(page, /^Everything is up$/);
    const curve = page.locator('.measure').first();
    await reads(page, '.measure', /\d+\/s\s+0\s+\d\d:\d\d:\d\d\s+\d\d:\d\d:\d\d/);
    const reader = curve.getByRole('slider', { name: 'Calls per second over time' });
    assert.match(await reader.getAttribute('aria-valuetext'), /^\d\d:\d\d:\d\d · \d+\/s$/);
    await reader.focus();
    await page.keyboard.press('Home');
    assert.equal(await reader.getAttribute('aria-valuenow'), '1');
    const first = await page.locator('#tip').innerText();
    assert.match(first, /^\d\d:\d\d:\d\d · \d+\/s$/);
    assert.equal(await reader.getAttribute('aria-valuetext'), first);
    await page.keyboard.press('ArrowRight');
    assert.equal(await reader.getAttribute('aria-valuenow'), '2');
    await page.locator('table.upstreams .spark').first().hover();
    await reads(page, '#tip', /^\d\d:\d\d:\d\d · [\d.<]+\/s · [\d.<]+\/s failed$/);
    await page.locator('h1').hover();
    assert.ok(!(await page.locator('#tip').isVisible()));
    assert.deepEqual(await barriers(page), []);
  }));

test('each state is read in full, and lists from before a restart are marked', () => {
  const scene = ordinary();
  const words = ["wants the caller's own credentials", 'starting', 'off', 'is no MCP server', 'cannot be listed'];
  const now_s = Math.floor(Date.now() / 1000);
  words.forEach((state, at) => Object.assign(scene.upstreams[at], { state }));
  Object.assign(scene.upstreams[1], {
    start: { phase: 'queued', since_s: now_s - 12, timeout_s: 180 },
    lists_kept_s: now_s - 60,
  });
  Object.assign(scene.upstreams[2], { enabled: false });
  [3, 4].forEach((at) => Object.assign(scene.upstreams[at], { healthy: false }));
  scene.more.problems = [3, 4].map((at) => problem('error', 'upstream', [scene.upstreams[at].name], words[at], words[at]));
  return shown(scene, async (page) => {
    await headline(page, /^2 upstreams are not usable$/);
    for (const word of words) await reads(page, 'table.upstreams', new RegExp(word));
    const cut = await page
      .locator('table.upstreams td.state')
      .evaluateAll((cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText));
    assert.deepEqual(cut, []);
    await reads(page, 'table.upstreams', /lists kept over a restart/);
    await reads(page, 'table.upstreams', /switched off/);
    await page.locator('table.upstreams a.row', { hasText: 'tickets' }).click();
    await reads(page, 'main', /Start\s*queued since [^]*Lists\s*of [\d: -]+, kept over a restart/);
  });
});

test('a problem that comes up is shown', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    await headline(page, /^Everything is up$/);
    scene.more = {
      problems: [problem('warning', 'gateway', ['limit burst'], 'limit', '5 calls refused in the last minute')],
    };
    await reads(page, '.findings', /limit\s+limit burst\s+5 calls refused in the last minute/);
  }));

test('it is live: figures change, rows stay, the focus stays', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    await headline(page, /^Everything is up$/);
    await page.evaluate(() => {
      globalThis.sameDocument = true;
    });
    await page.locator('table.upstreams a.row', { hasText: 'tickets' }).focus();
    const before = await page.locator('.band').innerText();
    const drawn = await page.locator('.band .line').first().getAttribute('d');
    scene.upstreams[4].healthy = false;
    scene.next();
    await headline(page, /^1 upstream is down$/);
    assert.deepEqual((await names(page, 'upstreams')).slice(0, 2), ['billing', 'weather']);
    assert.equal(await focused(page), 'tickets');
    assert.notEqual(await page.locator('.band').innerText(), before);
    assert.notEqual(await page.locator('.band .line').first().getAttribute('d'), drawn);
    scene.upstreams[4].healthy = true;
    await headline(page, /^Everything is up$/);
    assert.equal(await focused(page), 'tickets');
    assert.ok(await page.evaluate(() => globalThis.sameDocument));
    assert.equal(
      gateway.asked.filter((line) => line === 'GET /status/history').length,
      1,
      'the rest comes with the state',
    );
  }));

test('keys go everywhere', () =>
  shown(ordinary(true), async (page) => {
    await headline(page, /are down$/);
    await page.keyboard.press('j');
    assert.equal(await focused(page), 'billing');
    await page.keyboard.press('j');
    await page.keyboard.press('ArrowDown');
    assert.equal(await focused(page), 'notes');
    await page.keyboard.press('k');
    await page.keyboard.press('Enter');
    await headline(page, /^search$/);
    await page.keyboard.press('Escape');
    await headline(page, /are down$/);
    await page.keyboard.press('/');
    await page.keyboard.type('j/wea?');
    assert.equal(
      await page.locator('#search input').inputValue(),
      'j/wea?',
      'in the search, keys are letters',
    );
    await page.locator('#search input').fill('wea');
    await page.waitForFunction(() => document.querySelectorAll('table.upstreams tbody tr').length === 1);
    assert.deepEqual(await names(page, 'upstreams'), ['weather']);
    await page.keyboard.press('Enter');
    assert.equal(await focused(page), 'weather');
    await page.keyboard.press('Escape');
    await reads(page, '.findings', /down/);
    await page.keyboard.press('t');
    await headline(page, /^All tools$/);
    await page.keyboard.press('?');
    assert.ok(await page.locator('dialog').isVisible());
    await page.keyboard.press('Escape');
    assert.ok(!(await page.locator('dialog').isVisible()));
    await headline(page, /^All tools$/);
  }));

test('columns sort, and a third click brings back the order of the configuration', () =>
  shown(ordinary(), async (page) => {
    await headline(page, /^Everything is up$/);
    const head = page.locator('table.upstreams thead th', { hasText: 'Tools' });
    await head.getByRole('button').click();
    assert.equal(await head.getAttribute('aria-sort'), 'descending');
    assert.deepEqual(await names(page, 'upstreams'), [
      'tickets',
      'files',
      'billing',
      'search',
      'notes',
      'weather',
    ]);
    await head.getByRole('button').click();
    assert.equal(await head.getAttribute('aria-sort'), 'ascending');
    assert.equal((await names(page, 'upstreams'))[0], 'weather');
    await head.getByRole('button').click();
    assert.equal(await head.getAttribute('aria-sort'), null);
    const name = page.locator('table.upstreams thead th', { hasText: 'Upstream' });
    await name.getByRole('button').click();
    assert.equal(await name.getAttribute('aria-sort'), 'ascending');
    assert.deepEqual((await names(page, 'upstreams')).slice(0, 2), ['billing', 'files']);
  }));

test('tools are found, sorted and paged by the gateway', () =>
  shown(huge(20, 10), async (page) => {
    await headline(page, /./);
    await page.locator('.tops a.note').click();
    await headline(page, /^All tools$/);
    await reads(page, '.pages', /1 to 50 of 200/);
    await page.getByRole('button', { name: 'Next' }).click();
    await reads(page, '.pages', /51 to 100 of 200/);
    await page.locator('table.tools thead button', { hasText: 'Tool' }).click();
    await reads(page, '.pages', /1 to 50 of 200/);
    await page.locator('#search input').fill('forecast_5');
    await reads(page, 'main h2', /^Tools\s*20 of 200$/);
    await page.locator('table.tools a.row').first().click();
    await headline(page, /^forecast_5$/);
    await reads(page, 'main', /Public names\s+\/mcp\s+upstream-000__forecast_5/);
    await page.locator('.crumbs a', { hasText: 'upstream-000' }).click();
    await headline(page, /^upstream-000$/);
    await reads(page, 'table.tools', /search_0/);
  }));

test('it asks for the token, keeps it in the tab and tells nobody', () =>
  shown(
    ordinary(),
    async (page, gateway) => {
      await headline(page, /asks for its token/);
      assert.equal(await focused(page), '');
      assert.equal(await page.evaluate(() => document.activeElement.id), 'token');
      assert.deepEqual(await barriers(page), []);
      const asked = gateway.asked.length;
      await page.keyboard.type('wrong');
      await page.keyboard.press('Enter');
      await reads(page, '[role=alert]', /not accepted/);
      assert.equal(gateway.asked.length, asked + 1, 'one guess is one question');
      await page.locator('#token').fill('s3cret');
      await page.getByRole('button', { name: 'Show the state' }).click();
      await headline(page, /^Everything is up$/);
      assert.ok(!page.url().includes('s3cret'));
      assert.equal(await page.evaluate(() => localStorage.length + document.cookie.length), 0);
      await page.reload();
      await headline(page, /^Everything is up$/);
    },
    { token: 's3cret' },
  ));

test('a gateway that goes away is missed, and comes back by itself', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    await headline(page, /^Everything is up$/);
    await gateway.close();
    await reads(page, '#notice', /does not answer\. Below is what it said at \d\d:\d\d:\d\d\./);
    await reads(page, '#pulse', /No answer/);
    await headline(page, /^Everything is up$/);
    assert.ok(Number(await page.locator('main').evaluate((main) => getComputedStyle(main).opacity)) < 1);
    assert.match(await page.title(), /does not answer/);
    const again = await new FakeGateway(served, scene, { port: gateway.port }).open();
    await reads(page, '#pulse', /Live/);
    await reads(page, '#notice', /^$/);
    await again.close();
  }));

test('a gateway that started again begins its history anew', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    await reads(page, '.band', /last 5 min/);
    const [one] = [new Scene({ endpoints: scene.endpoints, upstreams: scene.upstreams, seed: 9 })];
    one.started_s = Math.floor(Date.now() / 1000) - 7;
    one.at = 2;
    for (const lines of [one.lines.all, ...one.lines.endpoints.values(), ...one.lines.upstreams.values()]) {
      for (const name of Object.keys(lines)) lines[name] = lines[name].slice(-2);
    }
    gateway.scene = one;
    await reads(page, '#about', /up \d+ s/);
    await reads(page, '.band', /last minute/);
  }));

test('names of strangers are text, and leave the page in shape', async () => {
  const fragments = [
    '',
    '#/tools',
    ...HOSTILE_NAMES.flatMap((name) => {
      const [upstream, path] = [encodeURIComponent(name || 'empty'), encodeURIComponent(`/${name}`)];
      return [
        `#/upstream/${upstream}`,
        `#/endpoint/${path}`,
        `#/tool/${upstream}/${encodeURIComponent(name)}`,
      ];
    }),
    '#/upstream/%',
    '#/upstream/nobody',
    '#/%00',
    '#/constructor/x',
    '#/tool/a',
  ];
  await shown(hostile(), async (page) => {
    await headline(page, /about to stop$/);
    assert.equal(await rows(page, 'upstreams').count(), HOSTILE_NAMES.length);
    const text = await page.locator('table.upstreams').innerText();
    assert.ok(text.includes('<img src=x onerror="globalThis.broken=1">'));
    assert.ok(text.includes('abc\\u{202e}exe.fdp\\u{202c}'));
    assert.ok(text.includes('zero\\u{200b}width\\u{2066}\\u{0}\\u{1b}[31m'));
    assert.ok(!/[\u202a-\u202e\u2066-\u2069\u200b\u0000\u001b]/.test(await page.locator('body').innerText()));
    for (const width of [1280, 375]) {
      await page.setViewportSize({ width, height: 900 });
      for (const fragment of fragments) {
        await page.evaluate((to) => {
          location.hash = to;
        }, fragment || '#/');
        await page.waitForFunction(
          () => document.querySelector('main h1') && !/Asking/.test(document.querySelector('main').innerText),
        );
        assert.equal(await overflow(page), 0, `${fragment} at ${width}`);
        assert.equal(
          await page.locator('main img, main script, main iframe, main a[href^="javascript"]').count(),
          0,
          fragment,
        );
      }
    }
    const heights = await page
      .locator('table.upstreams tbody tr, table.tools tbody tr')
      .evaluateAll((all) => all.map((row) => row.offsetHeight));
    assert.ok(
      heights.every((height) => height < 60),
      String(heights),
    );
  });
});

test('nonsense is shown as nothing', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    await headline(page, /^Everything is up$/);
    scene.status = () => ({
      started_s: 'x',
      version: { tag: 'script' },
      endpoints: 7,
      upstreams: [{ name: 'a', replicas: 'x', eras: {}, tools: '9', recent: 3, pins: 1 }],
      calls: [],
      sample: 'x',
      config: [],
      certificates: {},
      limits: null,
      tools: { most_called: 5 },
    });
    await reads(page, '#about', /object Object/);
    await page.locator('table.upstreams a.row').click();
    await headline(page, /^a$/);
  }));

test('500 upstreams and 50 000 tools stay quick', async () => {
  await shown(huge(), async (page, gateway, scene) => {
    await headline(page, /^6 upstreams are down$/);
    const took = [];
    for (let at = 0; at < 3; at += 1) {
      await page.evaluate(() => performance.clearMeasures('update'));
      scene.next();
      await poke(page);
      await page.waitForFunction(() => performance.getEntriesByName('update').length > 0);
      took.push(await page.evaluate(() => performance.getEntriesByName('update')[0].duration));
    }
    assert.ok((await rows(page, 'upstreams').count()) <= 40);
    await page.getByRole('button', { name: 'Show all 500' }).click();
    assert.equal(await rows(page, 'upstreams').count(), 500);
    await page.evaluate(() => performance.clearMeasures('update'));
    scene.next();
    await poke(page);
    await page.waitForFunction(() => performance.getEntriesByName('update').length > 0);
    const whole = await page.evaluate(() => performance.getEntriesByName('update')[0].duration);
    console.log(
      `an update takes ${took.map(Math.round).join(', ')} ms, with all 500 rows ${Math.round(whole)} ms`,
    );
    took.sort((a, b) => a - b);
    assert.ok(took[1] < UPDATE_MS_MAX, `${took[1]} ms`);
    await page.keyboard.press('/');
    await page.keyboard.type('upstream-499');
    await page.waitForFunction(() => document.querySelectorAll('table.upstreams tbody tr').length === 1);
    assert.equal(gateway.asked.filter((line) => line === 'GET /status/history').length, 1);
  });
});

test('it asks less while nobody looks', () =>
  shown(ordinary(), async (page, gateway) => {
    await headline(page, /^Everything is up$/);
    const hide = (hidden) =>
      page.evaluate((is) => {
        Object.defineProperty(document, 'hidden', { value: is, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      }, hidden);
    const asked = () => gateway.asked.filter((line) => line === 'GET /status').length;
    await hide(true);
    // At most the question that was due.
    const before = asked();
    await page.waitForTimeout(5000);
    assert.ok(asked() - before <= 1, `${asked() - before} questions`);
    const hidden = asked();
    await hide(false);
    for (const until = Date.now() + 2000; asked() === hidden && Date.now() < until;)
      await page.waitForTimeout(20);
    assert.ok(asked() > hidden, 'at once when somebody looks again');
  }));

for (const dark of [false, true]) {
  test(`it keeps nobody out, ${dark ? 'dark' : 'light'}`, () =>
    shown(
      ordinary(true),
      async (page) => {
        await headline(page, /are down$/);
        assert.deepEqual(await barriers(page), []);
        for (const fragment of ['#/upstream/search', '#/endpoint/%2Fmcp', '#/tools', '#/tool/notes/fetch']) {
          await page.evaluate((to) => {
            location.hash = to;
          }, fragment);
          await page.waitForFunction(() => !/Asking/.test(document.querySelector('main').innerText));
          assert.deepEqual(await barriers(page), [], fragment);
        }
        await page.keyboard.press('?');
        assert.deepEqual(await barriers(page), [], 'help');
      },
      { dark },
    ));
}

test('on a phone nothing is cut off', async () => {
  for (const width of [375, 320]) {
    await shown(
      ordinary(true),
      async (page) => {
        await headline(page, /are down$/);
        assert.equal(await overflow(page), 0);
        const cells = page.locator('table.upstreams tbody tr').first();
        assert.match(await cells.innerText(), /billing/);
        const cut = (all) =>
          all.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText);
        assert.deepEqual(await page.locator('table.upstreams td.figure').evaluateAll(cut), []);
        await cells.click();
        await headline(page, /^billing$/);
        assert.equal(await overflow(page), 0);
      },
      { width, height: 800 },
    );
  }
});

test('a gateway that tells less is shown as far as it goes', () =>
  shown(ordinary(), async (page, gateway, scene) => {
    const { status } = Scene.prototype;
    scene.status = () => {
      const { sample, calls, tools, ...told } = status.call(scene);
      for (const one of [...told.endpoints, ...told.upstreams]) delete one.recent;
      return told;
    };
    scene.history = () => null;
    scene.list = [tool('weather', 'forecast')];
    await page.reload();
    await headline(page, /^Everything is up$/);
    await reads(page, 'table.upstreams', /weather/);
  }));
