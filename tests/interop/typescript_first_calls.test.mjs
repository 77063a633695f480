// The calls that people make first, with the TypeScript SDKs in both eras and in sessions of older revisions: as
// `first_calls.py` has them for Python.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { openSession, ofMode, REVISION, SESSION_SDKS } from './typescript_sdks.mjs';

/** Answers the question of the demo, and remembers what was asked. */
class Person {
  agrees = false;

  asked = [];

  answer(method, { message }) {
    this.asked.push(message);
    return this.agrees ? { action: 'accept', content: { ok: true } } : { action: 'decline' };
  }
}

const topology = JSON.parse(process.env.TOPOLOGY);

const TIMEOUT_MS = 30_000;
const CITY = 'Zürich';
/** In these, the SDK's version 2 names the method and the tool in headers, and mirrors no argument. */
const OLDER_REVISIONS = ['2025-03-26', '2025-06-18'];
const WITHOUT_QUESTIONS = '2025-03-26';
const WAYS = {
  http: [
    ...SESSION_SDKS,
    ...OLDER_REVISIONS.map((revision) => ofMode('legacy', revision)),
    ofMode('auto'),
    ofMode({ pin: REVISION }),
  ],
  connect: [...SESSION_SDKS, ofMode('auto')],
  // It mirrors nothing in the newest revision either, which demands it.
  'mcp-remote': [...SESSION_SDKS, ofMode('legacy', '2025-06-18')],
};

for (const route of topology.routes.filter(({ for_first_calls }) => for_first_calls)) {
  for (const sdk of WAYS[route.transport]) {
    describe(`${sdk.name}, ${route.name}`, { timeout: TIMEOUT_MS }, () => testFirstCalls(route, sdk));
  }
}

function testFirstCalls(route, sdk) {
  const person = new Person();
  let session;
  before(async () => {
    session = await openSession(sdk, topology, route, person);
  });
  after(() => session?.close());

  test('a declared argument needs no more of a client than its revision says', async () => {
    for (const listed of [false, true]) {
      if (listed) await session.client.listTools();
      if (route.is_demo) {
        const { structuredContent } = await session.call('weather__forecast', { city: CITY, days: 1 });
        assert.equal(structuredContent.city, CITY);
      } else {
        const tool = route.alpha_name.replace('{}', 'test_x_mcp_header');
        assert.ok((await session.call(tool, { region: CITY })).structuredContent.headers.host);
      }
    }
  });

  if (route.is_demo && sdk.revision === WITHOUT_QUESTIONS) test('who cannot be asked is told', async () => {
    const { isError, content } = await session.call('notes__delete_note', { number: 1 });
    assert.ok(isError);
    assert.match(content[0].text, /elicitation/);
  });
  else if (route.is_demo) test('a person is asked', async () => {
    const title = `${sdk.name}, ${route.name}`;
    const { structuredContent: { number } } = await session.call('notes__add_note', { title, text: '' });
    for (person.agrees of [false, true]) {
      const { structuredContent } = await session.call('notes__delete_note', { number });
      assert.deepEqual(structuredContent, { deleted: person.agrees });
    }
    assert.deepEqual(person.asked, Array(2).fill(`Delete note ${number} “${title}” for good?`));
  });
}
