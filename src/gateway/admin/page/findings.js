// What is wrong, worst first: the part of the page that is read first. What counts as wrong is the same as
// for `trunkline status` (admin_client/problem.rs). Pure.

const DAY_S = 86_400;
const CERTIFICATE_WARN_S = 14 * DAY_S;
const CERTIFICATE_BAD_S = 3 * DAY_S;
const FAILING_SHARE = 0.05;
const FAILING_CALLS_MIN = 3;
const FULL_SHARE = 0.9;
/** So many samples without an error are a minute. */
const QUIET_SAMPLES = 12;

const DRAINS = {
  __proto__: null,
  quiet: 'is about to stop; load balancers are told, new clients still come in',
  closing: 'is about to stop: takes no new clients, finishes the calls in flight',
  cut: 'stops: aborts the calls still in flight',
};

const link = (kind, ...names) => `#/${kind}/${names.map(encodeURIComponent).join('/')}`;

/** The first of some names. */
const some = (names) =>
  names
    .slice(0, 3)
    .map((name) => shown(name, 60))
    .join(', ') + (names.length > 3 ? ' …' : '');

/** All findings: `level` (`bad`, `warn`), `word`, `subject`, `href`, `text`, and as far as they are known
   `since_s`, `reasons`, `command` and `runbook`. `before` is the state of a minute ago. */
function findings(status, history, before, now_s) {
  const past = before?.reasons ?? new Map();
  const ofUpstreams = list(status.upstreams).flatMap((upstream) => upstreamFindings(upstream, history, past));
  const troubled = new Set(
    ofUpstreams.filter(({ word }) => word === 'down' || word === 'failing').map(({ name }) => name),
  );
  const found = [
    ...list(status.endpoints).flatMap((endpoint) => endpointFindings(endpoint, history, troubled, past)),
    ...ofUpstreams,
    ...processFindings(status, now_s),
    ...risen(status, before),
  ];
  return [...found.filter(({ level }) => level === 'bad'), ...found.filter(({ level }) => level === 'warn')];
}

function endpointFindings(endpoint, history, troubled, past) {
  const { path, healthy, upstreams, down_since_s: since_s, reasons } = endpoint;
  const about = { kind: 'endpoint', name: path, subject: path, href: link('endpoint', path) };
  if (healthy === false) {
    const text = 'none of its upstreams is up: every call fails';
    return [{ ...about, level: 'bad', word: 'down', text, since_s, runbook: 'TrunklineNoHealthyReplica' }];
  }
  if (list(upstreams).some((name) => troubled.has(name))) return [];
  return failing(
    { ...about, runbook: 'TrunklineRequestsFail', command: journal('-15min', 'call failed') },
    history.endpoints.get(path),
    history,
    whyWords(reasons, past.get(`endpoint ${path}`)),
  );
}

function failing(about, lines, { interval_s, at_s }, reasons) {
  const { errors, failing: portion } = figures(lastMinute(lines ?? NOTHING, interval_s), interval_s);
  if (portion < FAILING_SHARE || errors < FAILING_CALLS_MIN) return [];
  const text = `${share(portion, 1)} of its calls failed in the last minute`;
  return [{ ...about, level: 'warn', word: 'failing', text, reasons, since_s: failingSince(lines, at_s) }];
}

/** Since when some calls fail in every few samples: the first of them after a minute without. */
function failingSince({ errors_per_s }, at_s) {
  let first = null;
  let quiet = 0;
  for (let at = errors_per_s.length - 1; at >= 0 && quiet < QUIET_SAMPLES; at -= 1) {
    quiet = errors_per_s[at] > 0 ? 0 : quiet + 1;
    if (errors_per_s[at] > 0) first = at;
  }
  return first === null ? null : number(at_s[first - errors_per_s.length + at_s.length]);
}

