// Pictures of commands at a terminal: a real one (tmux, on a socket of its own) runs them, and Chromium draws what is on it.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const TIMEOUT_MS = 60_000;
// The sixteen colours of a terminal, as many are set today.
const PALETTE = [
  '#1c2128', '#f47067', '#57ab5a', '#c69026', '#539bf5', '#b083f0', '#39c5cf', '#adbac7',
  '#768390', '#ff938a', '#6bc46d', '#daaa3f', '#6cb6ff', '#dcbdfb', '#56d4dd', '#ffffff',
];
const [FOREGROUND, BACKGROUND] = ['#cdd9e5', '#1c2128'];

/** What is on a terminal of this size once `command` (words) has written what matches `until`; `keys` are typed then. */
export async function screen(command, { columns = 100, rows = 30, until, keys = [], environment = {} }) {
  const directory = mkdtempSync(join(tmpdir(), 'trunkline-terminal-'));
  const tmux = (...args) => execFileSync('tmux', ['-S', join(directory, 'socket'), '-f', '/dev/null', ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, NO_COLOR: undefined } });
  const quoted = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const settings = Object.entries({ TERM: 'tmux-256color', COLORTERM: '', ...environment }).map(([name, value]) => `${name}='${value}'`).join(' ');
  tmux('-u', 'new-session', '-d', '-s', 'one', '-x', `${columns}`, '-y', `${rows}`, `unset NO_COLOR; ${settings} ${quoted}; sleep ${TIMEOUT_MS / 1000}`);
  try {
    const holds = async (pattern) => {
      for (const end = Date.now() + TIMEOUT_MS; ; await pause(100)) {
        const written = tmux('capture-pane', '-t', 'one', '-p');
        if (pattern.test(written)) return;
        if (Date.now() > end) throw new Error(`${command.join(' ')} did not write ${pattern}:\n${written}`);
      }
    };
    await holds(until);
    for (const { key, then } of keys) {
      tmux('send-keys', '-t', 'one', key);
      await holds(then);
    }
    return tmux('capture-pane', '-t', 'one', '-e', '-p').replace(/\n+$/, '').split('\n');
  } finally {
    // Without a session it has ended by itself.
    try { tmux('kill-server'); } catch {}
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Draws the lines of a terminal below the command that a person typed, and saves them. */
export async function draw(browser, path, typed, lines, { columns = 100 } = {}) {
  const context = await browser.newContext({ viewport: { width: 900, height: 300 }, deviceScaleFactor: 1.5 });
  try {
    const page = await context.newPage();
    const prompt = typed ? `<span style="color:${PALETTE[2]}">$</span> <b>${escaped(typed)}</b>\n` : '';
    await page.setContent(`<!doctype html><style>
      body { margin: 0; background: ${BACKGROUND} }
      pre { margin: 0; padding: 14px 18px; display: inline-block; min-width: ${columns}ch; color: ${FOREGROUND}; background: ${BACKGROUND};
            font: 13px/1.3 "DejaVu Sans Mono", "Liberation Mono", monospace }
    </style><pre>${prompt}${html(lines)}</pre>`);
    await page.locator('pre').screenshot({ path });
  } finally {
    await context.close();
  }
}

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

/** Lines with SGR sequences, as HTML. */
export function html(lines) {
  let look = {};
  const pieces = lines.join('\n').split(/\x1b\[([\d;:]*)m/);
  return pieces.map((piece, at) => {
    if (at % 2 === 1) {
      look = after(look, piece.split(/[;:]/).map(Number));
      return '';
    }
    return piece && `<span style="${style(look)}">${escaped(piece.replace(/\x1b\([A-Z]|[\x0e\x0f]/g, ''))}</span>`;
  }).join('');
}

/** The look after these parameters of SGR. */
function after(look, codes) {
  let next = { ...look };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) next = {};
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.reverse = true;
    else if (code === 22) Object.assign(next, { bold: false, dim: false });
    else if (code === 27) next.reverse = false;
    else if (code === 38 || code === 48) {
      const [name, color] = [code === 38 ? 'color' : 'background', codes[at + 1] === 5 ? indexed(codes[at + 2]) : `rgb(${codes.slice(at + 2, at + 5)})`];
      next[name] = color;
      at += codes[at + 1] === 5 ? 2 : 4;
    } else if (code === 39) delete next.color;
    else if (code === 49) delete next.background;
    else if (code >= 30 && code <= 37) next.color = PALETTE[code - 30];
    else if (code >= 40 && code <= 47) next.background = PALETTE[code - 40];
    else if (code >= 90 && code <= 97) next.color = PALETTE[code - 82];
    else if (code >= 100 && code <= 107) next.background = PALETTE[code - 92];
  }
  return next;
}

function indexed(index) {
  if (index < 16) return PALETTE[index];
  if (index >= 232) return `rgb(${Array(3).fill(8 + (index - 232) * 10)})`;
  const level = (value) => (value ? 55 + value * 40 : 0);
  const cube = index - 16;
  return `rgb(${[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level)})`;
}

function style({ bold, dim, italic, underline, reverse, color, background }) {
  const [front, back] = reverse ? [background ?? BACKGROUND, color ?? FOREGROUND] : [color, background];
  return [front || dim ? `color:${dim ? `color-mix(in srgb, ${front ?? FOREGROUND} 62%, ${back ?? BACKGROUND})` : front}` : '', back && `background:${back}`, bold && 'font-weight:bold', italic && 'font-style:italic', underline && 'text-decoration:underline'].filter(Boolean).join(';');
}
