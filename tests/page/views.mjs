// Reads what each view of a gateway says of its upstreams: by name `{ state, problem }`, where null is nothing.
import { execFile, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';

const TIMEOUT_MS = 20_000;
const SCREEN = { columns: 240, rows: 80 };
const RULES = ['recording', 'alerts'].map((name) =>
  join(import.meta.dirname, '../../config/prometheus', `trunkline-${name}.yml`),
);
// Every `for` of the rules that are about upstreams is over by then.
const ALERTED_MIN = 10;

/** Waits until `look` says that it is so, and what it has seen. */
export async function eventually(what, look, timeout_ms = TIMEOUT_MS) {
  let told;
  for (const until = Date.now() + timeout_ms; Date.now() < until; await pause(100)) {
    const { is, seen } = await look();
    if (is) return seen;
    told = seen;
  }
  throw new Error(`not so: ${what}: ${typeof told === 'string' ? told : JSON.stringify(told, null, 1)}`);
}

export const get = async (url) => (await fetch(url)).text();
export const status = async (site) => JSON.parse(await get(`${site.url}/status`));

export function inStatus({ upstreams, problems }) {
  const problem = (name) => problems.find(({ kind, names }) => kind === 'upstream' && names.includes(name));
  return Object.fromEntries(
    upstreams.map(({ name, state }) => [name, { state, problem: problem(name)?.what ?? null }]),
  );
}

/** `trunkline status`: problems as `✗ upstream NAME  WORDS, for 2 min`, and a table. */
export async function inCommand(site) {
  const { host } = new URL(site.url);
  const environment = { ...process.env, NO_COLOR: '1' };
  const run = promisify(execFile)(process.env.BINARY, ['status', '--all', '--admin', host], { env: environment });
  const { stdout } = await run.catch((failed) => failed);
  const row = /^(?<name>\S+) +[●◐✗○◌] (?<state>.*?)  /u;
  return ofLines(stdout.split('\n'), row, /^[✗!] upstream (?<name>\S+) +(?<words>.*?)(?:, for [\w ]+)?$/);
}

/** `trunkline top`: its first tab is the table, its fifth the problems. */
export async function inTop(site) {
  const { host } = new URL(site.url);
  const top = `stty cols ${SCREEN.columns} rows ${SCREEN.rows}; exec '${process.env.BINARY}' top --interval 1 --admin ${host}`;
  const child = spawn('script', ['--quiet', '--flush', '--return', '--command', top, '/dev/null'], {
    env: { ...process.env, TERM: 'xterm-256color', NO_COLOR: '1' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let bytes = '';
  child.stdout.setEncoding('utf8').on('data', (more) => (bytes += more));
  const shows = (what) =>
    eventually(`top shows ${what}`, () => {
      const seen = drawn(bytes);
      return { is: seen.some((line) => line.includes(what)), seen: seen.join('\n') };
    });
  try {
    await shows('TRANSPORT');
    const table = drawn(bytes);
    child.stdin.write('5');
    await shows('WHERE');
    const row = /^[●◐✗○◌] (?<state>.*?) {2,}(?<name>\S+)  /u;
    const problem = /^[✗!] (?:error|warning) +upstream (?<name>\S+) +(?:[\d]+ (?:s|min) +|–)(?<words>.*)$/;
    return ofLines([...table, ...drawn(bytes)], row, problem);
  } finally {
    child.stdin.write('q');
    await new Promise((resolve) => child.once('exit', resolve));
  }
}

/** The lines of a terminal to which this was written: text where the cursor is, moves of it, clearing. */
function drawn(bytes) {
  let [rows, row, column] = [[], 0, 0];
  for (const [, parameters, command, char] of bytes.matchAll(/\x1b\[([?\d;]*)([@-~])|\x1b.|([^\x1b])/gu)) {
    if (command === 'H') [row, column] = parameters.split(';').map((number) => (Number(number) || 1) - 1);
    else if (command === 'J') rows = [];
    else if (char === '\r') column = 0;
    else if (char === '\n') row += 1;
    else if (char) {
      rows[row] ??= [];
      rows[row][column] = char;
      column += 1;
    }
  }
  return Array.from(rows, (line) => Array.from(line ?? [], (char) => char ?? ' ').join('').trimEnd());
}

/** `row`: a line of the table, with its `name` and `state`; `problem`: one of a problem, with its `name` and `words`. */
function ofLines(lines, row, problem) {
  const found = {};
  for (const line of lines) {
    const { name, state } = line.match(row)?.groups ?? {};
    if (name) found[name] = { problem: null, ...found[name], state };
    const { name: subject, words } = line.match(problem)?.groups ?? {};
    if (subject) found[subject] = { ...found[subject], problem: words.trim() };
  }
  return found;
}

/** The status page: its table and its findings. */
export async function onPage(page) {
  for (const button of await page.locator('button.more', { hasText: 'Show all' }).all()) await button.click();
  return page.evaluate(() => {
    const texts = (row, selector) => row.querySelector(selector)?.innerText.trim() ?? null;
    const found = {};
    for (const row of document.querySelectorAll('table.upstreams tbody tr'))
      found[texts(row, 'a.row.name')] = { state: texts(row, 'td.state'), problem: null };
    for (const item of document.querySelectorAll('.findings li')) {
      const upstream = found[texts(item, '.name')];
      if (upstream) upstream.problem = texts(item, '.what > span');
    }
    return found;
  });
}

/** The page of one upstream: its state, its problem, and what it met last. */
export async function onPageOf(page, site, name) {
  await page.goto(`${site.url}/#/upstream/${name}`);
  await page.locator('main h1', { hasText: name }).waitFor();
  return page.evaluate(() => {
    const text = (selector) => document.querySelector(selector)?.innerText.trim() ?? null;
    const facts = [...document.querySelectorAll('main section')].find(
      (section) => section.querySelector('h2')?.innerText === 'Last errors',
    );
    return { state: text('.titled .badge'), problem: text('.findings .what > span'), last: facts?.innerText ?? '' };
  });
}

/** Fails unless these alerts fire, and no other, where a gateway tells `metrics` for long: each as its name and labels. */
export function assertFiring(metrics, alerts) {
  const series = [...metrics.matchAll(/^([a-z]\w*)(\{.*\})? (\S+)$/gm)]
    .filter(([, , , value]) => Number.isFinite(Number(value)))
    .map(([, name, labels = '{}', value]) => ({
      series: `${name}{job="trunkline",instance="a",${labels.slice(1)}`,
      values: `${Number(value)}x${2 * ALERTED_MIN}`,
    }));
  series.push({ series: 'up{job="trunkline",instance="a"}', values: `1x${2 * ALERTED_MIN}` });
  const test = {
    rule_files: RULES,
    evaluation_interval: '1m',
    tests: [
      {
        interval: '1m',
        input_series: series,
        promql_expr_test: [
          {
            expr: 'count by (alertname, upstream, cause) (ALERTS{alertstate="firing"})',
            eval_time: `${ALERTED_MIN}m`,
            exp_samples: alerts.map((labels) => ({ labels: labelled(labels), value: 1 })),
          },
        ],
      },
    ],
  };
  const directory = mkdtempSync(join(tmpdir(), 'trunkline-alerts-'));
  try {
    writeFileSync(join(directory, 'tests.yml'), JSON.stringify(test));
    execFileSync('promtool', ['test', 'rules', 'tests.yml'], { cwd: directory, encoding: 'utf8', stdio: 'pipe' });
  } catch ({ stdout, stderr, message }) {
    throw new Error(`${stdout ?? message}${stderr ?? ''}`);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const labelled = (labels) =>
  `{${Object.entries(labels).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(', ')}}`;
