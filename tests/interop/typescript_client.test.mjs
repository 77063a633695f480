// The TypeScript SDK's client on every open route, in both of its modern modes: the ways in which it differs from the
// Python client (it walks all pages itself, validates results, opens `listen` by its own rules) are what this adds.
// The runner passes the routes and the directory of the packages in the environment.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';

const require = createRequire(`${process.env.NPM_DIRECTORY}/`);
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { apiKey, routes } = JSON.parse(process.env.TOPOLOGY);
const openRoutes = process.env.OPEN_ROUTES.split(',');

const REVISION = '2026-07-28';
const INVALID_PARAMS = -32602;
const MISSING_CAPABILITY = -32021;
const TIMEOUT_MS = 15_000;
const ANSWERS = { name: 'Ada', color: 'green', ok: true, context: 'a test' };

for (const route of routes.filter(({ name }) => openRoutes.includes(name))) {
  for (const mode of ['auto', { pin: REVISION }]) {
    describe(`typescript, ${route.name}, ${mode.pin ?? mode}`, { timeout: TIMEOUT_MS }, () => testRoute(route, mode));
  }
}

const keyed = routes.find(({ name }) => name === 'keyed');
if (keyed) {
  describe('typescript, keyed', { timeout: TIMEOUT_MS }, () => {
    test('a wrong key is refused', async () => {
      await assert.rejects(open(keyed, 'auto', { headers: { Authorization: 'Bearer wrong' } }));
    });
    test('the key opens', async () => {
      const client = await open(keyed, 'auto', { headers: { Authorization: `Bearer ${apiKey}` } });
      const result = await client.callTool({ name: 'whoami', arguments: {} });
      assert.equal(result.structuredContent.name, 'alpha');
      await client.close();
    });
  });
}

function testRoute(route, mode) {
  const alpha = (name) => route.alpha_name.replace('{}', name);
  const uri = (inner) => route.alpha_uri.replace('{}', inner);
  const call = (name, args = {}, options = {}) => client.callTool({ name: alpha(name), arguments: args }, options);
  let client;
  before(async () => { client = await open(route, mode, { person: true }); });
  after(() => client?.close());

  test('the modern revision is negotiated', () => {
    assert.equal(client.getNegotiatedProtocolVersion(), REVISION);
    for (const capability of ['tools', 'prompts', 'resources', 'completions']) {
      assert.ok(client.getServerCapabilities()[capability], capability);
    }
  });

  test('all pages of a list, in one order', async () => {
    const { tools: inner } = await withClient(routes[0], mode, (direct) => direct.listTools());
    const names = inner.map(({ name }) => name);
    const expected = names.map(alpha);
    const ofBeta = names.map((name) => name.replace('only_alpha', 'only_beta'));
    if (route.beta_name) expected.push(...ofBeta.map((name) => route.beta_name.replace('{}', name)));
    else if (route.beta_uri) expected.push('beta_whoami', 'only_beta');
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map(({ name }) => name), expected);
    assert.deepEqual(tools[0].inputSchema, inner[0].inputSchema);
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

  test('declared arguments are mirrored to the upstream', async () => {
    await client.listTools();
    const { structuredContent } = await call('test_x_mcp_header', { region: 'Zürich' });
    assert.equal(structuredContent.headers['mcp-param-region'], '=?base64?WsO8cmljaA==?=');
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

  test('unknown names are invalid parameters', async () => {
    await assert.rejects(call('no_such_tool'), { code: INVALID_PARAMS });
    await assert.rejects(client.readResource({ uri: uri('test://no-such-resource') }), { code: INVALID_PARAMS });
  });

  test('the capabilities of the client count', async () => {
    await withClient(route, mode, async (unable) => {
      const refused = unable.callTool({ name: alpha('test_missing_capability'), arguments: {} });
      await assert.rejects(refused, { code: MISSING_CAPABILITY });
    });
  });

  test('an abort cancels upstream', async () => {
    const key = randomUUID();
    const abort = new AbortController();
    await assert.rejects(call('hold', { key }, { signal: abort.signal, onprogress: () => abort.abort() }));
    assert.equal((await call('hold_outcome', { key })).structuredContent.outcome, 'cancelled');
  });

  // Changes of several upstreams are not joined yet.
  if (!route.beta_uri) test('changes are announced', async () => {
    const announced = new Promise((resolve) => {
      client.setNotificationHandler('notifications/resources/updated', ({ params }) => resolve(params.uri));
    });
    const watched = uri('test://watched-resource');
    const subscription = await client.listen({ resourceSubscriptions: [watched] });
    assert.deepEqual(subscription.honoredFilter.resourceSubscriptions, [watched]);
    await call('announce_watched');
    assert.equal(await announced, watched);
    await subscription.close();
  });
}

/** A connected client; with `person`, one that answers whatever a server asks. */
async function open(route, mode, { person = false, headers = {} } = {}) {
  const capabilities = person ? { elicitation: {}, sampling: {}, roots: {} } : {};
  const client = new Client({ name: 'interop', version: '1' }, { capabilities, versionNegotiation: { mode } });
  if (person) {
    client.setRequestHandler('elicitation/create', ({ params }) => {
      const wanted = Object.keys(params.requestedSchema.properties);
      return { action: 'accept', content: Object.fromEntries(wanted.map((field) => [field, ANSWERS[field]])) };
    });
    const sampled = { role: 'assistant', model: 'none', content: { type: 'text', text: 'Paris' } };
    client.setRequestHandler('sampling/createMessage', () => sampled);
    client.setRequestHandler('roots/list', () => ({ roots: [] }));
  }
  await client.connect(new StreamableHTTPClientTransport(new URL(route.url), { requestInit: { headers } }));
  return client;
}

async function withClient(route, mode, use) {
  const client = await open(route, mode);
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}
