// Lines over time, and the shapes of states. Pure: descriptions of elements.

const SHAPES = {
  ok: ['circle', { cx: 6, cy: 6, r: 4 }],
  warn: ['path', { d: 'M6 1 11.5 11H.5z' }],
  bad: ['path', { d: 'M1 1h10v10H1zM3.5 3.5l5 5m0-5-5 5' }],
  off: ['circle', { cx: 6, cy: 6, r: 3.5 }],
};

/** A state in shape, colour and word. */
function badge(level, word) {
  return h('span', { class: `badge ${level}` }, shape(level), h('span', word));
}

function shape(level, size = 12) {
  const [tag, attributes] = SHAPES[level];
  return h(
    'svg',
    { class: `shape ${level}`, viewBox: '0 0 12 12', width: size, height: size, 'aria-hidden': 'true' },
    h(tag, attributes),
  );
}

const highest = (values) => values.reduce((most, value) => Math.max(most, number(value) ?? 0), 0);

/** Gaps where nothing is known; a point that stands alone is drawn as one. */
function line(values, width, height, top) {
  const step = width / (SAMPLES_MAX - 1);
  const x = (at) => (width - (values.length - 1 - at) * step).toFixed(1);
  const y = (value) => (height - 1 - (value / top) * (height - 3)).toFixed(1);
  let path = '';
  values.forEach((value, at) => {
    if (number(value) === null) return;
    const joins = at > 0 && number(values[at - 1]) !== null;
    const alone = !joins && number(values[at + 1]) === null;
    path += `${joins ? 'L' : 'M'}${x(at)} ${y(value)}${alone ? 'h.1' : ''}`;
  });
  return path;
}

/** A stroke from the ground for each value that is not nothing: what is rare must be seen. */
function strokes(values, width, height, top) {
  const step = width / (SAMPLES_MAX - 1);
  const stroke = (value, at) => {
    const x = (width - (values.length - 1 - at) * step).toFixed(1);
    return `M${x} ${height}V${Math.min(height - 3, height - (value / top) * (height - 3)).toFixed(1)}`;
  };
  return values.map((value, at) => (number(value) > 0 ? stroke(value, at) : '')).join('');
}

/** Calls with what failed of them, or one line of latencies, from the ground up to the highest. */
function chart({ calls, errors, slow }, width, height, kind) {
  const values = calls ?? slow ?? [];
  const top = Math.max(highest(values), highest(errors ?? []));
  const left = (width - ((values.length - 1) * width) / (SAMPLES_MAX - 1)).toFixed(1);
  const d = top > 0 ? line(values, width, height, top) : '';
  const isWhole = d && !values.some((value) => number(value) === null);
  const tone = calls ? 'calls' : 'slow';
  return h(
    'svg',
    {
      class: `chart ${kind}`,
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: 'none',
      'aria-hidden': 'true',
    },
    h('path', { class: 'base', d: `M0 ${height - 0.5}H${width}` }),
    isWhole && h('path', { class: `area ${tone}`, d: `${d}V${height}H${left}z` }),
    h('path', { class: `line ${tone}`, d }),
    errors && h('path.line.errors', { d: top > 0 ? strokes(errors, width, height, top) : '' }),
  );
}

const drawn = new WeakMap();

/** One for a row: drawn again only when there is something new. */
function spark(series) {
  const values = series.calls ?? series.slow;
  if (!drawn.has(values)) drawn.set(values, chart(series, 150, 24, 'spark'));
  return drawn.get(values);
}

/** How long a bar is beside the longest. */
const bar = (value, most, tone) =>
  h(
    'svg.bar',
    { viewBox: '0 0 100 2', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('rect', { class: tone, width: most > 0 ? Math.max(1, (100 * value) / most).toFixed(1) : 0, height: 2 }),
  );
