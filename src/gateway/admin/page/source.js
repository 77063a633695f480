// Asks the gateway: one question at a time, later where answers take long or nobody looks.
//
// Invariant: the token stays in this tab (`sessionStorage`) and goes to the listener the page came from,
// nowhere else.

const POLL_MS = 2000;
const HIDDEN_POLL_MS = 30_000;
const ANSWER_TIMEOUT_MS = 15_000;
const TOKEN_PLACE = 'trunkline-admin-token';

/** Why there is no answer: `token` (it is missing or wrong), `refused`, `gone`, `missing`. */
class NoAnswer extends Error {
  constructor(kind, text) {
    super(text);
    this.kind = kind;
  }
}

async function ask(path) {
  const token = sessionStorage.getItem(TOKEN_PLACE);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let answer;
  let text;
  try {
    answer = await fetch(path, {
      headers,
      cache: 'no-store',
      redirect: 'error',
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    text = await answer.text();
  } catch {
    throw new NoAnswer('gone', 'The gateway does not answer');
  }
  if (answer.status === 401) throw new NoAnswer('token', token ? 'This token was not accepted.' : '');
  if (answer.status === 404) throw new NoAnswer('missing', 'This gateway does not tell');
  if (!answer.ok)
    throw new NoAnswer('refused', shown(text.trim(), 200) || `The gateway answered ${answer.status}`);
  try {
    return JSON.parse(text);
  } catch {
    throw new NoAnswer('refused', 'Something else than the gateway answered');
  }
}

function keepToken(token) {
  sessionStorage.setItem(TOKEN_PLACE, token);
}

/** Everything the page knows of the gateway. */
const known = {
  status: null,
  history: emptyHistory(),
  answered_ms: 0,
  trouble: null,
};

/** Brings `known` up to date; true if it may have changed. */
async function refresh() {
  try {
    const status = await ask('/status');
    if (known.status && known.status.started_s !== status.started_s) forget();
    known.history = await historyFor(status);
    known.status = status;
    known.answered_ms = Date.now();
    known.trouble = null;
  } catch (trouble) {
    if (!(trouble instanceof NoAnswer)) throw trouble;
    known.trouble = trouble;
  }
}

function forget() {
  known.history = emptyHistory();
}

async function historyFor(status) {
  const added = historyWith(known.history, status);
  if (added || document.hidden) return added ?? known.history;
  try {
    return historyOf(await ask('/status/history'));
  } catch (trouble) {
    if (trouble.kind !== 'missing') throw trouble;
    return { ...known.history, number: status.sample?.number ?? null };
  }
}

let timer;
let asking = null;
let isDue = false;

/** Asks now and then again and again; `changed` is told after each answer. While a question is under way, the next
    comes right after it: it may have another token. */
async function follow(changed) {
  clearTimeout(timer);
  isDue = asking !== null;
  if (isDue) return;
  const started = performance.now();
  asking = refresh();
  try {
    await asking;
    await changed();
  } finally {
    asking = null;
    const took_ms = performance.now() - started;
    const pause_ms = document.hidden ? HIDDEN_POLL_MS : Math.max(POLL_MS, 4 * took_ms);
    // Who has no token is asked for it; to go on guessing is no use.
    if (isDue) timer = setTimeout(() => follow(changed), 0);
    else if (known.trouble?.kind !== 'token') timer = setTimeout(() => follow(changed), pause_ms);
  }
}
