// The pages of sign-in in a real browser: the whole way, and what other sites, tabs and links make of it.
import { after, afterEach, before, test } from 'node:test';
import assert from 'node:assert/strict';

import { barriers, overflow } from '../page/browser.mjs';
import { ENDPOINT, GATEWAY, PROVIDER, visitsOfProvider } from './app.mjs';
import { BACK, People, allow, consent, goThrough, headlineOf, signIn, tab } from './people.mjs';

const people = new People();
before(() => people.open());
after(() => people.close());
afterEach(() => people.leave());

const app = (...named) => people.app(...named);
const person = (options) => people.person(options);
const stranger = (html) => people.stranger(html);

for (const options of [{}, { javaScriptEnabled: false }]) {
  const how = options.javaScriptEnabled === false ? 'without scripts' : 'as browsers come';
  test(`an app gets its token, ${how}`, async () => {
    const desk = await app();
    const context = await person(options);
    const page = await tab(context, desk.visit());
    assert.match(await page.locator('h1').innerText(), /Desk/);
    const text = await page.locator('body').innerText();
    assert.match(text, /unverified/i);
    assert.match(text, /127\.0\.0\.1/);
    await allow(page);
    await page.waitForURL(`${PROVIDER}/**`);
    await signIn(page);
    await page.waitForURL(`${desk.redirect}**`);
    assert.equal(desk.came.length, 1);
    assert.equal(await desk.exchange(), 200);
    assert.deepEqual(context.wrong, []);
  });
}

test('somebody who says no is sent back with that, and the provider is not asked', async () => {
  const desk = await app();
  const asked = await visitsOfProvider();
  const page = await tab(await person(), desk.visit());
  await page.getByRole('button', { name: /^Deny$/ }).click();
  await headlineOf(page, BACK);
  assert.equal(desk.came[0].error, 'access_denied');
  assert.equal(desk.came[0].state, desk.state);
  assert.equal(await visitsOfProvider(), asked);
});

test('the page of consent is for everybody', async () => {
  const desk = await app('Desk '.repeat(10).trim());
  for (const options of [
    { viewport: { width: 1280, height: 900 } },
    { viewport: { width: 320, height: 640 }, colorScheme: 'dark' },
  ]) {
    const page = await tab(await person({ ...options, bypassCSP: true }), desk.visit());
    await consent(page);
    assert.equal(await overflow(page), 0);
    assert.deepEqual(await barriers(page), []);
  }
});

test('by keyboard alone', async () => {
  const desk = await app();
  const page = await tab(await person(), desk.visit());
  await consent(page);
  const focused = () => page.evaluate(() => document.activeElement.innerText ?? '');
  for (let presses = 0; !/^Allow/.test(await focused()); presses += 1) {
    assert.ok(presses < 10, 'Allow is not reached');
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('Enter');
  await page.waitForURL(`${PROVIDER}/**`);
});

/** What a client can do that is a page itself, and so is bound by what answers allow (CORS). Runs in the browser. */
async function asPage({ endpoint, gateway }) {
  const json = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const version = { 'mcp-protocol-version': '2025-11-25' };
  const read = async (url, asked = {}) => {
    const answer = await fetch(url, { ...asked, headers: { ...version, ...asked.headers } });
    return { status: answer.status, challenge: answer.headers.get('www-authenticate'), json: await answer.json() };
  };
  const post = (headers, body) => ({ method: 'POST', headers, body });
  const { challenge } = await read(endpoint, post(json, '{"jsonrpc":"2.0","id":1,"method":"ping"}'));
  const { json: resource } = await read(/resource_metadata="([^"]+)"/.exec(challenge)[1]);
  const { json: server } = await read(`${resource.authorization_servers[0]}/.well-known/oauth-authorization-server`);
  const metadata = { client_name: 'Page', redirect_uris: ['http://localhost/callback'], token_endpoint_auth_method: 'none' };
  const registered = await read(server.registration_endpoint, post(json, JSON.stringify(metadata)));
  const shown = { grant_type: 'refresh_token', refresh_token: 'tlr_none', client_id: registered.json.client_id };
  const refreshed = await read(server.token_endpoint, post({}, new URLSearchParams(shown)));
  const revoked = await fetch(server.revocation_endpoint, post({}, new URLSearchParams({ ...shown, token: 'tlr_none' })));
  const hidden = [server.authorization_endpoint, `${gateway}/sign-in/`, `${gateway}/sign-in/consent`];
  const pages = await Promise.all(
    hidden.map((url) =>
      fetch(url, { credentials: 'include' }).then(
        () => 'read',
        () => 'hidden',
      ),
    ),
  );
  return { registered: registered.status, error: refreshed.json.error, revoked: revoked.status, pages };
}

test('a client that is a page finds all that it needs, and reads no page of a person', async () => {
  const site = await stranger('');
  const page = await tab(await person(), site.url);
  assert.deepEqual(await page.evaluate(asPage, { endpoint: ENDPOINT, gateway: GATEWAY }), {
    registered: 201,
    error: 'invalid_grant',
    revoked: 200,
    pages: ['hidden', 'hidden', 'hidden'],
  });
});

