// Both TypeScript SDKs under one interface: version 2, which speaks both eras, and version 1, which most hosts still ship.
// The runner passes the directory of the packages in the environment.
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NPM_DIRECTORY}/`);
const two = { ...require('@modelcontextprotocol/client'), ...require('@modelcontextprotocol/client/stdio') };
const one = {
  ...require('@modelcontextprotocol/sdk/client/index.js'),
  ...require('@modelcontextprotocol/sdk/client/sse.js'),
  ...require('@modelcontextprotocol/sdk/client/stdio.js'),
  ...require('@modelcontextprotocol/sdk/client/streamableHttp.js'),
  ...require('@modelcontextprotocol/sdk/types.js'),
};

const INVALID_PARAMS = -32602;
const RESOURCE_NOT_FOUND = -32002;
export const REVISION = '2026-07-28';
export const LEGACY_REVISION = '2025-11-25';
const ANSWERS = { name: 'Ada', color: 'green', ok: true, context: 'a test' };

/** Every SDK in every mode: `open` connects a client, `noResource` is the code that it shows for an unknown URI. */
export const WAYS = [
  ...['auto', { pin: REVISION }, 'legacy'].map((mode) => ({
    name: `typescript, ${mode.pin ?? mode}`,
    isModern: mode !== 'legacy',
    noResource: INVALID_PARAMS, // in the older revisions, too, where it stands for the code that servers send there
    open: (...to) => openTwo(mode, ...to),
  })),
  { name: 'typescript 1', isModern: false, noResource: RESOURCE_NOT_FOUND, open: openOne },
];

/** A client of version 2; with `person`, one that answers whatever a server asks. */
async function openTwo(mode, route, { person = false, name = ANSWERS.name, headers = {}, fetch } = {}) {
  const capabilities = person ? { elicitation: {}, sampling: {}, roots: {} } : {};
  const client = new two.Client({ name: 'interop', version: '1' }, { capabilities, versionNegotiation: { mode } });
  if (person) {
    const answers = { ...ANSWERS, name };
    client.setRequestHandler('elicitation/create', ({ params }) => {
      const wanted = Object.keys(params.requestedSchema.properties);
      return { action: 'accept', content: Object.fromEntries(wanted.map((field) => [field, answers[field]])) };
    });
    const sampled = { role: 'assistant', model: 'none', content: { type: 'text', text: 'Paris' } };
    client.setRequestHandler('sampling/createMessage', () => sampled);
    client.setRequestHandler('roots/list', () => ({ roots: [] }));
  }
  const transport = new two.StreamableHTTPClientTransport(new URL(route.url), { requestInit: { headers }, fetch });
  await client.connect(transport);
  return {
    client,
    transport,
    revision: client.getNegotiatedProtocolVersion(),
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    on: (notification, handle) => client.setNotificationHandler(notification, ({ params }) => handle(params)),
    close: () => close(client, transport),
  };
}

async function openOne(route, { headers = {}, fetch } = {}) {
  const client = new one.Client({ name: 'interop', version: '1' }, { capabilities: {} });
  const transport = new one.StreamableHTTPClientTransport(new URL(route.url), { requestInit: { headers }, fetch });
  await client.connect(transport);
  const schemas = { 'notifications/message': one.LoggingMessageNotificationSchema };
  return {
    client,
    transport,
    revision: transport.protocolVersion,
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    on: (notification, handle) => client.setNotificationHandler(schemas[notification], ({ params }) => handle(params)),
    close: () => close(client, transport),
  };
}

/** Ends the session, too, where there is one. */
async function close(client, transport) {
  if (transport.sessionId) await transport.terminateSession?.();
  await client.close();
}

// ---- sessions with everything in them -----------------------------------------------------------------------------

const ABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };
const NOTIFICATIONS = {
  'notifications/message': one.LoggingMessageNotificationSchema,
  'notifications/resources/updated': one.ResourceUpdatedNotificationSchema,
  'notifications/resources/list_changed': one.ResourceListChangedNotificationSchema,
  'notifications/tools/list_changed': one.ToolListChangedNotificationSchema,
  'notifications/prompts/list_changed': one.PromptListChangedNotificationSchema,
  'notifications/elicitation/complete': one.ElicitationCompleteNotificationSchema,
};
const QUESTIONS = {
  'elicitation/create': one.ElicitRequestSchema,
  'sampling/createMessage': one.CreateMessageRequestSchema,
  'roots/list': one.ListRootsRequestSchema,
};

/** How each SDK makes a client, names what it handles, and hands over what surrounds a request. */
export const SESSION_SDKS = [
  {
    name: 'typescript',
    sdk: two,
    client: (info) => new two.Client(info, { capabilities: ABILITIES, versionNegotiation: { mode: 'legacy' } }),
    named: (method) => method,
    around: ({ mcpReq }) => ({ signal: mcpReq.signal, token: mcpReq._meta?.progressToken, notify: mcpReq.notify }),
    call: (client, request, options) => client.callTool(request, options),
  },
  {
    name: 'typescript 1',
    sdk: one,
    client: (info) => new one.Client(info, { capabilities: ABILITIES }),
    named: (method) => NOTIFICATIONS[method] ?? QUESTIONS[method],
    around: ({ signal, _meta, sendNotification }) => ({ signal, token: _meta?.progressToken, notify: sendNotification }),
    call: (client, request, options) => client.callTool(request, undefined, options),
  },
];

/** Version 2 in another mode, or with an older revision than it would choose. */
export function ofMode(mode, revision) {
  const options = { capabilities: ABILITIES, versionNegotiation: { mode } };
  if (revision) options.supportedProtocolVersions = [revision];
  return {
    ...SESSION_SDKS[0],
    revision,
    name: `typescript, ${revision ?? mode.pin ?? mode}`,
    client: (info) => new two.Client(info, options),
  };
}

/** A session of a client whose `person` answers; `next` and `collect` give what the server notifies of. */
export async function openSession({ sdk, client: make, named, around, call }, topology, route, person) {
  const client = make({ name: 'interop', version: '1' });
  for (const method of Object.keys(QUESTIONS)) {
    client.setRequestHandler(named(method), ({ params }, context) => {
      const { signal, token, notify } = around(context);
      const report = async (progress, total) => {
        if (token === undefined) return;
        await notify({ method: 'notifications/progress', params: { progressToken: token, progress, total } });
      };
      return person.answer(method, params, { signal, report });
    });
  }
  const listeners = new Set();
  for (const method of Object.keys(NOTIFICATIONS)) {
    client.setNotificationHandler(named(method), ({ params }) => listeners.forEach((listen) => listen(method, params)));
  }
  const transport = transportTo(sdk, topology, route);
  await client.connect(transport);
  return {
    client,
    call: (name, args, options) => call(client, { name, arguments: args ?? {} }, options),
    next: (method, count = 1, accept = () => true) => new Promise((resolve) => {
      const found = [];
      const listen = (name, params) => {
        if (name === method && accept(params) && found.push(params) === count) {
          listeners.delete(listen);
          resolve(found);
        }
      };
      listeners.add(listen);
    }),
    collect: (method) => {
      const found = [];
      listeners.add((name, params) => name === method && found.push(params));
      return found;
    },
    close: () => close(client, transport),
  };
}

function transportTo(sdk, topology, route) {
  if (route.transport === 'sse') return new sdk.SSEClientTransport(new URL(route.url));
  if (route.command.length) {
    const [command, ...args] = route.command;
    return new sdk.StdioClientTransport({ command, args, stderr: 'ignore' });
  }
  if (route.transport === 'connect') {
    return new sdk.StdioClientTransport({ command: topology.binary, args: ['connect', route.url] });
  }
  return new sdk.StreamableHTTPClientTransport(new URL(route.url));
}
