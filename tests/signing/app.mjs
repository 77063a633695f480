// An app of a person's computer that wants a sign-in, as the pages' tests drive it: it registers, waits at a loopback address for the
// browser to come back, and fetches its token. With TLS it is a site of its own. And a site of somebody else.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import * as http from 'node:http';
import * as https from 'node:https';

export const { GATEWAY, PROVIDER, APP_HOST, APP_PORT, TLS_DIRECTORY } = process.env;
export const ENDPOINT = `${GATEWAY}/mcp`;
const HAS_TLS = GATEWAY.startsWith('https:');

const form = (parameters) => String(new URLSearchParams(parameters));

async function listening(server, port = 0) {
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

/** Asks the gateway on this machine, by whichever name; its status and the JSON that it answers. */
async function ask(url, headers, body) {
  const { host, hostname: servername, port, pathname: path } = new URL(url);
  const options = { host: '127.0.0.1', servername, port, path, method: 'POST', headers: { ...headers, host } };
  const request = (HAS_TLS ? https : http).request(options);
  request.end(body);
  const [response] = await once(request, 'response');
  let text = '';
  for await (const part of response) text += part;
  return { status: response.statusCode, json: JSON.parse(text) };
}

function close(server) {
  server.closeAllConnections();
  server.close();
}

export class App {
  /** One that has registered itself as `name`. */
  static async open(name = 'Desk') {
    const app = new App();
    app.came = [];
    const handle = (request, response) => {
      const { pathname, searchParams } = new URL(request.url, 'http://app');
      if (pathname === '/callback') app.came.push(Object.fromEntries(searchParams));
      response.setHeader('content-type', 'text/html');
      response.end('<!doctype html><title>App</title><h1>Back in the app</h1>');
    };
    if (HAS_TLS) {
      const [key, cert] = ['key', 'cert'].map((file) => readFileSync(`${TLS_DIRECTORY}/${file}.pem`));
      app.server = await listening(https.createServer({ key, cert }, handle), APP_PORT);
      app.redirect = `https://${APP_HOST}:${APP_PORT}/callback`;
    } else {
      app.server = await listening(http.createServer(handle));
      app.redirect = `http://127.0.0.1:${app.server.address().port}/callback`;
    }
    await app.register(name);
    return app;
  }

  async register(name) {
    const metadata = { client_name: name, redirect_uris: [this.redirect], token_endpoint_auth_method: 'none' };
    const headers = { 'content-type': 'application/json' };
    const { status, json } = await ask(`${GATEWAY}/register`, headers, JSON.stringify(metadata));
    assert.equal(status, 201);
    this.client = json.client_id;
  }

  /** The address that it opens in a browser. */
  visit(scope = 'mcp:read') {
    this.verifier = randomBytes(32).toString('base64url');
    this.state = randomBytes(16).toString('base64url');
    return `${GATEWAY}/authorize?${form({
      client_id: this.client,
      redirect_uri: this.redirect,
      response_type: 'code',
      code_challenge: createHash('sha256').update(this.verifier).digest('base64url'),
      code_challenge_method: 'S256',
      resource: ENDPOINT,
      scope,
      state: this.state,
    })}`;
  }

  /** The status of its request for tokens with the code that came first, or last. */
  async exchange(at = 0) {
    const { code, state, iss, error } = this.came.at(at);
    assert.deepEqual({ state, iss, error }, { state: this.state, iss: GATEWAY, error: undefined });
    const shown = {
      grant_type: 'authorization_code',
      code,
      redirect_uri: this.redirect,
      code_verifier: this.verifier,
      client_id: this.client,
      resource: ENDPOINT,
    };
    const { status, json } = await this.token(shown);
    this.refresh = json.refresh_token;
    return status;
  }

  /** Its request with these parameters. */
  token(shown) {
    return ask(`${GATEWAY}/token`, { 'content-type': 'application/x-www-form-urlencoded' }, form(shown));
  }

  close() {
    close(this.server);
  }
}

/** A site of somebody else, with one page. For a browser it is another site than the gateway, which is at 127.0.0.1. */
export class Stranger {
  static async open(html) {
    const site = new Stranger();
    const handle = (_, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(`<!doctype html><title>Stranger</title>${html}`);
    };
    site.server = await listening(http.createServer(handle));
    site.url = `http://localhost:${site.server.address().port}/`;
    return site;
  }

  close() {
    close(this.server);
  }
}

/** How often the provider was asked for its page. */
export async function visitsOfProvider() {
  const { requests } = await (await fetch(`${PROVIDER}/faults`)).json();
  return requests['/authorize'] ?? 0;
}
