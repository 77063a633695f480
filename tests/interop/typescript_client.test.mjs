// The TypeScript SDKs on every open route, in every mode: the ways in which they differ from the Python SDKs (version 2
// walks all pages itself, both validate results, `listen` opens by their own rules) are what this adds.
// The runner passes the routes in the environment.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';

import { LEGACY_REVISION, REVISION, WAYS } from './typescript_sdks.mjs';

const topology = JSON.parse(process.env.TOPOLOGY);
const routes = topology.routes.filter(({ name }) => process.env.OPEN_ROUTES.split(',').includes(name));

const INVALID_PARAMS = -32602;
const MISSING_CAPABILITY = -32021;
const TIMEOUT_MS = 60_000;
const WATCHED = 'test://watched-resource';
const ALIASED = ['whoami', 'announce_watched', 'test_trigger_tool_change'];
const [direct] = routes;

for (const route of routes) {
  for (const way of WAYS.filter(({ isModern }) => hasNews(route, isModern))) {
    describe(`${way.name}, ${route.name}`, { timeout: TIMEOUT_MS }, () => testRoute(route, way));
  }
}

const keyed = topology.routes.find(({ name }) => name === 'keyed');
if (keyed) {
  for (const way of WAYS) {
    describe(`${way.name}, keyed`, { timeout: TIMEOUT_MS }, () => testKeys(way));
  }
}

/** Where upstreams speak one era each, the clients of theirs have nothing new to show. */
function hasNews(route, isModern) {
  const spoken = [route.alpha_revision, route.beta_revision].filter(Boolean);
  return spoken.length === 0 || spoken.some((revision) => (revision === REVISION) !== isModern);
}

/** How the tools of each upstream are called on a route; where names stay bare, beta's have aliases. */
function names(route) {
  return {
    alpha: (name) => route.alpha_name.replace('{}', name),
    beta: (name) => route.beta_name.replace('{}', name) || `beta_${name}`,
  };
}

