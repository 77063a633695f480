// Loaded before each server (`NODE_OPTIONS=--import`): it connects to the loopback interface only.
import { Socket } from 'node:net';

const { connect } = Socket.prototype;
const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost']);

Socket.prototype.connect = function (...given) {
  const [options] = Array.isArray(given[0]) ? given[0] : given;
  if (options?.path || LOOPBACK.has(options?.host ?? 'localhost')) return connect.apply(this, given);
  process.nextTick(() => this.destroy(new Error('this test is offline')));
  return this;
};
