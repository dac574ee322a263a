// The completions API through the real openai client and plain HTTP, on a two-rank cluster of real processes.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster, events, eventually, join } from './support.mjs';

let cluster, client;
before(async () => {
  cluster = await Cluster.start();
  client = new OpenAI({ baseURL: cluster.url + '/v1', apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  if (!cluster) return;
  const { code } = await cluster.stop();
  assert.equal(code, 0, cluster.log);
});

const chat = (question) =>
  `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n`;

test('the model answers, and every number is a logprob', async () => {
  const completion = await client.completions.create({
    model: 'demo', prompt: chat('What is the capital of France?'), max_tokens: 24, temperature: 0, logprobs: 5,
  });
  const [choice] = completion.choices;
  assert.equal(choice.text, 'The capital of France is Paris.');
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.stop_reason, null);
  const { tokens, token_logprobs, top_logprobs, text_offset } = choice.logprobs;
  assert.equal(tokens.join(''), choice.text);
  assert.equal(completion.usage.completion_tokens, tokens.length + 1, 'the EOS is counted and has no entry');
  assert.equal(completion.usage.total_tokens, completion.usage.prompt_tokens + completion.usage.completion_tokens);
  for (let i = 0; i < tokens.length; ++i) {
    assert.ok(token_logprobs[i] <= 0 && Number.isFinite(token_logprobs[i]));
    const values = Object.values(top_logprobs[i]);
    assert.equal(values.length, 5);
    assert.deepEqual(values, [...values].sort((a, b) => b - a));
    assert.equal(token_logprobs[i], values[0], 'greedy: the chosen token is the best');
    assert.ok(values.reduce((sum, v) => sum + Math.exp(v), 0) <= 1.0001);
    assert.equal(choice.text.slice(text_offset[i], text_offset[i] + tokens[i].length), tokens[i]);
  }
  assert.match(completion.id, /^cmpl-[0-9a-f]{32}$/);
  assert.equal(completion.object, 'text_completion');
  assert.ok(completion._request_id);
});

test('a stream carries the same text, entries and offsets as the whole reply', async () => {
  const body = { model: 'demo', prompt: 'Once upon a time', max_tokens: 40, temperature: 0.9, seed: 7, logprobs: 3 };
  const whole = await client.completions.create(body);
  const chunks = [];
  const stream = await client.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) chunks.push(chunk);
  const [joined] = join(chunks);
  const { text, logprobs, finish_reason, stop_reason } = whole.choices[0];
  assert.deepEqual(joined, { text, logprobs, finish_reason, stop_reason });
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(chunks.every((c) => c.id === chunks[0].id && c.created === chunks[0].created));
  assert.ok(chunks.slice(0, -1).every((c) => !('usage' in c)));
});

test('sampling settings do not move the reported distribution', async () => {
  const base = { model: 'demo', prompt: 'The lighthouse keeper', max_tokens: 1, logprobs: 10 };
  const top = [];
  for (const extra of [{ temperature: 0 }, { temperature: 1.7, seed: 1 }, { temperature: 0.05, top_p: 0.3, top_k: 2, min_p: 0.2, seed: 2 }]) {
    const { choices } = await client.completions.create({ ...base, ...extra });
    top.push(Object.entries(choices[0].logprobs.top_logprobs[0]).slice(0, 10));
  }
  assert.deepEqual(top[1], top[0]);
  assert.deepEqual(top[2], top[0]);
});

test('tokens are the same with and without logprobs, at every K, and so are their values', async () => {  // R9, X1
  const body = { model: 'demo', prompt: 'In the village', max_tokens: 32, temperature: 1, seed: 99 };
  const choices = [];
  for (const logprobs of [null, 0, 1, 20]) choices.push((await client.completions.create({ ...body, logprobs })).choices[0]);
  const texts = choices.map(({ text }) => text);
  assert.equal(new Set(texts).size, 1, JSON.stringify(texts));
  const values = choices.slice(1).map((choice) => JSON.stringify(choice.logprobs.token_logprobs));
  assert.equal(new Set(values).size, 1, values.join('\n'));
});

test('batches keep the order of prompts and choices, and company changes nothing', async () => {  // X1
  const prompts = ['Once upon a time', 'The', 'A banana is', 'My favourite colour'];
  const options = { model: 'demo', max_tokens: 12, temperature: 0, logprobs: 2 };
  const batch = await client.completions.create({ ...options, prompt: prompts, n: 2 });
  assert.deepEqual(batch.choices.map((c) => c.index), [0, 1, 2, 3, 4, 5, 6, 7]);
  for (let i = 0; i < prompts.length; ++i) {
    const alone = await client.completions.create({ ...options, prompt: prompts[i] });
    for (const choice of [batch.choices[2 * i], batch.choices[2 * i + 1]]) {
      assert.deepEqual(choice.logprobs, alone.choices[0].logprobs);
    }
  }
});

