// What is wrong, worst first: the part of the page that is read first. What counts as wrong is the same as
// for `trunkline status` (admin_client/problem.rs). Pure.

const DAY_S = 86_400;
const CERTIFICATE_WARN_S = 14 * DAY_S;
const CERTIFICATE_BAD_S = 3 * DAY_S;
const FAILING_SHARE = 0.05;
const FAILING_CALLS_MIN = 3;
const FULL_SHARE = 0.9;

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

/** All findings: `level` (`bad`, `warn`), `word`, `subject`, `href`, `text`. `before` is the state of a
   minute ago. */
function findings(status, history, before, now_s) {
  const ofUpstreams = list(status.upstreams).flatMap((upstream) => upstreamFindings(upstream, history));
  const troubled = new Set(
    ofUpstreams.filter(({ word }) => word === 'down' || word === 'failing').map(({ name }) => name),
  );
  const found = [
    ...list(status.endpoints).flatMap((endpoint) => endpointFindings(endpoint, history, troubled)),
    ...ofUpstreams,
    ...processFindings(status, now_s),
    ...risen(status, before),
  ];
  return [...found.filter(({ level }) => level === 'bad'), ...found.filter(({ level }) => level === 'warn')];
}

function endpointFindings({ path, healthy, upstreams }, history, troubled) {
  const about = { kind: 'endpoint', name: path, subject: path, href: link('endpoint', path) };
  if (healthy === false)
    return [{ ...about, level: 'bad', word: 'down', text: 'none of its upstreams is up' }];
  if (list(upstreams).some((name) => troubled.has(name))) return [];
  return failing(about, history.endpoints.get(path), history.interval_s);
}

function failing(about, history, interval_s) {
  const { errors, failing: portion } = figures(lastMinute(history ?? NOTHING, interval_s), interval_s);
  if (portion < FAILING_SHARE || errors < FAILING_CALLS_MIN) return [];
  return [
    {
      ...about,
      level: 'warn',
      word: 'failing',
      text: `${share(portion, 1)} of its calls failed in the last minute`,
    },
  ];
}

function upstreamFindings(upstream, history) {
  const { name } = upstream;
  const about = { kind: 'upstream', name, subject: name, href: link('upstream', name) };
  const bad = (word, text) => ({ ...about, level: 'bad', word, text });
  const warn = (word, text) => ({ ...about, level: 'warn', word, text });
  const replicas = list(upstream.replicas);
  const isOut = ({ breaker, resolved }) => breaker === 'open' || resolved === false;
  const out = replicas.filter(isOut).map(({ address }) => address);
  const found = [];
  const crashing = `its program keeps crashing, ${plural(upstream.children?.crashes, 'time')} so far`;
  if (upstream.children?.crash_loop)
    found.push(upstream.healthy === false ? bad('down', crashing) : warn('crashing', crashing));
  else if (upstream.healthy === false) found.push(bad('down', whyDown(upstream, replicas)));
  else if (out.length) {
    found.push(
      warn('degraded', `${count(out.length)} of ${plural(replicas.length, 'replica')} out: ${some(out)}`),
    );
  } else if (replicas.some(({ breaker }) => breaker === 'half_open'))
    found.push(warn('half-open', 'is being probed after failures'));
  if (upstream.healthy !== false) found.push(...failing(about, history.upstreams.get(name), history.interval_s));
  const waiting = number(upstream.concurrency?.waiting);
  if (waiting > 0) {
    found.push(
      warn(
        'busy',
        `${plural(waiting, 'call')} wait: it takes ${count(upstream.concurrency.max)} at once`,
      ),
    );
  }
  return [...found, ...pinFindings(upstream.pins, bad, warn)];
}

