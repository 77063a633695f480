// What to do about a finding: since when, a command to copy, a section of the runbook. Pure, but for copying.

const REPOSITORY = 'https://git.example.com/trunkline/trunkline/blob/main/';
const RUNBOOK = 'docs/operate/runbook.md';
const REASONS_SHOWN = 3;

/** `since 12:04:31, for 5 min` */
function sinceWords(since_s) {
  const at = number(since_s);
  return at === null ? '' : `since ${clock(at)}, for ${duration(Date.now() / 1000 - at)}`;
}

/** The reasons that come most often, with how often. */
function reasonWords(reasons) {
  const sorted = Object.entries(reasons ?? {})
    .filter(([, n]) => n > 0)
    .sort(([, a], [, b]) => b - a);
  return sorted
    .slice(0, REASONS_SHOWN)
    .map(([why, n]) => `${shown(why, 40)} ${count(n)}`)
    .join(', ');
}

/** Why calls failed: lately where some did, else since the start. `before` is what was counted a minute ago. */
function whyWords(now, before) {
  const more = Object.entries(now ?? {}).map(([why, n]) => [why, n - (before?.[why] ?? 0)]);
  const lately = before && reasonWords(Object.fromEntries(more));
  if (lately) return `${lately} in the last minute`;
  const all = reasonWords(now);
  return all && `${all} since the start`;
}

/** A word of a shell, whatever is in it. */
function quoted(word) {
  const text = String(word);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const commandOf = (...words) => words.map(quoted).join(' ');
const journal = (since, text) => commandOf('journalctl', '--unit', 'trunkline', '--since', since, '--grep', text);

/** What asks a server itself, or the log of one that has no URL. */
function askServer({ replicas, transport }) {
  const all = list(replicas);
  const { url } = all.find(({ breaker }) => breaker !== 'closed') ?? all[0] ?? {};
  if (url) return commandOf('trunkline', 'doctor', url);
  return transport === 'stdio' ? journal('-15min', 'child process|stderr') : null;
}

/** Nothing that is not seen gets into a terminal. */
const canCopy = (command) => Boolean(command) && shown(command, 300) === command;

/** With a button that copies it; where a browser does not let it, the command is selected. */
function commandLine(command) {
  const onclick = async ({ currentTarget: button }) => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = 'Selected';
    }
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 2000);
  };
  return [h('code.command', command), h('button.copy', { onclick }, 'Copy')];
}

/** The page loads nothing from elsewhere; a link is followed by whoever clicks it. */
function runbookLink(section) {
  const place = `${RUNBOOK}#${section.toLowerCase()}`;
  return h('a.note', { href: REPOSITORY + place, target: '_blank', rel: 'noreferrer' }, place);
}