test('token ids are taken as they are, and match the text they spell', async () => {
  const text = 'A banana is';
  const { tokens } = (await cluster.post('/tokenize', { prompt: text })).json();
  const options = { model: 'demo', max_tokens: 6, temperature: 0, logprobs: 1 };
  const byIds = await client.completions.create({ ...options, prompt: tokens });
  const byText = await client.completions.create({ ...options, prompt: text });
  const byList = await client.completions.create({ ...options, prompt: [tokens, tokens] });
  assert.deepEqual(byIds.choices[0].logprobs, byText.choices[0].logprobs);
  assert.deepEqual(byList.choices[1].logprobs, byText.choices[0].logprobs);
  assert.equal((await cluster.post('/detokenize', { tokens })).json().prompt, text);
});

test('selected ids come back in the caller\'s order', async () => {  // R7
  const options = { model: 'demo', prompt: 'A banana is', max_tokens: 3, temperature: 0 };
  const ids = [1500, 3, 17, 400];
  const reply = await cluster.complete({ ...options, logprobs: 1, logprob_token_ids: ids, return_tokens_as_token_ids: true });
  for (const [i, top] of reply.choices[0].logprobs.top_logprobs.entries()) {
    assert.deepEqual(Object.keys(top).slice(0, 4), ids.map((id) => `token_id:${id}`));
    assert.equal(top[reply.choices[0].logprobs.tokens[i]], reply.choices[0].logprobs.token_logprobs[i]);
  }
});

test('a stop string ends the text before it', async () => {
  const base = { model: 'demo', prompt: chat('What is the capital of France?'), max_tokens: 24, temperature: 0, logprobs: 0 };
  const { choices } = await client.completions.create({ ...base, stop: [' Par'] });
  assert.equal(choices[0].text, 'The capital of France is');
  assert.equal(choices[0].finish_reason, 'stop');
  assert.equal(choices[0].stop_reason, ' Par');
});

test('errors are the documented ones', async () => {
  const expectations = [
    [{ model: 'other', prompt: 'x' }, 404, 'NotFoundError', 'model'],
    [{ prompt: 'x', logprobs: 21 }, 400, 'BadRequestError', 'logprobs'],
    [{ prompt: 'x', logprobs: -1 }, 400, 'BadRequestError', 'logprobs'],
    [{ prompt: 'x', logprobs: '5' }, 400, 'BadRequestError', 'logprobs'],
    [{ prompt: 'x', temperature: -1 }, 400, 'BadRequestError', 'temperature'],
    [{ prompt: 'x', top_p: 0 }, 400, 'BadRequestError', 'top_p'],
    [{ prompt: 'x', max_tokens: 'many' }, 400, 'BadRequestError', 'max_tokens'],
    [{ prompt: 'x', stream_options: { include_usage: true } }, 400, 'BadRequestError', 'stream_options'],
    [{ prompt: [] }, 400, 'BadRequestError', 'prompt'],
    [{}, 400, 'BadRequestError', 'prompt'],
    [{ prompt: [99999] }, 400, 'BadRequestError', 'prompt'],
    [{ prompt: 'x', max_tokens: 100000 }, 400, 'BadRequestError', null],
    [{ prompt: 'x', echo: true, logprobs: 1 }, 400, 'BadRequestError', 'echo'],
    [{ prompt: 'x', logprobs: 1, logprob_token_ids: [1, 1] }, 400, 'BadRequestError', 'logprob_token_ids'],
    [{ prompt: 'x', logprobs: 1, logprob_token_ids: Array.from({ length: 129 }, (_, i) => i) }, 400, 'BadRequestError', 'logprob_token_ids'],
    ['{"prompt": ', 400, 'BadRequestError', null],
    ['[1, 2]', 400, 'BadRequestError', null],
  ];
  for (const [body, status, type, param] of expectations) {
    const reply = await cluster.post('/v1/completions', body);
    const what = JSON.stringify(body).slice(0, 80);
    assert.equal(reply.status, status, `${what}: ${reply.text}`);
    const { error } = reply.json();
    assert.deepEqual([error.type, error.code], [type, status], what);
    if (param) assert.equal(error.param, param, what);
    assert.ok(error.message.length > 0 && error.message.length <= 1000);
  }
  assert.match((await cluster.post('/v1/completions', { prompt: [99999] })).json().error.message, /out of vocabulary/);
  await assert.rejects(client.completions.create({ model: 'other', prompt: 'x' }), OpenAI.NotFoundError);
  await assert.rejects(client.completions.create({ model: 'demo', prompt: 'x', logprobs: 21 }), OpenAI.BadRequestError);
  assert.equal((await cluster.get('/v1/nothing')).status, 404);
  assert.equal((await cluster.get('/v1/completions')).status, 405);
  assert.equal((await cluster.post('/v1/completions', `{"prompt": "${'x'.repeat(20 << 20)}"}`).catch(() => ({ status: 413 }))).status, 413);
});

