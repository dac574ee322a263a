// A client that costs little: plain sockets, one connection a request, replies counted and timed but not parsed.
//
// On two cores the client's own work would show in the server's figures; this one looks for the ends of events.
import net from 'node:net';

const now = () => performance.now() / 1000;

/** Sends one request and hands on what comes; resolves at the end of the reply with its status. */
function send(url, path, body, onData) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const json = JSON.stringify(body);
    const socket = net.connect({ host: hostname, port: Number(port), noDelay: true });
    let status = 0;
    socket.on('connect', () => socket.write(`POST ${path} HTTP/1.1\r\nHost: ${hostname}\r\nContent-Type: application/json\r\n` +
      `Connection: close\r\nContent-Length: ${Buffer.byteLength(json)}\r\n\r\n${json}`));
    socket.on('data', (data) => {
      status ||= Number(data.toString('latin1', 9, 12));
      onData(data);
    });
    socket.on('error', reject);
    socket.on('end', () => {
      socket.destroy();
      if (status === 200) return resolve();
      reject(new Error(`${path}: status ${status}`));
    });
  });
}

/** A whole reply: how long it took, and its bytes. */
export async function exchange(url, path, body) {
  const start = now();
  const parts = [];
  await send(url, path, body, (data) => parts.push(data));
  const text = Buffer.concat(parts).toString('utf8');
  return { seconds: now() - start, bytes: text.length, text: text.slice(text.indexOf('\r\n\r\n') + 4) };
}

/** A stream: the time of every event, but for the last, which says that it is done. `onEvent(count)` as they come. */
export async function stream(url, path, body, onEvent = () => {}) {
  const start = now(), times = [];
  let bytes = 0, half = false;  // half: the previous piece ended with the first byte of an event's end
  await send(url, path, { ...body, stream: true }, (data) => {
    const time = now();
    bytes += data.length;
    let at = 0;
    if (half && data[0] === 10) times.push(time), (at = 1);
    for (let end; (end = data.indexOf('\n\n', at)) >= 0; at = end + 2) times.push(time);
    half = data.length > at && data[data.length - 1] === 10;
    onEvent(times.length);
  });
  times.pop();
  return { start, times, bytes };
}
