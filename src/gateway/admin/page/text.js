'use strict';
// Names, numbers and times as people read them. Pure.
//
// Invariant: what strangers wrote passes through `shown`, which leaves nothing in it that hides, turns around
// or breaks what stands beside it; everything is then set as text, never as markup.

const NONE = '–';
// Controls, format characters, separators of lines, blank letters, variation selectors, what no font has.
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029\u115f\u1160\u2800\u3164\uffa0\ufe00-\ufe0e\u{e0100}-\u{e01ef}]/gu;

/** `text` on one line, at most so many characters of it. */
function shown(text, charactersMax = 160) {
  const all = String(text ?? '').slice(0, charactersMax * 2 + 2);
  const kept = [...all];
  const cut = kept.length > charactersMax ? [...kept.slice(0, charactersMax - 1), '…'].join('') : all;
  return cut.replace(UNSEEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** What is called so; a name may hold nothing that is seen. */
const titleOf = (name, charactersMax) => shown(name, charactersMax).trim() || '(no name)';

/** Of what ends in so many seconds. */
const timeLeft = (s) => (s > 0 ? `ends in ${duration(s)}` : `ended ${duration(-s)} ago`);

/** A finite number, or null. */
const number = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null);
const list = (value) => (Array.isArray(value) ? value : []);

function count(value) {
  const n = number(value);
  if (n === null) return NONE;
  return Math.abs(n) < 100_000 ? Math.round(n).toLocaleString('en') : scaled(n, ' G', ' M', ' k');
}

/** With the largest of the units for 10⁹, 10⁶, 10³ that fits, or `one`. */
function scaled(n, giga, mega, kilo, one = '') {
  const [divisor, unit] = [
    [1e9, giga],
    [1e6, mega],
    [1e3, kilo],
  ].find(([divisor]) => n >= divisor) ?? [1, one];
  return significant(n / divisor) + unit;
}

function rate(value) {
  const n = number(value);
  if (n === null) return NONE;
  if (n === 0) return '0';
  if (n < 0.1) return '<0.1';
  return n < 9.95 ? n.toFixed(1) : count(n);
}

function latency(seconds) {
  const s = number(seconds);
  if (s === null) return NONE;
  if (s < 0.9995) return `${significant(s * 1000)} ms`;
  return `${significant(s)} s`;
}

/** How much of `whole` is `part`. */
function share(part, whole) {
  if (number(part) === null || number(whole) === null || whole <= 0) return NONE;
  const percent = (100 * part) / whole;
  if (percent === 0) return '0 %';
  if (percent < 0.1) return '<0.1 %';
  // What is not all of it is not said to be.
  if (percent > 99 && percent < 100) return `${(Math.floor(percent * 10) / 10).toFixed(1)} %`;
  return `${percent < 9.95 ? percent.toFixed(1) : Math.round(percent)} %`;
}

const bytes = (value) => (number(value) === null ? NONE : scaled(value, ' GB', ' MB', ' kB', ' B'));

const significant = (n) => (n < 9.95 ? String(Number(n.toFixed(1))) : Math.round(n).toLocaleString('en'));

/** `3 d 4 h`, `12 min`: the largest unit and the one below it. */
function duration(seconds) {
  const s = Math.max(0, Math.floor(number(seconds) ?? 0));
  const units = [
    [86_400, 'd'],
    [3600, 'h'],
    [60, 'min'],
    [1, 's'],
  ];
  const first = units.findIndex(([size]) => s >= size);
  if (first < 0) return '0 s';
  const [size, unit] = units[first];
  const [next, below] = units[first + 1] ?? [];
  const rest = next ? Math.floor((s % size) / next) : 0;
  return `${Math.floor(s / size)} ${unit}${rest && unit !== 'min' ? ` ${rest} ${below}` : ''}`;
}

const two = (n) => String(n).padStart(2, '0');

/** Time of day of the reader, with the day where it is another one. */
function clock(unix_s) {
  const at = new Date(unix_s * 1000);
  if (Number.isNaN(at.getTime())) return NONE;
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === new Date().toDateString() ? time : `${day} ${time}`;
}

function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

const and = (words) =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
