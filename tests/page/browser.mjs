// A headless Chromium that tells on the page: what it asks of others, what its policy stops, what fails in
// its script.
import { createRequire } from 'node:module';
import assert from 'node:assert/strict';

const require = createRequire(`${process.env.NPM_DIRECTORY}/`);
const { chromium } = require('playwright-core');
const AXE = require('axe-core').source;

// It asks nobody for anything but what a test opens.
const ARGUMENTS = [
  'no-sandbox',
  'disable-gpu',
  'disable-quic',
  'no-first-run',
  'disable-background-networking',
  'disable-component-update',
  'disable-sync',
];
const TIMEOUT_MS = 20_000;

export function launch(further = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [...ARGUMENTS, ...further].map((name) => `--${name}`),
  });
}

/** Opens `url` in a tab of its own; `done` closes it and fails if it did what no status page may. */
export async function open(browser, url, { width = 1280, height = 900, dark = false, scale = 1 } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? 'dark' : 'light',
    deviceScaleFactor: scale,
  });
  context.setDefaultTimeout(TIMEOUT_MS);
  const page = await context.newPage();
  const wrong = [];
  const origin = new URL(url).origin;
  page.on('pageerror', (error) => wrong.push(`script: ${error.stack}`));
  page.on('request', (request) => {
    if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith('data:'))
      wrong.push(`asked elsewhere: ${request.url()}`);
  });
  // The browser itself speaks of answers that are errors; the rest is about the page.
  page.on('console', (message) => {
    if (!message.text().startsWith('Failed to load resource')) wrong.push(`console: ${message.text()}`);
  });
  page.on('dialog', (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener('securitypolicyviolation', (event) =>
      globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  await page.goto(url);
  const done = async () => {
    const violations = await page.evaluate(() => globalThis.violations);
    const ran = await page.evaluate(() => globalThis.broken);
    await context.close();
    assert.deepEqual([...wrong, ...violations], []);
    assert.equal(ran, undefined, 'a script of a stranger ran');
  };
  return { page, done };
}

/** Waits until the text of what `selector` finds matches. */
export async function reads(page, selector, pattern) {
  const found = page.locator(selector).first();
  let text = '';
  for (let until = Date.now() + TIMEOUT_MS; Date.now() < until;) {
    text = (await found.count()) ? await found.innerText() : '';
    if (pattern.test(text)) return text;
    await page.waitForTimeout(50);
  }
  assert.match(text, pattern, selector);
}

export const headline = (page, pattern) => reads(page, 'main h1', pattern);

/** How far the page is wider than its window. */
export const overflow = (page) =>
  page.evaluate(() => Math.max(0, document.documentElement.scrollWidth - innerWidth));

/** What axe finds wrong for people who do not see it, or see it differently. */
export async function barriers(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, { resultTypes: ['violations'] }),
  );
  return violations.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .slice(0, 3)
        .map(({ html, failureSummary }) => `${html} ${failureSummary}`)
        .join(' | ')}`,
  );
}