test('the model card says what the core can do', async () => {
  const models = await client.models.list();
  const [card] = models.data;
  assert.equal(card.id, 'demo');
  assert.equal(card.max_model_len, 2048);
  assert.equal(card.permission[0].allow_logprobs, true);
  assert.equal(card.logprobs.max_top, 20);
  assert.equal((await client.models.retrieve('demo')).id, 'demo');
  assert.equal((await cluster.get('/health')).json().ranks.length, 2);
  for (const path of ['/livez', '/readyz', '/version', '/metrics']) assert.equal((await cluster.get(path)).status, 200, path);
  assert.ok((await cluster.metric('vllm:generation_tokens_total')) > 0);
});

test('a client that leaves frees its slot', async () => {
  const controller = new AbortController();
  const reply = await fetch(cluster.url + '/v1/completions', {
    method: 'POST', headers: { 'content-type': 'application/json' }, signal: controller.signal,
    body: JSON.stringify({ prompt: 'Once upon a time', max_tokens: 1900, ignore_eos: true, stream: true }),
  });
  const reader = reply.body.getReader();
  await reader.read();
  controller.abort();
  await eventually('the slot is free', async () => (await cluster.metric('vllm:num_requests_running')) === 0);
});

test('forty clients at once all get what each gets alone', async () => {
  const body = (i) => ({ prompt: `Story number ${i % 5}`, max_tokens: 8 + (i % 7), temperature: 0.8, seed: i % 5, logprobs: i % 4 });
  const together = await Promise.all(Array.from({ length: 40 }, (_, i) => cluster.complete(body(i))));
  for (let i = 0; i < 40; i += 3) {
    const alone = await cluster.complete(body(i));
    assert.deepEqual(alone.choices, together[i].choices, `request ${i}`);
  }
});

test('raw stream: chunks, usage chunk, [DONE]', async () => {
  const reply = await cluster.post('/v1/completions', {
    prompt: 'Once', max_tokens: 4, temperature: 0, ignore_eos: true, logprobs: 1, stream: true, stream_options: { include_usage: true },
  });
  assert.match(reply.headers.get('content-type'), /^text\/event-stream/);
  const all = events(reply.text);
  assert.equal(all.at(-1), '[DONE]');
  assert.equal(all.length, 4 + 2);
  assert.equal(all[3].choices[0].finish_reason, 'length');
});

test('a truncated prompt is the prompt that is left', async () => {
  const prompt = 'The tide was out and the boats lay on the sand. Once upon a time';
  const { tokens } = (await cluster.post('/tokenize', { prompt })).json();
  const options = { model: 'demo', max_tokens: 8, temperature: 0, logprobs: 2, return_token_ids: true };
  for (const [side, kept] of [['left', tokens.slice(-4)], ['right', tokens.slice(0, 4)]]) {
    const cut = await cluster.complete({ ...options, prompt, truncate_prompt_tokens: 4, truncation_side: side });
    const same = await cluster.complete({ ...options, prompt: kept });
    assert.deepEqual(cut.choices, same.choices);
    assert.equal(cut.usage.prompt_tokens, 4);
  }
  const long = await cluster.complete({ ...options, prompt: Array(5000).fill(tokens[0]), truncate_prompt_tokens: -1 });
  assert.equal(long.usage.prompt_tokens, 2048 - 8);
});

test('a stream interval gathers tokens and loses none', async () => {
  const body = { model: 'demo', prompt: 'Once upon a time', max_tokens: 20, temperature: 0, ignore_eos: true, logprobs: 1 };
  const whole = await cluster.complete(body);
  const reply = await cluster.post('/v1/completions', { ...body, stream: true, stream_interval: 6 });
  const chunks = events(reply.text).slice(0, -1);
  assert.deepEqual(chunks.map((c) => c.choices[0].logprobs.tokens.length), [1, 6, 6, 6, 1]);
  const { text, logprobs, finish_reason, stop_reason } = whole.choices[0];
  assert.deepEqual(join(chunks)[0], { text, logprobs, finish_reason, stop_reason });
});
