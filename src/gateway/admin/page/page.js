// What is shown when: the fragment says what, answers say when, keys move about.

const byId = (id) => document.getElementById(id);
const search = byId('search').firstElementChild;
const [main, notice, pulse, about, help] = ['main', 'notice', 'pulse', 'about', 'help'].map(byId);

/** What the fragment asks for: a kind and its names. */
function route() {
  const [kind = '', ...names] = location.hash.replace(/^#\/?/, '').split('/');
  try {
    return { kind, names: names.map(decodeURIComponent) };
  } catch {
    return { kind: '', names: [] };
  }
}

function draw() {
  const started = performance.now();
  drawFrame();
  performance.clearMeasures('update');
  performance.measure('update', { start: started, end: performance.now() });
}

function drawFrame() {
  const { trouble, status } = known;
  document.documentElement.classList.toggle('old', Boolean(trouble && status));
  render(
    about,
    status ? [h('span', shown(status.version, 40)), h('span', `up ${duration(status.uptime_s)}`)] : [],
  );
  const isLocked = trouble?.kind === 'token';
  const seen = known.answered_ms ? `Below is what it said at ${clock(known.answered_ms / 1000)}.` : '';
  const text = trouble && !isLocked ? `${trouble.message}. ${seen} Asking again every few seconds.` : '';
  render(notice, text ? h('p', shape('bad', 14), h('span', text)) : []);
  const [level, word] = isLocked
    ? ['off', 'Locked']
    : trouble
      ? ['bad', 'No answer']
      : status
        ? ['ok', 'Live']
        : ['off', 'Asking …'];
  render(pulse, badge(level, word));
  search.form.hidden = isLocked;
  if (isLocked) drawTokenForm(trouble.message);
  else if (!status) render(main, h('p.none', trouble ? 'Nothing to show yet.' : 'Asking the gateway …'));
  else drawMain();
}

function drawMain() {
  const { kind, names } = route();
  const shows = {
    endpoint: () => endpointDetails(view, names[0] ?? ''),
    upstream: () => upstreamDetails(view, names[0] ?? ''),
    tool: () => toolDetails(view, names[0] ?? '', names[1] ?? ''),
    tools: () => [crumbs('Tools'), titled(null, 'All tools', ''), toolSection(view)],
  };
  const what = Object.hasOwn(shows, kind) ? kind : 'overview';
  const view = { ...viewOf(known), query: search.value.trim(), isOverview: what === 'overview' };
  render(
    main,
    h('div', { key: `${what} ${names.join('\n')}` }, view.isOverview ? overview(view) : shows[kind]()),
  );
  tellOutside(view);
}

function viewOf({ status, history, answered_ms }) {
  const found = findings(status);
  const foundBy = new Map();
  for (const one of [...found].reverse())
    for (const name of list(one.names)) foundBy.set(`${one.kind} ${name}`, one);
  return { status, history, answered_ms, found, foundBy };
}

const ICONS = {
  ok: ['M8 2a6 6 0 1 0 .1 0z', '2f9e5b'],
  warn: ['M8 1l7 13H1z', 'd98a00'],
  bad: ['M1 1h14v14H1z', 'd6362b'],
};

/** The state in the title and the icon, for those who look at other tabs. */
function tellOutside({ found, status }) {
  const { level, text } = known.trouble
    ? { level: 'bad', text: known.trouble.message }
    : headline(found, status);
  const title = level === 'ok' ? 'Trunkline' : `${text} – Trunkline`;
  if (document.title !== title) document.title = title;
  const icon = document.querySelector('link[rel=icon]');
  const [d, colour] = ICONS[level];
  const drawing = `%3Cpath d="${d}" fill="%23${colour}"/%3E%3C/svg%3E`;
  const address = `data:image/svg+xml,%3Csvg xmlns="${SVG}" viewBox="0 0 16 16"%3E${drawing}`;
  if (icon.getAttribute('href') !== address) icon.setAttribute('href', address);
}

function drawTokenForm(complaint) {
  const submit = (event) => {
    event.preventDefault();
    keepToken(event.currentTarget.elements.token.value.trim());
    known.trouble = null;
    follow(draw);
  };
  render(
    main,
    h(
      'form.token',
      { key: 'token', onsubmit: submit },
      h('h1', 'This gateway asks for its token'),
      h('p', 'It is that of ', h('code', '[admin]'), ' in the configuration, and stays in this tab.'),
      h('label', { for: 'token' }, 'Token'),
      h('input', {
        id: 'token',
        name: 'token',
        type: 'password',
        required: true,
        autocomplete: 'off',
        'aria-describedby': 'complaint',
      }),
      h('button', 'Show the state'),
      h('p.complaint', { id: 'complaint', role: 'alert' }, complaint),
    ),
  );
  if (!main.contains(document.activeElement)) byId('token').focus();
}

// ---- keys

const isTyping = (target) => target.closest('input, textarea, select') !== null;

function move(step) {
  const rows = [...main.querySelectorAll('a.row')];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement?.closest('tr, li')?.querySelector('a.row') ?? null);
  const next =
    rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

function back() {
  if (search.value) {
    search.value = '';
    draw();
  } else if (document.activeElement === search) search.blur();
  else if (route().kind) location.hash = '#/';
}

const KEYS = {
  '/': () => {
    search.focus();
    search.select();
  },
  '?': () => help.showModal(),
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  t: () => {
    location.hash = '#/tools';
  },
  Escape: back,
};

addEventListener('keydown', (event) => {
  const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  if (!act || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const inSearch = event.target === search;
  if (isTyping(event.target) && !(inSearch && ['Escape', 'ArrowDown'].includes(event.key))) return;
  // Arrows scroll, unless they are used to go through rows.
  if (
    event.key.startsWith('Arrow') &&
    !inSearch &&
    !document.activeElement?.closest('tbody, .findings, .top')
  )
    return;
  event.preventDefault();
  act();
});

byId('keys').onclick = KEYS['?'];
byId('search').onsubmit = (event) => {
  event.preventDefault();
  move(1);
};
let typed;
search.oninput = () => {
  clearTimeout(typed);
  typed = setTimeout(draw, 120);
};
addEventListener('hashchange', () => {
  search.value = '';
  draw();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) follow(draw);
});

follow(draw);
draw();
