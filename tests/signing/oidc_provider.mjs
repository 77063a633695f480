// npm `oidc-provider` as the provider of an organisation: `oidc_provider.mjs NPM PROFILES`, with the directory of the packages and
// JSON: a list of what each provider does, refuses, and knows of its one client. Each listens at a port of its own. Prints
// `listening ISSUER …`, and ends with its standard input.
import { generateKeyPairSync } from 'node:crypto';
import { createRequire } from 'node:module';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [npm, given] = process.argv.slice(2);
const require = createRequire(`${npm}/`);
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const GROUPS = { alice: ['staff', 'ops'], bob: ['staff'] };
const ADDRESS = '127.0.0.1';

/** A key for every algorithm that signs ID tokens here. */
const KEYS = [
  [generateKeyPairSync('rsa', { modulusLength: 2048 }), { kid: 'rsa' }],
  [generateKeyPairSync('ec', { namedCurve: 'P-256' }), { kid: 'p256' }],
  [generateKeyPairSync('ed25519'), { kid: 'ed25519', alg: 'EdDSA' }],
].map(([{ privateKey }, named]) => ({ ...privateKey.export({ format: 'jwk' }), use: 'sig', ...named }));

/** `client`: metadata of the client; `scopes`: all that it knows, any other fails; `refuses`: parameters that fail; `groups_in`:
    `userinfo` or `id_token`; `rotates`: a refresh token is good once, and a second use ends everything. */
function configuration({ client, scopes, groups_in, rotates }) {
  return {
    clients: [client],
    scopes,
    claims: { openid: ['sub'], profile: ['name', 'groups'] },
    conformIdTokenClaims: groups_in === 'userinfo',
    jwks: { keys: KEYS },
    pkce: { required: () => true },
    rotateRefreshToken: rotates,
    enabledJWA: {
      idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256', 'EdDSA'],
      clientAuthSigningAlgValues: ['RS256', 'ES256'],
    },
    cookies: { keys: ['a key of cookies'] },
    features: { devInteractions: { enabled: true }, revocation: { enabled: true } },
    findAccount: (_, name) =>
      name in GROUPS && { accountId: name, claims: () => ({ sub: name, name, groups: GROUPS[name] }) },
  };
}

async function serve(profile) {
  const server = createServer();
  await new Promise((listening) => server.listen(profile.port ?? 0, ADDRESS, listening));
  const provider = new Provider(`http://${ADDRESS}:${server.address().port}`, configuration(profile));
  provider.use(async (ctx, next) => {
    if (ctx.path === '/auth') {
      const wrong = profile.refuses.find((name) => name in ctx.query);
      const unknown = (ctx.query.scope ?? '').split(' ').find((scope) => !profile.scopes.includes(scope));
      if (wrong || unknown) {
        ctx.status = 400;
        ctx.body = `AADSTS9010010: ${wrong ?? unknown} is not supported here`;
        return;
      }
    }
    await next();
  });
  server.on('request', provider.callback());
  return provider.issuer;
}

const issuers = await Promise.all(JSON.parse(given).map(serve));
console.log(`listening ${issuers.join(' ')}`);
process.stdin.resume().on('end', () => process.exit(0));
