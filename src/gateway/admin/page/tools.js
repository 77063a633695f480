// Tools: the first of each kind on the overview, all of them page by page as the gateway finds and sorts
// them.

const PAGE_ROWS = 50;
/** What was asked last, and what came. */
const asked = { offset: 0, sort: 'calls' };

function topTools({ status }) {
  const { most_called, slowest, failing: worst } = status.tools ?? {};
  const n = toolCount(status);
  const noneFails = status.calls?.errors > 0 ? 'None that is known.' : 'No tool fails.';
  const kinds = [
    ['Most called', list(most_called), (tool) => tool.calls, (tool) => count(tool.calls), 'calls'],
    ['Slowest', list(slowest), ({ p99_s }) => p99_s ?? 0, slowness, 'slow'],
    [
      'Failing most',
      list(worst).filter(({ errors }) => errors > 0),
      ({ errors }) => errors,
      ({ errors, calls }) => `${count(errors)} · ${share(errors, calls)}`,
      'errors',
    ],
  ];
  return (
    status.tools &&
    h(
      'section.tops',
      { key: 'tops' },
      h('h2', 'Tools', h('a.note', { href: '#/tools' }, n === null ? 'all' : `all ${count(n)}`)),
      h(
        'div.columns',
        kinds.map(([title, tools, of, say, tone]) => {
          const most = Math.max(...tools.map(of), 0);
          return h(
            'div',
            { key: title },
            h('h3', title),
            tools.length === 0
              ? h('p.none', tone === 'errors' ? noneFails : 'No calls yet.')
              : h(
                  'ol.top',
                  tools
                    .slice(0, 6)
                    .map((tool) =>
                      h(
                        'li',
                        { key: `${tool.upstream} ${tool.name}` },
                        h(
                          'a.row.name',
                          { href: link('tool', tool.upstream, tool.name) },
                          titleOf(tool.name, 80),
                        ),
                        h('span.about', shown(tool.upstream, 60)),
                        h('span.figure', say(tool)),
                        bar(of(tool), most, tone),
                      ),
                    ),
                ),
          );
        }),
      ),
    )
  );
}

const TOOL_COLUMNS = [
  { label: 'Tool', class: 'what', sort: 'name', show: named },
  { label: 'Upstream', class: 'from', show: ({ upstream }) => h('span.name', shown(upstream, 80)) },
  { label: 'Kind', class: 'kind', show: kindOf },
  { label: 'Calls', class: 'figure', sort: 'calls', show: ({ calls }) => count(calls) },
  { label: 'Failed', class: 'figure', sort: 'errors', show: ({ calls, errors }) => share(errors, calls) },
  { label: 'p50', class: 'figure p50', show: (tool) => slowness(tool, 'p50_s') },
  { label: 'p99', class: 'figure', sort: 'p99', show: slowness },
];

/** What took as long as the last bound of the histogram, or longer, is not told apart. */
function slowness(tool, name = 'p99_s') {
  return tool[name] >= 75 ? '>75 s' : latency(tool[name]);
}

function kindOf(tool) {
  if (tool.pin === 'changed') return badge('warn', 'changed');
  if (tool.pin === 'new') return badge('warn', 'not approved');
  if (tool.left_out) return 'not offered';
  if (tool.destructive) return 'destructive';
  return tool.read_only ? 'reads only' : '';
}

/** The tools of one upstream, or of all that match the search. */
function toolSection(view, upstream = '') {
  const about = `${upstream}\n${view.query}`;
  if (asked.about !== about) asked.offset = 0;
  put(
    asked,
    about,
    { upstream, q: view.query, sort: asked.sort, offset: asked.offset, count: PAGE_ROWS },
    view,
  );
  const { told, error } = asked;
  const total = told?.matched ?? 0;
  return h(
    'section.tabular',
    { key: 'tools' },
    h('h2', 'Tools', h('span.note', told ? ofAll(total, told.total) : '')),
    !told
      ? h('p.none', error || 'Asking …')
      : toolTable(
          told,
          view,
          upstream ? TOOL_COLUMNS.filter((column) => column.class !== 'from') : TOOL_COLUMNS,
        ),
    told && total > PAGE_ROWS && pages(total),
  );
}

function toolTable({ tools }, view, columns) {
  if (!tools.length)
    return h(
      'p.none',
      view.query ? 'No tool matches.' : 'None are known.',
    );
  const rows = tools.map((tool) => ({
    ...tool,
    key: `${tool.upstream} ${tool.name}`,
    href: link('tool', tool.upstream, tool.name),
    about: shown(tool.description || tool.title, 120),
  }));
  return table('tools', 'Tools', rows, columns, ({ sort }) =>
    sort
      ? {
          sorted: asked.sort === sort && (sort === 'name' ? 'ascending' : 'descending'),
          onclick: () => {
            Object.assign(asked, { sort, offset: 0 });
            draw();
          },
        }
      : {},
  );
}

function pages(total) {
  const go = (offset) => () => {
    asked.offset = offset;
    draw();
  };
  const last = Math.min(asked.offset + PAGE_ROWS, total);
  return h(
    'nav.pages',
    { 'aria-label': 'Pages of tools' },
    h(
      'button',
      { disabled: asked.offset === 0, onclick: go(Math.max(0, asked.offset - PAGE_ROWS)) },
      '← Previous',
    ),
    h('span', `${count(asked.offset + 1)} to ${count(last)} of ${count(total)}`),
    h('button', { disabled: last >= total, onclick: go(asked.offset + PAGE_ROWS) }, 'Next →'),
  );
}

/** Asks once per question and sample; what came before stays until the answer is there. */
function put(question, about, parameters, view) {
  const given = Object.entries(parameters).filter(([, value]) => value !== '' && value !== 0);
  const address = `/status/tools?${new URLSearchParams(given)}`;
  const sample = view.status.sample?.number ?? view.answered_ms;
  if (question.about !== about) Object.assign(question, { about, told: null, error: '', address: '' });
  if (question.address === address && (question.sample === sample || known.trouble)) return;
  Object.assign(question, { address, sample });
  const keep = (what) => question.address === address && Object.assign(question, what);
  ask(address)
    .then(
      ({ tools, ...told }) => keep({ told: { ...told, tools: list(tools) }, error: '' }),
      ({ message }) => keep({ error: message }),
    )
    .then(draw);
}