function whyDown({ connects_failed }, replicas) {
  const unresolved = replicas.filter(({ resolved }) => resolved === false).length;
  if (replicas.length && unresolved === replicas.length) return 'its name does not resolve';
  // It takes connections, so to look for it in the network would be in vain.
  if (connects_failed === 0) return 'can be reached, but answers with errors, too late or not at all';
  return replicas.length > 1
    ? `none of its ${count(replicas.length)} replicas can be reached`
    : 'cannot be reached';
}

function pinFindings(pins, bad, warn) {
  if (!pins) return [];
  if (pins.unreadable) return [bad('pins', 'its pins cannot be read')];
  if (pins.unwritable) return [bad('pins', 'its pins cannot be written')];
  const which = list(pins.waiting).length ? `: ${some(pins.waiting)}` : '';
  if (pins.changed > 0)
    return [warn('pins', `${plural(pins.changed, 'tool')} changed since approval${which}`)];
  if (pins.new > 0) return [warn('pins', `${plural(pins.new, 'new tool')} not approved yet`)];
  return [];
}

function processFindings(status, now_s) {
  const found = [];
  const say = (level, word, subject, text) => found.push({ kind: 'gateway', level, word, subject, text });
  const reload = status.config?.last_reload;
  if (status.drain && status.drain !== 'none')
    say('warn', 'draining', 'Gateway', DRAINS[status.drain] ?? 'is about to stop');
  if (reload?.ok === false)
    say(
      'bad',
      'refused',
      'Configuration',
      `that of ${clock(reload.at_s)} was refused, the one before is in force: ${firstLine(reload.error)}`,
    );
  if (list(reload?.needs_restart).length)
    say('warn', 'restart', 'Configuration', `needs a restart for ${some(reload.needs_restart)}`);
  if (status.shared?.connected === false)
    say('bad', 'down', 'Shared store', 'cannot be reached; each gateway counts and remembers for itself');
  for (const { file, expires_s } of list(status.certificates)) {
    const left = expires_s - now_s;
    if (left > CERTIFICATE_WARN_S) continue;
    say(
      left < CERTIFICATE_BAD_S ? 'bad' : 'warn',
      left > 0 ? 'expires soon' : 'expired',
      shown(fileName(file), 60),
      `this certificate ${timeLeft(left)}`,
    );
  }
  if (status.shared?.mismatched > 0)
    say(
      'warn',
      'mismatch',
      'Shared store',
      `${count(status.shared.mismatched)} with another session key`,
    );
  for (const { name, overflowed } of list(status.limits))
    if (overflowed > 0)
      say('warn', 'limit', name, `${plural(overflowed, 'call')} counted together, beyond limiter_keys_max`);
  const { open, max } = status.connections ?? {};
  if (max > 0 && open >= max * FULL_SHARE)
    say(
      open >= max ? 'bad' : 'warn',
      'full',
      'Connections',
      `${count(open)} of at most ${count(max)} are taken`,
    );
  if (status.panics > 0)
    say('warn', 'bug', 'Gateway', `${plural(status.panics, 'panic')} since it started; the log says where`);
  return found;
}

const fileName = (path) =>
  String(path ?? '')
    .split('/')
    .at(-1);

/** Counts that should stand still and do not. */
function risen(status, before) {
  const found = [];
  const say = (kind, word, subject, now, then, one, what) => {
    const more = now - (then ?? now);
    if (more > 0)
      found.push({
        kind,
        level: 'warn',
        word,
        subject,
        text: `${plural(more, one)} ${what} in the last minute`,
      });
  };
  if (!before) return found;
  const then = new Map(list(before.limits).map((limit) => [limit.name, limit]));
  for (const { name, refused } of list(status.limits))
    say('limit', 'limit', name, refused, then.get(name)?.refused, 'call', 'refused');
  say(
    'gateway',
    'full',
    'Connections',
    status.connections?.refused,
    before.connections?.refused,
    'connection',
    'refused',
  );
  for (const how of ['dropped', 'failed'])
    say('gateway', 'traces', 'Traces', status.traces?.[how], before.traces?.[how], 'span', how);
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
