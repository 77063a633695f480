// The fixed words of a picture: those on it that stand in the sources of what it shows. They are kept beside the picture, so
// that a test finds pictures whose words are no longer there.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
export const IMAGES = join(ROOT, 'docs', 'images');
const PAGE = ['src/gateway/admin/page', 'src/status'];
const TERMINAL = ['src/tools/top', 'src/tools/admin_client', 'src/status'];
const SIGN_IN = ['src/identity/pages'];
/** Picture → where its words stand. */
export const SOURCES = {
  'overview-light': PAGE,
  'overview-dark': PAGE,
  upstream: PAGE,
  phone: PAGE,
  'terminal-top': TERMINAL,
  'terminal-call': ['src/tools', 'src/commands'],
  'terminal-doctor': ['src/tools', 'src/commands'],
  'sign-in-consent': SIGN_IN,
  'sign-in-consent-phone': SIGN_IN,
  'sign-in-own': SIGN_IN,
  'sign-in-own-phone': SIGN_IN,
};
/** Shorter pieces are in every source by chance. */
const LETTERS_MIN = 4;

/** Everything in the files of these directories. */
export function sourceOf(picture) {
  return SOURCES[picture]
    .flatMap((directory) =>
      readdirSync(join(ROOT, directory), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile() && entry.name !== 'tests.rs')
        .map((entry) => readFileSync(join(entry.parentPath ?? entry.path, entry.name), 'utf8').split('#[cfg(test)]')[0]),
    )
    .join('\n');
}

/** Writes down which pieces of the texts on a picture stand in its sources. */
export function keepWords(picture, texts) {
  const source = sourceOf(picture);
  // What is measured or named stands between fixed words.
  const pieces = texts.flatMap((text) => text.split(/[\d\n·…│|]+|\s{2,}/)).map((piece) => piece.trim());
  const isFixed = (piece) => /[A-Za-z]/.test(piece) && piece.length >= LETTERS_MIN && source.includes(piece);
  const words = [...new Set(pieces.filter(isFixed))].sort();
  writeFileSync(join(IMAGES, `${picture}.txt`), `${words.join('\n')}\n`);
}
