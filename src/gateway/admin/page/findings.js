// The problems, worst first: the part of the page that is read first. The gateway says what is wrong; what the last
// minutes show is added here. Pure.

const FAILING_SHARE = 0.05;
const FAILING_CALLS_MIN = 3;
/** So many samples without an error are a minute. */
const QUIET_SAMPLES = 12;

const link = (kind, ...names) => `#/${kind}/${names.map(encodeURIComponent).join('/')}`;

/** All findings: `level` (`bad`, `warn`), `word`, `subject`, `names`, `href`, `text`, and as far as they are known
   `since_s`, `reasons`, `command` and `runbook`. `before` is the state of a minute ago. */
function findings(status, history, before) {
  const past = before?.reasons ?? new Map();
  const told = list(status.problems).map((problem) => finding(problem, status, past));
  const isTold = (kind, name) => told.some((one) => one.kind === kind && one.names.includes(name));
  const troubled = (names) => list(names).some((name) => isTold('upstream', name));
  const found = [
    ...told,
    ...list(status.endpoints).flatMap(({ path, upstreams, reasons }) => {
      if (isTold('endpoint', path) || troubled(upstreams)) return [];
      const more = { runbook: 'TrunklineRequestsFail', command: journal('-15min', 'call failed') };
      const why = whyWords(reasons, past.get(`endpoint ${path}`));
      return failing({ ...subject('endpoint', path), ...more }, history.endpoints.get(path), history, why);
    }),
    ...list(status.upstreams).flatMap((upstream) => {
      const { name, reasons } = upstream;
      if (isTold('upstream', name)) return [];
      const more = { runbook: 'TrunklineUpstreamErrors', command: askServer(upstream) };
      const why = whyWords(reasons, past.get(`upstream ${name}`));
      return failing({ ...subject('upstream', name), ...more }, history.upstreams.get(name), history, why);
    }),
    ...risen(status, before),
  ];
  return [...found.filter(({ level }) => level === 'bad'), ...found.filter(({ level }) => level === 'warn')];
}

const subject = (kind, name) => ({ kind, names: [name], subject: name, href: link(kind, name) });

/** What the gateway says is wrong. */
function finding({ level, subject: about, kind, names, word, what, since_s, advice, runbook }, status, past) {
  const all = list(names);
  const [only] = all;
  const place = all.length === 1 && kind !== 'gateway' ? subject(kind, only) : { kind, names: all, subject: about };
  const of = kind === 'upstream' && all.length === 1 && list(status.upstreams).find(({ name }) => name === only);
  return {
    ...place,
    level: level === 'error' ? 'bad' : 'warn',
    word: shown(word || 'warning', 40),
    text: shown(what, 600),
    since_s,
    reasons: of ? whyWords(of.reasons, past.get(`upstream ${only}`)) : null,
    command: advice,
    runbook: /^Trunkline\w+$/.test(runbook) ? runbook : null,
  };
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

/** The one line that says it all. */
function headline(found, status) {
  if (!list(status.upstreams).length) return { level: 'warn', text: 'No upstreams are configured' };
  if (status.drain && status.drain !== 'none') return { level: 'warn', text: 'The gateway is about to stop' };
  const down = (all) => list(all).filter(({ healthy }) => healthy === false).length;
  const [endpoints, upstreams] = [down(status.endpoints), down(status.upstreams)];
  const parts = [
    endpoints && plural(endpoints, 'endpoint'),
    upstreams && plural(upstreams, 'upstream'),
  ].filter(Boolean);
  if (parts.length)
    return { level: 'bad', text: `${and(parts)} ${endpoints + upstreams === 1 ? 'is' : 'are'} down` };
  const starting = list(status.upstreams).filter(({ state }) => state === 'starting').length;
  if (!found.length && starting) {
    const all = list(status.upstreams).filter(({ enabled }) => enabled !== false).length;
    return { level: 'warn', text: `Still starting: ${count(all - starting)} of ${plural(all, 'upstream')} are up` };
  }
  if (!found.length) return { level: 'ok', text: 'Everything is up' };
  const bad = found.filter((one) => one.level === 'bad').length;
  const what = bad ? plural(bad, 'problem') : plural(found.length, 'warning');
  return { level: bad ? 'bad' : 'warn', text: `All upstreams are up, ${what}` };
}