test('no other site frames a page', async () => {
  const desk = await app();
  const visit = desk.visit();
  const site = await stranger(`<iframe src="${visit.replaceAll('&', '&amp;')}"></iframe><h1>Win</h1>`);
  const context = await person();
  await consent(await tab(context, visit));
  const page = await tab(context, site.url);
  await page.waitForFunction(() => document.readyState === 'complete');
  const frame = page.frames()[1];
  assert.equal(await frame.locator('button').count(), 0, await frame.content());
});

test('a form that another site sends is not a consent', async () => {
  const desk = await app();
  const html = await (await fetch(desk.visit())).text();
  const [, sealed] = html.match(/name="form" value="([^"]+)"/);
  const asked = await visitsOfProvider();
  const site = await stranger(`<form method="post" action="${GATEWAY}/sign-in/consent">
    <input type="hidden" name="form" value="${sealed}"><button name="answer" value="allow">Win</button></form>`);
  const context = await person();
  // With a page of the same app open, and its cookie there.
  await consent(await tab(context, desk.visit()));
  const page = await tab(context, site.url);
  const [answer] = await Promise.all([
    page.waitForResponse((response) => response.request().method() === 'POST'),
    page.getByRole('button').click(),
  ]);
  assert.ok(answer.status() >= 400, `${answer.status()}`);
  await page.waitForLoadState();
  assert.equal(new URL(page.url()).origin, GATEWAY);
  assert.equal(await visitsOfProvider(), asked);
  assert.equal(desk.came.length, 0);
});

test('a page that was answered twice gives one good code, and back and again another', async () => {
  const desk = await app();
  const context = await person();
  const page = await tab(context, desk.visit());
  await page.getByRole('button', { name: /^Allow/ }).dblclick();
  await page.waitForURL(`${PROVIDER}/**`);
  await signIn(page);
  await headlineOf(page, BACK);
  assert.equal(await desk.exchange(), 200);
  while (!page.url().startsWith(`${GATEWAY}/authorize`)) await page.goBack();
  await goThrough(page);
  assert.equal(await desk.exchange(-1), 200, 'the same request once more');
});

test('two tabs at once each end in their own app', async () => {
  const [desk, other] = [await app(), await app('Other')];
  const context = await person();
  const first = await tab(context, desk.visit());
  const second = await tab(context, other.visit());
  for (const page of [first, second]) {
    await allow(page);
    await page.waitForURL(`${PROVIDER}/**`);
  }
  for (const page of [second, first]) {
    await signIn(page);
    await headlineOf(page, BACK);
  }
  for (const each of [desk, other]) {
    assert.equal(each.came.length, 1);
    assert.equal(await each.exchange(), 200);
  }
});

test('what a browser fetches or renders ahead signs nobody in', async () => {
  const desk = await app();
  const asked = await visitsOfProvider();
  const context = await person();
  const visit = desk.visit();
  const rules = JSON.stringify({ prerender: [{ urls: [visit] }], prefetch: [{ urls: [visit] }] });
  const link = visit.replaceAll('&', '&amp;');
  const site = await stranger(`<link rel="prefetch" href="${link}"><link rel="prerender" href="${link}">
    <script type="speculationrules">${rules}</script><a href="${link}">Sign in</a>`);
  const page = await context.newPage();
  const ahead = page.waitForRequest(visit).catch(() => null);
  await page.goto(site.url);
  await ahead;
  assert.equal(await visitsOfProvider(), asked);
  await page.getByRole('link').click();
  await consent(page);
  await goThrough(page);
  assert.equal(await desk.exchange(), 200);
});

/** The first address like this that the tab is sent to, and does not reach. */
async function stopped(context, page, urlPattern) {
  const session = await context.newCDPSession(page);
  await session.send('Fetch.enable', { patterns: [{ urlPattern }] });
  return new Promise((resolve) => {
    session.on('Fetch.requestPaused', ({ requestId, request }) => {
      resolve(request.url);
      session.send('Fetch.failRequest', { requestId, errorReason: 'Aborted' });
    });
  });
}

test('a way back that somebody else began ends on a page', async () => {
  const desk = await app();
  const thief = await person();
  const page = await tab(thief, desk.visit());
  const caught = stopped(thief, page, `${GATEWAY}/sign-in/callback*`);
  await allow(page);
  await page.waitForURL(`${PROVIDER}/**`);
  await signIn(page);
  const back = await caught;
  for (const context of [await person(), await person()]) {
    const victim = await tab(context);
    const answer = await victim.goto(back);
    assert.equal(answer.status(), 403);
    assert.equal(new URL(victim.url()).origin, GATEWAY);
    assert.match(await victim.locator('h1').innerText(), /not started in this browser/i);
  }
  assert.equal(desk.came.length, 0);
});

test('an app on the computer is asked about each time, whoever signs in', async () => {
  const desk = await app();
  const context = await person();
  const page = await tab(context, desk.visit());
  await goThrough(page, 'Alice');
  await page.goto(desk.visit());
  await consent(page);
  await goThrough(page, 'Bob');
  assert.equal(await desk.exchange(-1), 200);
});
