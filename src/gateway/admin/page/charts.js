// Lines over time with their scales, and the shapes of states: descriptions of elements.

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

/** What is said of one value of a series. */
const SAYS = {
  calls: (value) => `${rate(value)}/s`,
  errors: (value) => `${rate(value)}/s failed`,
  slow: latency,
};
/** The same, as short as a scale has it. */
const SCALES = { calls: (value) => `${rate(value)}/s`, errors: (value) => `${rate(value)}/s`, slow: latency };
const TIP_GAP_PX = 8;

/** Of each series what it was at this place, and when. */
function pointWords(series, at_s, at) {
  const said = Object.entries(series).map(([kind, values]) => SAYS[kind](values[at]));
  const length = Object.values(series)[0].length;
  const when = number(at_s[at - length + at_s.length]);
  return [when === null ? null : clock(when), ...said].filter(Boolean).join(' · ');
}

/** What is shown beside the pointer, or the point that keys chose. */
function tell(plot, series, at_s, at) {
  const { left, top, width } = plot.getBoundingClientRect();
  const { length } = Object.values(series)[0];
  const tip = byId('tip');
  tip.textContent = pointWords(series, at_s, at);
  tip.hidden = false;
  const x = left + width * (1 - (length - 1 - at) / (SAMPLES_MAX - 1));
  const furthest = document.documentElement.clientWidth - tip.offsetWidth - TIP_GAP_PX;
  tip.style.left = `${Math.max(TIP_GAP_PX, Math.min(furthest, x - tip.offsetWidth / 2))}px`;
  tip.style.top = `${Math.max(0, top - tip.offsetHeight - 4)}px`;
}

const untell = () => {
  byId('tip').hidden = true;
};

/** A chart that tells its values to pointers. */
function pointed(series, at_s) {
  const { length } = Object.values(series)[0];
  return {
    onpointermove: ({ currentTarget: plot, clientX }) => {
      const { left, width } = plot.getBoundingClientRect();
      const at = length - 1 - Math.round((1 - (clientX - left) / width) * (SAMPLES_MAX - 1));
      if (at < 0 || at >= length) untell();
      else tell(plot, series, at_s, at);
    },
    onpointerleave: untell,
  };
}

/** When a chart begins and ends: it has room for all samples, however few there are. */
function timesOf(at_s) {
  const [first, to] = [at_s[0], at_s.at(-1)].map(number);
  if (first === null || at_s.length < 2) return [null, to];
  return [to - ((to - first) / (at_s.length - 1)) * (SAMPLES_MAX - 1), to];
}

/** A chart with its scale and its time, which keys and pointers read value by value. */
function plot(label, series, at_s) {
  const [[kind, values]] = Object.entries(series);
  const top = highest(values);
  const last = values.length - 1;
  const onkeydown = (event) => {
    const now = Number(event.currentTarget.dataset.at ?? last);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const at = Math.min(Math.max(next, 0), last);
    event.currentTarget.dataset.at = at;
    event.currentTarget.setAttribute('aria-valuenow', at + 1);
    event.currentTarget.setAttribute('aria-valuetext', pointWords(series, at_s, at));
    tell(event.currentTarget, series, at_s, at);
  };
  const [from, to] = timesOf(at_s);
  return h(
    'div.plot',
    h('div.scale', { 'aria-hidden': 'true' }, top > 0 && [h('span', SCALES[kind](top)), h('span', '0')]),
    h(
      'div.reader',
      values.length > 1 && {
        role: 'slider',
        tabindex: 0,
        'aria-label': `${label} over time`,
        'aria-valuemin': 1,
        'aria-valuemax': last + 1,
        'aria-valuenow': last + 1,
        'aria-valuetext': pointWords(series, at_s, last),
        'aria-readonly': 'true',
        onkeydown,
        onblur: untell,
        ...pointed(series, at_s),
      },
      chart(series, 240, 48, 'tall'),
    ),
    h(
      'div.times',
      { 'aria-hidden': 'true' },
      h('span', from === null ? '' : clock(from)),
      h('span', to === null ? '' : clock(to)),
    ),
  );
}

const drawn = new WeakMap();

/** One for a row: drawn again only when there is something new. */
function spark(series, at_s) {
  const values = series.calls ?? series.slow;
  if (!drawn.has(values)) {
    const [[kind]] = Object.entries(series);
    const peak = highest(values);
    const label = values.length ? `up to ${SAYS[kind](peak)}` : 'not known yet';
    drawn.set(
      values,
      h(
        'div',
        { role: 'img', 'aria-label': label, ...(values.length ? pointed(series, at_s) : {}) },
        chart(series, 150, 24, 'spark'),
      ),
    );
  }
  return drawn.get(values);
}

/** How long a bar is beside the longest. */
const bar = (value, most, tone) =>
  h(
    'svg.bar',
    { viewBox: '0 0 100 2', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('rect', { class: tone, width: most > 0 ? Math.max(1, (100 * value) / most).toFixed(1) : 0, height: 2 }),
  );
