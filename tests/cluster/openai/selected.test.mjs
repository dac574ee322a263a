// logprob_token_ids through HTTP: up to 128 ids of the caller's choice at every position, in the caller's order.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster, events, join } from './support.mjs';

const vocabulary = 1536;
let cluster, client;
before(async () => {
  cluster = await Cluster.start();
  client = new OpenAI({ baseURL: cluster.url + '/v1', apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

const base = { model: 'demo', prompt: 'The lighthouse keeper', max_tokens: 4, temperature: 0, ignore_eos: true, return_tokens_as_token_ids: true };
/** Distinct ids in no order, the same for the same start. */
const scattered = (count, start = 0) => Array.from({ length: count }, (_, i) => (start + i * 607) % vocabulary);
const keys = (ids) => ids.map((id) => `token_id:${id}`);
const sum = (values) => values.reduce((total, v) => total + v, 0);

async function selected(ids, extra = {}) {
  const { choices } = await client.completions.create({ ...base, logprobs: 0, ...extra, logprob_token_ids: ids });
  return choices[0].logprobs;
}
/** Exactly the ids, in order, then the chosen token if it is not among them. */
function expectIds(logprobs, ids) {
  logprobs.top_logprobs.forEach((top, i) => {
    const chosen = logprobs.tokens[i];
    const expected = ids.includes(Number(chosen.slice(9))) ? keys(ids) : [...keys(ids), chosen];
    assert.deepEqual(Object.keys(top), expected);
    assert.equal(top[chosen], logprobs.token_logprobs[i]);
  });
}

test('1, 2, 127 and 128 ids come back in the caller\'s order', async () => {  // R7
  for (const count of [1, 2, 127, 128]) expectIds(await selected(scattered(count, count)), scattered(count, count));
});

test('twelve requests of 128 ids are the whole distribution', async () => {  // R1, R7
  const seen = new Map();
  let chosen;
  for (let part = 0; part < 12; ++part) {
    const logprobs = await selected(scattered(128, part * 128 * 607), { max_tokens: 1 });
    chosen ??= logprobs.token_logprobs[0];
    assert.equal(logprobs.token_logprobs[0], chosen);
    for (const [key, value] of Object.entries(logprobs.top_logprobs[0])) seen.set(key, value);
  }
  assert.equal(seen.size, vocabulary);
  assert.ok(Math.abs(sum([...seen.values()].map(Math.exp)) - 1) < 1e-5);
  const { choices } = await client.completions.create({ ...base, max_tokens: 1, logprobs: 20 });
  const natural = Object.entries(choices[0].logprobs.top_logprobs[0]);
  const best = [...seen].sort((a, b) => b[1] - a[1] || Number(a[0].slice(9)) - Number(b[0].slice(9))).slice(0, 20);
  assert.deepEqual(natural, best, 'natural alternatives are the best of it, with the same bits');
});

test('logprobs only switches reporting on; the ids are what is reported', async () => {
  const ids = scattered(40);
  const zero = await selected(ids);
  for (const logprobs of [1, 20, true]) assert.deepEqual(await selected(ids, { logprobs }), zero);
});

test('selected ids, natural alternatives and silence side by side change nothing', async () => {  // R9, R26
  const [many, few] = [scattered(128, 5), [1500, 3]];
  const bodies = [{ logprobs: 0, logprob_token_ids: many }, { logprobs: 20 }, { logprobs: 0, logprob_token_ids: few }, {}, { logprobs: 1 }]
    .map((extra) => ({ ...base, max_tokens: 12, ...extra }));
  const alone = [];
  for (const body of bodies) alone.push((await cluster.complete(body)).choices[0]);
  for (let round = 0; round < 3; ++round) {
    const together = await Promise.all(bodies.map((body) => cluster.complete(body)));
    together.forEach((reply, i) => assert.deepEqual(reply.choices[0], alone[i]));
  }
  assert.equal(new Set(alone.map((choice) => choice.text)).size, 1);
  expectIds(alone[0].logprobs, many);
  expectIds(alone[2].logprobs, few);
});

test('a stream carries the same ids', async () => {
  const ids = scattered(100, 9);
  const reply = await cluster.post('/v1/completions', { ...base, logprobs: 0, logprob_token_ids: ids, stream: true });
  const [choice] = join(events(reply.text).slice(0, -1));
  assert.deepEqual(choice.logprobs, await selected(ids));
});

test('sampling settings do not move them', async () => {  // R2
  const ids = scattered(30);
  const first = (logprobs) => keys(ids).map((key) => logprobs.top_logprobs[0][key]);
  const greedy = first(await selected(ids));
  assert.deepEqual(first(await selected(ids, { temperature: 1.8, seed: 3, top_k: 2 })), greedy);
});

test('what is no list of 1 to 128 distinct ids of the vocabulary is refused', async () => {
  const refused = async (body, part, param = 'logprob_token_ids') => {
    const reply = await cluster.post('/v1/completions', { ...base, ...body });
    assert.equal(reply.status, 400, reply.text);
    const { error } = reply.json();
    assert.equal(error.param, param, reply.text);
    assert.ok(error.message.includes(part), error.message);
  };
  await refused({ logprobs: 0, logprob_token_ids: [] }, 'empty');
  await refused({ logprobs: 0, logprob_token_ids: scattered(129) }, 'at most 128');
  await refused({ logprobs: 0, logprob_token_ids: [5, 7, 5] }, '5 is listed twice');
  await refused({ logprobs: 0, logprob_token_ids: [vocabulary] }, 'out of vocabulary');
  await refused({ logprobs: 0, logprob_token_ids: [-1] }, 'out of vocabulary');
  await refused({ logprobs: 0, logprob_token_ids: [1.5] }, 'integers');
  await refused({ logprob_token_ids: [1] }, 'needs logprobs');
  await refused({ logprobs: null, logprob_token_ids: [1] }, 'needs logprobs');
  await refused({ logprobs: 21, logprob_token_ids: [1] }, '20', 'logprobs');
  await refused({ logprobs: 0, logprob_token_ids: [1], echo: true, max_tokens: 0 }, 'max_tokens');
  expectIds(await selected([0, vocabulary - 1]), [0, vocabulary - 1]);
});
