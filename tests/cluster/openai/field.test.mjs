// Faults that people reported of other servers, each as a small request with an expectation that can be checked.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { Cluster, events, eventually, join, sleep } from './support.mjs';

let cluster;
before(async () => {
  cluster = await Cluster.start();
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

const harbour = 'The harbour lights were red and the tide was';
const bees = 'Three reasons to keep bees: first,';
const odd = 'café 🧎🏽‍♀️ 龘靐齉𠮷野家 naïve 👨‍👩‍👧 ไทย';

async function alive() {
  assert.equal((await cluster.get('/health')).status, 200);
  await cluster.complete({ prompt: 'Hi', max_tokens: 1 });
}
async function streamed(body) {
  const reply = await cluster.post('/v1/completions', { ...body, stream: true });
  assert.equal(reply.status, 200, reply.text);
  const all = events(reply.text);
  assert.equal(all.at(-1), '[DONE]');
  return { chunks: all.slice(0, -1), choices: join(all.slice(0, -1)) };
}
/** The streamed reply says what the plain one says. */
async function sameStreamed(body) {
  const [plain] = (await cluster.complete(body)).choices;
  const [choice] = (await streamed(body)).choices;
  assert.equal(choice.text, plain.text);
  assert.deepEqual(choice.logprobs, plain.logprobs);
  assert.equal(choice.finish_reason, plain.finish_reason);
  assert.equal(choice.stop_reason, plain.stop_reason);
  return plain;
}

test('more alternatives extend the list and change no value', async () => {
  const lists = [];
  for (const logprobs of [1, 4, 5, 10, 20]) {
    const { choices } = await cluster.complete({ prompt: bees, max_tokens: 3, temperature: 0, logprobs, return_tokens_as_token_ids: true });
    lists.push([logprobs, choices[0].logprobs.top_logprobs.map((top) => Object.entries(top))]);
  }
  const longest = lists.at(-1)[1];
  for (const [n, positions] of lists) {
    positions.forEach((top, i) => assert.deepEqual(top.slice(0, n), longest[i].slice(0, n)));
  }
});

test('top_k 1 is greedy whatever the seed', async () => {
  const body = { prompt: 'List of colours: blue, green, blue, green, blue,', max_tokens: 40 };
  const texts = [];
  for (const extra of [{ temperature: 0 }, { temperature: 1, top_k: 1, seed: 1 }, { temperature: 1, top_k: 1, seed: 2 }]) {
    texts.push((await cluster.complete({ ...body, ...extra })).choices[0].text);
  }
  assert.equal(new Set(texts).size, 1, JSON.stringify(texts));
});

test('a chosen token outside the alternatives has its own value, below them all', async () => {
  const { choices } = await cluster.complete({
    prompt: harbour, max_tokens: 120, temperature: 2, seed: 4, ignore_eos: true, logprobs: 5, return_tokens_as_token_ids: true,
  });
  const { tokens, token_logprobs, top_logprobs } = choices[0].logprobs;
  assert.equal(tokens.length, 120);
  let outside = 0;
  tokens.forEach((token, i) => {
    const top = Object.entries(top_logprobs[i]);
    if (top.length === 5) return;
    ++outside;
    assert.deepEqual(top[5], [token, token_logprobs[i]]);
    assert.ok(top[5][1] <= top[4][1]);
  });
  assert.ok(outside > 0);
});

test('every id is in the vocabulary, distinct within a position, with a finite value', async () => {
  const { choices } = await cluster.complete({
    prompt: odd, max_tokens: 60, temperature: 1.5, seed: 8, ignore_eos: true, logprobs: 20, return_tokens_as_token_ids: true,
  });
  for (const top of choices[0].logprobs.top_logprobs) {
    for (const [key, value] of Object.entries(top)) {
      const id = Number(/^token_id:(\d+)$/.exec(key)[1]);
      assert.ok(id >= 0 && id < 1536 && Number.isFinite(value));
    }
    assert.ok(Object.keys(top).length >= 20);
  }
});

test('offsets index the text; streams of odd characters equal the plain text', async () => {
  for (const prompt of [harbour, odd, 'kq 海z t 海🧎🏽‍♀️ kq']) {
    const plain = await sameStreamed({ prompt, max_tokens: 60, temperature: 1.2, seed: 3, ignore_eos: true, logprobs: 2 });
    const points = [...plain.text];
    const { tokens, text_offset } = plain.logprobs;
    text_offset.forEach((offset, i) => {
      assert.ok(offset >= (text_offset[i - 1] ?? 0) && offset <= points.length);
      if (!/[\ufffd]/.test(tokens[i]) && tokens[i] !== '' && !tokens[i].startsWith('<')) {
        const length = [...tokens[i]].length;
        assert.equal(points.slice(offset, offset + length).join(''), tokens[i], `token ${i}`);
      }
    });
  }
});

test('a stop that almost matches loses nothing and doubles nothing', async () => {
  const base = { prompt: bees, max_tokens: 20, temperature: 0, logprobs: 3 };
  const [free] = (await cluster.complete(base)).choices;
  const near = free.logprobs.tokens[4] + free.logprobs.tokens[5] + '\u0001\u0001';
  const { choices } = await streamed({ ...base, stop: [near, 'Left says'] });
  assert.equal(choices[0].text, free.text);
  assert.deepEqual(choices[0].logprobs, free.logprobs);
});

test('a stop across two tokens: the cut token keeps its whole entry', async () => {
  const base = { prompt: bees, max_tokens: 30, temperature: 0, logprobs: 0 };
  const [free] = (await cluster.complete(base)).choices;
  const { tokens } = free.logprobs;
  const at = tokens.findIndex((t, i) => i >= 3 && t.length >= 3 && tokens[i + 1]?.length >= 2);
  const stop = tokens[at].slice(-2) + tokens[at + 1].slice(0, 2);
  const cut = await sameStreamed({ ...base, stop: [stop] });
  assert.equal(cut.text, free.text.slice(0, free.text.indexOf(stop)));
  assert.deepEqual(cut.logprobs.tokens, tokens.slice(0, at + 1));
  assert.equal(cut.stop_reason, stop);
  const kept = await sameStreamed({ ...base, stop: [stop], include_stop_str_in_output: true });
  assert.ok(kept.text.endsWith(stop));
  assert.equal(kept.logprobs.tokens.length, at + 2);
});

test('empty stops are refused or ignored, never an empty answer', async () => {
  const base = { prompt: bees, max_tokens: 12, temperature: 0 };
  const [free] = (await cluster.complete(base)).choices;
  for (const stop of [[], null]) assert.equal((await cluster.complete({ ...base, stop })).choices[0].text, free.text);
  for (const stop of ['', ['']]) assert.equal((await cluster.post('/v1/completions', { ...base, stop })).status, 400);
});

test('hostile values are 400 with the field, and the next request works', async () => {
  const bodies = [
    ...['[999999999]', '[-1]', '[[0],[1,2]]', '["5"]', '[1.5]', '[]', '{}', 'true', '[4294967296]', '[99999999999999999999]']
      .map((v) => [`{"prompt":"Hi","max_tokens":1,"logprobs":0,"logprob_token_ids":${v}}`, 'logprob_token_ids']),
    ...['NaN', 'Infinity', '-Infinity'].map((v) => [`{"prompt":"Hi","temperature":${v}}`, null]),
    ...['1e400', '-1', '"1"', '[]'].map((v) => [`{"prompt":"Hi","temperature":${v}}`, 'temperature']),
    ...['100000000000000000000', '-100000000000000000000', '"100"', '1.5'].map((v) => [`{"prompt":"Hi","seed":${v}}`, 'seed']),
    ...['[999999999]', '[-1]', '[[-1]]', '[1,2,-3]', '[4294967301]', '[1,"a"]', '[[]]', '[]', '""', 'null', '{"a":1}', '[true]', '[1.5]']
      .map((v) => [`{"prompt":${v},"max_tokens":2}`, 'prompt']),
    ...['-5', '0', '4294967296', '1.5', '99999999999999999999999'].map((v) => [`{"prompt":"Hi","max_tokens":${v}}`, null]),
    [JSON.stringify({ prompt: Array.from({ length: 5000 }, String), max_tokens: 1 }), 'prompt'],
    ['{"prompt":"Hi","n":4000000,"max_tokens":1}', 'n'],
    ['{"prompt":"Hi","n":0}', 'n'],
    [JSON.stringify({ prompt: Array(3000).fill(5), max_tokens: 5 }), null],
    [`{"prompt":${'['.repeat(5000)}${']'.repeat(5000)}}`, null],
    ['{"prompt":"\\ud800"}', null],
  ];
  for (const [body, param] of bodies) {
    const reply = await cluster.post('/v1/completions', body);
    assert.equal(reply.status, 400, `${body.slice(0, 90)}: ${reply.text.slice(0, 200)}`);
    const { error } = reply.json();
    if (param) assert.ok(error.param?.startsWith(param), `${body.slice(0, 90)}: param ${error.param}`);
    assert.ok(error.message.length <= 1000);
  }
  await alive();
});

test('long lists are served or refused, never fatal', async () => {
  for (const extra of [
    { stop_token_ids: Array.from({ length: 2000 }, (_, i) => i) },
    { logit_bias: Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [i, 1])) },
    { stop: Array.from({ length: 5000 }, (_, i) => `s${i}`) },
  ]) {
    const reply = await cluster.post('/v1/completions', { prompt: 'Hi', max_tokens: 2, ...extra });
    assert.ok([200, 400, 501].includes(reply.status), reply.text);
  }
  await alive();
});

