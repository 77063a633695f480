// Sign-in as it is in production: over TLS, for an app with a site of its own, whose consent is remembered.
import { after, afterEach, before, test } from 'node:test';
import assert from 'node:assert/strict';

import { APP_HOST, GATEWAY, PROVIDER } from './app.mjs';
import { BACK, People, allow, consent, goThrough, headlineOf, signIn, tab } from './people.mjs';

const people = new People();
const hosts = [new URL(GATEWAY).hostname, APP_HOST];
before(() => people.open([`host-resolver-rules=${hosts.map((host) => `MAP ${host} 127.0.0.1`).join(',')}`]));
after(() => people.close());
afterEach(() => people.leave());

const person = () => people.person({ ignoreHTTPSErrors: true });

/** Goes to the gateway, which is to lead to the provider at once, and signs in there. */
async function goesPast(page, app, user, scope) {
  await page.goto(app.visit(scope));
  await page.waitForURL(`${PROVIDER}/**`);
  await signIn(page, user);
}

test('cookies are of the host alone, and the whole way leaves no complaint', async () => {
  const desk = await people.app('Desk');
  const context = await person();
  const page = await tab(context, desk.visit());
  await consent(page);
  await allow(page);
  await page.waitForURL(`${PROVIDER}/**`);
  const cookies = await context.cookies(GATEWAY);
  assert.ok(cookies.length > 1);
  await signIn(page);
  await headlineOf(page, BACK);
  for (const cookie of [...cookies, ...(await context.cookies(GATEWAY))]) {
    const { name, secure, httpOnly, sameSite, path } = cookie;
    assert.match(name, /^__Host-/);
    assert.deepEqual({ secure, httpOnly, sameSite, path }, { secure: true, httpOnly: true, sameSite: 'Lax', path: '/' });
  }
  assert.equal(await desk.exchange(), 200);
  assert.deepEqual(context.wrong, []);
});

test('a consent is remembered for its person, its app and its scopes', async () => {
  const desk = await people.app('Desk');
  const page = await tab(await person(), desk.visit());
  await goThrough(page, 'Alice');
  await goesPast(page, desk, 'Alice');
  await headlineOf(page, BACK);
  assert.equal(await desk.exchange(-1), 200, 'nobody was asked');
  await page.goto(desk.visit('mcp:read mcp:write'));
  await consent(page);
  const known = desk.client;
  await desk.register('Desk, another');
  assert.notEqual(desk.client, known);
  await page.goto(desk.visit());
  await consent(page);
});

test('somebody else in the same browser is asked after all', async () => {
  const desk = await people.app('Desk');
  const page = await tab(await person(), desk.visit());
  await goThrough(page, 'Alice');
  const came = desk.came.length;
  await goesPast(page, desk, 'Bob');
  await consent(page);
  assert.equal(desk.came.length, came, 'before an answer nothing is sent to the app');
  await page.getByRole('button', { name: /^Deny$/ }).click();
  await headlineOf(page, BACK);
  assert.equal(desk.came.at(-1).error, 'access_denied');
});

test('a person sees what is signed in, and ends it', async () => {
  const desk = await people.app('Desk');
  const context = await person();
  const page = await tab(context, desk.visit());
  await goThrough(page, 'Bob');
  assert.equal(await desk.exchange(), 200);
  const refresh = () => desk.token({ grant_type: 'refresh_token', refresh_token: desk.refresh, client_id: desk.client });
  const { status, json } = await refresh();
  assert.equal(status, 200);
  desk.refresh = json.refresh_token;
  await page.goto(`${GATEWAY}/sign-in/`);
  await page.waitForURL(`${PROVIDER}/**`);
  await signIn(page, 'Bob');
  await headlineOf(page, /^Your sign-ins$/);
  await page.getByRole('button', { name: /^End the sign-in of Desk/ }).first().click();
  await page.getByRole('status').waitFor();
  assert.match(await page.getByRole('status').innerText(), /1 sign-in has ended/);
  assert.equal((await refresh()).json.error, 'invalid_grant');
  assert.deepEqual(context.wrong, []);
});
