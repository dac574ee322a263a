// One request to a server, seen whole: status, bytes, events as they came, time; streams merged as a client merges them.
import http from 'node:http';
import { Buffer } from 'node:buffer';

const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });

/** What came back. `refused`: nobody listened, or the connection broke before a status. */
export class Answer {
  status = 0;
  refused = false;
  broken = false; // the connection ended before the reply did
  text = '';
  events = []; // of a stream, parsed; '[DONE]' stays a string
  rawEvents = []; // the JSON ones as they came
  body = null; // the JSON, or what merge() makes of the events
  seconds = 0;
  validUtf8 = true;

  /** The body or, of a stream, its events, in the order in which keys were sent: `"7"` reads as `"#7"`, for JavaScript would put it first. */
  ordered() {
    const parse = (text) => JSON.parse(text.replace(/"(\d+)":/g, '"#$1":'));
    return this.stream ? merge(this.rawEvents.map(parse)) : parse(this.text);
  }
}

/**
 * Sends one request. `onEvent(count)` may return 'leave' to close the connection; `bytesPerSecond` reads no faster.
 * Never throws for what a server does.
 */
export function send(url, { method, path, body, raw, onEvent, bytesPerSecond, signal }) {
  const payload = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  const answer = new Answer();
  const begin = performance.now();
  return new Promise((resolve) => {
    const chunks = [];
    let pending = '';
    const finish = () => {
      answer.seconds = (performance.now() - begin) / 1000;
      const bytes = Buffer.concat(chunks);
      answer.text = bytes.toString('utf8');
      answer.validUtf8 = Buffer.compare(Buffer.from(answer.text, 'utf8'), bytes) === 0;
      if (answer.stream) {
        answer.body = merge(answer.events);
      } else {
        try {
          answer.body = JSON.parse(answer.text);
        } catch {
          answer.body = null;
        }
      }
      resolve(answer);
    };
    const request = http.request(url + path, {
      method, agent: bytesPerSecond ? false : agent, signal,
      headers: payload === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) },
    });
    request.on('error', () => {
      if (answer.status === 0) answer.refused = true;
      answer.broken = true;
      finish();
    });
    request.on('response', (response) => {
      answer.status = response.statusCode;
      answer.headers = response.headers;
      answer.stream = /^text\/event-stream/.test(response.headers['content-type'] ?? '');
      response.on('data', (chunk) => {
        chunks.push(chunk);
        if (answer.stream) {
          pending += chunk.toString('latin1');
          for (let at; (at = pending.indexOf('\n\n')) >= 0; pending = pending.slice(at + 2)) {
            const data = /^data: (.*)$/m.exec(pending.slice(0, at))?.[1];
            if (data === undefined) continue;
            if (data === '[DONE]') {
              answer.events.push(data);
            } else {
              answer.rawEvents.push(Buffer.from(data, 'latin1').toString('utf8'));
              answer.events.push(JSON.parse(answer.rawEvents.at(-1)));
            }
            if (onEvent?.(answer.events.length) === 'leave') {
              response.removeAllListeners();
              request.removeAllListeners('error');
              request.on('error', () => {});
              request.destroy();
              return finish();
            }
          }
        }
        if (bytesPerSecond) {
          response.pause();
          setTimeout(() => response.resume(), (1000 * chunk.length) / bytesPerSecond).unref();
        }
      });
      response.on('aborted', () => (answer.broken = true));
      response.on('error', () => (answer.broken = true));
      response.on('close', () => finish());
    });
    if (bytesPerSecond) request.on('socket', (socket) => socket.setRecvBufferSize?.(1024));
    request.end(payload);
  });
}

/** A stream's events as the plain reply that they spell: arrays joined a choice, `text` the first choice's. */
export function merge(events) {
  const whole = { events: events.filter((event) => typeof event === 'object'), choices: [], usage: null };
  for (const event of whole.events) {
    if (event.error) whole.error = event.error;
    if (event.response) whole.response = event.response;
    if (event.usage) whole.usage = event.usage;
    for (const piece of event.choices ?? []) mergeChoice((whole.choices[piece.index] ??= { index: piece.index, logprobs: null }), piece);
  }
  whole.text = whole.choices[0]?.text ?? whole.choices[0]?.message?.content ?? '';
  return whole;
}

function mergeChoice(choice, piece) {
  if (piece.text !== undefined) choice.text = (choice.text ?? '') + piece.text;
  if (piece.delta) {
    const message = (choice.message ??= { content: null, reasoning: null, tool_calls: [] });
    for (const key of ['content', 'reasoning']) if (piece.delta[key]) message[key] = (message[key] ?? '') + piece.delta[key];
    for (const part of piece.delta.tool_calls ?? []) {
      const call = (message.tool_calls[part.index] ??= { function: { name: '', arguments: '' } });
      call.function.name += part.function.name ?? '';
      call.function.arguments += part.function.arguments ?? '';
    }
  }
  if (piece.logprobs) {
    choice.logprobs ??= {};
    for (const [key, list] of Object.entries(piece.logprobs)) if (Array.isArray(list)) (choice.logprobs[key] ??= []).push(...list);
  }
  if (piece.token_ids) (choice.token_ids ??= []).push(...piece.token_ids);
  if (piece.prompt_token_ids) choice.prompt_token_ids = piece.prompt_token_ids;
  for (const key of ['finish_reason', 'stop_reason']) if (piece[key] != null) choice[key] = piece[key];
}
