// Both TypeScript SDKs under one interface: version 2, which speaks both eras, and version 1, which most hosts still ship.
// The runner passes the directory of the packages in the environment.
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NPM_DIRECTORY}/`);
const two = require('@modelcontextprotocol/client');
const one = {
  ...require('@modelcontextprotocol/sdk/client/index.js'),
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
async function openTwo(mode, route, { person = false, headers = {} } = {}) {
  const capabilities = person ? { elicitation: {}, sampling: {}, roots: {} } : {};
  const client = new two.Client({ name: 'interop', version: '1' }, { capabilities, versionNegotiation: { mode } });
  if (person) {
    client.setRequestHandler('elicitation/create', ({ params }) => {
      const wanted = Object.keys(params.requestedSchema.properties);
      return { action: 'accept', content: Object.fromEntries(wanted.map((field) => [field, ANSWERS[field]])) };
    });
    const sampled = { role: 'assistant', model: 'none', content: { type: 'text', text: 'Paris' } };
    client.setRequestHandler('sampling/createMessage', () => sampled);
    client.setRequestHandler('roots/list', () => ({ roots: [] }));
  }
  const transport = new two.StreamableHTTPClientTransport(new URL(route.url), { requestInit: { headers } });
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

async function openOne(route, { headers = {} } = {}) {
  const client = new one.Client({ name: 'interop', version: '1' }, { capabilities: {} });
  const transport = new one.StreamableHTTPClientTransport(new URL(route.url), { requestInit: { headers } });
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
  if (transport.sessionId) await transport.terminateSession();
  await client.close();
}
