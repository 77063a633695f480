// The problems, worst first: the part of the page that is read first. The gateway says what is wrong; they are shown
// here alone. Pure.

const link = (kind, ...names) => `#/${kind}/${names.map(encodeURIComponent).join('/')}`;

/** All findings: `level` (`bad`, `warn`), `word`, `subject`, `names`, `href`, `text`, and as far as they are known
   `since_s`, `reasons`, `command` and `runbook`. */
function findings(status) {
  const found = list(status.problems).map(finding);
  return [...found.filter(({ level }) => level === 'bad'), ...found.filter(({ level }) => level === 'warn')];
}

const subject = (kind, name) => ({ kind, names: [name], subject: name, href: link(kind, name) });

/** What the gateway says is wrong. */
function finding({ level, subject: about, kind, names, word, what, reasons, since_s, advice, runbook }) {
  const all = list(names);
  const [only] = all;
  const place = all.length === 1 && kind !== 'gateway' ? subject(kind, only) : { kind, names: all, subject: about };
  return {
    ...place,
    level: level === 'error' ? 'bad' : 'warn',
    word: shown(word || 'warning', 40),
    text: shown(what, 600),
    since_s,
    reasons: reasons ? shown(reasons, 200) : null,
    command: advice,
    runbook: /^Trunkline\w+$/.test(runbook) ? runbook : null,
  };
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
  if (parts.length) {
    // Some answer, though not as they should.
    const areDown = list(status.upstreams).every(({ healthy, state }) => healthy !== false || (state ?? 'down') === 'down');
    const how = `${endpoints + upstreams === 1 ? 'is' : 'are'} ${areDown ? 'down' : 'not usable'}`;
    return { level: 'bad', text: `${and(parts)} ${how}` };
  }
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
