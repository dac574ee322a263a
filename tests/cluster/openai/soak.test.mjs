// Many clients at once, some of them rude: all are answered, nobody is held back by another, nothing is left behind.
//
// Some ten seconds; HELIOS_SOAK_SECONDS makes the traffic go on for so long, and then memory must not grow either.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { Cluster, children, events, eventually, join, sleep } from './support.mjs';

const maxWaiting = 300, kvTokens = 1536;
const longRun = Number(process.env.HELIOS_SOAK_SECONDS ?? 0);

let cluster;
before(async () => {
  cluster = await Cluster.start({
    args: ['--prompt-logprobs', '--max-num-seqs', '16', '--max-model-len', '1536', '--kv-cache-tokens', String(kvTokens),
      '--prefill-chunk', '256', '--max-waiting', String(maxWaiting), '--log-level', 'warning'],
  });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

/** On a connection of its own, so that what is left of it can be counted. */
function exchange(path, body) {
  const { hostname, port } = new URL(cluster.url);
  return new Promise((resolve, reject) => {
    const options = { hostname, port, path, method: body ? 'POST' : 'GET', agent: false, headers: body ? { 'content-type': 'application/json' } : {} };
    const request = http.request(options, (reply) => {
      const parts = [];
      reply.on('data', (part) => parts.push(part));
      reply.on('error', reject);
      reply.on('end', () => resolve({ status: reply.statusCode, headers: reply.headers, text: Buffer.concat(parts).toString() }));
    });
    request.on('error', reject);
    request.end(body ? JSON.stringify(body) : undefined);
  });
}

async function metrics() {
  const found = {};
  for (const line of (await exchange('/metrics')).text.split('\n')) {
    const [, name, value] = /^([a-z_:]+)(?:\{.*\})? (\S+)$/.exec(line) ?? [];
    if (name) found[name] = (found[name] ?? 0) + Number(value);
  }
  return found;
}

/** What must be so when nobody asks for anything; the scrape's own connection is the one that is open. */
const idle = () => eventually('slots, blocks, queue, frames and connections are as at first', async () => {
  const now = await metrics();
  const left = [now['vllm:num_requests_running'], now['vllm:num_requests_waiting'], now['vllm:kv_cache_usage_perc'],
    now.helios_kv_cache_blocks_held, now.helios_frames_in_flight, now.helios_http_connections - 1];
  return left.every((n) => n === 0) && now;
});

/** The same traffic for the same seed. */
function random(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6D2B79F5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, pick: (list) => list[below(list.length)] };
}

const common = 'the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which'.split(' ');
const words = (r, n) => Array.from({ length: n }, () => r.pick(common)).join(' ');
const schema = { type: 'object', properties: { age: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['age'], additionalProperties: false };

/** A request of any kind, and what its answer must be: `check(choices, usage)` of a completion. */
function anyRequest(r, { most = 60 } = {}) {
  const max_tokens = 1 + r.below(most);
  const body = { model: 'demo', prompt: words(r, 1 + r.below(r.below(4) ? 20 : 120)), max_tokens, temperature: 0.9, seed: r.below(1e6), priority: r.below(3) };
  const whole = ({ finish_reason }) => assert.match(finish_reason, /^(stop|length)$/);
  const entries = ({ logprobs }) => {
    assert.ok(logprobs.token_logprobs.every((v) => Number.isFinite(v) && v <= 0));
    assert.equal(logprobs.tokens.length, logprobs.top_logprobs.length);
  };
  switch (r.below(7)) {
    case 0:
    case 1:
      return [{ ...body, ignore_eos: true }, (choices, usage) => assert.equal(usage.completion_tokens, max_tokens)];
    case 2:
      return [{ ...body, ignore_eos: true, logprobs: r.below(21) }, (choices) => {
        entries(choices[0]);
        assert.equal(choices[0].logprobs.tokens.length, max_tokens);
      }];
    case 3: {
      const n = 2 + r.below(2);
      return [{ ...body, n }, (choices) => assert.equal(choices.length, n)];
    }
    case 4:  // as evaluation harnesses ask
      return [{ ...body, max_tokens: 1, temperature: 0, echo: true, logprobs: 1 }, ([choice], usage) => {
        assert.equal(choice.logprobs.token_logprobs[0], null);
        assert.equal(choice.logprobs.tokens.length, usage.prompt_tokens + 1);
      }];
    case 5:
      return [{ ...body, structured_outputs: { choice: ['yes', 'no', 'perhaps'] }, max_tokens: 16 },
        ([choice]) => assert.match(choice.text, /^(yes|no|perhaps)$/)];
    default:
      return [{ ...body, structured_outputs: { json: schema, disable_any_whitespace: true }, max_tokens: 40, logprobs: 2 },
        ([choice]) => (whole(choice), entries(choice), assert.match(choice.text, /^\{"age":\d+\}$/))];
  }
}

async function answered(body, check) {
  const reply = await exchange('/v1/completions', body);
  if (reply.status === 429) {
    assert.ok(reply.headers['retry-after']);
    return 429;
  }
  assert.equal(reply.status, 200, reply.text);
  const { choices, usage } = JSON.parse(reply.text);
  check(choices, usage);
  return 200;
}

async function streamed(body, check) {
  const reply = await exchange('/v1/completions', { ...body, stream: true, stream_options: { include_usage: true } });
  assert.equal(reply.status, 200, reply.text);
  const all = events(reply.text);
  assert.equal(all.at(-1), '[DONE]');
  const chunks = all.slice(0, -1);
  assert.ok(chunks.every((chunk) => !chunk.error), reply.text.slice(-300));
  check(join(chunks), chunks.at(-1).usage);
}

/** A client that sends its request and leaves: `leave(socket)` says when. */
function rude(body, leave, { cut = 0 } = {}) {
  const { hostname, port } = new URL(cluster.url);
  const json = JSON.stringify(body);
  const socket = net.connect(Number(port), hostname);
  return new Promise((resolve) => {
    socket.on('error', () => {});
    socket.on('close', resolve);
    socket.on('connect', async () => {
      socket.write(`POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: ${json.length}\r\n\r\n`);
      socket.write(json.slice(0, json.length - cut));
      await leave(socket);
      socket.destroy();
    });
  });
}

/** One of each: every stage at which a client may leave. */
function rudeClients(r) {
  const long = { model: 'demo', prompt: words(r, 20), max_tokens: 300, ignore_eos: true, temperature: 0.9, seed: r.below(1e6) };
  const reads = (n) => (socket) => new Promise((resolve) => {
    let seen = 0;
    socket.on('data', (data) => (seen += data.toString().split('data: ').length - 1) >= n && resolve());
    socket.on('close', resolve);
  });
  return [
    rude(long, () => sleep(2), { cut: 5 }),                                                  // with half a body
    rude({ ...long, priority: 1000 }, () => sleep(r.below(30))),                             // in the queue
    rude({ ...long, prompt: words(r, 400), echo: true, logprobs: 20 }, () => sleep(r.below(12))),  // while its prompt is scored
    rude({ ...long, prompt: words(r, 400) }, () => sleep(r.below(12))),                      // or prefilled
    rude({ ...long, stream: true, n: 2 }, reads(1 + r.below(8))),                            // in a stream
    rude({ ...long, stream: true, logprobs: 20 }, (socket) => (socket.pause(), sleep(150))), // that it does not read
    rude(long, (socket) => (socket.end(), sleep(5))),                                        // half closed
    rude({ ...long, structured_outputs: { regex: '[a-z ]{200,280}' } }, () => sleep(r.below(40))),
  ];
}

test('64 streams at once, every kind, and clients that leave at every stage: all others are answered whole', async () => {
  const r = random(1);
  const before = await metrics();
  const streams = Array.from({ length: 64 }, () => streamed(...anyRequest(r, { most: 300 })));
  for (let i = 0; i < 3; ++i) {
    await sleep(100);
    await Promise.all(rudeClients(r));
  }
  await Promise.all(streams);
  const now = await idle();
  assert.ok(now['vllm:num_preemptions_total'] > before['vllm:num_preemptions_total'], 'the cache must have been too small');
});

test('512 requests at once: all are answered, or refused as the queue\'s limit says', async () => {
  const r = random(2);
  const statuses = await Promise.all(Array.from({ length: 512 }, () => {
    const [body, check] = anyRequest(r, { most: 12 });
    return answered(body.n ? { ...body, n: 1 } : body, body.n ? (choices) => assert.equal(choices.length, 1) : check);
  }));
  const served = statuses.filter((status) => status === 200).length;
  assert.ok(served >= maxWaiting, `${served} of 512 were served, and ${maxWaiting} may wait`);
  await idle();
});

test('a reader that stops holds back itself alone, and misses nothing when it goes on', async () => {  // R31, R32
  const body = { model: 'demo', prompt: 'Once upon a time', max_tokens: 1200, ignore_eos: true, temperature: 0.9, seed: 7, logprobs: 20 };
  const whole = JSON.parse((await exchange('/v1/completions', body)).text).choices[0];
  const { hostname, port } = new URL(cluster.url);
  const reply = await new Promise((resolve, reject) => {
    const options = { hostname, port, path: '/v1/completions', method: 'POST', agent: false, headers: { 'content-type': 'application/json' } };
    const request = http.request(options, resolve);
    request.on('error', reject);
    request.end(JSON.stringify({ ...body, stream: true }));
  });  // nobody reads it
  const generated = async () => (await metrics())['vllm:generation_tokens_total'];
  const start = await generated();
  await eventually('its pipe is full and it waits', async () => {
    const before = await generated();
    await sleep(100);
    return before > start && (await generated()) === before;
  });
  const then = await metrics();
  assert.equal(then['vllm:num_requests_running'] + then['vllm:num_requests_waiting'], 1, 'it has not run on to its end');
  const r = random(3);
  await Promise.all(Array.from({ length: 24 }, () => streamed(...anyRequest(r))));
  assert.equal((await metrics()).helios_http_connections, 2, 'the stream is still there');
  const parts = [];
  for await (const part of reply) parts.push(part);
  const [choice] = join(events(Buffer.concat(parts).toString()).slice(0, -1));
  assert.equal(choice.text, whole.text);
  assert.deepEqual(choice.logprobs, whole.logprobs);  // X1
  await idle();
});

test('what the prefix cache keeps gives way to a prompt that needs all of it', async () => {
  const now = await idle();
  assert.ok(now.helios_prefix_cache_blocks > 0);
  const r = random(4);
  for (let i = 0; i < 3; ++i) {
    const reply = await exchange('/v1/completions', { model: 'demo', prompt: words(r, 700), truncate_prompt_tokens: 1500, max_tokens: 8, ignore_eos: true });
    assert.equal(reply.status, 200, reply.text);
  }
  const later = await idle();
  assert.equal(later['vllm:num_preemptions_total'], now['vllm:num_preemptions_total']);
});

const mib = (bytes) => bytes / 2 ** 20;
function resident(pid) {
  return mib(1024 * Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]));
}

