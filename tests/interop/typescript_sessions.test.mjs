// Everything a session of the older revisions carries, with the TypeScript SDKs: as `session_cases.py` has it for Python,
// but with clients that answer many questions at once and whose handlers learn that a question was taken back.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';

import { Person, UNANSWERED } from './typescript_person.mjs';
import { openSession, SESSION_SDKS } from './typescript_sdks.mjs';

const topology = JSON.parse(process.env.TOPOLOGY);
const routes = topology.routes.filter(({ name }) => process.env.SESSION_ROUTES.split(',').includes(name));

const TIMEOUT_MS = 90_000;
const CHECK_TIMEOUT_MS = 10_000;
const QUESTIONS = 3;
const WATCHED = 'test://watched-resource';
const URL_ELICITATION_REQUIRED = -32042;

for (const route of routes) {
  for (const sdk of SESSION_SDKS) {
    describe(`${sdk.name}, ${route.name}`, { timeout: TIMEOUT_MS }, () => testSession(route, sdk));
  }
}

function upstreams(route) {
  const named = (name, tools, uris, revision) => ({
    name,
    isModern: revision === '2026-07-28', // such a one takes no question back and hears of no progress of its own
    tool: (inner) => tools.replace('{}', inner),
    uri: (inner) => uris.replace('{}', inner),
  });
  const alpha = named('alpha', route.alpha_name, route.alpha_uri, route.alpha_revision);
  if (!route.beta_name) return [alpha];
  return [alpha, named('beta', route.beta_name, route.beta_uri, route.beta_revision)];
}

function testSession(route, sdk) {
  const all = upstreams(route);
  const person = new Person();
  let session;
  before(async () => {
    session = await openSession(sdk, topology, route, person);
    await fromEach('whoami'); // where upstreams are children, they start now
    if (all.some(({ isModern }) => isModern)) await session.client.setLoggingLevel('info'); // until then, no lines
  });
  after(() => session?.close());

  const fromEach = (tool, args = {}) => Promise.all(all.map((each) => session.call(each.tool(tool), args)));

  /** What each upstream sent before on its stream of no call has arrived by then. */
  const marked = async () => {
    const lines = session.next('notifications/message', all.length, ({ data }) => data === 'mark');
    await fromEach('log_apart', { message: 'mark' });
    await lines;
  };

  for (const tool of ['ask_here', 'ask_apart']) {
    for (const kind of ['elicitation', 'sampling']) {
      test(`${tool}: answers to ${kind} do not cross`, { timeout: CHECK_TIMEOUT_MS }, async () => {
        const calls = Array.from({ length: QUESTIONS }, (_, number) => all.map(({ name, tool: publicly }) => ({
          publicly,
          message: `${name} ${tool} ${kind} ${number}`,
        }))).flat();
        person.expect(calls.length);
        const results = await Promise.all(calls.map(({ publicly, message }) => (
          session.call(publicly(tool), { kind, message }))));
        const answers = results.map(({ structuredContent: { content } }) => content.name ?? content.text);
        assert.deepEqual(answers, calls.map(({ message }) => `re ${message}`));
      });
    }
  }

  test('roots and pings', { timeout: CHECK_TIMEOUT_MS }, async () => {
    for (const tool of ['ask_here', 'ask_apart']) {
      for (const { structuredContent } of await fromEach(tool, { kind: 'roots' })) {
        assert.deepEqual(structuredContent.roots.map(({ uri }) => uri), ['file:///srv/project']);
      }
      await fromEach(tool, { kind: 'ping' });
    }
    await session.client.ping();
  });

  test('progress of the client reaches who asked', { timeout: CHECK_TIMEOUT_MS }, async () => {
    const results = await fromEach('ask_with_progress', { message: 'how far?' });
    for (const [index, { structuredContent }] of results.entries()) {
      if (all[index].isModern) assert.equal(structuredContent.content.text, 're how far?');
      else assert.deepEqual(structuredContent.seen, [[1, 2]]);
    }
  });

  test('a question that is taken back', { timeout: CHECK_TIMEOUT_MS }, async () => {
    const takenBack = person.takenBack(all.filter(({ isModern }) => !isModern).length);
    for (const { content } of await fromEach('ask_and_give_up', { message: UNANSWERED })) {
      assert.equal(content[0].text, 'gave up');
    }
    await takenBack;
  });

  test('a person is sent to a page', { timeout: CHECK_TIMEOUT_MS }, async () => {
    const telling = all.filter(({ isModern }) => !isModern).length;
    const done = telling ? session.next('notifications/elicitation/complete', telling) : [];
    const results = await fromEach('ask_url', { message: 'sign in' });
    const ids = (await done).map(({ elicitationId }) => elicitationId);
    const told = results.map(({ structuredContent }) => structuredContent.id).filter(Boolean);
    assert.deepEqual(ids.sort(), told.sort());
    for (const each of all) {
      if (each.isModern) {
        assert.equal((await session.call(each.tool('need_url'))).content[0].text, 'accept');
        continue;
      }
      await assert.rejects(session.call(each.tool('need_url')), { code: URL_ELICITATION_REQUIRED });
    }
  });

  test('cancelling', { timeout: CHECK_TIMEOUT_MS }, async () => {
    for (const each of all) {
      const key = randomUUID();
      const abort = new AbortController();
      const options = { signal: abort.signal, onprogress: () => abort.abort() };
      await assert.rejects(session.call(each.tool('hold'), { key }, options));
      const { structuredContent } = await session.call(each.tool('hold_outcome'), { key });
      assert.equal(structuredContent.outcome, 'cancelled');
    }
  });

  test('a stream that breaks off is taken up again', { timeout: CHECK_TIMEOUT_MS }, async () => {
    for (const { content } of await fromEach('test_reconnection')) {
      assert.equal(content[0].text, 'answered after the stream ended');
    }
  });

  test('the level holds for every upstream', { timeout: CHECK_TIMEOUT_MS }, async () => {
    for (const [level, expected] of [['error', 0], ['info', 3]]) {
      const lines = session.collect('notifications/message');
      await session.client.setLoggingLevel(level);
      await fromEach('test_logging_tool');
      await marked();
      assert.equal(lines.length, (expected + 1) * all.length, level);
    }
  });

  test('what is watched', { timeout: CHECK_TIMEOUT_MS }, async () => {
    for (const each of all) await session.client.subscribeResource({ uri: each.uri(WATCHED) });
    for (const each of all) {
      const update = session.next('notifications/resources/updated');
      await session.call(each.tool('announce_watched'));
      assert.deepEqual((await update).map(({ uri }) => uri), [each.uri(WATCHED)]);
    }
    const further = session.collect('notifications/resources/updated');
    for (const each of all) await session.client.unsubscribeResource({ uri: each.uri(WATCHED) });
    await fromEach('announce_watched');
    await marked();
    assert.deepEqual(further, []);
  });

  test('lists that change', { timeout: CHECK_TIMEOUT_MS }, async () => {
    for (const each of all) {
      const kinds = ['tools', 'prompts', 'resources'];
      const changes = kinds.map((kind) => session.next(`notifications/${kind}/list_changed`));
      await session.call(each.tool('change_lists'));
      await Promise.all(changes);
    }
  });
}