function upstreamFindings(upstream, history, past) {
  const { name, down_since_s: since_s, reasons } = upstream;
  const recent = whyWords(reasons, past.get(`upstream ${name}`));
  const about = {
    kind: 'upstream',
    name,
    subject: name,
    href: link('upstream', name),
    runbook: 'TrunklineUpstreamErrors',
    command: askServer(upstream),
  };
  const bad = (word, text, more) => ({ ...about, level: 'bad', word, text, ...more });
  const warn = (word, text, more) => ({ ...about, level: 'warn', word, text, ...more });
  const replicas = list(upstream.replicas);
  const down = replicas.filter(({ breaker, resolved }) => breaker === 'open' || resolved === false);
  const replicaSince_s = earliest(replicas);
  const found = [];
  const crashing = `its child process is in a crash loop, ${plural(upstream.children?.crashes, 'crash', 'crashes')} so far`;
  const loop = { since_s, runbook: 'TrunklineChildCrashLoop' };
  if (upstream.children?.crash_loop)
    found.push(upstream.healthy === false ? bad('down', crashing, loop) : warn('crashing', crashing, loop));
  else if (upstream.healthy === false)
    found.push(
      bad('down', whyDown(replicas), { since_s, reasons: recent, runbook: 'TrunklineNoHealthyReplica' }),
    );
  else if (down.length) {
    const which = some(down.map(({ address }) => address));
    const text = `${count(down.length)} of ${plural(replicas.length, 'replica')} down: ${which}`;
    found.push(warn('degraded', text, { since_s: replicaSince_s, runbook: 'TrunklineBreakerOpen' }));
  } else if (replicas.some(({ breaker }) => breaker === 'half_open')) {
    const more = { since_s: replicaSince_s, runbook: 'TrunklineBreakerOpen' };
    found.push(warn('half-open', 'is being probed after failures', more));
  }
  if (upstream.healthy !== false) found.push(...failing(about, history.upstreams.get(name), history, recent));
  const waiting = number(upstream.concurrency?.waiting);
  if (waiting > 0) {
    const text = `${plural(waiting, 'call')} waiting: it takes ${count(upstream.concurrency.max)} at once`;
    found.push(warn('busy', text, { command: null, runbook: 'TrunklineCallsRefused' }));
  }
  return [...found, ...pinFindings(name, upstream.pins, bad, warn)];
}

/** Since when the first of those that are down is. */
function earliest(replicas) {
  const all = replicas.map(({ down_since_s }) => number(down_since_s)).filter((at) => at !== null);
  return all.length ? all.reduce((a, b) => Math.min(a, b)) : null;
}

function whyDown(replicas) {
  const unresolved = replicas.filter(({ resolved }) => resolved === false).length;
  if (replicas.length && unresolved === replicas.length) return 'its name does not resolve';
  if (!replicas.length) return 'is down';
  if (replicas.length === 1) return 'does not answer: its circuit breaker is open';
  return `none of its ${plural(replicas.length, 'replica')} answers: their circuit breakers are open`;
}

function pinFindings(name, pins, bad, warn) {
  if (!pins) return [];
  const runbook = 'TrunklinePinsWait';
  const log = { runbook, command: journal('-1d', 'pins') };
  if (pins.unreadable) return [bad('pins', 'its pins cannot be read', log)];
  if (pins.unwritable) return [bad('pins', 'its pins cannot be written', log)];
  const said = [
    pins.changed > 0 && plural(pins.changed, 'tool has changed', 'tools have changed'),
    pins.new > 0 && plural(pins.new, 'tool is new', 'tools are new'),
  ].filter(Boolean);
  if (!said.length) return [];
  const waiting = list(pins.waiting);
  const which = waiting.length ? `: ${some(waiting)}` : '';
  return [warn('pins', `${and(said)}, waiting for approval${which}`, { runbook, command: approval(name, waiting) })];
}

/** What approves it. Servers name their tools: a name is never taken for an option, nor its beginning for a whole one. */
function approval(name, waiting) {
  const [only] = waiting;
  if (waiting.length !== 1) return commandOf('trunkline', 'pins', 'approve', '--all', '--', name);
  return only.endsWith('…') ? null : commandOf('trunkline', 'pins', 'approve', '--', name, only);
}