test('640 short requests: as many entries as tokens, every time', async () => {
  for (let round = 0; round < 10; ++round) {
    await Promise.all(Array.from({ length: 64 }, async (_, i) => {
      const body = { prompt: `number ${i}`, max_tokens: 1 + (i % 8), temperature: 1, seed: i, ignore_eos: true, logprobs: 1 };
      const [choice] = i % 2 ? (await cluster.complete(body)).choices : (await streamed(body)).choices;
      assert.equal(choice.logprobs.tokens.length, body.max_tokens);
    }));
  }
});

test('a reader at a trickle holds nobody up', async () => {
  const { port } = new URL(cluster.url);
  const body = JSON.stringify({ prompt: bees, max_tokens: 1900, ignore_eos: true, temperature: 1, stream: true, logprobs: 20 });
  const socket = net.connect({ port, host: '127.0.0.1', onread: { buffer: Buffer.alloc(64), callback: () => true } });
  socket.pause();
  socket.on('error', () => {});
  socket.write(`POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  await sleep(500);
  for (let i = 0; i < 10; ++i) await cluster.complete({ prompt: harbour, max_tokens: 16, temperature: 0, logprobs: 1 });
  socket.destroy();
  await eventually('its slot is free', async () => (await cluster.metric('vllm:num_requests_running')) === 0, 10_000);
});

test('sixteen long odd streams end with [DONE] while health answers', async () => {
  const streams = Promise.all(Array.from({ length: 16 }, () =>
    streamed({ prompt: odd, max_tokens: 300, ignore_eos: true, temperature: 1.9, seed: 5, logprobs: 20 })));
  let done = false;
  streams.finally(() => (done = true));
  while (!done) {
    const begin = Date.now();
    assert.equal((await cluster.get('/health')).status, 200);
    assert.ok(Date.now() - begin < 1000);
    await sleep(200);
  }
  const all = await streams;
  for (const { choices } of all) assert.deepEqual(choices, all[0].choices, 'the same seed gives the same stream');
});