test('memory does not grow', { skip: longRun ? false : 'set HELIOS_SOAK_SECONDS' }, async () => {
  const processes = children(cluster.process.pid).map((pid) => ({ pid, name: fs.readFileSync(`/proc/${pid}/comm`, 'utf8').trim(), samples: [] }));
  const end = Date.now() + longRun * 1000;
  let requests = 0;
  for (let seed = 10; Date.now() < end; ++seed) {
    const r = random(seed);
    const all = [...Array.from({ length: 64 }, () => streamed(...anyRequest(r))), ...Array.from({ length: 64 }, () => answered(...anyRequest(r)))];
    await Promise.all([...all, ...rudeClients(r), ...rudeClients(r)]);
    requests += all.length + 16;
    await idle();
    for (const process of processes) process.samples.push(resident(process.pid));
  }
  for (const { name, pid, samples } of processes) {
    const third = Math.floor(samples.length / 3);
    const most = (from) => Math.max(...samples.slice(from, from + third));
    const [first, second, last] = [0, third, 2 * third].map(most);
    console.log(`# ${name} ${pid}: ${first.toFixed(1)}, ${second.toFixed(1)}, ${last.toFixed(1)} MiB at most in each third of ${requests} requests`);
    assert.ok(last <= second + 2, `${name} grew`);
  }
});
