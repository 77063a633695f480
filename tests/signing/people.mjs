// People with browsers, and the apps and strangers that they meet; what a person does on a page.
import { headline, launch } from '../page/browser.mjs';
import { App, PROVIDER, Stranger } from './app.mjs';

const TIMEOUT_MS = 20_000;
export const BACK = /^Back in the app$/;

export class People {
  opened = [];

  /** Starts the browser, with further `arguments`. */
  async open(further = []) {
    this.browser = await launch(further);
  }

  app(...named) {
    return this.keep(App.open(...named));
  }

  stranger(html) {
    return this.keep(Stranger.open(html));
  }

  /** A browser of a person; `wrong` collects what no page of the gateway may do. */
  async person(options = {}) {
    const context = await this.keep(this.browser.newContext(options));
    context.setDefaultTimeout(TIMEOUT_MS);
    context.wrong = [];
    return context;
  }

  async keep(opening) {
    const each = await opening;
    this.opened.push(each);
    return each;
  }

  /** Closes all that a test has opened. */
  async leave() {
    for (const each of this.opened.splice(0)) await each.close();
  }

  close() {
    return this.browser?.close();
  }
}

export async function tab(context, url) {
  const page = await context.newPage();
  page.on('console', (message) => context.wrong.push(message.text()));
  page.on('pageerror', (error) => context.wrong.push(error.message));
  if (url) await page.goto(url);
  return page;
}

export const allow = (page) => page.getByRole('button', { name: /^Allow$/ }).click();
export const signIn = (page, user = 'Alice') => page.getByRole('button', { name: new RegExp(user) }).click();
export const consent = (page) => headline(page, /Desk|Other/);

/** The whole way in a tab that shows the page of consent. */
export async function goThrough(page, user) {
  await allow(page);
  await page.waitForURL(`${PROVIDER}/**`);
  await signIn(page, user);
  await headlineOf(page, BACK);
}

export function headlineOf(page, pattern) {
  return page.waitForFunction((text) => new RegExp(text).test(document.querySelector('h1')?.innerText), pattern.source);
}
