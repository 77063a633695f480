// The pictures of the book show what the page and the terminal say today.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { IMAGES, SOURCES, sourceOf } from './picture_words.mjs';

/** A picture without fixed words shows nothing of ours. */
const WORDS_MIN = 1;

test('every picture has its words beside it', () => {
  const named = (ending) =>
    readdirSync(IMAGES)
      .filter((name) => name.endsWith(ending))
      .map((name) => name.slice(0, -ending.length))
      .sort();
  assert.deepEqual(named('.png'), Object.keys(SOURCES).sort());
  assert.deepEqual(named('.txt'), Object.keys(SOURCES).sort());
});

for (const picture of Object.keys(SOURCES)) {
  test(`the words of ${picture} are still there; if not, take the pictures again`, () => {
    const words = readFileSync(join(IMAGES, `${picture}.txt`), 'utf8').trim().split('\n');
    const source = sourceOf(picture);
    assert.ok(words.length >= WORDS_MIN, `${words.length} words`);
    assert.deepEqual(words.filter((piece) => !source.includes(piece)), []);
  });
}
