// Speculative decoding moves no bit (R3, X1): random requests to every API give the same choices, to the byte, from servers
// with and without it, at one and two ranks. SEED=N repeats a run, COUNT=N makes it longer.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { Cluster, bin, demo, eventually } from './support.mjs';
import { Dice, sampling, stopsFrom, text, tools } from './dice.mjs';
import { send } from './field/client.mjs';

const firstSeed = Number(process.env.SEED ?? (Date.now() ^ (process.pid << 8)) % 1_000_000);
const count = Number(process.env.COUNT ?? 40);

const speculative = (n, more = {}) => ['--speculative-config', JSON.stringify({ method: 'ngram', num_speculative_tokens: n, ...more })];
const scored = ['--prompt-logprobs', '--kv-cache-tokens'];
let plain, two, one;
before(async () => {
  plain = await Cluster.start({ nproc: 2, args: [...scored, '16384'] });
  two = await Cluster.start({ nproc: 2, args: [...scored, '8192', ...speculative(4, { prompt_lookup_min: 2, prompt_lookup_max: 4 })] });
  // So little cache that sequences have to give way to each other, and as many proposals as there can be.
  one = await Cluster.start({ nproc: 1, args: [...scored, '512', '--max-model-len', '512', ...speculative(15, { prompt_lookup_min: 1, prompt_lookup_max: 4 })] });
});
after(async () => {
  for (const cluster of [plain, two, one]) if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

/** What no id of a reply is in. */
const nameless = (value) => JSON.parse(JSON.stringify(value, (key, v) => (/^(id|call_id|item_id|created|created_at|completed_at|model|system_fingerprint|cached_tokens)$/.test(key) ? undefined : v)));

/** A reply, or what a client makes of its stream: into how many events a text is cut is a matter of time. */
async function post(cluster, path, body) {
  const answer = await send(cluster.url, { method: 'POST', path: `/v1/${path}`, body });
  assert.equal(answer.status, 200, answer.text);
  const { events: _, ...reply } = answer.body;
  return nameless(reply);
}

/** Text that repeats itself, so that there is something to look up. */
const repeated = (dice) => text(dice).repeat(1 + dice.below(5));
const calm = (dice) => dice.maybe(2, () => ({ temperature: dice.of([0, 0.3]) }));
const streamed = (dice) => dice.maybe(3, () => ({ stream: true, ...dice.maybe(2, () => ({ stream_interval: 1 + dice.below(5) })) }));

const apis = {
  'completions': (dice) => ({
    prompt: repeated(dice), ...sampling(dice), ...calm(dice), logprobs: dice.of([null, 0, 1, 20]), return_token_ids: true,
    ...dice.maybe(4, () => ({ echo: true })), ...dice.maybe(5, () => ({ logprob_token_ids: [7, 300, 12], logprobs: 0 })),
    ...dice.maybe(8, () => ({ bad_words: [' the'] })),
    ...dice.maybe(8, () => ({ structured_outputs: { regex: '(ab|cd){2,20}' }, echo: false })),
    ...(dice.below(8) === 0 ? { prompt_logprobs: 2 } : streamed(dice)),
  }),
  'chat/completions': (dice) => ({
    messages: [{ role: 'user', content: repeated(dice) }], ...sampling(dice), ...calm(dice), logprobs: true, top_logprobs: dice.of([0, 3]),
    ...dice.maybe(3, () => ({ tools, tool_choice: dice.of(['auto', 'required']) })),
    ...dice.maybe(4, () => ({ thinking_token_budget: 5 })), ...streamed(dice),
  }),
  'responses': (dice) => {
    const { seed, max_tokens: max, temperature, top_p: topP } = { ...sampling(dice), ...calm(dice) };
    return {
      input: repeated(dice), seed, max_output_tokens: max + 20, temperature, ...(topP ? { top_p: topP } : {}),
      top_logprobs: 2, include: ['message.output_text.logprobs'], ...streamed(dice),
    };
  },
};
const spoken = (reply) => reply.choices?.[0].text ?? reply.choices?.[0].message?.content ?? '';

async function ask(path, make, seed) {
  const dice = new Dice(seed);
  const body = make(dice);
  if (body.stream) body.stream_options = { include_usage: true };
  if (path === 'responses') delete body.stream_options;
  // Stops that bite, most of them inside a round.
  if (path !== 'responses' && !body.structured_outputs && dice.below(3) === 0) {
    body.stop = stopsFrom(dice, spoken(await post(plain, path, { ...body, n: 1, echo: false, stream: false, stream_options: null })));
  }
  const [expected, ...others] = await Promise.all([plain, two, one].map((cluster) => post(cluster, path, body)));
  for (const other of others) assert.deepEqual(other, expected);
}

const accepted = (cluster) => cluster.metric('vllm:spec_decode_num_accepted_tokens_total');

for (const [path, make] of Object.entries(apis)) {
  test(`${path}: ${count} random requests say the same with speculation and without`, async () => {
    const before = await Promise.all([two, one].map(accepted));
    for (let at = 0; at < count; at += 8) {
      await Promise.all(Array.from({ length: Math.min(8, count - at) }, async (_, i) => {
        const seed = firstSeed + at + i;
        try {
          await ask(path, make, seed);
        } catch (error) {
          error.message = `SEED=${seed} COUNT=1: ${error.message}`;
          throw error;
        }
      }));
    }
    const after = await Promise.all([two, one].map(accepted));
    if (count >= 40) after.forEach((now, i) => assert.ok(now > before[i], `${path}: proposals came true`));
  });
}

test('sequences that give way to others in the middle of rounds go on as if they had not', async () => {
  for (let round = 0; (await one.metric('vllm:num_preemptions_total')) === 0; ++round) {
    assert.ok(round < 20, 'nobody had to give way');
    const bodies = Array.from({ length: 6 }, (_, i) => ({
      prompt: `la la la ${i} la la`, max_tokens: 300, temperature: 0.5, seed: 10 * round + i, ignore_eos: true, logprobs: 1, priority: -i,
    }));
    const expected = await Promise.all(bodies.map((body) => post(plain, 'completions', body)));
    assert.deepEqual(await Promise.all(bodies.map((body) => post(one, 'completions', body))), expected);
  }
});

test('a text that repeats itself takes fewer steps, and the counters say what came of its proposals', async () => {
  const body = { prompt: 'one two three four five six. '.repeat(6), max_tokens: 200, temperature: 0, ignore_eos: true, logprobs: 0 };
  const name = (what) => `vllm:spec_decode_num_${what}_total`;
  const read = async () => ({
    records: await two.metric('helios_completion_records_total'), drafts: await two.metric(name('drafts')),
    offered: await two.metric(name('draft_tokens')), accepted: await accepted(two), places: await two.metric(name('accepted_tokens_per_pos')),
  });
  const before = await read();
  const [expected, reply] = await Promise.all([plain, two].map((cluster) => cluster.complete(body)));
  assert.deepEqual(nameless(reply), nameless(expected));
  const after = await read();
  const grown = Object.fromEntries(Object.keys(after).map((key) => [key, after[key] - before[key]]));
  assert.ok(grown.records < 120, `${grown.records} records for 200 tokens`);
  assert.ok(grown.accepted > 80 && grown.accepted <= grown.offered && grown.offered <= 4 * grown.drafts, JSON.stringify(grown));
  assert.equal(after.places, after.accepted);
  assert.equal(await plain.metric(name('drafts')), 0);
});

test('clients that leave in the middle of rounds leave nothing behind', async () => {
  const body = { prompt: 'la la la la la la la', max_tokens: 400, temperature: 0.3, ignore_eos: true, stream: true, logprobs: 3 };
  await Promise.all(Array.from({ length: 12 }, (_, seed) =>
    send(two.url, { method: 'POST', path: '/v1/completions', body: { ...body, seed }, onEvent: (n) => (n > seed ? 'leave' : undefined) })));
  await eventually('slots and blocks are free', async () =>
    (await two.metric('vllm:num_requests_running')) + (await two.metric('vllm:kv_cache_usage_perc')) === 0);
});

test('a configuration that nobody can serve is refused before anything starts, by its member', () => {
  for (const [config, mentions] of [
    ['{"method":"eagle","num_speculative_tokens":3}', /--speculative-config: method: expected "ngram", found "eagle"/],
    ['{"method":"ngram","num_speculative_tokens":16}', /num_speculative_tokens: expected a number from 1 to 15, found 16/],
    ['{"method":"ngram","num_speculative_tokens":3,"draft_model":"x"}', /unknown member "draft_model"/],
  ]) {
    for (const [program, ...flags] of [['helios-launch', '--port', '0'], ['helios-coordinator', '--port', '0']]) {
      const { status, stderr } = spawnSync(`${bin}/${program}`, ['--model', demo, ...flags, '--speculative-config', config], { encoding: 'utf8', timeout: 20_000 });
      assert.equal(status, 2, stderr);
      assert.match(stderr, mentions);
    }
  }
});