function testRoute(route, way) {
  const { alpha, beta } = names(route);
  const uri = (inner) => route.alpha_uri.replace('{}', inner);
  let opened;
  let client;
  const call = (name, args = {}, options = {}) => opened.call(alpha(name), args, options);
  before(async () => {
    opened = await way.open(route, { person: way.isModern });
    client = opened.client;
  });
  after(() => opened?.close());

  test('a revision is negotiated', () => {
    assert.equal(opened.revision, way.isModern ? REVISION : LEGACY_REVISION);
    for (const capability of ['tools', 'prompts', 'resources', 'completions']) {
      assert.ok(client.getServerCapabilities()[capability], capability);
    }
  });

  test('all pages of a list, in one order', async () => {
    const { tools: inner } = await withClient(way, direct, (other) => other.client.listTools());
    const ofAlpha = inner.map(({ name }) => name);
    const expected = ofAlpha.map(alpha);
    const ofBeta = ofAlpha.map((name) => name.replace('only_alpha', 'only_beta'));
    const bare = (name) => (name === 'only_beta' ? [name] : ALIASED.includes(name) ? [beta(name)] : []);
    if (route.beta_name) expected.push(...ofBeta.map(beta));
    else if (route.beta_uri) expected.push(...ofBeta.flatMap(bare));
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map(({ name }) => name), expected);
    assert.deepEqual(tools[0].inputSchema, inner[0].inputSchema);
  });

  test('every upstream answers under its own name', async () => {
    const version = (spoken) => spoken || (way.isModern ? REVISION : LEGACY_REVISION);
    const alone = { name: 'alpha', version: version(route.alpha_revision) };
    assert.deepEqual((await call('whoami')).structuredContent, alone);
    if (route.beta_uri) {
      const other = { name: 'beta', version: version(route.beta_revision) };
      assert.deepEqual((await opened.call(beta('whoami'), {})).structuredContent, other);
    }
  });

  test('structured results', async () => {
    const args = { text: 'Zürich "quoted"', list: [1, 2.5, null], name: alpha('echo') };
    assert.deepEqual((await call('echo', args)).structuredContent, { arguments: args });
  });

  test('an error of the tool is a result', async () => {
    assert.equal((await call('test_error_handling')).isError, true);
  });

  test('progress', async () => {
    const seen = [];
    await call('test_tool_with_progress', {}, { onprogress: ({ progress, total }) => seen.push([progress, total]) });
    assert.deepEqual(seen, [[0, 100], [50, 100], [100, 100]]);
  });

  test('prompts', async () => {
    const { prompts } = await client.listPrompts();
    assert.equal(prompts[0].name, alpha('test_simple_prompt'));
    const args = { arg1: 'one', arg2: 'two' };
    const { messages } = await client.getPrompt({ name: alpha('test_prompt_with_arguments'), arguments: args });
    assert.match(messages[0].content.text, /arg1='one', arg2='two'/);
  });

  test('every listed resource can be read', async () => {
    const { resources } = await client.listResources();
    for (const { uri } of resources) {
      const { contents } = await client.readResource({ uri });
      assert.deepEqual(contents.map((part) => part.uri), [uri]);
    }
  });

  test('every listed template can be read', async () => {
    const { resourceTemplates } = await client.listResourceTemplates();
    assert.equal(resourceTemplates[0].uriTemplate, uri('test://template/{id}/data'));
    for (const { uriTemplate } of resourceTemplates) {
      const { contents } = await client.readResource({ uri: uriTemplate.replace('{id}', '42') });
      assert.equal(JSON.parse(contents[0].text).id, '42');
    }
  });

  test('links in results can be read', async () => {
    const [link] = (await call('links')).content;
    assert.equal(link.uri, uri('test://static-text'));
    assert.equal((await client.readResource({ uri: link.uri })).contents[0].uri, link.uri);
  });

  test('completion', async () => {
    const ref = { type: 'ref/resource', uri: uri('test://template/{id}/data') };
    const { completion } = await client.complete({ ref, argument: { name: 'id', value: 'par' } });
    assert.deepEqual(completion.values, ['paris', 'park', 'party']);
  });

  test('unknown names are refused', async () => {
    await assert.rejects(call('no_such_tool'), { code: INVALID_PARAMS });
    const unknown = client.readResource({ uri: uri('test://no-such-resource') });
    // Which parameter is invalid, an upstream of the newest revision does not say.
    await assert.rejects(unknown, { code: route.alpha_revision === REVISION ? INVALID_PARAMS : way.noResource });
  });

  test('an abort cancels upstream', async () => {
    const key = randomUUID();
    const abort = new AbortController();
    await assert.rejects(call('hold', { key }, { signal: abort.signal, onprogress: () => abort.abort() }));
    assert.equal((await call('hold_outcome', { key })).structuredContent.outcome, 'cancelled');
  });

  if (way.isModern) testModern(route, way, () => opened);
  else testLegacy(route, way, () => opened);
}

/** What every request carries, what results may ask for, and `subscriptions/listen`. */
function testModern(route, way, opened) {
  const { alpha, beta } = names(route);
  const call = (name, args = {}) => opened().call(alpha(name), args);

  test('declared arguments are mirrored to the upstream', async () => {
    await opened().client.listTools();
    const { structuredContent } = await call('test_x_mcp_header', { region: 'Zürich' });
    if (route.alpha_revision === LEGACY_REVISION || route.has_children) return; // where there are no such headers
    assert.equal(structuredContent.headers['mcp-param-region'], '=?base64?WsO8cmljaA==?=');
  });

  test('two clients at once answer their own questions', async () => {
    const tools = [alpha('ask_here'), ...(route.beta_name ? [beta('ask_here')] : [])];
    const ask = async (name) => {
      const { call: callAs, close } = await way.open(route, { person: true, name });
      try {
        await Promise.all([...tools, ...tools].map(async (tool) => {
          const { structuredContent } = await callAs(tool, { kind: 'elicitation', message: name });
          assert.deepEqual(structuredContent, { action: 'accept', content: { name } });
        }));
      } finally {
        await close();
      }
    };
    await Promise.all(['Ada', 'Grace'].map(ask));
  });

  test('questions to the client', async () => {
    const expected = {
      elicitation: 'Hello, Ada!',
      sampling: 'Paris',
      request_state: 'state-ok',
      multi_round: 'Ada likes green',
    };
    for (const [kind, answer] of Object.entries(expected)) {
      const { content } = await call(`test_input_required_result_${kind}`);
      assert.equal(content[0].text, answer, kind);
    }
  });

  test('the capabilities of the client count', async () => {
    await withClient(way, route, async (unable) => {
      await assert.rejects(unable.call(alpha('test_missing_capability'), {}), { code: MISSING_CAPABILITY });
    });
  });

  // Of children that know one session each, the one that is listened to learns nothing of what changes in another.
  const isTold = !(route.has_children && [route.alpha_revision, route.beta_revision].includes(LEGACY_REVISION));
  if (isTold) test('changes are announced', async () => {
    const { client, on } = opened();
    const uris = [route.alpha_uri, route.beta_uri].filter(Boolean).map((spelled) => spelled.replace('{}', WATCHED));
    const announcers = [alpha('announce_watched'), beta('announce_watched')];
    const updates = queue((arrived) => on('notifications/resources/updated', ({ uri }) => arrived(uri)));
    const changes = queue((arrived) => on('notifications/tools/list_changed', () => arrived(true)));
    const subscription = await client.listen({ resourceSubscriptions: uris, toolsListChanged: true });
    assert.deepEqual(subscription.honoredFilter, { resourceSubscriptions: uris, toolsListChanged: true });
    for (const [index, watched] of uris.entries()) {
      await opened().call(announcers[index], {});
      assert.equal(await updates(), watched);
    }
    await call('test_trigger_tool_change');
    assert.equal(await changes(), true);
    await subscription.close();
  });
}

