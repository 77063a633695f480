// An app of a person's computer that wants a sign-in, as the pages' tests drive it: it registers, waits at a loopback address for the
// browser to come back, and fetches its token. And a site of somebody else.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

export const { GATEWAY, PROVIDER } = process.env;
export const ENDPOINT = `${GATEWAY}/mcp`;

const form = (parameters) => new URLSearchParams(parameters);

async function listening(handle) {
  const server = createServer(handle).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
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
    app.server = await listening((request, response) => {
      const { pathname, searchParams } = new URL(request.url, 'http://app');
      if (pathname === '/callback') app.came.push(Object.fromEntries(searchParams));
      response.setHeader('content-type', 'text/html');
      response.end('<!doctype html><title>App</title><h1>Back in the app</h1>');
    });
    app.redirect = `http://127.0.0.1:${app.server.address().port}/callback`;
    const answer = await fetch(`${GATEWAY}/register`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        client_name: name,
        redirect_uris: [app.redirect],
        token_endpoint_auth_method: 'none',
      }),
    });
    assert.equal(answer.status, 201);
    app.client = (await answer.json()).client_id;
    return app;
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
    const answer = await fetch(`${GATEWAY}/token`, {
      method: 'POST',
      body: form({
        grant_type: 'authorization_code',
        code,
        redirect_uri: this.redirect,
        code_verifier: this.verifier,
        client_id: this.client,
        resource: ENDPOINT,
      }),
    });
    const { access_token: token = '' } = await answer.json();
    return { status: answer.status, token };
  }

  close() {
    close(this.server);
  }
}

/** A site of somebody else, with one page. For a browser it is another site than the gateway, which is at 127.0.0.1. */
export class Stranger {
  static async open(html) {
    const site = new Stranger();
    site.server = await listening((_, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(`<!doctype html><title>Stranger</title>${html}`);
    });
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
