// A client of a TypeScript SDK that signs in: `client_typescript.mjs NPM 1|2 SETTINGS`, with the directory of the packages, the
// version of the SDK and JSON. Settings, steps and answers are those of client_python.py.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [npm, version] = process.argv.slice(2, 4);
const { url, redirect, store, document } = JSON.parse(process.argv[4]);
const AN_HOUR_MS = 3_600_000;

const require = createRequire(`${npm}/`);
const sdk =
  version === '2'
    ? require('@modelcontextprotocol/client')
    : {
        ...require('@modelcontextprotocol/sdk/client/index.js'),
        ...require('@modelcontextprotocol/sdk/client/auth.js'),
        ...require('@modelcontextprotocol/sdk/client/streamableHttp.js'),
      };

const read = () => (existsSync(store) ? JSON.parse(readFileSync(store, 'utf8')) : {});
const write = (changes) => writeFileSync(store, JSON.stringify({ ...read(), ...changes }));
const say = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);

/** What the SDK asks of a host. The browser that it wants is opened once it has thrown `UnauthorizedError`. */
const provider = {
  redirectUrl: redirect,
  clientMetadataUrl: document,
  clientMetadata: {
    client_name: 'Desk',
    redirect_uris: [redirect],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  },
  state: () => (provider.begun = crypto.randomUUID()),
  clientInformation: () => read().client,
  saveClientInformation: (client) => write({ client }),
  tokens: () => read().tokens,
  saveTokens: (tokens) => write({ tokens }),
  redirectToAuthorization: (address) => {
    provider.wanted = address;
  },
  saveCodeVerifier: (verifier) => write({ verifier }),
  codeVerifier: () => read().verifier,
  invalidateCredentials: (scope) => {
    const named = { all: ['client', 'tokens', 'verifier'], client: ['client'], tokens: ['tokens'], verifier: ['verifier'] };
    write(Object.fromEntries((named[scope] ?? []).map((name) => [name, undefined])));
  },
};

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
};

async function once(tool) {
  const transport = new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  const options = version === '2' ? { versionNegotiation: { mode: 'auto' } } : {};
  const client = new sdk.Client({ name: 'desk', version: '1' }, { capabilities: {}, ...options });
  try {
    await client.connect(transport);
    const { content } = await client.callTool({ name: tool, arguments: {} });
    return content[0].text;
  } catch (error) {
    if (!provider.wanted) throw error;
    say({ visit: String(provider.wanted) });
    provider.wanted = undefined;
    const { searchParams } = new URL((await next()).back);
    if (searchParams.get('state') !== provider.begun) throw new Error(`another state: ${searchParams}`);
    if (searchParams.has('error')) throw new Error(`sent back with ${searchParams}`);
    await transport.finishAuth(version === '2' ? searchParams : searchParams.get('code'));
    return null;
  } finally {
    await client.close();
  }
}

/** As a host does it: what is left undone by a sign-in is done again after it. */
async function call(tool) {
  for (let visits = 0; visits <= 2; visits += 1) {
    const text = await once(tool);
    if (text !== null) return text;
  }
  throw new Error('the browser is opened again and again');
}

for (let step = await next(); step; step = await next()) {
  try {
    if (step.do === 'later') {
      const now = Date.now;
      Date.now = () => now() + AN_HOUR_MS;
      say({ text: '' });
    } else {
      say({ text: await call(step.tool) });
    }
  } catch (error) {
    say({ error: `${error.name}: ${error.message}` });
  }
}
process.exit(0);
