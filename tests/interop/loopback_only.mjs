// Loaded before a server that would listen on every interface and on a port of its own choice (`node --import`): it
// listens on a free port of the loopback interface instead, and says where once it accepts connections.
import { Server } from 'node:net';

const { listen } = Server.prototype;

Server.prototype.listen = function (_, ...rest) {
  this.once('listening', () => console.log(`listening http://127.0.0.1:${this.address().port}/mcp`));
  return listen.call(this, { host: '127.0.0.1', port: 0 }, ...rest);
};
