// Calls of which nothing is heard for a while, with the TypeScript SDKs: as `quiet_calls.py` has them for Python.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { WAYS } from './typescript_sdks.mjs';

const topology = JSON.parse(process.env.TOPOLOGY);

const TIMEOUT_MS = 30_000;
const ANSWERED_AFTER_S = 3;
const QUIET_MS_MAX = 2500;
const FAILED = 4711;

const routes = topology.routes.filter(({ for_quiet_calls }) => for_quiet_calls);

describe('quiet calls', { timeout: TIMEOUT_MS, concurrency: true }, () => {
  for (const route of routes) {
    for (const way of WAYS) test(`${way.name}, ${route.name}`, () => testQuietCalls(route, way));
  }
});

async function testQuietCalls(route, way) {
  const heads = [];
  const timed = async (...request) => {
    const asked = performance.now();
    const response = await fetch(...request);
    heads.push(performance.now() - asked);
    return response;
  };
  const { call, close } = await way.open(route, { fetch: timed });
  heads.length = 0;
  const slowly = { seconds: ANSWERED_AFTER_S };
  const called = await Promise.allSettled([
    call('be_quiet', slowly),
    call('be_quiet', slowly, { onprogress: () => {} }),
    call('be_quiet', { ...slowly, code: FAILED }),
  ]);
  await close();
  const [plain, withProgress, failed] = called;
  for (const { value, reason } of [plain, withProgress]) assert.deepEqual(value?.structuredContent, slowly, reason);
  assert.equal(failed.reason?.code, FAILED, failed.reason);
  assert.ok(heads.length >= called.length && Math.max(...heads) < QUIET_MS_MAX, `heads came after ${heads} ms`);
}
