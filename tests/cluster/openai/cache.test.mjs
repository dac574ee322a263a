// Prefix cache, host tier, preemption and priority on real ranks: the numbers must not show any of it (X1).
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cluster, eventually } from './support.mjs';

const text = (i) => `Story ${i}: once upon a time there was a small house by the sea, and in it lived a fisherman who `.repeat(2);
const body = (i, more = {}) => ({
  model: 'demo', prompt: text(i), max_tokens: 130, min_tokens: 120, temperature: 0.8, seed: 100 + i, logprobs: 5, ...more,
});
const numbers = (reply) => reply.choices.map(({ text, logprobs, finish_reason }) => ({ text, logprobs, finish_reason }));

let calm, crowded;
const expected = [];
before(async () => {
  // One sequence after the other, nothing shared: what every number must be.
  calm = await Cluster.start({ nproc: 1, args: ['--prefix-cache', 'off', '--max-model-len', '256'] });
  for (let i = 0; i < 8; ++i) expected.push(numbers(await calm.complete(body(i))));
  assert.equal(await calm.metric('vllm:prefix_cache_queries_total'), 0);
  await calm.stop();
  crowded = await Cluster.start({
    nproc: 2,
    args: ['--max-num-seqs', '8', '--max-model-len', '256', '--kv-cache-tokens', '512', '--host-cache-gib', '0.008',
      '--prompt-tokens-details', 'on'],
  });
});
after(async () => {
  if (!crowded) return;
  const { code } = await crowded.stop();
  assert.equal(code, 0, crowded.log);
});

test('a prompt that was computed before is found, and the bits are the same', async () => {
  const first = await crowded.complete(body(0));
  const second = await crowded.complete(body(0));
  assert.deepEqual(numbers(first), expected[0]);
  assert.deepEqual(numbers(second), expected[0]);
  assert.deepEqual(first.usage.prompt_tokens_details, { cached_tokens: 0 });
  const { cached_tokens } = second.usage.prompt_tokens_details;
  assert.ok(cached_tokens > 0 && cached_tokens < second.usage.prompt_tokens, `${cached_tokens} cached`);
  assert.equal(await crowded.metric('vllm:prefix_cache_hits_total'), cached_tokens);
  assert.equal(await crowded.metric('vllm:prefix_cache_queries_total'), 2 * second.usage.prompt_tokens);
});

test('another salt finds nothing, and what it computes is the same', async () => {
  const salted = await crowded.complete(body(0, { cache_salt: 'mine' }));
  assert.deepEqual(salted.usage.prompt_tokens_details, { cached_tokens: 0 });
  assert.deepEqual(numbers(salted), expected[0]);
});

test('what the KV cache gave up comes back from the host tier, and the bits are the same', async () => {
  const found = await crowded.metric('vllm:prefix_cache_hits_total');
  assert.equal(await crowded.metric('vllm:external_prefix_cache_hits_total'), 0);
  for (let i = 1; i < 6; ++i) assert.deepEqual(numbers(await crowded.complete(body(i))), expected[i]);  // six blocks each, of 16
  assert.ok((await crowded.metric('helios_host_tier_usage_perc')) > 0);
  const again = await crowded.complete(body(0));
  assert.deepEqual(numbers(again), expected[0]);
  const { cached_tokens } = again.usage.prompt_tokens_details;
  assert.ok(cached_tokens > 0, 'a second visit is a hit');
  assert.equal(await crowded.metric('vllm:external_prefix_cache_hits_total'), cached_tokens, 'and all of it was away');
  assert.equal(await crowded.metric('vllm:prefix_cache_hits_total'), found);
  const salted = await crowded.complete(body(0, { cache_salt: 'yours' }));
  assert.deepEqual(salted.usage.prompt_tokens_details, { cached_tokens: 0 }, 'a salt keeps others out of the tier too');
  assert.deepEqual(numbers(salted), expected[0]);
  await eventually('both ranks moved the same blocks', async () =>
    (await crowded.metric('helios_host_tier_blocks_in_total')) === 2 * (cached_tokens / 32));
});

test('the log and the metrics say where the memory went', async () => {  // R25
  assert.match(crowded.log, /rank_memory rank=1 weights="[\d.]+ \w+" kv_cache="1\.2 MiB" kv_cache_dtype=float32 kv_cache_tokens=512 host_tier="[\d.]+ MiB"/);
  const [rank] = await crowded.ranks();
  const { weights_bytes, kv_cache_bytes, bundle_bytes, scoring_bytes, workspace_bytes, device_allocated_bytes } = rank.memory;
  assert.equal(weights_bytes + kv_cache_bytes + bundle_bytes + scoring_bytes + workspace_bytes, device_allocated_bytes);
  assert.ok(rank.memory.device_reserved_bytes >= device_allocated_bytes);
  assert.equal(await crowded.metric('helios_kv_cache_bytes'), 2 * kv_cache_bytes);
  assert.equal(await crowded.metric('helios_host_tier_bytes'), 2 * rank.memory.host_tier_bytes);
});

test('a cache that is too small for all preempts, and nobody can tell', async () => {
  const before = await crowded.metric('vllm:num_preemptions_total');
  const replies = await Promise.all(expected.map((_, i) => crowded.complete(body(i, { priority: i % 2 }))));
  replies.forEach((reply, i) => assert.deepEqual(numbers(reply), expected[i], `sequence ${i}`));
  assert.ok((await crowded.metric('vllm:num_preemptions_total')) > before, 'the test must have preempted somebody');
  await eventually('every block is free', async () => (await crowded.metric('vllm:kv_cache_usage_perc')) === 0);
});

test('a stream reports the cached tokens in its usage', async () => {
  await crowded.complete(body(1));  // the crowd may have pushed it out
  const { text } = await crowded.post('/v1/completions', body(1, { stream: true, max_tokens: 4, min_tokens: 0, stream_options: { include_usage: true } }));
  const usage = /"usage":(\{.*?\}\})/.exec(text.slice(text.lastIndexOf('"choices":[]')))?.[1];
  assert.ok(JSON.parse(usage).prompt_tokens_details.cached_tokens > 0, text);
});
