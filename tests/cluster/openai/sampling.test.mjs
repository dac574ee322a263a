// What transforms the distribution before a token is drawn, through the openai client: each field shows in the tokens,
// and none in the reported logprobs (R2).
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { Cluster } from './support.mjs';

const vocabulary = 1536;
let cluster, client;
before(async () => {
  cluster = await Cluster.start();
  client = new OpenAI({ baseURL: cluster.url + '/v1', apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

const base = { model: 'demo', prompt: 'Once upon a time', max_tokens: 24, temperature: 0, ignore_eos: true, logprobs: 5,
  return_tokens_as_token_ids: true };
async function run(extra = {}) {
  const { choices } = await client.completions.create({ ...base, ...extra });
  const { tokens, token_logprobs, top_logprobs } = choices[0].logprobs;
  return { ids: tokens.map((t) => Number(t.slice(9))), values: token_logprobs, tops: top_logprobs, finish: choices[0].finish_reason };
}
/** Each position's raw distribution, given the same tokens before it: the same request, its tokens forced one by one. */
function sameRawWhileSame(a, b) {
  let same = 0;
  for (let i = 0; i < a.ids.length; ++i) {
    const best = (top) => Object.entries(top).slice(0, 5);
    assert.deepEqual(best(b.tops[i]), best(a.tops[i]), `position ${i}`);
    ++same;
    if (a.ids[i] !== b.ids[i]) break;  // from here on the texts differ
  }
  return same;
}
const count = (ids) => ids.reduce((seen, id) => seen.set(id, (seen.get(id) ?? 0) + 1), new Map());
const mostRepeats = (ids) => Math.max(...count(ids).values());

test('a bias of -100 bans a token, one of 100 forces it, and neither shows in the logprobs', async () => {  // R2
  const free = await run();
  const banned = await run({ logit_bias: { [free.ids[0]]: -100, [free.ids[3]]: -100 } });
  assert.ok(!banned.ids.includes(free.ids[0]) && !banned.ids.includes(free.ids[3]));
  sameRawWhileSame(free, banned);
  const unlikely = Number(Object.keys(free.tops[0])[4].slice(9));
  const forced = await run({ logit_bias: { [unlikely]: 100 } });
  assert.deepEqual(new Set(forced.ids), new Set([unlikely]));
  assert.equal(forced.values[0], free.tops[0][`token_id:${unlikely}`], 'its own raw value, not a certainty');
  sameRawWhileSame(free, forced);
  assert.deepEqual((await run({ logit_bias: { 5: 0, 7: 0 } })).ids, free.ids, 'a bias of zero changes nothing');
});

test('a small bias moves the choice exactly when it closes the gap', async () => {
  const free = await run({ max_tokens: 1 });
  const [[first, best], [second, next]] = Object.entries(free.tops[0]);
  const gap = best - next, id = Number(second.slice(9));
  assert.equal((await run({ max_tokens: 1, logit_bias: { [id]: gap - 0.01 } })).ids[0], Number(first.slice(9)));
  assert.equal((await run({ max_tokens: 1, logit_bias: { [id]: gap + 0.01 } })).ids[0], id);
});

test('a bias in company and at any temperature stays with its own request', async () => {
  const body = { temperature: 1.1, seed: 5 };
  const alone = await run(body);
  const bias = { logit_bias: Object.fromEntries(Array.from({ length: 1000 }, (_, id) => [id, -100])) };
  const together = await Promise.all([run(body), run({ ...body, ...bias }), run(body), run({ ...body, ...bias })]);
  assert.deepEqual(together[0], alone);
  assert.deepEqual(together[2], alone);
  assert.deepEqual(together[1], together[3]);
  assert.ok(together[1].ids.every((id) => id >= 1000));
  assert.ok(alone.ids.some((id) => id < 1000));
});

test('only allowed ids are generated, at any temperature', async () => {
  const free = await run();
  const allowed = [...new Set([free.ids[1], 3, 17, 400, vocabulary - 1])];
  for (const extra of [{}, { temperature: 1.9, seed: 4 }]) {
    const only = await run({ ...extra, allowed_token_ids: allowed });
    assert.ok(only.ids.every((id) => allowed.includes(id)), only.ids);
    if (!extra.seed) sameRawWhileSame(free, only);
  }
  const one = await run({ allowed_token_ids: [17, 17] });
  assert.deepEqual(new Set(one.ids), new Set([17]));
  assert.ok(one.values.every((value) => value < 0), 'the raw value of a token that had to be');
  // Ids of one rank only: the other has nothing to offer.
  const last = await run({ temperature: 1, seed: 2, allowed_token_ids: [1500, 1501, 1502] });
  assert.ok(last.ids.every((id) => id >= 1500 && id <= 1502));
});

test('penalties keep tokens from coming again, each in its way', async () => {
  const loop = { allowed_token_ids: [10, 11, 12, 13, 14, 15, 16, 17] };  // eight tokens: repeats are sure
  let free = await run(loop);
  const [favourite] = free.ids;
  for (let bias = -1; new Set(free.ids).size === 1 && bias >= -30; --bias) {  // until another one is near enough
    loop.logit_bias = { [favourite]: bias };
    free = await run(loop);
  }
  assert.ok(mostRepeats(free.ids) > 3, `the test needs repetition: ${free.ids}`);
  // Presence and frequency count what was generated.
  const once = await run({ ...loop, max_tokens: 8, logit_bias: { 10: 1 }, presence_penalty: 2, frequency_penalty: 2 });
  const frequency = await run({ ...loop, frequency_penalty: 2 });
  assert.ok(mostRepeats(frequency.ids) < mostRepeats(free.ids), `${frequency.ids}`);
  const encouraged = await run({ ...loop, frequency_penalty: -2 });
  assert.ok(mostRepeats(encouraged.ids) >= mostRepeats(free.ids));
  const presence = await run({ ...loop, presence_penalty: 2 });
  assert.notDeepEqual(presence.ids, free.ids);
  assert.ok(once.ids.length === 8);
  for (const other of [frequency, presence, encouraged]) {
    assert.equal(other.ids[0], free.ids[0], 'nothing was generated before the first token');
    sameRawWhileSame(free, other);
  }
  const repetition = await run({ ...loop, repetition_penalty: 3 });
  assert.notDeepEqual(repetition.ids, free.ids);
});

test('a repetition penalty counts the prompt, the others do not', async () => {
  const free = await run({ max_tokens: 1 });
  const [[first, best], [second]] = Object.entries(free.tops[0]);
  const [id, other] = [first, second].map((key) => Number(key.slice(9)));
  // The likeliest next token once more, with itself in the prompt, two positions before.
  const { tokens } = (await cluster.post('/tokenize', { prompt: base.prompt })).json();
  const prompt = [id, ...tokens];
  const plain = await run({ prompt, max_tokens: 1 });
  for (const extra of [{ presence_penalty: 2 }, { frequency_penalty: 2 }]) {
    assert.deepEqual(await run({ prompt, max_tokens: 1, ...extra }), plain, 'the prompt is not output');
  }
  const penalised = await run({ prompt, max_tokens: 1, repetition_penalty: 1000, allowed_token_ids: [plain.ids[0], other] });
  sameRawWhileSame(plain, penalised);
  assert.ok(best <= 0);
  if (prompt.includes(plain.ids[0]) && plain.ids[0] !== other) {
    const held = await run({ prompt, max_tokens: 1, repetition_penalty: 1000 });
    assert.notEqual(held.ids[0], plain.ids[0], 'its positive logit is a thousandth of what it was');
  }
});

test('min_tokens, stop ids and ignore_eos', async () => {
  const free = await run();
  const at = free.ids.findIndex((id, i) => i >= 4 && !free.ids.slice(0, i).includes(id));
  const stop = { stop_token_ids: [free.ids[at]] };
  const stopped = await cluster.complete({ ...base, ...stop, return_token_ids: true });
  const [choice] = stopped.choices;
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.stop_reason, free.ids[at]);
  assert.deepEqual(choice.token_ids, free.ids.slice(0, at + 1), 'generated, and counted');
  assert.equal(choice.logprobs.tokens.length, at, 'without an entry');
  assert.equal(stopped.usage.completion_tokens, at + 1);
  // Before min_tokens it cannot come; what comes instead has its raw value.
  const held = await run({ ...stop, min_tokens: at + 2 });
  assert.ok(!held.ids.slice(0, at + 2).includes(free.ids[at]));
  sameRawWhileSame(free, held);
});
