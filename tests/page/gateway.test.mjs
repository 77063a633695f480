// The page in a real browser, served by a real gateway in front of real servers that come and go.
import { after, afterEach, before, test } from 'node:test';
import assert from 'node:assert/strict';

import { headline, launch, open, reads } from './browser.mjs';
import { Site } from './gateway.mjs';

let browser;
let site;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());
afterEach(() => site?.close());

test('calls are seen as they come, and tools as they are listed', async () => {
  site = await Site.open();
  const { page, done } = await open(browser, site.url);
  await headline(page, /^Everything is up$/);
  await site.ask('/mcp', 'tools/list');
  const traffic = site.traffic();
  await reads(page, '.band', /Calls per second\s+[1-9]/);
  await reads(page, 'table.upstreams tbody tr:first-child', /steady[\s\S]*\b2\b/);
  await reads(page, '.top', /forecast\s*steady|forecast\s*shaky/);
  await page.locator('#search input').fill('forecast');
  await reads(page, 'table.tools', /forecast[\s\S]*steady/);
  await page.locator('table.tools a.row').first().click();
  await headline(page, /^forecast$/);
  await reads(page, 'main', /Public names[\s\S]*__forecast/);
  await traffic.stop();
  await done();
});

test('an upstream that goes down is told, and that it is back', async () => {
  site = await Site.open();
  const { page, done } = await open(browser, site.url);
  await headline(page, /^Everything is up$/);
  const traffic = site.traffic();
  await site.servers.shaky.stop('SIGKILL');
  await headline(page, /^1 endpoint and 1 upstream are down$/);
  await reads(page, '.findings', /shaky[\s\S]*every call at \/mcp\/shaky fails/);
  await page.locator('.findings a', { hasText: /^shaky$/ }).click();
  await reads(page, 'table.replicas', /down\s+127[^]*\d\d:\d\d:\d\d/);
  await reads(page, '.findings', /since \d\d:\d\d:\d\d[^]*trunkline doctor http:\/\/127/);
  await reads(page, 'table.errors', /failed\s+shaky__forecast[^]*upstream_/);
  await site.servers.shaky.start();
  await reads(page, 'table.replicas', /up/);
  await page.goBack();
  await headline(page, /up/i);
  await traffic.stop();
  await done();
});

test('a gateway that is restarted is missed and found again', async () => {
  site = await Site.open();
  const { page, done } = await open(browser, site.url);
  await headline(page, /^Everything is up$/);
  await site.gateway.stop('SIGKILL');
  await reads(page, '#notice', /does not answer/);
  await site.gateway.start();
  await reads(page, '#pulse', /Live/);
  await reads(page, '#about', /up \d+ s/);
  await done();
});

test('with a token it is shown to who has it', async () => {
  site = await Site.open({ token: 'a-long-enough-token-for-tests-0123456789' });
  const { page, done } = await open(browser, site.url);
  await headline(page, /asks for its token/);
  await page.keyboard.type('wrong');
  await page.keyboard.press('Enter');
  await reads(page, '[role=alert]', /not accepted/);
  await page.locator('#token').fill('a-long-enough-token-for-tests-0123456789');
  await page.keyboard.press('Enter');
  await headline(page, /^Everything is up$/);
  assert.ok(!page.url().includes('token-for'));
  await done();
});