function processFindings(status, now_s) {
  const found = [];
  const say = (level, word, subject, text, more) =>
    found.push({ kind: 'gateway', level, word, subject, text, ...more });
  const { file, last_reload: reload } = status.config ?? {};
  if (status.drain && status.drain !== 'none')
    say('warn', 'draining', 'Gateway', DRAINS[status.drain] ?? 'is about to stop');
  if (reload?.ok === false)
    say(
      'bad',
      'refused',
      'Configuration',
      `the last reload was refused, the old configuration is in force: ${firstLine(reload.error)}`,
      {
        since_s: reload.at_s,
        command: commandOf('trunkline', 'check', ...(file ? [file] : [])),
        runbook: 'TrunklineReloadFailed',
      },
    );
  if (list(reload?.needs_restart).length)
    say(
      'warn',
      'restart',
      'Configuration',
      `takes effect at the next start only: ${some(reload.needs_restart)}`,
      { since_s: reload.at_s, command: 'systemctl restart trunkline' },
    );
  sharedFindings(status.shared, say);
  for (const { file: path, expires_s } of list(status.certificates)) {
    const left = expires_s - now_s;
    if (left > CERTIFICATE_WARN_S) continue;
    say(
      left < CERTIFICATE_BAD_S ? 'bad' : 'warn',
      left > 0 ? 'expires soon' : 'expired',
      shown(fileName(path), 60),
      left > 0 ? `the certificate expires in ${duration(left)}` : `the certificate expired ${duration(-left)} ago`,
      {
        command: commandOf('openssl', 'x509', '-noout', '-enddate', '-in', path),
        runbook: 'TrunklineCertificateExpires',
      },
    );
  }
  for (const { name, overflowed } of list(status.limits))
    if (overflowed > 0)
      say('warn', 'limit', name, `${plural(overflowed, 'call')} counted together, beyond limiter_keys_max`);
  const { open, max } = status.connections ?? {};
  if (max > 0 && open >= max * FULL_SHARE) {
    const text = open >= max ? `all ${count(max)} are in use` : `${count(open)} of ${count(max)} are in use`;
    say(open >= max ? 'bad' : 'warn', 'full', 'Connections', text, { runbook: 'TrunklineConnectionsHigh' });
  }
  if (status.panics > 0)
    say('warn', 'bug', 'Gateway', `${plural(status.panics, 'connection')} ended by a bug`, {
      command: journal('-1h', 'panicked|this is a bug|which is a bug'),
      runbook: 'TrunklinePanic',
    });
  return found;
}

function sharedFindings(shared, say) {
  if (shared?.connected === false)
    say('bad', 'down', 'Shared store', 'cannot be reached: each gateway counts for itself', {
      since_s: shared.disconnected_since_s,
      command: journal('-15min', 'what replicas share'),
      runbook: 'TrunklineSharedDisconnected',
    });
  if (shared?.mismatched > 0)
    say('warn', 'mismatch', 'Shared store', `${plural(shared.mismatched, 'gateway')} with another session key`);
}

const fileName = (path) =>
  String(path ?? '')
    .split('/')
    .at(-1);

/** Counts that should stand still and do not. */
function risen(status, before) {
  const found = [];
  const say = (kind, word, subject, now, then, one, what, runbook) => {
    const more = now - (then ?? now);
    if (more > 0)
      found.push({
        kind,
        level: 'warn',
        word,
        subject,
        text: `${plural(more, one)} ${what} in the last minute`,
        runbook,
      });
  };
  if (!before) return found;
  const then = new Map(list(before.limits).map((limit) => [limit.name, limit]));
  for (const { name, refused } of list(status.limits))
    say('limit', 'limit', name, refused, then.get(name)?.refused, 'call', 'refused', 'TrunklineRateLimited');
  say(
    'gateway',
    'full',
    'Connections',
    status.connections?.refused,
    before.connections?.refused,
    'connection',
    'refused',
    'TrunklineConnectionsRefused',
  );
  for (const how of ['dropped', 'failed'])
    say('gateway', 'traces', 'Traces', status.traces?.[how], before.traces?.[how], 'span', how, 'TrunklineTracesLost');
  return found;
}

const firstLine = (text) => shown(String(text).split('\n')[0], 240);

/** The one line that says it all. */
function headline(found, status) {
  if (!list(status.upstreams).length) return { level: 'warn', text: 'No upstreams are configured' };
  if (status.drain && status.drain !== 'none') return { level: 'warn', text: 'The gateway is about to stop' };
  const down = (kind) => found.filter((one) => one.level === 'bad' && one.kind === kind).length;
  const [endpoints, upstreams] = [down('endpoint'), down('upstream')];
  const parts = [
    endpoints && plural(endpoints, 'endpoint'),
    upstreams && plural(upstreams, 'upstream'),
  ].filter(Boolean);
  if (parts.length)
    return { level: 'bad', text: `${and(parts)} ${endpoints + upstreams === 1 ? 'is' : 'are'} down` };
  if (!found.length) return { level: 'ok', text: 'Everything is up' };
  const bad = found.filter((one) => one.level === 'bad').length;
  const what = bad ? plural(bad, 'problem') : plural(found.length, 'warning');
  return { level: bad ? 'bad' : 'warn', text: `All upstreams are up, ${what}` };
}
