// Which calls failed lately, and who calls.

const OUTCOMES = { __proto__: null, failed: 'bad', refused: 'warn', cancelled: 'off' };

const ERROR_COLUMNS = [
  {
    label: 'Outcome',
    class: 'state',
    of: ({ outcome }) => String(outcome),
    show: ({ outcome }) => badge(OUTCOMES[outcome] ?? 'off', shown(outcome, 20)),
  },
  { label: 'Call', class: 'what', of: ({ name }) => name, show: calledWords },
  {
    label: 'Reason',
    class: 'reason',
    of: ({ reason }) => String(reason),
    show: ({ reason, message, request_id: id }) => [
      shown(reason, 40),
      h('span.about', [message, id].filter(Boolean).map((text) => shown(text, 240)).join(' · ')),
    ],
  },
  {
    label: 'Principal',
    class: 'from',
    of: ({ principal }) => principal ?? '',
    show: ({ principal }) => h('span.name', principal === null ? NONE : shown(principal, 80)),
  },
  { label: 'Calls', class: 'figure', of: ({ calls }) => calls, show: ({ calls }) => count(calls) },
  { label: 'Last', class: 'since', of: ({ at_s }) => at_s, show: ({ at_s }) => clock(at_s) },
];

/** What was called, and where. */
function calledWords({ name, method, href, endpoint, upstream }) {
  const places = [endpoint, upstream].filter(Boolean).map((place) => shown(place, 60));
  const title = titleOf(name, 100);
  return [
    href ? h('a.row.name', { href }, title) : h('span.name', title),
    h('span.about', [name === method ? '' : shown(method, 60), places.join(' → ')].filter(Boolean).join(' · ')),
  ];
}

/** The latest calls without success, alike ones in one row. */
function recentErrors(view, errors) {
  const matches = ({ name, method, reason, principal }) =>
    [name, method, reason, principal].some((text) => String(text ?? '').toLowerCase().includes(view.query.toLowerCase()));
  const rows = errors.filter(matches).map(({ name, method, endpoint, upstream, ...one }) => ({
    ...one,
    method,
    endpoint,
    upstream,
    name: name ?? method,
    key: JSON.stringify([name, method, endpoint, upstream, one.reason, one.principal]),
    href: upstream ? link('upstream', upstream) : endpoint ? link('endpoint', endpoint) : null,
  }));
  if (!rows.length) return null;
  return tableSection('errors', 'Recent errors', rows, errors.length, ERROR_COLUMNS, view);
}

const CALLER_COLUMNS = [
  { label: 'Principal', class: 'what', of: ({ name }) => name, show: ({ name }) => h('span.name', name) },
  { label: 'Calls', class: 'figure wide', of: ({ calls }) => calls, show: ({ calls }) => count(calls) },
  {
    label: 'Failed',
    class: 'figure',
    of: ({ errors, calls }) => (calls > 0 ? errors / calls : null),
    show: ({ errors, calls }) => share(errors, calls),
  },
  { label: 'Refused', class: 'figure', of: ({ refused }) => refused, show: ({ refused }) => count(refused) },
];

/** Principals: those that call most, then those that are refused most. */
function whoCalls({ status, ...view }) {
  const { busiest, most_refused, known: principals, unidentified } = status.callers ?? {};
  const all = new Map([...list(busiest), ...list(most_refused)].map((one) => [one.principal, one]));
  const rows = [...all.values()].map((one) => ({
    ...one,
    key: `${one.principal}`,
    name: one.principal === null ? 'anonymous' : titleOf(one.principal, 80),
  }));
  if (!rows.length) return null;
  const section = tableSection('callers', 'Who calls', rows, number(principals) ?? rows.length, CALLER_COLUMNS, view);
  section.kids.push(
    unidentified > 0 &&
      h('p.none', `${plural(unidentified, 'request')} failed before it was known who calls.`),
  );
  section.kids = section.kids.filter(Boolean);
  return section;
}