/** What a session carries. */
function testLegacy(route, way, opened) {
  const { alpha } = names(route);

  test('ping', () => opened().client.ping());

  test('declared arguments need not be mirrored', async () => {
    for (const listed of [false, true]) {
      if (listed) await opened().client.listTools();
      const { structuredContent } = await opened().call(alpha('test_x_mcp_header'), { region: 'Zürich' });
      assert.ok(structuredContent.headers);
      if (route.alpha_revision !== REVISION || route.has_children) continue; // where there need be no such header
      assert.equal(structuredContent.headers['mcp-param-region'], '=?base64?WsO8cmljaA==?=');
    }
  });

  test('log lines arrive from the level that was set', async () => {
    const lines = [];
    opened().on('notifications/message', ({ data }) => lines.push(data));
    await opened().client.setLoggingLevel('error');
    await opened().call(alpha('test_logging_tool'), {});
    assert.deepEqual(lines, []);
    await opened().client.setLoggingLevel('info');
    await opened().call(alpha('test_logging_tool'), {});
    assert.deepEqual(lines, ['started', 'working', 'finished']);
  });

  test('two clients at once do not cross', async () => {
    await withClient(way, route, async (other) => {
      assert.notEqual(other.transport.sessionId, opened().transport.sessionId);
      const calls = [opened(), other].flatMap((client, index) => [0, 1, 2, 3].map(async (number) => {
        const { structuredContent } = await client.call(alpha('echo'), { index, number });
        assert.deepEqual(structuredContent.arguments, { index, number });
      }));
      await Promise.all(calls);
    });
  });

  test('an ended session is not found', async () => {
    const { client, transport } = await way.open(route);
    const session = transport.sessionId;
    await transport.terminateSession();
    await client.close();
    const headers = {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': LEGACY_REVISION,
      'Mcp-Session-Id': session,
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
    const response = await fetch(route.url, { method: 'POST', headers, body });
    await response.body?.cancel();
    assert.equal(response.status, 404);
  });
}

function testKeys(way) {
  test('a wrong key is refused', async () => {
    await assert.rejects(way.open(keyed, { headers: { Authorization: 'Bearer wrong' } }));
  });

  test('the key opens', async () => {
    const opened = await way.open(keyed, { headers: { Authorization: `Bearer ${topology.api_key}` } });
    assert.equal((await opened.call('whoami', {})).structuredContent.name, 'alpha');
    await opened.close();
  });
}

async function withClient(way, route, use) {
  const opened = await way.open(route);
  try {
    return await use(opened);
  } finally {
    await opened.close();
  }
}

/** What `subscribe`'s callback is given, one by one: each call waits for the next. */
function queue(subscribe) {
  const arrived = [];
  const waiting = [];
  subscribe((item) => (waiting.length ? waiting.shift()(item) : arrived.push(item)));
  return () => (arrived.length ? Promise.resolve(arrived.shift()) : new Promise((resolve) => waiting.push(resolve)));
}
