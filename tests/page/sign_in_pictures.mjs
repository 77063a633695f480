// Takes the pictures of the pages of sign-in that the book shows: `node tests/page/sign_in_pictures.mjs`, with the variables
// BINARY (the gateway) and NPM_DIRECTORY (as `tests/run` fills it) set. What they show is `trunkline demo --sign-in`, at its
// usual ports, which have to be free.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';

import { launch } from './browser.mjs';
import { Program } from './gateway.mjs';
import { IMAGES, keepWords } from './picture_words.mjs';

const PICTURE_BYTES_MAX = 200_000;
const GATEWAY = 'http://127.0.0.1:8080';
/** A verifier and its challenge (RFC 7636, appendix B). */
const VERIFIER = 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk';
const CHALLENGE = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM';
const LOOKS = [
  { viewport: { width: 900, height: 320 } },
  { viewport: { width: 390, height: 320 }, colorScheme: 'dark', deviceScaleFactor: 2, suffix: '-phone' },
];

/** What a client listens at for the answer, with which it gets its tokens. */
const client = createServer(async ({ url }, response) => {
  const code = new URL(url, GATEWAY).searchParams.get('code');
  const asked = { grant_type: 'authorization_code', code, redirect_uri: redirect, code_verifier: VERIFIER, client_id: id };
  const { status } = await fetch(`${GATEWAY}/token`, { method: 'POST', body: new URLSearchParams(asked) });
  response.end(`tokens: ${status}`);
}).listen(0, '127.0.0.1');
await once(client, 'listening');
const redirect = `http://127.0.0.1:${client.address().port}/callback`;
let id;
const demo = await new Program(['demo', '--sign-in'], `${GATEWAY}/.well-known/oauth-authorization-server`).start();
const browser = await launch();
try {
  for (const { suffix = '', ...look } of LOOKS) {
    const context = await browser.newContext({ colorScheme: 'light', ...look });
    const page = await context.newPage();
    await page.goto(await authorize());
    await take(page, `sign-in-consent${suffix}`);
    await page.getByRole('button', { name: 'Allow' }).click();
    await page.getByRole('button', { name: /alice/ }).click();
    await page.getByText('tokens: 200').waitFor();
    await page.goto(`${GATEWAY}/sign-in/`);
    await page.getByRole('button', { name: /alice/ }).click();
    await page.getByRole('heading', { name: 'Your sign-ins' }).waitFor();
    await take(page, `sign-in-own${suffix}`);
    await context.close();
  }
} finally {
  await browser.close();
  await demo.stop();
  client.close();
}

/** The address that a client opens, which has just registered. */
async function authorize() {
  const about = { client_name: 'My editor', redirect_uris: [redirect], token_endpoint_auth_method: 'none' };
  const registered = await fetch(`${GATEWAY}/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(about),
  });
  id = (await registered.json()).client_id;
  const asked = new URLSearchParams({
    client_id: id,
    redirect_uri: redirect,
    response_type: 'code',
    code_challenge: CHALLENGE,
    code_challenge_method: 'S256',
    resource: `${GATEWAY}/mcp`,
  });
  return `${GATEWAY}/authorize?${asked}`;
}

async function take(page, name) {
  const path = join(IMAGES, `${name}.png`);
  await page.screenshot({ path, fullPage: true });
  keepWords(name, (await page.locator('body').innerText()).split('\n'));
  const { size } = statSync(path);
  assert.ok(size <= PICTURE_BYTES_MAX, `${name} has ${size} bytes`);
  console.log(`${path}: ${size} bytes`);
}
