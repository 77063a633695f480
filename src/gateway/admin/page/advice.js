// What to do about a finding: since when, a command to copy, a section of the runbook. Pure, but for copying.

const REPOSITORY = 'https://git.example.com/trunkline/trunkline/blob/main/';
const RUNBOOK = 'docs/operate/runbook.md';

/** `since 12:04:31, for 5 min` */
function sinceWords(since_s) {
  const at = number(since_s);
  return at === null ? '' : `since ${clock(at)}, for ${duration(Date.now() / 1000 - at)}`;
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
