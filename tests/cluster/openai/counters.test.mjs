// What logprobs cost when nobody asks for them: nothing. One scrape of the coordinator shows it for every rank.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cluster, eventually } from './support.mjs';

let cluster;
before(async () => {
  cluster = await Cluster.start();
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

/** One scrape: every sample by its name and labels, and the sum over a name. */
async function scrape() {
  const samples = new Map();
  for (const line of (await cluster.get('/metrics')).text.split('\n')) {
    if (line && !line.startsWith('#')) samples.set(line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1)));
  }
  const sum = (name) => [...samples].filter(([key]) => key.startsWith(name + '{')).reduce((total, [, value]) => total + value, 0);
  return { samples, sum };
}

/** Counters once every rank has reported every step: ranks say what they counted in their heartbeats. */
async function settled() {
  return eventually('the ranks have reported their steps', async () => {
    const now = await scrape();
    const frames = now.sum('helios_frames_total');
    const steps = [0, 1].map((rank) => now.samples.get(`helios_steps_total{model_name="demo",rank="${rank}"}`));
    return steps.every((n) => n === frames) && now;
  });
}

const moved = ['helios_logprob_vocab_words_read_total', 'helios_logprob_positions_total', 'helios_logprob_exchange_words_total',
  'helios_logprob_payload_copies_total', 'helios_logprob_payload_bytes_total'];
const of = (counters) => Object.fromEntries(moved.map((name) => [name, counters.sum(name)]));

test('requests without logprobs copy no payload and read no vocabulary; one with them does both', async () => {  // R24, R26, R28
  const body = { prompt: 'Once upon a time', max_tokens: 8, temperature: 0.8, ignore_eos: true };
  const before = await settled();
  await Promise.all(Array.from({ length: 12 }, (_, seed) => cluster.complete({ ...body, seed })));
  const plain = await settled();
  assert.deepEqual(of(plain), of(before));
  assert.ok(plain.sum('helios_frames_total') > before.sum('helios_frames_total'));
  const requesting = (counters) => [...counters.samples].find(([key]) => key.startsWith('helios_frames_total{') && key.includes('logprobs="true"'))[1];
  assert.equal(requesting(plain), requesting(before));
  assert.ok(plain.sum('helios_completion_records_total') >= before.sum('helios_completion_records_total') + 12 * 8);

  await cluster.complete({ ...body, seed: 1, logprobs: 2 });
  const asked = await settled();
  const read = (counters, rank) => counters.samples.get(`helios_logprob_vocab_words_read_total{model_name="demo",rank="${rank}"}`);
  for (const rank of [0, 1]) {
    // Each rank reads at least its half of the vocabulary of 1,536 once for each of the eight positions.
    assert.ok(read(asked, rank) - read(plain, rank) >= 8 * 768, `rank ${rank}: ${read(asked, rank) - read(plain, rank)}`);
  }
  const copies = (counters, rank) => counters.samples.get(`helios_logprob_payload_copies_total{model_name="demo",rank="${rank}"}`);
  assert.equal(copies(asked, 0) - copies(plain, 0), 8, 'one copy a frame');
  assert.equal(copies(asked, 1), 0, 'peers copy no payload');
  assert.equal(asked.sum('helios_logprob_positions_total') - plain.sum('helios_logprob_positions_total'), 2 * 8);
  // A position: the chosen pair and 20 alternatives, 4 bytes a word.
  const received = asked.sum('helios_logprob_payload_bytes_total') - plain.sum('helios_logprob_payload_bytes_total');
  assert.equal(received, 8 * (2 + 2 * 20) * 4);
});

test('one request that asks among many that do not: the others stay silent', async () => {  // R26
  const before = await settled();
  const body = { prompt: 'The lighthouse keeper', max_tokens: 16, temperature: 0, ignore_eos: true };
  await Promise.all([cluster.complete({ ...body, logprobs: 0 }), ...Array.from({ length: 7 }, () => cluster.complete(body))]);
  const now = await settled();
  assert.equal(now.sum('helios_logprob_positions_total') - before.sum('helios_logprob_positions_total'), 2 * 16);
  assert.equal(now.sum('helios_logprob_payload_bytes_total') - before.sum('helios_logprob_payload_bytes_total'),
    16 * (2 + 2 * 20) * 4);
});
